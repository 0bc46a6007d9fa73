//! Rows of `files` with 4 KiB each on tmpfs, with one worker and with four. Both sides have 20 directories of 1000
//! files for each worker, keep all directories open, have names of the same length, and use the same buffer sizes.

use crate::{Measure, PLAIN, Row, Scene, TMPFS, Unit, open, prepare, row, run, together};
use benchmesh_workloads::random::Random;
use benchmesh_workloads::task::TaskSpec;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use serde_json::json;
use std::ffi::CStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Per worker.
const DIRECTORIES: usize = 20;
const FILES_PER_DIRECTORY: usize = 1000;
const FILE_BYTES: usize = 4096;
/// The stretch that written data are cut from.
const VARIETY_BYTES: usize = 256 << 10;
/// How long read-only modes repeat, and as long before that unmeasured: the first pass after a pause misses the
/// processor's caches and takes twice as long.
const FOR: Duration = Duration::from_millis(600);
const RAMP: Duration = Duration::from_millis(100);

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for workers in [1, 4] {
        rows.push(changing(
            "create",
            workers,
            10,
            Plain::create,
            Plain::delete,
        ));
        rows.push(reading("stat", workers, FOR, Plain::stat));
        rows.push(reading("stat", workers, Duration::ZERO, Plain::stat));
        rows.push(reading("read", workers, FOR, Plain::read));
        rows.push(changing(
            "delete",
            workers,
            10,
            Plain::delete,
            Plain::create,
        ));
    }
    rows.push(changing("append", 1, 3, Plain::append, Plain::complete));
    rows.push(changing("rename", 1, 10, Plain::rename, Plain::complete));
    rows
}

fn files_row(
    what: &str,
    workers: usize,
    sides: impl FnOnce() -> (Measure, Measure) + 'static,
) -> Row {
    let plural = if workers > 1 { "s" } else { "" };
    let name = format!("files {what}, tmpfs, {workers} worker{plural}");
    row(name, Unit::KiloOpsPerSecond, (PLAIN, "0.95"), sides)
}

fn files_spec(scene: &Scene, mode: &str, workers: usize, lasting: Duration) -> TaskSpec {
    let files = workers * DIRECTORIES * FILES_PER_DIRECTORY;
    let mut params = json!({"files": files, "dirs": FILES_PER_DIRECTORY, "size": FILE_BYTES, "numjobs": workers});
    if !lasting.is_zero() {
        params["runtime"] = json!(format!("{}ms", lasting.as_millis()));
        params["ramp_time"] = json!(format!("{}ms", RAMP.as_millis()));
    }
    scene.spec("files", mode, params)
}

/// Passes that change the data, each after an unmeasured restoration: files are removed right before they are created
/// again, so that neither side pays for the host's memory allocation.
fn changing(
    mode: &'static str,
    workers: usize,
    passes: usize,
    pass: fn(&mut Plain),
    restore: fn(&mut Plain),
) -> Row {
    files_row(&format!("{mode} 4 KiB"), workers, move || {
        let (our_scene, their_scene) = (Scene::new(TMPFS), Scene::new(TMPFS));
        let spec = files_spec(&our_scene, mode, workers, Duration::ZERO);
        let ours = move || {
            let _keep = &our_scene;
            let (mut ops, mut seconds) = (0.0, 0.0);
            for _ in 0..passes {
                let outcome = run(&spec, Duration::ZERO);
                ops += outcome.ops;
                seconds += outcome.seconds;
            }
            Some(ops / 1000.0 / seconds)
        };
        // At the same depth as a cell's tree.
        let mut plains = Plain::trees(&their_scene.root.path().join("run/cell/t0"), workers);
        let theirs = move || {
            let _keep = &their_scene;
            let mut took = Duration::ZERO;
            for _ in 0..passes {
                Plain::all(&mut plains, restore);
                took += Plain::all(&mut plains, pass);
            }
            Some(Plain::kilo_files(passes * workers) / took.as_secs_f64())
        };
        (Box::new(ours), Box::new(theirs))
    })
}

/// Passes over the same files: the placement of the kernel's inodes in memory makes a difference of a third. Without
/// a time it is one pass of some 20 ms, in which a worker's start-up cost counts.
fn reading(mode: &'static str, workers: usize, lasting: Duration, pass: fn(&mut Plain)) -> Row {
    let once = if lasting.is_zero() { ", one pass" } else { "" };
    files_row(&format!("{mode} 4 KiB{once}"), workers, move || {
        let scene = Scene::new(TMPFS);
        let spec = files_spec(&scene, mode, workers, lasting);
        drop(prepare(&spec));
        let ramp = if lasting.is_zero() { lasting } else { RAMP };
        let theirs = move || {
            let mut plains = Plain::trees(&scene.task_dir(), workers);
            let passes_for = |limit: Duration| {
                move |plain: &mut Plain| {
                    let began = Instant::now();
                    plain.passes = 0;
                    while plain.passes == 0 || began.elapsed() < limit {
                        pass(plain);
                        plain.passes += 1;
                    }
                }
            };
            if !ramp.is_zero() {
                Plain::all(&mut plains, passes_for(ramp));
            }
            let took = Plain::all(&mut plains, passes_for(lasting));
            let passes = plains.iter().map(|plain| plain.passes).sum();
            Some(Plain::kilo_files(passes) / took.as_secs_f64())
        };
        let ours = move || Some(run(&spec, ramp).kilo_ops_per_second());
        (Box::new(ours), Box::new(theirs))
    })
}

/// A letter and nine digits.
#[derive(Clone, Copy)]
struct Name([u8; 11]);

impl Name {
    fn new(letter: u8) -> Name {
        let mut name = *b"_000000000\0";
        name[0] = letter;
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

/// A tree like a worker's, and loops over it without measuring.
struct Plain {
    directories: Vec<OwnedFd>,
    buffer: Vec<u8>,
    letter: u8,
    passes: usize,
}

impl Plain {
    /// Trees like those of a cell's workers; missing directories are created.
    fn trees(root: &Path, workers: usize) -> Vec<Plain> {
        let directory = |worker: usize, number: usize| {
            let path = root.join(format!("w{worker:09}/d{number:09}"));
            std::fs::create_dir_all(&path).expect("a directory for the data");
            open(&path, OFlags::RDONLY | OFlags::DIRECTORY)
        };
        let mut buffer = vec![0; VARIETY_BYTES];
        Random::new(7).fill(&mut buffer);
        let tree = |worker| Plain {
            directories: (0..DIRECTORIES)
                .map(|number| directory(worker, number))
                .collect(),
            buffer: buffer.clone(),
            letter: b'c',
            passes: 0,
        };
        (0..workers).map(tree).collect()
    }

    /// Each in a thread of its own.
    fn all(plains: &mut [Plain], act: impl Fn(&mut Plain) + Sync) -> Duration {
        let act = &act;
        together(plains.iter_mut().map(|plain| move || act(plain)).collect())
    }

    /// Thousands of files in passes over a worker's tree.
    fn kilo_files(passes: usize) -> f64 {
        (passes * DIRECTORIES * FILES_PER_DIRECTORY) as f64 / 1000.0
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

    /// Opens each file.
    #[inline(always)]
    fn opened(&mut self, flags: OFlags, mut act: impl FnMut(OwnedFd, &mut [u8])) {
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644));
        self.each(|directory, name, buffer| {
            let file = rustix::fs::openat(directory, name, flags, mode);
            act(file.expect("the tree is as expected"), buffer);
        });
    }

    fn create(&mut self) {
        let mut from = 0;
        self.opened(
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
            |file, buffer| {
                let data = &buffer[from..from + FILE_BYTES];
                assert_eq!(rustix::io::write(&file, data), Ok(FILE_BYTES));
                from = (from + FILE_BYTES) % VARIETY_BYTES;
            },
        );
    }

    fn stat(&mut self) {
        self.each(|directory, name, _| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).expect("it is there");
        });
    }

    fn read(&mut self) {
        self.opened(OFlags::RDONLY | OFlags::NOFOLLOW, |file, buffer| {
            assert_eq!(
                rustix::io::read(&file, &mut buffer[..FILE_BYTES]),
                Ok(FILE_BYTES)
            );
        });
    }

    fn append(&mut self) {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        self.opened(flags, |file, buffer| {
            assert_eq!(
                rustix::io::write(&file, &buffer[..FILE_BYTES]),
                Ok(FILE_BYTES)
            );
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

    /// Creates missing files.
    fn complete(&mut self) {
        self.opened(OFlags::CREATE | OFlags::WRONLY, |_, _| ());
    }

    fn delete(&mut self) {
        self.each(|directory, name, _| {
            // The first pass finds nothing to remove.
            let _absent = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        });
    }
}
