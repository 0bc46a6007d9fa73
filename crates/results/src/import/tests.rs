#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod cases;
mod elbencho;
mod hostile;
mod iozone;
mod iperf;

use super::*;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use tempfile::TempDir;

fn hints() -> Hints {
    Hints {
        mode: "write".into(),
        written_us: 1_750_000_000_000_000,
    }
}

fn parsed(log: &str) -> Result<ImportedLog, ImportError> {
    parse(Tool::of(log).expect("a known tool"), log, &hints())
}

/// Combined output of a program; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let done = match Command::new(program).args(arguments).output() {
        Ok(done) => done,
        Err(error) => {
            benchmesh_testing::skip(program, &error.to_string());
            return None;
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(done.status.success(), "{}", text(done.stderr));
    Some(text(done.stdout) + &text(done.stderr))
}

/// Every prefix of a log that lacks more than its last line is refused, not read as a smaller result.
fn cut_anywhere(log: &str, whole: &ImportedLog) {
    let last = log.trim_end().rfind('\n').unwrap_or(0);
    let cuts = (0..last).step_by((last / 60).max(1));
    for cut in cuts.filter(|cut| log.is_char_boundary(*cut)) {
        let part = &log[..cut];
        let Some(tool) = Tool::of(part) else { continue };
        if let Ok(read) = parse(tool, part, &hints()) {
            assert_eq!(read.steps, whole.steps, "cut at byte {cut}");
        }
    }
}

#[test]
fn figures_of_a_real_fio_are_its_own_to_the_digit() {
    let directory = TempDir::new().unwrap();
    let file = format!("--filename={}", directory.path().join("f").display());
    let arguments = [
        "--name=mixed",
        &file,
        "--size=8m",
        "--rw=randrw",
        "--rwmixread=70",
        "--bs=4k",
        "--ioengine=psync",
        "--output-format=json",
    ];
    let Some(log) = run("fio", &arguments) else {
        return;
    };
    let read = parsed(&log).unwrap();
    assert!(read.tool.starts_with("fio 3."), "{}", read.tool);
    let start = log.find('{').unwrap();
    let json: Value = serde_json::Deserializer::from_str(&log[start..])
        .into_iter()
        .next()
        .unwrap()
        .unwrap();
    let job = &json["jobs"][0];
    assert_eq!(read.steps.len(), 1);
    let step = &read.steps[0];
    assert_eq!(
        (step.phase.as_str(), step.mode.as_str()),
        ("mixed", "randrw")
    );
    assert_eq!(
        (&step.params["bs"], &step.params["rwmixread"]),
        (&Value::from("4k"), &Value::from(70))
    );
    assert_eq!(step.ops.len(), 2);
    for op in &step.ops {
        let side = &job[op.op.as_str()];
        assert_eq!(op.ops, side["total_ios"].as_i64());
        assert_eq!(op.bytes, side["io_bytes"].as_i64());
        assert_eq!(op.ops_per_s, side["iops"].as_f64());
        assert_eq!(op.bytes_per_s, side["bw_bytes"].as_f64());
        assert_eq!(op.mean_ns, side["clat_ns"]["mean"].as_f64());
        assert_eq!(
            op.p99_ns,
            side["clat_ns"]["percentile"]["99.000000"].as_i64()
        );
        assert_eq!(
            op.p999_ns,
            side["clat_ns"]["percentile"]["99.900000"].as_i64()
        );
        assert_eq!(op.max_ns, side["clat_ns"]["max"].as_i64());
    }
    assert_eq!(
        step.ops.iter().filter_map(|op| op.bytes).sum::<i64>(),
        8 << 20
    );
    cut_anywhere(&log, &read);
    // The log ends at its last non-empty line.
    let half = log[..log.len() / 2].trim_end();
    let error = parse(Tool::Fio, half, &hints()).unwrap_err();
    assert_eq!(error.line, Some(half.lines().count()), "{error}");
    assert!(error.what.contains("cut off"), "{error}");
    let other = log.replace("fio-3.", "fio-2.");
    assert!(
        parsed(&other)
            .unwrap_err()
            .what
            .contains("is not known here")
    );
}

#[test]
fn jobs_that_ran_at_once_add_up_without_percentiles() {
    let directory = TempDir::new().unwrap();
    let place = format!("--directory={}", directory.path().display());
    let arguments = [
        "--name=w",
        &place,
        "--size=1m",
        "--rw=write",
        "--bs=64k",
        "--numjobs=3",
        "--output-format=json",
    ];
    let Some(log) = run("fio", &arguments) else {
        return;
    };
    let read = parsed(&log).unwrap();
    assert_eq!(read.steps.len(), 1);
    let step = &read.steps[0];
    assert_eq!(
        (step.tasks, step.ops[0].bytes, step.ops[0].ops),
        (3, Some(3 << 20), Some(48))
    );
    assert_eq!(step.ops[0].p99_ns, None);
    assert!(step.ops[0].mean_ns.is_some());
}

#[test]
fn figures_of_a_real_dd_follow_from_its_bytes_and_seconds() {
    let directory = TempDir::new().unwrap();
    let out = format!("of={}", directory.path().join("f").display());
    let Some(log) = run("dd", &["if=/dev/zero", &out, "bs=64k", "count=32"]) else {
        return;
    };
    let read = parsed(&log.repeat(2)).unwrap();
    assert_eq!(read.steps.len(), 2, "two calls in one log");
    let op = &read.steps[0].ops[0];
    assert_eq!((op.ops, op.bytes), (Some(32), Some(2 << 20)));
    assert_eq!(read.steps[0].params["bs"], Value::from(65536));
    let line = log.lines().find(|line| line.contains("copied")).unwrap();
    let words: Vec<&str> = line.split(", ").collect();
    let seconds: f64 = words[words.len() - 2]
        .trim_end_matches(" s")
        .parse()
        .unwrap();
    assert_eq!(op.bytes_per_s, Some(2_097_152.0 / seconds));
    cut_anywhere(&log, &parsed(&log).unwrap());
    let error = parsed("32+0 records in\n32+0 records out\n").unwrap_err();
    assert_eq!(error.line, Some(2), "{error}");
}

#[test]
fn dd_is_read_in_any_language() {
    for log in [
        "1000+0 Datensätze ein\n1000+0 Datensätze aus\n1048576000 Bytes (1,0 GB, 1000 MiB) kopiert, 2,5 s, 419 MB/s\n",
        "1000+0 enregistrements lus\n1000+0 enregistrements écrits\n\
         1048576000 octets (1,0 GB, 1000 MiB) copiés, 2,5 s, 419 MB/s\n",
        "記録 1\n1000+0 レコード入力\n1000+0 レコード出力\n1048576000 bytes (1.0 GB, 1000 MiB) copied, 2.5 s, 419 MB/s\n",
    ] {
        let read = parsed(log).unwrap();
        assert_eq!(read.tool, "dd");
        let op = &read.steps[0].ops[0];
        assert_eq!(
            (op.ops, op.bytes),
            (Some(1000), Some(1_048_576_000)),
            "{log}"
        );
        assert_eq!(op.bytes_per_s, Some(1_048_576_000.0 / 2.5));
        cut_anywhere(log, &read);
    }
}

#[test]
fn times_of_a_shell_are_copies() {
    let log = "$ time cp /data/4g /mnt/sr33/\n\nreal\t5m31.500s\nuser\t0m0.066s\nsys\t0m9.250s\n\
        real 147.25\nuser 0.05\nsys 8.00\n# time sync\nreal\t0m2,000s\nuser\t0m0,000s\nsys\t0m0,010s\n";
    let read = parsed(log).unwrap();
    let steps: Vec<(&str, &str, i64, i64)> = read
        .steps
        .iter()
        .map(|step| {
            (
                step.phase.as_str(),
                step.mode.as_str(),
                step.at_us,
                step.lasted_us,
            )
        })
        .collect();
    assert_eq!(
        steps,
        [
            ("cp /data/4g /mnt/sr33/", "in", 0, 331_500_000),
            ("time", "in", 331_500_000, 147_250_000),
            ("sync", "command", 478_750_000, 2_000_000),
        ]
    );
    assert_eq!(read.steps[0].params["sys_s"], Value::from(9.25));
    assert_eq!(read.steps[0].ops[0].ops, Some(1));
    let out = Hints {
        mode: "read".into(),
        ..hints()
    };
    assert_eq!(parse(Tool::Time, log, &out).unwrap().steps[0].mode, "out");
    let error = parse(Tool::Time, "user 1.0\n", &hints()).unwrap_err();
    assert_eq!(error.line, Some(1), "{error}");
}

#[test]
fn figures_of_a_real_bonnie_are_those_of_its_csv_line() {
    let directory = TempDir::new().unwrap();
    let place = directory.path().to_str().unwrap();
    let mut arguments = vec!["-d", place, "-s", "16", "-r", "8", "-n", "1", "-m", "host"];
    // It refuses to run as root unless an option allows it, and only root can select another user.
    if std::fs::metadata(place).unwrap().uid() == 0 {
        arguments.extend(["-u", "root"]);
    }
    let Some(log) = run("bonnie++", &arguments) else {
        return;
    };
    let read = parsed(&log).unwrap();
    let line = log.lines().find(|line| bonnie::is_result(line)).unwrap();
    let fields: Vec<&str> = line.split(',').collect();
    assert_eq!(read.tool, format!("bonnie++ {}", fields[1]));
    assert_eq!(read.steps.len(), 12);
    let putc = &read.steps[0].ops[0];
    assert_eq!(putc.op, "putc");
    let kib: Option<f64> = fields[9].parse().ok();
    assert_eq!(putc.bytes_per_s, kib.map(|kib| kib * 1024.0));
    let latency = |field: &str| -> i64 {
        let us: i64 = field
            .trim_end_matches("us")
            .trim_end_matches("ms")
            .parse()
            .unwrap();
        us * if field.ends_with("ms") {
            1_000_000
        } else {
            1000
        }
    };
    assert_eq!(putc.max_ns, Some(latency(fields[38])));
    let delete = &read.steps[11].ops[0];
    assert_eq!(
        (delete.op.as_str(), delete.max_ns),
        ("delete", Some(latency(fields[49])))
    );
    cut_anywhere(&log, &read);
    let error = parsed(&line[..line.len() / 2]).unwrap_err();
    assert!(
        error.line == Some(1) && error.what.contains("cut off"),
        "{error}"
    );
    assert_eq!(Tool::of(&line.replace("1.98,", "3.10,")), None);
}

/// The format written by Ceph 16; the figures are made up.
const RADOS: &str = "\
hints = 1
Maintaining 16 concurrent writes of 4194304 bytes to objects of size 4194304 for up to 3 seconds or 0 objects
Object prefix: benchmark_data_host_1234
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       0         0         0         0         0           -           0
    1      16        26        10   39.9939        40     0.91204    0.711046
    2      16        26        10   19.9962         0           -    0.711046
    3      16        50        34   45.3258        96     1.52017     1.02251
Total time run:         3.20412
Total writes made:      50
Write size:             4194304
Object size:            4194304
Bandwidth (MB/sec):     62.4196
Stddev Bandwidth:       48.2217
Max bandwidth (MB/sec): 96
Min bandwidth (MB/sec): 0
Average IOPS:           15
Stddev IOPS:            12.0554
Max IOPS:               24
Min IOPS:               0
Average Latency(s):     0.981276
Stddev Latency(s):      0.411538
Max latency(s):         1.9127
Min latency(s):         0.201163
";

#[test]
fn rados_bench_keeps_its_seconds_and_its_stalls() {
    let read = parsed(RADOS).unwrap();
    assert_eq!(read.steps.len(), 1);
    let step = &read.steps[0];
    assert_eq!(
        (&step.params["bs"], &step.params["iodepth"]),
        (&Value::from(4 << 20), &Value::from(16))
    );
    let op = &step.ops[0];
    assert_eq!(
        (op.op.as_str(), op.ops, op.bytes),
        ("write", Some(50), Some(50 << 22))
    );
    assert_eq!(op.bytes_per_s, Some(62.4196 * 1_048_576.0));
    assert_eq!(
        (op.mean_ns, op.max_ns),
        (Some(981_276_000.0), Some(1_912_700_000))
    );
    let finished: Vec<i64> = step
        .seconds
        .iter()
        .filter_map(|second| second.ops)
        .collect();
    assert_eq!(finished, [10, 0, 24]);
    cut_anywhere(RADOS, &read);
    let cut = RADOS.split_once("Average Latency").unwrap().0;
    assert!(parsed(cut).unwrap_err().what.contains("cut off"));
}

#[test]
fn a_log_of_another_tool_is_no_log() {
    for log in ["", "hello", "{\"jobs\": []}", "1,2,3", "a,b\n1,2\n"] {
        assert_eq!(Tool::of(log), None, "{log:?}");
    }
    for tool in Tool::ALL {
        assert!(
            parse(tool, "something else\n", &hints()).is_err(),
            "{tool:?}"
        );
    }
}
