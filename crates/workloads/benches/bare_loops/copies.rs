//! A row of `copy`: one file of 1 GiB on the disk, copied to the same directory, against cp.

use crate::ours::{self, Scene};
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::sandbox::Allowed;
use benchmesh_workloads::task::TaskSpec;
use serde_json::json;
use std::cell::OnceCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

const MIB: usize = 1 << 20;
const FILE_MIB: usize = 1024;

/// The file in its own directory, and a cell on the same disk.
struct Field {
    source: tempfile::TempDir,
    scene: Scene,
}

impl Field {
    fn new() -> Field {
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = tempfile::tempdir_in(disk).expect("a directory for the data");
        let field = Field {
            source,
            scene: Scene::new(disk),
        };
        let mut block = vec![0; MIB];
        benchmesh_workloads::random::Random::new(1).fill(&mut block);
        let mut file = File::create(field.file()).expect("a file to copy");
        for _ in 0..FILE_MIB {
            std::io::Write::write_all(&mut file, &block).expect("there is room");
        }
        file.sync_all().expect("the disk takes it");
        field
    }

    fn file(&self) -> PathBuf {
        self.source.path().join("file")
    }

    /// Writes back all dirty data of the previous contestant.
    fn calm(&self) {
        let root = File::open(self.source.path()).expect("it is there");
        rustix::fs::syncfs(&root).expect("the disk takes it");
    }

    fn ours(&self) -> f64 {
        let spec = TaskSpec {
            sources: Allowed::new(vec![self.source.path().to_owned()]).expect("it is there"),
            ..self.scene.spec("copy", "in", json!({"from": self.file()}))
        };
        let outcome = ours::run_after(&spec, || self.calm());
        std::fs::remove_file(self.scene.task_dir().join("data/file")).expect("it was copied");
        outcome.mib_per_second()
    }

    fn cp(&self) -> Option<f64> {
        self.calm();
        let copy = self.source.path().join("copy");
        let began = Instant::now();
        let done = Command::new("cp").arg(self.file()).arg(&copy).status();
        let seconds = began.elapsed().as_secs_f64();
        std::fs::remove_file(&copy).ok()?;
        done.is_ok_and(|status| status.success())
            .then_some(FILE_MIB as f64 / seconds)
    }
}

pub fn one_large() -> Row {
    let field: Rc<OnceCell<Field>> = Rc::default();
    let same = Rc::clone(&field);
    Row {
        name: "copy 1 GiB, disk",
        unit: Unit::MibPerSecond,
        ours: Box::new(move || Some(field.get_or_init(Field::new).ours())),
        baselines: vec![Baseline {
            name: "cp",
            bar: "1.00",
            measure: Box::new(move || same.get_or_init(Field::new).cp()),
        }],
    }
}
