//! Rows that need no device: the cost of the harness itself.

use crate::ext4::Ext4;
use crate::ours::{self, Scene};
use crate::peers::{self, Direction};
use crate::table::{Baseline, Row, Unit};
use serde_json::json;
use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const MEMORY: &str = "/dev/shm";

pub fn null() -> Row {
    let spec = ours::spec("null", "run", json!({"ops": 5_000_000}));
    let fio = |more: &'static [&'static str]| {
        let mut arguments: Vec<String> = ["--ioengine=null", "--rw=read", "--bs=4k", "--size=20g"]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        move || Some(1e9 / peers::fio(&arguments)?.ops_per_second(Direction::Read))
    };
    Row {
        name: "null, one worker",
        unit: Unit::NanosPerOp,
        ours: Box::new(move || Some(ours::run(&spec).nanos_per_op())),
        baselines: vec![
            Baseline {
                name: "fio null engine",
                bar: "ours at most 100 ns",
                measure: Box::new(fio(&[])),
            },
            Baseline {
                name: "fio null engine, no latencies",
                bar: "-",
                measure: Box::new(fio(&["--gtod_reduce=1"])),
            },
        ],
    }
}

pub fn tmpfs_rewrite() -> Row {
    in_memory("io rewrite 1 MiB, tmpfs", "rewrite", Direction::Write)
}

pub fn tmpfs_read() -> Row {
    in_memory("io read 1 MiB, tmpfs", "read", Direction::Read)
}

pub fn ext4_warm_read() -> Row {
    let on_ext4 = || {
        let ext4 = Ext4::new()?;
        let scene = Scene::new(ext4.path());
        Some(Field {
            scene,
            _ext4: Some(ext4),
        })
    };
    over_and_over("io read 1 MiB warm, ext4", "read", Direction::Read, on_ext4)
}

fn in_memory(name: &'static str, mode: &'static str, direction: Direction) -> Row {
    over_and_over(name, mode, direction, || {
        Some(Field {
            scene: Scene::new(Path::new(MEMORY)),
            _ext4: None,
        })
    })
}

/// Fields drop in order: the scene before its file system.
struct Field {
    scene: Scene,
    _ext4: Option<Ext4>,
}

/// Overwrites an existing file repeatedly: allocating new pages would cost more than anything measured here.
fn over_and_over(
    name: &'static str,
    mode: &'static str,
    direction: Direction,
    make: fn() -> Option<Field>,
) -> Row {
    // Created when the first side needs it.
    let field: Rc<OnceCell<Option<Field>>> = Rc::default();
    let same = Rc::clone(&field);
    let params = json!({"bs": MIB, "size": "128m", "runtime": "600ms"});
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || {
            let field = field.get_or_init(make).as_ref()?;
            let spec = field.scene.spec("io", mode, params.clone());
            ours::lay_out(&spec);
            Some(ours::run(&spec).mib_per_second())
        }),
        baselines: vec![Baseline {
            name: "plain loop",
            bar: "0.95",
            measure: Box::new(move || {
                let field = same.get_or_init(make).as_ref()?;
                let file = field.scene.task_dir().join("w0.dat");
                let at_least = Duration::from_millis(600);
                Some(peers::plain_passes(&file, MIB, direction, at_least))
            }),
        }],
    }
}
