//! Checks the tests' own instruments with plain system calls: the truth tests depend on them.

use crate::needs;
use crate::support::cgroup::DiskThrottle;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::loop_device::Mounted;
use crate::support::net::Network;
use crate::support::permit::permit;
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
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

#[test]
fn cgroup_throttles_a_loop_device() {
    needs!("root", "loop", "ext4", "cgroup");
    measured(|| {
        let _permit = permit();
        let fs = Mounted::on_loop("ext4", 256 << 20);
        let throttle = DiskThrottle::new(&fs.device_number(), 20_000_000);
        let file = fs.path().join("f");
        let began = Instant::now();
        let mut child = Command::new("sh")
            .args([
                "-c",
                "read go; exec dd if=/dev/zero of=\"$0\" bs=1M count=60 oflag=direct",
            ])
            .arg(&file)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        throttle.take(child.id());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        let rate = f64::from(60 << 20) / began.elapsed().as_secs_f64();
        timing!((19e6..21e6).contains(&rate), "{rate} bytes/s");
        let direct = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&file);
        assert!(direct.is_ok(), "direct I/O on the loop device");
        Ok(())
    });
}

#[test]
fn tbf_shapes_a_veth() {
    needs!("root", "netns");
    measured(|| {
        let _permit = permit();
        let network = Network::new(1);
        network.shape(1, 100);
        let listener = TcpListener::bind((network.host(), 0)).unwrap();
        let sink = network.inside(
            1,
            Command::new("bash").arg("-c").arg(format!(
                "exec cat < /dev/tcp/{}/{} > /dev/null",
                network.host(),
                listener.local_addr().unwrap().port()
            )),
        );
        let mut sink = { sink }.spawn().unwrap();
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        let block = vec![0; 64 << 10];
        let mut sent = 0_usize;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            sent += stream.write(&block).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut end = Vec::new();
        let _ = stream.read_to_end(&mut end);
        let taken = began.elapsed().as_secs_f64();
        assert!(sink.wait().unwrap().success());
        #[expect(clippy::cast_precision_loss, reason = "a few tens of MB")]
        let share = sent as f64 * 8.0 / taken / (100e6 * 1448.0 / 1514.0);
        timing!(
            (0.97..1.03).contains(&share),
            "{share} of the payload's share"
        );
        Ok(())
    });
}
