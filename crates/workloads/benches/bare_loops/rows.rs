//! Rows that need no device: what the harness itself costs.

use crate::ours::{self, Scene};
use crate::peers::{self, Direction};
use crate::table::{Baseline, Row, Unit};
use serde_json::json;
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
    tmpfs("io rewrite 1 MiB, tmpfs", "rewrite", Direction::Write)
}

pub fn tmpfs_read() -> Row {
    tmpfs("io read 1 MiB, tmpfs", "read", Direction::Read)
}

/// Over a file that is there, again and again: new pages cost more than anything that is measured here.
fn tmpfs(name: &'static str, mode: &'static str, direction: Direction) -> Row {
    let scene = Rc::new(Scene::new(Path::new(MEMORY)));
    let spec = scene.spec(
        "io",
        mode,
        json!({"bs": MIB, "size": "128m", "runtime": "600ms"}),
    );
    ours::lay_out(&spec);
    let file = scene.task_dir().join("w0.dat");
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || Some(ours::run(&spec).mib_per_second())),
        baselines: vec![Baseline {
            name: "plain loop",
            bar: "0.95",
            measure: Box::new(move || {
                let _keep = &scene;
                let at_least = Duration::from_millis(600);
                Some(peers::plain_passes(&file, MIB, direction, at_least))
            }),
        }],
    }
}
