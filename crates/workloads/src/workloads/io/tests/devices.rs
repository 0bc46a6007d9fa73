//! Raw block devices, on loop devices that the tests create.

use super::*;
use crate::engine::workload::Params;
use crate::registry;
use crate::target::sandbox::{AllowedDevices, Device, SandboxError};
use std::process::Command;

/// A loop device over a file of 16 MiB, detached at the end.
struct Loop {
    path: PathBuf,
    file: PathBuf,
    _dir: TempDir,
}

impl Loop {
    /// `None` without root: reports a skip, and panics where root is required.
    fn attach() -> Option<Loop> {
        if !may_be_root("raw devices") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("device");
        fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
        let attach = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&file)
            .output();
        let attach = attach.unwrap();
        assert!(attach.status.success(), "{attach:?}");
        let path = PathBuf::from(String::from_utf8(attach.stdout).unwrap().trim());
        Some(Loop {
            path,
            file,
            _dir: dir,
        })
    }

    fn content(&self) -> Vec<u8> {
        let flush = Command::new("blockdev")
            .arg("--flushbufs")
            .arg(&self.path)
            .status();
        assert!(flush.unwrap().success());
        fs::read(&self.file).unwrap()
    }

    fn spec(&self, mode: &str, params: Value, cell: &str) -> TaskSpec {
        let allowed = AllowedDevices::new(vec![self.path.clone()]).unwrap();
        let device = Device::claim(&allowed, &self.path, cell.to_owned());
        let mut spec = TaskSpec::new("io", mode, params.as_object().unwrap().clone());
        spec.place = Some(Place::Device(Arc::new(device.unwrap().unwrap())));
        spec
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detach = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
        drop(detach);
    }
}

#[test]
fn each_mode_works_on_each_workers_part_of_a_device() {
    let Some(device) = Loop::attach() else {
        return;
    };
    for more in [
        json!({}),
        json!({"iodepth": 8, "direct": true}),
        json!({"verify": 1}),
    ] {
        let mut params = json!({"size": "2m", "offset": "64k", "bs": "16k", "numjobs": 3});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let is_plain = more == json!({});
        if is_plain {
            // Make an operation of the engine `stdio` as large, and have a pass of `seek` only read.
            params["buffer"] = json!("16k");
            params["rewrite-share"] = json!(0);
            params["loops"] = json!(1);
        }
        let modes = MODES
            .iter()
            .filter(|mode| is_plain || !keys::STDIO.contains(&mode.name));
        for mode in modes {
            let (end, intervals) = run(&device.spec(mode.name, params.clone(), &more.to_string()));
            let place = format!("{} {params}", mode.name);
            assert_eq!(
                (end.state, &end.errors[..]),
                (End::Done, &[][..]),
                "{place}"
            );
            assert_eq!(totals(&intervals), (384, 6 << 20, 0), "{place}");
        }
        let content = device.content();
        let (used, rest) = content.split_at(3 * (2112 << 10));
        assert!(rest.iter().all(|byte| *byte == 0), "beyond the parts");
        let (mut pages, part) = (HashSet::new(), 2112 << 10);
        for worker in used.chunks(part) {
            assert!(
                worker.chunks(4096).skip(20).all(|page| pages.insert(page)),
                "{params}"
            );
        }
    }
}

#[test]
fn what_a_device_does_not_have_room_for_is_refused() {
    let Some(device) = Loop::attach() else {
        return;
    };
    let prepare = |size: &str| {
        let spec = device.spec("write", json!({"size": size, "numjobs": 2}), "c");
        registry::prepare(&spec, &PrepareControl::silent()).map(drop)
    };
    prepare("8m").unwrap();
    let error = crate::error_chain(&prepare("9m").unwrap_err());
    assert!(
        error.contains("16777216 bytes") && error.contains("do not fit"),
        "{error}"
    );
}

#[test]
fn a_device_that_is_not_allowed_or_not_free_is_left_alone() {
    let Some(device) = Loop::attach() else {
        return;
    };
    let none = AllowedDevices::default();
    assert!(
        Device::claim(&none, &device.path, String::new())
            .unwrap()
            .is_none()
    );
    let plain = AllowedDevices::new(vec![device.file.clone()]);
    assert!(matches!(plain, Err(SandboxError::NoDevice { .. })));

    let allowed = AllowedDevices::new(vec![device.path.clone()]).unwrap();
    let claim = || Device::claim(&allowed, &device.path, String::new());
    let held = claim().unwrap();
    assert!(
        matches!(claim(), Err(SandboxError::InUse { .. })),
        "claimed twice"
    );
    drop(held);

    let made = Command::new("mkfs.ext4")
        .arg("-q")
        .arg(&device.path)
        .status();
    assert!(made.unwrap().success());
    let at = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .arg(&device.path)
        .arg(at.path())
        .status();
    assert!(mounted.unwrap().success());
    let before = device.content();
    let refused = claim();
    let unmounted = Command::new("umount").arg(at.path()).status();
    assert!(unmounted.unwrap().success());
    let Err(SandboxError::InUse { path, by }) = refused else {
        panic!("a mounted device was claimed")
    };
    assert_eq!(by, format!("mounted at {}", at.path().display()));
    assert_eq!(path, device.path);
    assert!(before.len() == 16 << 20);

    let spec = device.spec("write", json!({"size": "1m"}), "c");
    let files = TaskSpec {
        workload: "files".to_owned(),
        mode: "create".to_owned(),
        params: Params::new(),
        ..spec
    };
    let error = registry::prepare(&files, &PrepareControl::silent()).unwrap_err();
    assert!(
        crate::error_chain(&error).contains("is a block device"),
        "{}",
        crate::error_chain(&error)
    );
}

/// Between fork and exec, a child process holds a copy of each claim that is released meanwhile.
#[test]
fn a_claim_is_not_refused_for_a_process_that_is_being_started() {
    let Some(device) = Loop::attach() else {
        return;
    };
    let allowed = AllowedDevices::new(vec![device.path.clone()]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            let mut started = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(Command::new("true").status().unwrap().success());
                started += 1;
            }
            started
        });
        let refused =
            (0..3000).find_map(|_| Device::claim(&allowed, &device.path, String::new()).err());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(starting.join().unwrap() > 0);
        assert!(refused.is_none(), "{refused:?}");
    });
}

/// The device's name refers to another disk than when it was allowed.
#[test]
fn a_device_that_was_exchanged_is_left_alone() {
    let Some(device) = Loop::attach() else {
        return;
    };
    let allowed = AllowedDevices::new(vec![device.path.clone()]).unwrap();
    let claim = || Device::claim(&allowed, &device.path, String::new());
    drop(claim().unwrap().unwrap());
    let other = device.file.with_file_name("other");
    fs::File::create(&other).unwrap().set_len(16 << 20).unwrap();
    let run = |arguments: &[&std::ffi::OsStr]| {
        let done = Command::new("losetup").args(arguments).status();
        assert!(done.unwrap().success());
    };
    let attach = |file: &std::path::Path| {
        run(&["--detach".as_ref(), device.path.as_os_str()]);
        run(&[device.path.as_os_str(), file.as_os_str()]);
    };
    attach(&other);
    let refused = claim().unwrap_err();
    assert!(
        matches!(refused, SandboxError::OtherDevice { .. }),
        "{refused}"
    );
    let text = refused.to_string();
    let was = format!("backing file {}", device.file.display());
    let is = format!("backing file {}", other.display());
    assert!(text.contains(&was) && text.contains(&is), "{text}");
    attach(&device.file);
    drop(claim().unwrap().unwrap());
}
