//! Rows of `files`, 4 KiB each, on tmpfs and on ext4, with one worker and with four, against plain loops of the same
//! system calls.
//!
//! Both sides have 20 directories of 1000 files for each worker, keep all directories open, count up names of the same
//! length in place, and use the same buffer sizes. `stat` and `read` use the very same files, because the placement of
//! the kernel's inodes in memory makes a difference of a third. Files are removed right before they are created again,
//! so that neither side pays for the host's memory allocation, and dirty data are written back before the clock starts.

use crate::ext4::Ext4;
use crate::ours::{self, Scene};
use crate::peers;
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::random::Random;
use benchmesh_workloads::task::TaskSpec;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde_json::json;
use std::cell::OnceCell;
use std::ffi::CStr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FILES_PER_DIRECTORY: u64 = 1000;
const FILE_BYTES: usize = 4096;
/// The stretch that written data are cut from.
const VARIETY_BYTES: usize = 256 << 10;
/// How long read-only modes repeat, and as long before that unmeasured: the first pass after a pause misses the
/// processor's caches and takes twice as long.
const MIN_TIME: Duration = Duration::from_millis(600);
const RAMP: Duration = Duration::from_millis(100);

/// Location of the files, and number of workers.
#[derive(Clone, Copy)]
struct Setup {
    kind: FileSystem,
    workers: u32,
    /// Passes per figure of a mode that changes the data.
    passes: u32,
}

#[derive(Clone, Copy)]
enum FileSystem {
    Tmpfs,
    Ext4,
}

const MEMORY: Setup = Setup {
    kind: FileSystem::Tmpfs,
    workers: 1,
    passes: 10,
};
const EXT4: Setup = Setup {
    kind: FileSystem::Ext4,
    workers: 1,
    passes: 3,
};

/// The file system of a setup, shared by both sides of a row and created when the first of them needs it.
#[derive(Clone, Default)]
struct Field(Rc<OnceCell<Option<Ext4>>>);

impl Field {
    /// The directory to work in; `None` if it cannot be created.
    fn directory(&self, kind: FileSystem) -> Option<&Path> {
        match kind {
            FileSystem::Tmpfs => Some(ours::elsewhere().unwrap_or(Path::new("/dev/shm"))),
            FileSystem::Ext4 => Some(self.0.get_or_init(Ext4::new).as_ref()?.path()),
        }
    }
}

/// Per worker. A mount takes as long for one as memory for all.
fn directories() -> u64 {
    ours::elsewhere().map_or(20, |_| 1)
}

/// Per worker.
fn files() -> u64 {
    directories() * FILES_PER_DIRECTORY
}

impl Setup {
    const fn with(self, workers: u32) -> Setup {
        Setup { workers, ..self }
    }

    const fn passing(self, passes: u32) -> Setup {
        Setup { passes, ..self }
    }

    fn passes(self) -> u32 {
        ours::elsewhere().map_or(self.passes, |_| 1)
    }

    fn files(self) -> u64 {
        files() * u64::from(self.workers)
    }
}

macro_rules! rows {
    ($($row:ident: $name:literal, $setup:expr, $make:ident($($what:expr),+);)+) => {
        $(pub fn $row() -> Row {
            $make($name, $setup, $($what),+)
        })+
        /// All of them, in the order of the table.
        pub const ALL: &[fn() -> Row] = &[$($row),+];
    };
}

rows! {
    create_memory: "files create 4 KiB, tmpfs, 1 worker", MEMORY, changing("create", Plain::create, Plain::delete);
    create_memory_4: "files create 4 KiB, tmpfs, 4 workers", MEMORY.with(4), changing("create", Plain::create, Plain::delete);
    create_ext4: "files create 4 KiB, ext4, 1 worker", EXT4, changing("create", Plain::create, Plain::delete);
    create_ext4_4: "files create 4 KiB, ext4, 4 workers", EXT4.with(4), changing("create", Plain::create, Plain::delete);
    stat_memory: "files stat 4 KiB, tmpfs, 1 worker", MEMORY, repeating("stat", Plain::stat);
    stat_memory_4: "files stat 4 KiB, tmpfs, 4 workers", MEMORY.with(4), repeating("stat", Plain::stat);
    stat_memory_once: "files stat 4 KiB, one pass, tmpfs, 1 worker", MEMORY, one_pass("stat", Plain::stat);
    stat_memory_once_4: "files stat 4 KiB, one pass, tmpfs, 4 workers", MEMORY.with(4), one_pass("stat", Plain::stat);
    stat_ext4: "files stat 4 KiB, ext4, 1 worker", EXT4, repeating("stat", Plain::stat);
    stat_ext4_4: "files stat 4 KiB, ext4, 4 workers", EXT4.with(4), repeating("stat", Plain::stat);
    read_memory: "files read 4 KiB, tmpfs, 1 worker", MEMORY, repeating("read", Plain::read);
    read_memory_4: "files read 4 KiB, tmpfs, 4 workers", MEMORY.with(4), repeating("read", Plain::read);
    read_ext4: "files read 4 KiB, ext4, 1 worker", EXT4, repeating("read", Plain::read);
    read_ext4_4: "files read 4 KiB, ext4, 4 workers", EXT4.with(4), repeating("read", Plain::read);
    append_memory: "files append 4 KiB, tmpfs, 1 worker", MEMORY.passing(3), changing("append", Plain::append, Plain::complete);
    append_ext4: "files append 4 KiB, ext4, 1 worker", EXT4.passing(1), changing("append", Plain::append, Plain::complete);
    rename_memory: "files rename 4 KiB, tmpfs, 1 worker", MEMORY, changing("rename", Plain::rename, Plain::complete);
    delete_memory: "files delete 4 KiB, tmpfs, 1 worker", MEMORY, changing("delete", Plain::delete, Plain::create);
    delete_memory_4: "files delete 4 KiB, tmpfs, 4 workers", MEMORY.with(4), changing("delete", Plain::delete, Plain::create);
    delete_ext4: "files delete 4 KiB, ext4, 1 worker", EXT4, changing("delete", Plain::delete, Plain::create);
    delete_ext4_4: "files delete 4 KiB, ext4, 4 workers", EXT4.with(4), changing("delete", Plain::delete, Plain::create);
}

fn row(
    name: &'static str,
    ours: impl FnMut() -> Option<f64> + 'static,
    plain: impl FnMut() -> Option<f64> + 'static,
) -> Row {
    Row {
        name,
        unit: Unit::KiloOpsPerSecond,
        ours: Box::new(ours),
        baselines: vec![Baseline {
            name: "plain loop",
            bar: "0.95",
            measure: Box::new(plain),
        }],
    }
}

fn spec(scene: &Scene, setup: Setup, mode: &str, runtime: Option<Duration>) -> TaskSpec {
    let mut params = json!({
        "files": setup.files(), "dirs": FILES_PER_DIRECTORY, "size": FILE_BYTES, "numjobs": setup.workers
    });
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

/// Plain loops in threads, like workers: the kernel counts references to a descriptor once threads share it, and a
/// single-threaded process would avoid that cost.
fn together(plains: &mut [Plain], act: impl Fn(&mut Plain) + Sync) -> Duration {
    let acts: Vec<_> = plains.iter_mut().map(|plain| || act(plain)).collect();
    peers::together(acts)
}

/// Trees like those of a cell's workers.
fn plains(root: &Path, setup: Setup) -> Vec<Plain> {
    let tree = |worker| Plain::new(&root.join(format!("w{worker:09}")));
    (0..setup.workers).map(tree).collect()
}

/// Passes that change the data, each after an unmeasured restoration of the data.
fn changing(
    name: &'static str,
    setup: Setup,
    mode: &'static str,
    pass: fn(&mut Plain),
    bring_back: fn(&mut Plain),
) -> Row {
    let scene = OnceCell::new();
    let mut theirs: Option<(tempfile::TempDir, Vec<Plain>)> = None;
    let field = Field::default();
    let same = field.clone();
    let ours = move || {
        let parent = field.directory(setup.kind)?;
        let scene = scene.get_or_init(|| Scene::new(parent));
        let (mut ops, mut seconds) = (0, 0.0);
        for _ in 0..setup.passes() {
            let outcome = ours::run(&spec(scene, setup, mode, None));
            ops += outcome.ops;
            seconds += outcome.seconds;
        }
        Some(ops as f64 / 1000.0 / seconds)
    };
    let plain = move || {
        let parent = same.directory(setup.kind)?;
        let (root, plains) = theirs.get_or_insert_with(|| {
            let root = tempfile::tempdir_in(parent).expect("a directory for the data");
            // At the same depth as a cell's tree.
            let plains = plains(&root.path().join("run/cell/t0"), setup);
            (root, plains)
        });
        let mut took = Duration::ZERO;
        for _ in 0..setup.passes() {
            together(plains, bring_back);
            let root = std::fs::File::open(root.path()).expect("it is there");
            rustix::fs::syncfs(&root).expect("it can be written");
            took += together(plains, pass);
        }
        Some(f64::from(setup.passes()) * setup.files() as f64 / 1000.0 / took.as_secs_f64())
    };
    row(name, ours, plain)
}

/// The scene in its file system, with the data of a mode; created when the first side needs it.
fn laid_out_scene<'a>(
    (scene, field): &'a (OnceCell<Scene>, Field),
    setup: Setup,
    mode: &str,
) -> Option<&'a Scene> {
    let parent = field.directory(setup.kind)?;
    Some(scene.get_or_init(|| {
        let scene = Scene::new(parent);
        ours::lay_out(&spec(&scene, setup, mode, Some(MIN_TIME)));
        scene
    }))
}

/// One pass each, some 20 ms, so a worker's start-up cost counts.
fn one_pass(name: &'static str, setup: Setup, mode: &'static str, pass: fn(&mut Plain)) -> Row {
    let laid_out: Rc<(OnceCell<Scene>, Field)> = Rc::default();
    let same = Rc::clone(&laid_out);
    let ours = move || {
        let scene = laid_out_scene(&laid_out, setup, mode)?;
        Some(ours::run(&spec(scene, setup, mode, None)).kilo_ops_per_second())
    };
    let plain = move || {
        let scene = laid_out_scene(&same, setup, mode)?;
        let took = together(&mut plains(&scene.task_dir(), setup), pass);
        Some(setup.files() as f64 / 1000.0 / took.as_secs_f64())
    };
    row(name, ours, plain)
}

fn repeating(name: &'static str, setup: Setup, mode: &'static str, pass: fn(&mut Plain)) -> Row {
    // Fields drop in order: the scene before its file system.
    let laid_out: Rc<(OnceCell<Scene>, Field)> = Rc::default();
    let same = Rc::clone(&laid_out);
    let ours = move || {
        let scene = laid_out_scene(&laid_out, setup, mode)?;
        let spec = spec(scene, setup, mode, Some(MIN_TIME));
        Some(ours::run_ramped(&spec, RAMP).kilo_ops_per_second())
    };
    let plain = move || {
        let scene = laid_out_scene(&same, setup, mode)?;
        let mut plains = plains(&scene.task_dir(), setup);
        let until = |limit: Duration| {
            move |plain: &mut Plain| {
                let began = Instant::now();
                while began.elapsed() < limit {
                    pass(plain);
                    plain.passes += 1;
                }
            }
        };
        together(&mut plains, until(RAMP));
        plains.iter_mut().for_each(|plain| plain.passes = 0);
        let took = together(&mut plains, until(MIN_TIME));
        let passes: u32 = plains.iter().map(|plain| plain.passes).sum();
        Some(f64::from(passes) * files() as f64 / 1000.0 / took.as_secs_f64())
    };
    row(name, ours, plain)
}

/// A tree like a worker's, and loops over it without measuring.
struct Plain {
    directories: Vec<OwnedFd>,
    buffer: Vec<u8>,
    letter: u8,
    passes: u32,
}

fn random(bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    Random::new(7).fill(&mut buffer);
    buffer
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
    /// For a worker's tree; creates it if needed.
    fn new(root: &Path) -> Plain {
        let open = |number| {
            let path = root.join(format!("d{number:09}"));
            std::fs::create_dir_all(&path).expect("a directory for the data");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, &path, flags, Mode::empty()).expect("it was made")
        };
        Plain {
            directories: (0..directories()).map(open).collect(),
            buffer: random(VARIETY_BYTES),
            letter: b'c',
            passes: 0,
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
        let mut from = 0;
        self.each(|directory, name, buffer| {
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            let file = rustix::fs::openat(directory, name, flags, mode).expect("it is new");
            let data = buffer.get(from..from + FILE_BYTES).expect("it is in turn");
            assert_eq!(rustix::io::write(&file, data), Ok(FILE_BYTES));
            from = (from + FILE_BYTES) % VARIETY_BYTES;
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
            let buffer = buffer.get_mut(..FILE_BYTES).expect("it is longer");
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

    fn append(&mut self) {
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.each(|directory, name, buffer| {
            let file =
                rustix::fs::openat(directory, name, flags, Mode::empty()).expect("it is there");
            let data = buffer.get(..FILE_BYTES).expect("it is longer");
            assert_eq!(rustix::io::write(&file, data), Ok(FILE_BYTES));
        });
    }

    /// Creates missing files.
    fn complete(&mut self) {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        self.each(|directory, name, _| {
            let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
            drop(file.expect("there is room"));
        });
    }

    fn delete(&mut self) {
        self.each(|directory, name, _| {
            // The first pass finds nothing to remove.
            let _absent = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        });
    }
}
