//! Checks the tests' own file system with plain system calls: the truth tests depend on it. The speed of a throttled
//! disk and of a shaped link is checked where they are used, by the kernel's counters.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::wait::until_true;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn fuse_log_counts_each_call() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let directory = fs.path().join("d");
    fs::create_dir(&directory).unwrap();
    for index in 0..10 {
        let mut file = File::create(directory.join(format!("f{index}"))).unwrap();
        file.write_all(&[1; 3000]).unwrap();
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 10);
    for index in 0..10 {
        let path = directory.join(format!("f{index}"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 3000);
        let mut read = [0; 4096];
        let file = File::open(&path).unwrap();
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 3000);
        drop(file);
        fs::rename(&path, directory.join(format!("g{index}"))).unwrap();
        fs::remove_file(directory.join(format!("g{index}"))).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
    assert!(fs.names().is_empty());
    let log = fs.log();
    let count = |op: Op| log.iter().filter(|call| call.op == op).count();
    let amount = |op: Op| {
        let calls = log.iter().filter(|call| call.op == op);
        calls.map(|call| call.amount).sum::<u64>()
    };
    for op in [
        Op::Create,
        Op::Open,
        Op::Rename,
        Op::Unlink,
        Op::Write,
        Op::Read,
    ] {
        assert_eq!(count(op), 10, "{op:?}");
    }
    assert_eq!((count(Op::Mkdir), count(Op::Rmdir)), (1, 1));
    assert_eq!((amount(Op::Write), amount(Op::Read)), (30_000, 30_000));
}

#[test]
fn fuse_rules_delay_fail_and_hang() {
    needs!("fuse");
    let fs = FuseFs::mount();
    fs.add_rule(Rule {
        path: "slow".to_owned(),
        ..Rule::every(Op::Create, Fault::Delay(Duration::from_millis(200)))
    });
    fs.add_rule(Rule {
        path: "full".to_owned(),
        after: 1,
        times: 1,
        ..Rule::every(Op::Write, Fault::Fail(libc::ENOSPC))
    });
    fs.add_rule(Rule {
        path: "stuck".to_owned(),
        ..Rule::every(Op::Create, Fault::Hang)
    });
    let began = Instant::now();
    File::create(fs.path().join("slow")).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    let full = File::create(fs.path().join("full")).unwrap();
    full.write_at(&[0; 10], 0).unwrap();
    let refused = full.write_at(&[0; 10], 10).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    full.write_at(&[0; 10], 10).unwrap();
    // In a separate process, because a thread that waits for its own process's file system cannot even be killed; in a
    // separate directory, because the kernel holds the directory's lock meanwhile.
    fs::create_dir(fs.path().join("apart")).unwrap();
    let mut stuck = Command::new("sh")
        .args(["-c", ": > \"$0\""])
        .arg(fs.path().join("apart/stuck"))
        .spawn()
        .unwrap();
    until_true("a create hangs", Duration::from_secs(60), || {
        fs.hanging() == 1
    });
    File::create(fs.path().join("others go on")).unwrap();
    fs.release();
    assert!(stuck.wait().unwrap().success());
}
