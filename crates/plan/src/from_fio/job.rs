//! One job of fio as a phase: each option is taken by the part that has a word for it; what is left is named.

use super::job_file::JobSection;
use super::options::{Access, FioJob};
use super::values::{flag, micros, shown_size};
use super::{JobLine, Remark, RemarkKind};
use crate::toml_text::{array, quoted};
use benchmesh_model::fio::{FioRole, fio_option};
use benchmesh_model::targets::Locator;

const NO_PLAN_KEY: &str = "a plan has no word for it";

/// A phase made of a job.
#[derive(Clone, Debug)]
pub(super) struct FioPhase {
    /// The job's section.
    pub job: String,
    pub line: JobLine,
    /// The lines of its own options.
    pub own_lines: Vec<JobLine>,
    pub name: String,
    pub description: Option<String>,
    pub target: Locator,
    pub keys: Vec<PhaseKey>,
    pub order: Order,
}

/// A key of the phase, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct PhaseKey {
    pub name: &'static str,
    /// As TOML.
    pub value: String,
    /// The line and the text of the option.
    pub from: (JobLine, String),
}

/// When fio starts a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AtOnce,
    AfterOthers,
}

impl FioPhase {
    /// The number of its workers.
    fn numjobs(&self) -> u64 {
        let key = self.keys.iter().find(|key| key.name == "numjobs");
        key.and_then(|key| key.value.parse().ok()).unwrap_or(1)
    }

    /// Takes in a job of the same load that runs at the same time, as further workers. Workers that share a file are
    /// not those of another job. Returns whether it did.
    pub fn merge(&mut self, other: &Self) -> bool {
        let load = |phase: &Self| -> Vec<(&'static str, String)> {
            let keys = phase.keys.iter().filter(|key| key.name != "numjobs");
            keys.map(|key| (key.name, key.value.clone())).collect()
        };
        let is_shared = self.keys.iter().any(|key| key.name == "file-per");
        if is_shared || self.target != other.target || load(self) != load(other) {
            return false;
        }
        let sum = self.numjobs().saturating_add(other.numjobs()).to_string();
        match self.keys.iter_mut().find(|key| key.name == "numjobs") {
            Some(key) => key.value = sum,
            None => self.keys.push(PhaseKey {
                name: "numjobs",
                value: sum,
                from: (self.line.clone(), format!("[{}]", self.job)),
            }),
        }
        true
    }

    /// Removes a key that the workload refuses. `None` if it has no such key, or is nothing without it.
    pub fn take(&mut self, name: &str) -> Option<(JobLine, String)> {
        if ["workload", "modes", "size"].contains(&name) {
            return None;
        }
        let at = self.keys.iter().position(|key| key.name == name)?;
        Some(self.keys.remove(at).from)
    }
}

/// The phase of a job; `None` if benchmesh has no such load.
pub(super) fn phase(section: &JobSection, remarks: &mut Vec<Remark>) -> Option<FioPhase> {
    let mut job = FioJob {
        section,
        options: section.options.clone(),
        kb_base: 1024,
        keys: Vec::new(),
        remarks,
    };
    if let Some(base) = job.take("kb_base") {
        match base.value.trim() {
            "1000" => job.kb_base = 1000,
            "1024" => {}
            _ => job.remark(&base, RemarkKind::LeftOut, "it is neither 1000 nor 1024"),
        }
    }
    let name = job.take("name").map(|option| option.value);
    let description = job.take("description").map(|option| option.value);
    let waits = [job.take("stonewall"), job.take("wait_for")];
    let waits = waits.into_iter().flatten();
    let waits =
        waits.filter(|option| option.name == "wait_for" || flag(&option.value) != Some(false));
    let order = match waits.count() {
        0 => Order::AtOnce,
        _ => Order::AfterOthers,
    };
    let engine = job.engine()?;
    let target = match engine {
        Engine::Files(modes) => {
            job.files(modes);
            job.place()
        }
        engine => job.load(engine)?,
    };
    job.name_the_rest();
    let mut keys = job.keys;
    let first = ["workload", "modes"];
    keys.sort_by_key(|key| {
        first
            .iter()
            .position(|name| *name == key.name)
            .unwrap_or(first.len())
    });
    Some(FioPhase {
        job: section.name.clone(),
        line: section.line.clone(),
        own_lines: (section.options.iter())
            .filter(|option| option.is_own)
            .map(|option| option.line.clone())
            .collect(),
        name: name.unwrap_or_else(|| section.name.clone()),
        description,
        target,
        keys,
        order,
    })
}

/// What issues the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Psync,
    IoUring,
    Rbd,
    /// The workload `files` in this mode.
    Files(&'static str),
}

impl FioJob<'_> {
    /// The engine; `None` if benchmesh has no such load.
    pub(super) fn engine(&mut self) -> Option<Engine> {
        let Some(option) = self.take("ioengine") else {
            return Some(Engine::Psync);
        };
        let engine = match option.value.as_str() {
            "psync" | "pvsync" | "pvsync2" => Engine::Psync,
            "sync" | "vsync" => {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "psync: pread and pwrite, without lseek",
                );
                Engine::Psync
            }
            "io_uring" => Engine::IoUring,
            "libaio" | "posixaio" => {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "io_uring, with the same number of operations in flight",
                );
                Engine::IoUring
            }
            "mmap" | "splice" => {
                self.remark(&option, RemarkKind::LeftOut, "psync instead");
                Engine::Psync
            }
            "rbd" => Engine::Rbd,
            "filecreate" => Engine::Files("create"),
            "filestat" => Engine::Files("stat"),
            "filedelete" => Engine::Files("delete"),
            "dircreate" => Engine::Files("mkdir"),
            "dirdelete" => Engine::Files("rmdir"),
            other => {
                let why = match other {
                    "net" | "rdma" | "netsplice" => "the workload `network` measures links",
                    "rados" => "the workload `objects` measures pools",
                    "null" => "the workload `null` measures the tool itself",
                    _ => "benchmesh has no such engine",
                };
                self.remark(&option, RemarkKind::LeftOut, why);
                self.remark_job(
                    RemarkKind::LeftOut,
                    &format!("the whole job, because of ioengine={other}"),
                );
                return None;
            }
        };
        match engine {
            Engine::Psync => self.key("ioengine", "\"psync\"", &option),
            Engine::IoUring => self.key("ioengine", "\"io_uring\"", &option),
            Engine::Rbd | Engine::Files(_) => {}
        }
        Some(engine)
    }

    /// The workload `files`, for the engines that only work on names.
    pub(super) fn files(&mut self, mode: &'static str) {
        self.own_key("workload", "\"files\"");
        self.own_key("modes", array(&[mode]));
        if let Some((option, files)) = self.take_number("nrfiles") {
            self.key("files", files.to_string(), &option);
        }
        let access = Access {
            mode: "write",
            is_random: false,
            reads: false,
            writes: true,
        };
        let filesize = self.take_size("filesize", access);
        let whole = self.take_size("size", access);
        if let Some((option, bytes)) = filesize.or(whole) {
            self.key("size", quoted(&shown_size(bytes)), &option);
        }
        if let Some((option, jobs)) = self.take_number("numjobs") {
            self.key("numjobs", jobs.to_string(), &option);
        }
        for name in ["bs", "rw", "iodepth", "direct", "buffered", "openfiles"] {
            if let Some(option) = self.take(name) {
                self.remark(
                    &option,
                    RemarkKind::NoMeaning,
                    "this engine only works on names in fio",
                );
            }
        }
    }

    /// Names every option that nothing has taken.
    pub(super) fn name_the_rest(&mut self) {
        for option in std::mem::take(&mut self.options) {
            if option.name == "startdelay" && micros(&option.value) == Some(0) {
                continue;
            }
            let (kind, why) = match fio_option(&option.name).map(|known| known.role) {
                Some(FioRole::NotTheLoad(why) | FioRole::Settled(why)) => {
                    (RemarkKind::NoMeaning, why.to_owned())
                }
                Some(FioRole::Unknown(near)) if !near.is_empty() => {
                    (RemarkKind::LeftOut, format!("{NO_PLAN_KEY}; {near}"))
                }
                _ => (RemarkKind::LeftOut, NO_PLAN_KEY.to_owned()),
            };
            self.remark(&option, kind, &why);
        }
    }
}
