//! Rows of `files` on tmpfs: one worker, 4 KiB, against plain loops of the same system calls.
//!
//! Both sides have 20 directories of 1000 files, all descriptors kept, names of the same length counted up in place, and
//! the same buffer sizes; `stat` and `read` go over the very same files, because where the kernel's own memory of them
//! lies makes a difference of a third. Files are removed right before they are created anew, so that nobody pays for
//! the host's handing out memory.

use crate::ours::{self, Scene};
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::task::TaskSpec;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde_json::json;
use std::ffi::CStr;
use std::path::Path;
use std::time::{Duration, Instant};

const MEMORY: &str = "/dev/shm";
const DIRECTORIES: u64 = 20;
const FILES_PER_DIRECTORY: u64 = 1000;
const FILES: u64 = DIRECTORIES * FILES_PER_DIRECTORY;
const FILE_BYTES: usize = 4096;
/// Passes that a figure of a mode that changes the data is made of.
const PASSES: u32 = 10;
/// How long the other modes repeat, and before that, unmeasured: the first pass after a pause finds nothing in the
/// processor's caches and takes twice as long.
const AT_LEAST: Duration = Duration::from_millis(600);
const RAMP: Duration = Duration::from_millis(100);

pub fn create() -> Row {
    changing(
        "files create 4 KiB, tmpfs",
        "create",
        Plain::create,
        |plain| {
            plain.delete();
        },
    )
}

pub fn delete() -> Row {
    changing(
        "files delete 4 KiB, tmpfs",
        "delete",
        Plain::delete,
        |plain| {
            plain.create();
        },
    )
}

pub fn rename() -> Row {
    changing("files rename 4 KiB, tmpfs", "rename", Plain::rename, |_| {})
}

pub fn stat() -> Row {
    repeating("files stat 4 KiB, tmpfs", "stat", Plain::stat)
}

pub fn read() -> Row {
    repeating("files read 4 KiB, tmpfs", "read", Plain::read)
}

/// The plain loop runs in a thread, as a worker does: the kernel counts references to a descriptor as soon as threads
/// share them, and a loop in a process of one thread would be spared that.
fn row(
    name: &'static str,
    ours: impl FnMut() -> f64 + 'static,
    plain: impl FnMut() -> f64 + Send + 'static,
) -> Row {
    let (mut ours, mut plain) = (ours, plain);
    let mut in_a_thread = move || {
        let plain = &mut plain;
        std::thread::scope(|scope| scope.spawn(plain).join().expect("it counted"))
    };
    Row {
        name,
        unit: Unit::KiloOpsPerSecond,
        ours: Box::new(move || Some(ours())),
        baselines: vec![Baseline {
            name: "plain loop",
            bar: "0.90",
            measure: Box::new(move || Some(in_a_thread())),
        }],
    }
}

fn spec(scene: &Scene, mode: &str, runtime: Option<Duration>) -> TaskSpec {
    let mut params = json!({"files": FILES, "dirs": FILES_PER_DIRECTORY, "size": FILE_BYTES});
    if let (Some(runtime), Some(params)) = (runtime, params.as_object_mut()) {
        params.insert(
            "runtime".to_owned(),
            json!(format!("{}ms", runtime.as_millis())),
        );
        params.insert(
            "ramp_time".to_owned(),
            json!(format!("{}ms", RAMP.as_millis())),
        );
    }
    scene.spec("files", mode, params)
}

/// Passes that change the data, each with the data brought back before it, unmeasured.
fn changing(
    name: &'static str,
    mode: &'static str,
    pass: fn(&mut Plain),
    bring_back: fn(&mut Plain),
) -> Row {
    let scene = Scene::new(Path::new(MEMORY));
    let root = tempfile::tempdir_in(MEMORY).expect("a directory for the data");
    // As deep as a cell's tree is.
    let mut plain = Plain::new(&root.path().join("run/cell/t0/w000000000"));
    if mode == "rename" {
        plain.create();
    }
    let ours = move || {
        let (mut ops, mut seconds) = (0, 0.0);
        for _ in 0..PASSES {
            let outcome = ours::run(&spec(&scene, mode, None));
            ops += outcome.ops;
            seconds += outcome.seconds;
        }
        ops as f64 / 1000.0 / seconds
    };
    let theirs = move || {
        let _keep = &root;
        let mut took = Duration::ZERO;
        for _ in 0..PASSES {
            bring_back(&mut plain);
            let began = Instant::now();
            pass(&mut plain);
            took += began.elapsed();
        }
        f64::from(PASSES) * FILES as f64 / 1000.0 / took.as_secs_f64()
    };
    row(name, ours, theirs)
}

fn repeating(name: &'static str, mode: &'static str, pass: fn(&mut Plain)) -> Row {
    let scene = Scene::new(Path::new(MEMORY));
    let spec = spec(&scene, mode, Some(AT_LEAST));
    ours::lay_out(&spec);
    let mut plain = Plain::new(&scene.task_dir().join("w000000000"));
    let ours = move || {
        let _keep = &scene;
        ours::run_ramped(&spec, RAMP).kilo_ops_per_second()
    };
    let theirs = move || {
        let warming = Instant::now();
        while warming.elapsed() < RAMP {
            pass(&mut plain);
        }
        let mut passes = 0.0;
        let began = Instant::now();
        while began.elapsed() < AT_LEAST {
            pass(&mut plain);
            passes += 1.0;
        }
        passes * FILES as f64 / 1000.0 / began.elapsed().as_secs_f64()
    };
    row(name, ours, theirs)
}

/// A tree like a worker's, and loops over it that measure nothing.
struct Plain {
    directories: Vec<OwnedFd>,
    buffer: Vec<u8>,
    letter: u8,
}

/// A letter and nine digits.
struct Name([u8; 11]);

impl Name {
    fn new(letter: u8) -> Name {
        let mut name = [b'0'; 11];
        name[0] = letter;
        name[10] = 0;
        Name(name)
    }

    fn advance(&mut self) {
        for digit in self.0[1..10].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.0).expect("only the last byte is NUL")
    }
}

impl Plain {
    /// Over a worker's tree, made where it is not there.
    fn new(root: &Path) -> Plain {
        let open = |number| {
            let path = root.join(format!("d{number:09}"));
            std::fs::create_dir_all(&path).expect("a directory for the data");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, &path, flags, Mode::empty()).expect("it was made")
        };
        Plain {
            directories: (0..DIRECTORIES).map(open).collect(),
            buffer: vec![7; FILE_BYTES],
            letter: b'c',
        }
    }

    #[inline(always)]
    fn each(&mut self, mut act: impl FnMut(&OwnedFd, &CStr, &mut [u8])) {
        let mut name = Name::new(self.letter);
        for directory in &self.directories {
            for _ in 0..FILES_PER_DIRECTORY {
                act(directory, name.as_c_str(), &mut self.buffer);
                name.advance();
            }
        }
    }

    fn create(&mut self) {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        self.each(|directory, name, buffer| {
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            let file = rustix::fs::openat(directory, name, flags, mode).expect("it is new");
            assert_eq!(rustix::io::write(&file, buffer), Ok(FILE_BYTES));
        });
    }

    fn stat(&mut self) {
        self.each(|directory, name, _| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).expect("it is there");
        });
    }

    fn read(&mut self) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.each(|directory, name, buffer| {
            let file =
                rustix::fs::openat(directory, name, flags, Mode::empty()).expect("it is there");
            assert_eq!(rustix::io::read(&file, buffer), Ok(FILE_BYTES));
        });
    }

    fn rename(&mut self) {
        let mut new_name = Name::new(if self.letter == b'c' { b'r' } else { b'c' });
        self.each(|directory, name, _| {
            let renamed = rustix::fs::renameat(directory, name, directory, new_name.as_c_str());
            renamed.expect("it is there");
            new_name.advance();
        });
        self.letter = new_name.0[0];
    }

    fn delete(&mut self) {
        self.each(|directory, name, _| {
            // The first pass finds nothing to remove.
            let _absent = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        });
    }
}
