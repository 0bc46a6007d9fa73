//! Rows on the disk: one pass over one file of 512 MiB, the same file for all contestants.

use crate::ours::{self, Scene};
use crate::peers::{self, Direction};
use crate::table::{Baseline, Row, Unit};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FILE_BYTES: u64 = 512 << 20;

/// A file that all contestants of a row use; our first run creates it.
pub struct Field {
    scene: Scene,
}

impl Field {
    /// On the disk.
    pub fn new() -> Rc<Field> {
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
        Field::beneath(ours::elsewhere().unwrap_or(disk))
    }

    pub fn beneath(parent: &Path) -> Rc<Field> {
        let scene = Scene::new(parent);
        Rc::new(Field { scene })
    }

    pub fn spec(&self, mode: &str, more: Value) -> benchmesh_workloads::task::TaskSpec {
        let mut params = json!({"bs": "1m", "size": FILE_BYTES});
        if let (Some(all), Some(more)) = (params.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        self.scene.spec("io", mode, params)
    }

    fn file(&self) -> PathBuf {
        self.scene.task_dir().join("w0.dat")
    }

    /// In the same directory, for a baseline that creates its own file.
    fn other_file(&self) -> PathBuf {
        self.scene.task_dir().join("peer.dat")
    }

    /// fio's psync on the same file.
    fn fio(&self, more: &[&str]) -> Option<peers::Fio> {
        self.fio_with("psync", more)
    }

    /// One of fio's engines on the same file.
    pub fn fio_with(&self, engine: &str, more: &[&str]) -> Option<peers::Fio> {
        let mut arguments = vec![
            format!("--filename={}", self.file().display()),
            format!("--size={FILE_BYTES}"),
            format!("--ioengine={engine}"),
            "--scramble_buffers=1".to_owned(),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        peers::fio(&arguments)
    }

    fn dd_read(&self, more: &[&str]) -> Option<f64> {
        self.dd(
            format!("if={}", self.file().display()),
            "of=/dev/null",
            more,
        )
    }

    /// The source is /dev/zero; clearing its buffer is part of dd's work.
    fn dd_write(&self, more: &[&str]) -> Option<f64> {
        self.dd(
            format!("of={}", self.file().display()),
            "if=/dev/zero",
            more,
        )
    }

    fn dd(&self, file: String, other: &str, more: &[&str]) -> Option<f64> {
        let count = format!("count={}", FILE_BYTES >> 20);
        let mut arguments = vec![file, other.to_owned(), "bs=1M".to_owned(), count];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        peers::dd(&arguments, FILE_BYTES)
    }
}

fn baseline(
    name: &'static str,
    bar: &'static str,
    field: &Rc<Field>,
    measure: impl Fn(&Field) -> Option<f64> + 'static,
) -> Baseline {
    let field = Rc::clone(field);
    Baseline {
        name,
        bar,
        measure: Box::new(move || measure(&field)),
    }
}

/// A row whose `ours` is one pass of `io` after `before`.
fn row(
    name: &'static str,
    field: Rc<Field>,
    mode: &'static str,
    params: Value,
    before: fn(&Field),
    baselines: Vec<Baseline>,
) -> Row {
    let spec = field.spec(mode, params);
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || Some(ours::run_after(&spec, || before(&field)).mib_per_second())),
        baselines,
    }
}

fn cold(field: &Field) {
    peers::forget(&field.file());
}

fn as_it_is(_: &Field) {}

pub fn buffered_rewrite() -> Row {
    let field = Field::new();
    let fio = baseline("fio psync, end_fsync", "equal", &field, |field| {
        let fio = field.fio(&["--rw=write", "--bs=1m", "--end_fsync=1", "--overwrite=1"])?;
        Some(fio.mib_per_second_in_all(Direction::Write))
    });
    let dd = baseline("dd conv=fsync", "equal", &field, |field| {
        field.dd_write(&["conv=notrunc,fsync"])
    });
    row(
        "io rewrite 1 MiB + fsync, disk",
        field,
        "rewrite",
        json!({"end_fsync": true}),
        as_it_is,
        vec![fio, dd],
    )
}

/// Creates a new file, as a first pass over a target does.
pub fn buffered_write() -> Row {
    let field = Field::new();
    let fio = baseline("fio psync, end_fsync", "equal", &field, |field| {
        drop(std::fs::remove_file(field.other_file()));
        let file = format!("--filename={}", field.other_file().display());
        let fio = ["--rw=write", "--bs=1m", "--end_fsync=1", "--fallocate=none"];
        let fio = field.fio(&[[file.as_str()].as_slice(), &fio].concat())?;
        Some(fio.mib_per_second_in_all(Direction::Write))
    });
    let plain = |name, bar, data| {
        baseline(name, bar, &field, move |field| {
            let file = field.other_file();
            drop(std::fs::remove_file(&file));
            Some(peers::plain_write(&file, 1 << 20, FILE_BYTES, data))
        })
    };
    let random = plain("plain loop", "0.95", peers::Block::Random);
    let zeros = plain("plain loop, zeros", "-", peers::Block::Zeros);
    row(
        "io write 1 MiB + fsync, disk",
        field,
        "write",
        json!({"end_fsync": true}),
        as_it_is,
        vec![fio, random, zeros],
    )
}

pub fn buffered_read() -> Row {
    let field = Field::new();
    // fio evicts the file itself, once it runs: in a virtual machine, pages evicted earlier go back to the host and
    // return slowly.
    let fio = baseline("fio psync", "equal", &field, |field| {
        Some(
            field
                .fio(&["--rw=read", "--bs=1m"])?
                .mib_per_second(Direction::Read),
        )
    });
    let dd = baseline("dd", "equal", &field, |field| {
        cold(field);
        field.dd_read(&[])
    });
    let params = json!({});
    row(
        "io read 1 MiB cold, disk",
        field,
        "read",
        params,
        cold,
        vec![fio, dd],
    )
}

pub fn direct_rewrite() -> Row {
    direct(
        "io rewrite 1 MiB direct, disk",
        Direction::Write,
        Buffers::Huge,
    )
}

pub fn direct_read() -> Row {
    direct("io read 1 MiB direct, disk", Direction::Read, Buffers::Huge)
}

pub fn direct_rewrite_small() -> Row {
    let name = "io rewrite 1 MiB direct, disk, 4 KiB pages";
    direct(name, Direction::Write, Buffers::Small)
}

pub fn direct_read_small() -> Row {
    let name = "io read 1 MiB direct, disk, 4 KiB pages";
    direct(name, Direction::Read, Buffers::Small)
}

/// Pages of our buffers; those of dd and fio are on 4 KiB pages.
#[derive(Clone, Copy, PartialEq)]
enum Buffers {
    Huge,
    Small,
}

fn direct(name: &'static str, direction: Direction, buffers: Buffers) -> Row {
    let field = Field::new();
    let (fio_bar, dd_bar) = match buffers {
        Buffers::Huge => ("1.00", "1.3"),
        Buffers::Small => ("equal", "equal"),
    };
    let fio = baseline("fio psync", fio_bar, &field, move |field| {
        let rw = match direction {
            Direction::Read => "--rw=read",
            Direction::Write => "--rw=write",
        };
        let fio = field.fio(&[rw, "--bs=1m", "--direct=1", "--overwrite=1"])?;
        Some(fio.mib_per_second(direction))
    });
    let dd = baseline("dd direct", dd_bar, &field, move |field| match direction {
        Direction::Read => field.dd_read(&["iflag=direct"]),
        Direction::Write => field.dd_write(&["oflag=direct", "conv=notrunc"]),
    });
    let mode = match direction {
        Direction::Read => "read",
        Direction::Write => "rewrite",
    };
    let spec = field.spec(mode, json!({"direct": true}));
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || {
            let small = buffers == Buffers::Small;
            rustix::thread::disable_transparent_huge_pages(small).expect("a switch of our own");
            let outcome = ours::run(&spec);
            rustix::thread::disable_transparent_huge_pages(false).expect("as before");
            let _keep = &field;
            Some(outcome.mib_per_second())
        }),
        baselines: vec![fio, dd],
    }
}

pub fn direct_randread() -> Row {
    let field = Field::new();
    let params = json!({"bs": "4k", "direct": true, "runtime": "1s"});
    let spec = field.spec("randread", params);
    let fio = baseline("fio psync", "equal", &field, |field| {
        let timed = ["--time_based", "--runtime=1", "--direct=1"];
        let fio = field.fio(&[["--rw=randread", "--bs=4k"].as_slice(), &timed].concat())?;
        Some(fio.ops_per_second(Direction::Read) / 1000.0)
    });
    Row {
        name: "io randread 4 KiB direct, disk",
        unit: Unit::KiloOpsPerSecond,
        ours: Box::new(move || {
            let _keep = &field;
            Some(ours::run(&spec).kilo_ops_per_second())
        }),
        baselines: vec![fio],
    }
}
