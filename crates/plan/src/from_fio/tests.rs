#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use std::collections::BTreeMap;

fn converted(text: &str, files: &[(&str, &str)]) -> Result<Converted, JobErrors> {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let read = |path: &Path| {
        let text = files.get(path.to_str().unwrap()).copied();
        text.map(str::to_owned)
            .ok_or_else(|| String::from("no such file"))
    };
    let variable = |name: &str| (name == "SIZE").then(|| String::from("64m"));
    from_fio(
        text,
        "jobs/job.fio",
        &JobContext {
            read: &read,
            variable: &variable,
            cpus: 4,
            page_bytes: 4096,
            memory_bytes: 8 << 30,
        },
    )
}

/// The lines of the plan, without comments and blank ones, after its first phase.
fn phases(plan: &str) -> Vec<String> {
    let lines = plan
        .lines()
        .skip_while(|line| !line.starts_with("[[phase]]"));
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.replace(" = ", "="))
        .collect()
}

#[test]
fn a_job_file_is_a_plan() {
    let text = "\
; a comment
[global]
ioengine=io_uring
direct=1
size=${SIZE}
runtime=30
time_based
directory=/mnt/storage
group_reporting

[seq]
rw=write
bs=1m          # large
stonewall

[rand]
stonewall
rw = randrw
rwmixread=70
bs=4k
iodepth=32
numjobs=4
ramp_time=5s
thinktime=5ms
";
    let made = converted(text, &[]).unwrap();
    assert_eq!(
        made.plan,
        "\
# Made of jobs/job.fio by `benchmesh plan from-fio`.
# job.fio:9: not needed: group_reporting (the report has the sum of all clients, and each client)

name = \"job\"

[targets.\"storage\"]
system = \"storage\"
path = \"/mnt/storage\"

[[phase]]
name = \"seq\"
workload = \"io\"
modes = [\"write\"]
ioengine = \"io_uring\"
bs = \"1m\"
size = \"64m\"
runtime = \"30s\"
direct = true

# job.fio:24: left out: thinktime=5ms (a plan has no word for it)
[[phase]]
name = \"rand\"
workload = \"io\"
modes = [\"randrw\"]
ioengine = \"io_uring\"
bs = \"4k\"
size = \"64m\"
runtime = \"30s\"
ramp_time = \"5s\"
numjobs = 4
iodepth = 32
direct = true
rwmixread = 70
"
    );
    assert!(made.is_partial());
}

#[test]
fn each_option_has_its_key() {
    const BASE: &str = "[j]\nfilename=/mnt/t/f\ndirect=1\nsize=1g\n";
    for (options, expected) in [
        ("rw=read", "modes=[\"read\"]"),
        ("readwrite=randwrite", "modes=[\"randwrite\"]"),
        ("rw=write\noverwrite=1", "modes=[\"rewrite\"]"),
        ("rw=read:-8k\nbs=4k", "modes=[\"backread\"]"),
        ("rw=write\nverify=crc32c", "modes=[\"write\", \"read\"]"),
        ("rw=randread\nverify=md5", "verify=true"),
        ("bs=4k,64k\nrw=write", "bs=\"64k\""),
        ("blocksize=0x1000", "bs=\"4k\""),
        ("bssplit=4k/60:64k/40", "bssplit=\"4k/60:64k/40\""),
        ("runtime=10m", "loops=1"),
        ("runtime=10m\ntime_based=1", "runtime=\"600s\""),
        ("number_ios=1000\nbs=4k", "io_size=\"4000k\""),
        ("io_limit=2g", "io_size=\"2g\""),
        ("ioengine=libaio\niodepth=8", "ioengine=\"io_uring\""),
        ("numjobs=4", "ranges=\"whole\""),
        ("numjobs=4\noffset_increment=1g", "ranges=\"segmented\""),
        ("numjobs=$ncpus*2", "numjobs=8"),
        ("rw=randrw\nrwmixwrite=30", "rwmixread=70"),
        (
            "rw=randread\nrandom_distribution=zipf:1.2",
            "random_distribution=\"zipf:1.2\"",
        ),
        ("rw=randread\nnorandommap", "norandommap=true"),
        ("rate=1m,2m\nrw=write", "rate=\"2m\""),
        ("rate=1m,2m\nrw=randrw", "rate=\"3m\""),
        ("bsrange=8k-8k", "bs=\"8k\""),
        ("bs=4k,64k\nrw=write\nverify=md5", "bs=\"64k\""),
        ("startdelay=0\nbs=2k", "bs=\"2k\""),
        (
            "rate_iops=500\nrate_process=poisson",
            "rate_process=\"poisson\"",
        ),
        ("rw=write\nsync=dsync", "sync=\"dsync\""),
        ("rw=write\nfsync=32", "fsync=32"),
        ("rw=write\nfsync_on_close=1", "end_fsync=true"),
        ("rw=write\nzero_buffers", "data=\"zero\""),
        ("rw=write\nbuffer_pattern=0xff", "data={ pattern=\"0xff\" }"),
        (
            "rw=write\nbuffer_compress_percentage=50",
            "data={ compress=50, dedupe=0 }",
        ),
        (
            "ss=iops:5%\nss_dur=1m\nruntime=1h\ntime_based",
            "ss=\"iops:5%\"",
        ),
        ("ioengine=filecreate\nnrfiles=200\nfilesize=4k", "files=200"),
    ] {
        let made = converted(&format!("{BASE}{options}\n"), &[]);
        let made = made.unwrap_or_else(|errors| panic!("{options}: {errors}"));
        let lines = phases(&made.plan);
        assert!(
            lines.iter().any(|line| line == expected),
            "{options}: {lines:#?}"
        );
        assert!(!made.is_partial(), "{options}: {:#?}", made.remarks);
    }
}

#[test]
fn what_a_plan_cannot_say_is_named_with_its_line() {
    const BASE: &str = "[j]\nfilename=/mnt/t/f\ndirect=1\n";
    for (options, line, expected) in [
        (
            "size=1g\nthinktime=5ms",
            5,
            "thinktime=5ms (a plan has no word for it)",
        ),
        (
            "size=1g\nnot_of_fio=1",
            5,
            "not_of_fio=1 (a plan has no word for it)",
        ),
        (
            "size=1g\nrw=write:8k",
            5,
            "rw=write:8k (`:8k`: a plan has no word for it)",
        ),
        (
            "size=1g\nbs=4k,8k\nrw=rw",
            5,
            "bs=4k,8k (a plan has one value for reads and writes)",
        ),
        ("size=1g\nbs=4k-8k", 5, "bs=4k-8k (it is not one size)"),
        (
            "size=1g\nnrfiles=8",
            5,
            "nrfiles=8 (a worker has one file, of the whole size)",
        ),
        ("size=50%", 4, "size=50% (it is not one size)"),
        ("size=1g\nioengine=mmap", 5, "ioengine=mmap (psync instead)"),
        (
            "size=1g\nrandom_distribution=pareto:0.9\nrw=randread",
            5,
            "random_distribution=pareto:0.9 (a plan has `random` and `zipf:THETA`)",
        ),
    ] {
        let made = converted(&format!("{BASE}{options}\n"), &[]);
        let made = made.unwrap_or_else(|errors| panic!("{options}: {errors}"));
        let named: Vec<String> = (made.remarks.iter())
            .filter(|remark| remark.kind == RemarkKind::LeftOut)
            .map(ToString::to_string)
            .collect();
        let expected = format!("jobs/job.fio:{line}: left out: {expected}");
        assert!(named.contains(&expected), "{options}: {named:#?}");
        assert!(
            made.plan.contains(&expected.replace("jobs/", "# ")),
            "{}",
            made.plan
        );
    }
}

#[test]
fn options_beside_others_are_named() {
    const BASE: &str = "[j]\nfilename=/mnt/t/f\ndirect=1\n";
    const KEYS: [&str; 8] = [
        "size=", "io_size=", "loops=", "sync=", "data=", "verify=", "rate=", "ss",
    ];
    const TIMED: &str = "not needed: {} (with time_based, only the runtime ends the job)";
    const CONTENT: &str =
        "left out: {} (a plan has one kind of content, and another option of the job says it)";
    const RATE: &str = "left out: {} (fio paces reads and writes each, a plan both together)";
    const OTHER_RATE: &str = "not needed: {} (it paces the direction that the job does not have)";
    const NO_STEADY: &str = "not needed: {} (there is no steadystate)";
    // Options; the number of each that is named, with the remark; the keys that are made.
    type Case<'a> = (&'a [&'a str], &'a [(usize, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (
            &[
                "size=1g",
                "io_size=2g",
                "loops=3",
                "number_ios=9",
                "runtime=60",
                "time_based",
            ],
            &[(1, TIMED), (2, TIMED), (3, TIMED)],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "filesize=2g", "runtime=60", "time_based=1"],
            &[(0, TIMED)],
            &["size=\"2g\""],
        ),
        (
            &["size=1g", "io_size=2g", "number_ios=16"],
            &[(1, "not needed: {} (number_ios=16 ends the job earlier)")],
            &["size=\"1g\"", "io_size=\"64k\""],
        ),
        (
            &["size=1g", "io_size=64k", "number_ios=1000"],
            &[(2, "not needed: {} (io_size=64k ends the job earlier)")],
            &["size=\"1g\"", "io_size=\"64k\""],
        ),
        (
            &["size=1g", "bssplit=4k/50:8k/50", "number_ios=1000"],
            &[(
                2,
                "left out: {} (a plan has amounts of data only, and this is none that is known)",
            )],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "filesize=2g", "io_size=3g"],
            &[(
                0,
                "left out: {} (a load uses its whole file, and `io_size` ends it)",
            )],
            &["size=\"2g\"", "io_size=\"3g\""],
        ),
        (
            &["size=1g", "rw=write", "sync=often"],
            &[(2, "left out: {} (a plan has `none`, `sync` and `dsync`)")],
            &["size=\"1g\""],
        ),
        (&["size=1g", "rw=write", "sync=0"], &[], &["size=\"1g\""]),
        (
            &["size=1g", "rw=write", "buffer_pattern=0xff", "zero_buffers"],
            &[(3, CONTENT)],
            &["size=\"1g\"", "data={ pattern=\"0xff\" }"],
        ),
        (
            &[
                "size=1g",
                "rw=write",
                "zero_buffers",
                "buffer_pattern=0xff",
                "dedupe_percentage=20",
            ],
            &[(2, CONTENT), (3, CONTENT)],
            &["size=\"1g\"", "data={ compress=0, dedupe=20 }"],
        ),
        (
            &[
                "size=1g",
                "steadystate_duration=60",
                "steadystate_ramp_time=5",
            ],
            &[(1, NO_STEADY), (2, NO_STEADY)],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "rw=randread", "verify=1", "do_verify=0"],
            &[(
                3,
                "not needed: {} (a load that reads compares what it reads)",
            )],
            &["verify=true", "size=\"1g\""],
        ),
        (
            &["kb_base=512", "size=1m"],
            &[(0, "left out: {} (it is neither 1000 nor 1024)")],
            &["size=\"1m\""],
        ),
        (
            &["size=1g", "rw=rw", "rate=500k,"],
            &[(2, RATE)],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "rw=rw", "rate=,500k"],
            &[(2, RATE)],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "rw=write", "rate=500k,"],
            &[(2, OTHER_RATE)],
            &["size=\"1g\""],
        ),
        (
            &["size=1g", "rw=read", "rate=500k,"],
            &[],
            &["size=\"1g\"", "rate=\"500k\""],
        ),
        (
            &["size=1g", "rw=write", "bs=64k,"],
            &[(2, "left out: {} (it is not one size)")],
            &["size=\"1g\""],
        ),
    ];
    for (options, remarks, keys) in cases {
        let made = converted(&format!("{BASE}{}\n", options.join("\n")), &[]);
        let made = made.unwrap_or_else(|errors| panic!("{options:?}: {errors}"));
        // Those of the options, which begin in line 4.
        let named: Vec<String> = (made.remarks.iter())
            .filter(|remark| remark.line.line > 3)
            .map(ToString::to_string)
            .collect();
        let expected: Vec<String> = (remarks.iter())
            .map(|(at, text)| {
                let text = text.replace("{}", options.get(*at).unwrap());
                format!("jobs/job.fio:{}: {text}", at + 4)
            })
            .collect();
        assert_eq!(named, expected, "{options:?}");
        let lines: Vec<String> = (phases(&made.plan).into_iter())
            .filter(|line| KEYS.iter().any(|key| line.starts_with(key)))
            .collect();
        assert_eq!(lines, *keys, "{options:?}");
    }
}

#[test]
fn keys_that_the_workload_refuses_are_left_out_with_its_reason() {
    // A ramp needs repeated work.
    let made = converted("[j]\ndirectory=/mnt/t\nsize=1m\nramp_time=5\nbs=3k\n", &[]).unwrap();
    let named: Vec<String> = made.remarks.iter().map(ToString::to_string).collect();
    assert!(
        named
            .iter()
            .any(|it| it.starts_with("jobs/job.fio:4: left out: ramp_time=5 (")),
        "{named:#?}"
    );
    assert!(!made.plan.lines().any(|line| line.starts_with("ramp_time")));
}

#[test]
fn jobs_at_the_same_time_are_said_to_run_one_after_the_other() {
    let text = "[a]\nsize=1m\n[b]\nsize=2m\n[c]\nwait_for=a\nsize=1m\n[d]\nnumjobs=3\nsize=1m\n";
    let made = converted(text, &[]).unwrap();
    let at_once: Vec<usize> = (made.remarks.iter())
        .filter(|remark| remark.what.contains("at the same time"))
        .map(|remark| remark.line.line)
        .collect();
    assert_eq!(at_once, [3]);
    assert_eq!(crate::parse(&made.plan, "p").unwrap().phases.len(), 3);
    // The same load at the same time is more workers.
    assert!(
        phases(&made.plan).contains(&String::from("numjobs=4")),
        "{}",
        made.plan
    );
}

#[test]
fn included_files_continue_their_section() {
    let files = [
        ("jobs/common.inc", "bs=64k\ninclude deeper.inc\n"),
        ("jobs/deeper.inc", "iodepth=2\nthinktime=1\n"),
    ];
    let made = converted(
        "[global]\ninclude common.inc\nioengine=io_uring\n[j]\nsize=1m\nname=$jobname\n",
        &files,
    )
    .unwrap();
    let lines = phases(&made.plan);
    for expected in ["bs=\"64k\"", "iodepth=2", "name=\"$jobname\""] {
        let expected = expected.replace("$jobname", "j");
        assert!(lines.contains(&expected), "{expected}: {lines:#?}");
    }
    let left_out = made
        .remarks
        .iter()
        .find(|remark| remark.kind == RemarkKind::LeftOut);
    assert!(
        left_out
            .unwrap()
            .to_string()
            .starts_with("jobs/deeper.inc:2: left out: thinktime=1")
    );
}

#[test]
fn a_job_file_that_cannot_be_read_is_refused_with_every_mistake() {
    let files = [
        ("jobs/self.inc", "include self.inc\n"),
        ("jobs/section.inc", "[other]\n"),
    ];
    for (text, expected) in [
        ("", "jobs/job.fio: there is no job"),
        ("[global]\nbs=4k\n", "jobs/job.fio: there is no job"),
        (
            "[j\nsize=1m\n",
            "jobs/job.fio:1: the section has no closing bracket",
        ),
        ("[ ]\n", "jobs/job.fio:1: the section has no name"),
        (
            "[j]\nsize=${NOT_SET}\nbs=${NOT_SET_EITHER}\n",
            "jobs/job.fio:2: the environment variable `NOT_SET` is not set\n  help: set it: NOT_SET=VALUE benchmesh \
             plan from-fio ...\njobs/job.fio:3: the environment variable `NOT_SET_EITHER` is not set",
        ),
        (
            "[j]\nsize=${SIZE\n",
            "jobs/job.fio:2: `${SIZE` has ${ without }",
        ),
        (
            "[j]\ninclude missing.inc\n",
            "jobs/job.fio:2: `jobs/missing.inc` cannot be included: no such file",
        ),
        (
            "[j]\ninclude self.inc\n",
            "jobs/self.inc:1: `self.inc` is included 16 files deep",
        ),
        (
            "[j]\ninclude section.inc\n",
            "jobs/section.inc:1: [other] is in an included file",
        ),
        (
            "[j]\nioengine=net\n",
            "jobs/job.fio: no job of it can be measured\n  jobs/job.fio:1: left out: [j] (the whole job, because of \
             ioengine=net)\n  jobs/job.fio:2: left out: ioengine=net (the workload `network` measures links)",
        ),
        (
            "[j]\nrw=trim\n",
            "jobs/job.fio: no job of it can be measured",
        ),
    ] {
        let errors = converted(text, &files).unwrap_err().to_string();
        assert!(errors.starts_with(expected), "{text}:\n{errors}");
    }
}

proptest::proptest! {
    /// Whatever a job file holds: the plan made of it is valid, or there is an error.
    #[test]
    fn every_plan_that_is_made_is_valid(
        text in "(\\[(global|a|b)\\]\n|rw=(rand)?(read|write|rw|trim)(:-?[0-9]k?)?\n|(bs|size|filesize|io_size|offset|rate)=[0-9]{1,3}[kmgi%,]{0,2}\n|(iodepth|numjobs|nrfiles|loops|fsync|runtime|ramp_time|rwmixread|number_ios)=[0-9]{1,3}\n|ioengine=(libaio|io_uring|sync|rbd|filecreate|net)\n|(direct|time_based|verify|stonewall|overwrite|norandommap|zero_buffers|invalidate)\n|(filename|directory)=[/a-z:$]{0,8}\n|include [a-z]+\n|\\PC{0,20}\n|[a-z_]{1,8} = \\PC{0,9}\n){0,12}",
    ) {
        if let Ok(made) = converted(&text, &[]) {
            let parsed = crate::parse(&made.plan, "p.toml");
            proptest::prop_assert!(parsed.is_ok(), "{}\n{}\n{:?}", text, made.plan, parsed.map(|_| ()));
        }
    }
}
