//! Situations that people met with other tools' logs; the figures are made up where no tool is named.

use super::*;
use serde_json::json;

/// A fio document with these jobs, under the key in which fio lists them.
fn fio(list: &str, jobs: &[Value]) -> String {
    let whole =
        json!({"fio version": "fio-3.33", "timestamp_ms": 1_795_942_226_000_i64, list: jobs});
    serde_json::to_string_pretty(&whole).unwrap()
}

/// A job of 4 KiB blocks in one direction that ran for so many milliseconds.
fn job(name: &str, op: &str, options: Value, (ios, ms): (i64, i64)) -> Value {
    let rate = crate::real(ios) * 1e3 / crate::real(ms);
    let latency = json!({"mean": 30_000.0, "min": 1000, "max": 90_000, "stddev": 9.0, "N": ios,
        "percentile": {"50.000000": 30_000, "99.000000": 60_000}});
    let side = json!({"io_bytes": ios * 4096, "total_ios": ios, "runtime": ms, "iops": rate, "bw_bytes": rate * 4096.0,
        "clat_ns": latency});
    json!({"jobname": name, "groupid": 0, "error": 0, "total_err": 0, "job options": options, op: side})
}

fn params(options: Value) -> Value {
    let log = fio("jobs", &[job("j", "read", options, (100, 1000))]);
    Value::Object(parsed(&log).unwrap().steps[0].params.clone())
}

#[test]
fn the_rate_of_jobs_is_their_work_in_the_time_of_the_longest() {
    let jobs: Vec<Value> = [117_752, 75_086, 75_189, 77_409]
        .map(|ms| {
            job(
                "w",
                "write",
                json!({"rw": "write", "bs": "4k"}),
                (262_144, ms),
            )
        })
        .into();
    let read = parsed(&fio("jobs", &jobs)).unwrap();
    let op = &read.steps[0].ops[0];
    assert_eq!((read.steps.len(), read.steps[0].tasks), (1, 4));
    assert_eq!(op.bytes, Some(4 << 30));
    assert_eq!(op.bytes_per_s, Some(crate::real(4_i64 << 30) / 117.752));
    // Jobs of another group ran before or after.
    let mut later = jobs[0].clone();
    later["groupid"] = json!(1);
    let read = parsed(&fio("jobs", &[jobs[0].clone(), later])).unwrap();
    assert_eq!(read.steps.len(), 2);
}

#[test]
fn hosts_of_fio_are_one_step_with_the_percentiles_of_all_clients() {
    let options = json!({"name": "j", "rw": "read", "bs": "4k"});
    let of = |host: &str, ios| {
        let mut one = job("j", "read", options.clone(), (ios, 1000));
        one["hostname"] = json!(host);
        one
    };
    let all = job("All clients", "read", json!({}), (300, 1000));
    let read = parsed(&fio("client_stats", &[of("a", 100), of("b", 200), all])).unwrap();
    let step = &read.steps[0];
    assert_eq!(
        (read.steps.len(), step.clients, step.tasks),
        (1, Some(2), 2)
    );
    let op = &step.ops[0];
    assert_eq!((op.ops, op.p99_ns), (Some(300), Some(60_000)));
    // One host has no sum.
    let read = parsed(&fio("client_stats", &[of("a", 100)])).unwrap();
    assert_eq!(
        (read.steps[0].clients, read.steps[0].ops[0].ops),
        (None, Some(100))
    );
}

#[test]
fn options_of_the_load_are_parameters_and_others_are_not() {
    assert_eq!(
        params(
            json!({"name": "j", "filename": "/x", "rw": "randread", "bs": "4k", "random_distribution": "zipf:1.2",
            "norandommap": "1", "thinktime": "100", "bssplit": "4k/50:64k/50", "nrfiles": "8", "buffered": "0"})
        ),
        json!({"bs": "4k", "random_distribution": "zipf:1.2", "norandommap": true, "thinktime": 100,
            "bssplit": "4k/50:64k/50", "nrfiles": 8, "direct": true})
    );
    assert_eq!(
        params(json!({"end_fsync": "1"})),
        json!({"end_fsync": true})
    );
    let log = fio(
        "jobs",
        &[job("j", "read", json!({"rw": "randread:8"}), (100, 1000))],
    );
    let step = &parsed(&log).unwrap().steps[0];
    assert_eq!(
        (step.mode.as_str(), &step.params["blocks-in-a-row"]),
        ("randread", &json!(8))
    );
}

#[test]
fn mixed_reports_of_fio_are_one_operation() {
    let log = fio(
        "jobs",
        &[job("j", "mixed", json!({"rw": "randrw"}), (100, 1000))],
    );
    let step = &parsed(&log).unwrap().steps[0];
    assert_eq!(
        (step.ops.len(), step.ops[0].op.as_str(), step.ops[0].ops),
        (1, "mixed", Some(100))
    );
    // With `both` the sum follows the directions.
    let mut both = job("j", "mixed", json!({"rw": "randrw"}), (100, 1000));
    both["read"] = job("j", "read", json!({}), (60, 1000))["read"].clone();
    both["write"] = job("j", "write", json!({}), (40, 1000))["write"].clone();
    let step = &parsed(&fio("jobs", &[both])).unwrap().steps[0];
    let ops: Vec<&str> = step.ops.iter().map(|op| op.op.as_str()).collect();
    assert_eq!(ops, ["read", "write"]);
}

#[test]
fn a_failed_job_is_a_failed_step() {
    let mut failed = job("j", "write", json!({"rw": "write"}), (10, 1000));
    failed["error"] = json!(28);
    let step = &parsed(&fio("jobs", &[failed])).unwrap().steps[0];
    let words = step.failed.as_deref().unwrap();
    assert!(words.contains("No space left on device"), "{words}");
    assert_eq!(step.ops[0].ops, Some(10));
    // A latency without samples was not measured.
    let mut unmeasured = job("j", "write", json!({"rw": "write"}), (10, 1000));
    unmeasured["write"]["clat_ns"] =
        json!({"mean": 0.0, "min": 0, "max": 0, "stddev": 0.0, "N": 0});
    let step = &parsed(&fio("jobs", &[unmeasured])).unwrap().steps[0];
    assert_eq!((step.ops[0].mean_ns, step.ops[0].max_ns), (None, None));
}

#[test]
fn every_document_of_a_file_is_read() {
    let one = |name: &str| {
        fio(
            "jobs",
            &[job(name, "read", json!({"rw": "read"}), (100, 2000))],
        )
    };
    let log = format!("a warning\n{}\nfio: another\n{}\n", one("a"), one("b"));
    let read = parsed(&log).unwrap();
    let steps: Vec<&str> = read.steps.iter().map(|step| step.phase.as_str()).collect();
    assert_eq!(steps, ["a", "b"]);
    let half = &log[..log.len() - 20];
    let error = parsed(half).unwrap_err();
    assert_eq!(error.line, Some(half.lines().count()), "{error}");
}

/// An iperf3 document with these sums at its end; a text, because keys may repeat.
fn iperf(at_s: i64, end: &str) -> String {
    format!(
        "{{\"start\": {{\"version\": \"iperf 3.12\", \"timestamp\": {{\"timesecs\": {at_s}}}, \"test_start\": \
         {{\"protocol\": \"TCP\", \"num_streams\": 2, \"blksize\": 131072, \"reverse\": 0}}}}, \"intervals\": [], \
         \"end\": {{{end}}}}}\n"
    )
}

fn sum(name: &str, bytes: i64) -> String {
    let bits = bytes * 8;
    format!(
        "\"{name}\": {{\"start\": 0, \"seconds\": 1, \"bytes\": {bytes}, \"bits_per_second\": {bits}}}"
    )
}

#[test]
fn both_directions_of_iperf3_are_steps() {
    let (sent, received) = ("sum_sent", "sum_received");
    let first = [sum(sent, 1000), sum(received, 999)];
    for other in [
        [
            sum("sum_sent_bidir_reverse", 700),
            sum("sum_received_bidir_reverse", 699),
        ],
        [sum(sent, 700), sum(received, 699)],
    ] {
        let log = iperf(5, &[&first[..], &other[..]].concat().join(", "));
        let read = parsed(&log).unwrap();
        let sent: Vec<Option<i64>> = read.steps.iter().map(|step| step.ops[0].bytes).collect();
        assert_eq!(sent, [Some(1000), Some(700)]);
        assert_eq!(
            read.steps
                .iter()
                .map(|step| Value::Object(step.params.clone()))
                .collect::<Vec<_>>(),
            [
                json!({"bs": 131_072, "streams": 2, "bidir": true}),
                json!({"bs": 131_072, "streams": 2, "bidir": true, "reverse": true})
            ]
        );
    }
    let both = iperf(5, &first.join(", ")) + &iperf(7, &first.join(", "));
    let read = parsed(&both).unwrap();
    let at: Vec<i64> = read.steps.iter().map(|step| step.at_us).collect();
    assert_eq!((read.started_us, at), (5_000_000, vec![0, 2_000_000]));
}

#[test]
fn throughput_of_iozone_is_counted_only_if_every_process_wrote_its_file() {
    let log = |least: &str, command: &str| {
        format!(
            "\tIozone: Performance Test of File I/O\n\t        Version $Revision: 3.308 $\n\
             \tCommand line used: {command}\n\tEach process writes a 51200 Kbyte file in 4 Kbyte records\n\
             \tChildren see throughput for  5 initial writers \t=  246059.19 KB/sec\n\
             \tMin xfer \t\t\t\t\t=   {least} KB\n\niozone test complete.\n"
        )
    };
    let (cut, whole) = (
        log("25556.00", "iozone -t 5 -I"),
        log("51200.00", "iozone -t 5"),
    );
    let read = parsed(&(cut + &whole)).unwrap();
    let counted: Vec<(Option<i64>, Option<i64>, i64)> = read
        .steps
        .iter()
        .map(|step| (step.ops[0].ops, step.ops[0].bytes, step.lasted_us))
        .collect();
    assert_eq!(
        counted,
        [(None, None, 0), (Some(64_000), Some(262_144_000), 0)]
    );
    assert_eq!(read.steps[0].ops[0].bytes_per_s, Some(246_059.19 * 1024.0));
    // The options of one call are not those of the next.
    let direct: Vec<&Value> = read
        .steps
        .iter()
        .map(|step| &step.params["direct"])
        .collect();
    assert_eq!(direct, [&json!(true), &json!(false)]);
    // The first call may not borrow the end of the second.
    let log = log("51200.00", "iozone -t 5");
    let unfinished = log.replace("iozone test complete.\n", "");
    assert!(parsed(&(log + &unfinished)).is_err());
}

#[test]
fn files_of_bonnie_are_counted_in_units_of_1024() {
    let line = "1.97,1.97,node1,1,1545782353,2G,,1113,97,78993,7,75546,11,2102,92,271440,13,6863,53,16,2000,100,,2,407,7,\
                +++++,+++,1328,12,526,6,+++++,+++,1704,13,21103us,801ms,1565ms,19930us,21978us,9956us,65891us,18799us,\
                81134us,31558us,3596us,10771us\n";
    let of =
        |line: &str, step: usize| Value::Object(parsed(line).unwrap().steps[step].params.clone());
    assert_eq!(of(line, 0), json!({"size": "2g", "numjobs": 1}));
    assert_eq!(
        of(line, 6),
        json!({"files": 16_384, "size": "100-2000", "dirs": 2, "numjobs": 1})
    );
    let empty = line.replace("16,2000,100,,2", "16,,,,");
    assert_eq!(
        of(&empty, 6),
        json!({"files": 16_384, "size": "0", "numjobs": 1})
    );
    let stat = &parsed(line).unwrap().steps[7].ops[0];
    assert_eq!(
        (stat.ops_per_s, stat.ops),
        (None, None),
        "too fast to measure is unknown"
    );
}

#[test]
fn dd_is_read_whatever_its_language_does_with_words_and_spaces() {
    for log in [
        "160+0\u{a0}enregistrements lus\n160+0\u{a0}enregistrements écrits\n\
         10485760 octets (10 MB, 10 MiB) copiés, 0,02 s, 495 MB/s\n",
        "160+0 записів прочитано\n160+0 записів записано\nскопійовано 10485760 байтів (10 MB, 10 MiB), 0,02 s, 264 MB/s\n",
        "输入了 160+0 块记录\n输出了 160+0 块记录\n10485760 字节 (10 MB, 10 MiB) 已复制，0.02 s，271 MB/s\n",
        "\r5242880 bytes (5.2 MB, 5.0 MiB) copied, 0.01 s, 105 MB/s\r10485760 bytes (10 MB, 10 MiB) copied, 0.01 s, 1 GB/s\n\
         160+0 records in\n160+0 records out\n10485760 bytes (10 MB, 10 MiB) copied, 0.02 s, 104 MB/s\n",
    ] {
        let read = parsed(log).unwrap();
        let op = &read.steps[0].ops[0];
        assert_eq!((op.ops, op.bytes), (Some(160), Some(10_485_760)), "{log}");
        assert_eq!(
            (read.steps.len(), op.bytes_per_s),
            (1, Some(524_288_000.0)),
            "{log}"
        );
    }
    let progress = "5242880 bytes (5.2 MB, 5.0 MiB) copied, 1 s, 5.2 MB/s\n";
    assert!(parsed(progress).unwrap_err().what.contains("cut off"));
}

/// Every language that the installed coreutils have.
#[test]
fn dd_is_read_in_every_installed_language() {
    let Ok(languages) = std::fs::read_dir("/usr/share/locale") else {
        benchmesh_testing::skip("dd", "no languages are installed");
        return;
    };
    for language in languages {
        let language = language.unwrap().file_name().into_string().unwrap();
        let done = Command::new("dd")
            .args(["if=/dev/zero", "of=/dev/null", "bs=64k", "count=160"])
            .env("LC_ALL", "C.UTF-8")
            .env("LANGUAGE", &language)
            .output()
            .unwrap();
        let log = String::from_utf8(done.stderr).unwrap();
        let read = parsed(&log).unwrap_or_else(|error| panic!("{language}: {error}: {log}"));
        let op = &read.steps[0].ops[0];
        assert_eq!(
            (op.ops, op.bytes),
            (Some(160), Some(10_485_760)),
            "{language}: {log}"
        );
    }
}

#[test]
fn a_failure_that_a_tool_reports_is_a_failed_step() {
    let dd = "dd: error writing '/mnt/x': No space left on device\n11+0 records in\n10+0 records out\n\
              10485760 bytes (10 MB, 10 MiB) copied, 0.5 s, 21 MB/s\n";
    let step = &parsed(dd).unwrap().steps[0];
    assert!(step.failed.as_deref().unwrap().contains("No space left"));
    assert_eq!(step.ops[0].bytes, Some(10_485_760));
    let opened = "dd: failed to open '/mnt/x': Permission denied\n";
    let step = &parse(Tool::Dd, opened, &hints()).unwrap().steps[0];
    assert!(step.failed.is_some() && step.ops.is_empty());
    // The failed call does not stain the next one.
    let then = format!(
        "{opened}{}",
        dd.replace("dd: error writing '/mnt/x': No space left on device\n", "")
    );
    let failed: Vec<bool> = parsed(&then)
        .unwrap()
        .steps
        .iter()
        .map(|step| step.failed.is_some())
        .collect();
    assert_eq!(failed, [true, false]);
    // rados warns in the system's words and goes on.
    let warned = format!(
        "2026-11-29 auth: unable to find a keyring: (2) No such file or directory\n{RADOS}"
    );
    assert_eq!(parsed(&warned).unwrap().steps[0].failed, None);
    let bonnie = "Writing intelligently...Can't write block 8191.: No space left on device\n";
    let step = &parse(Tool::Bonnie, bonnie, &hints()).unwrap().steps[0];
    assert!(step.failed.is_some() && step.ops.is_empty());
    let warned = "dd: warning: partial read (16384 bytes); suggest iflag=fullblock\n0+2 records in\n0+2 records out\n\
                  32768 bytes (33 kB, 32 KiB) copied, 0.5 s, 66 kB/s\n";
    assert_eq!(parsed(warned).unwrap().steps[0].failed, None);
}
