//! `files`: many files, each created, looked up, read, changed, renamed or deleted as a whole, and their directories.
//!
//! A task's files are split over its workers; as a rule each worker has a tree of its own in the task's directory. A
//! worker goes through its files in order or at random. The data outlive the mode: the next mode of the cell finds them, whatever process runs it. What the
//! files are is decided by the parameters alone. Nothing is known here of time or of other tasks.

mod attributes;
pub(crate) mod calls;
pub(crate) mod data;
pub(crate) mod fault;
mod found;
mod layout;
mod modes;
mod name;
mod plan;
pub(crate) mod read_back;
pub(crate) mod size;
pub(crate) mod state;
mod tree;
mod walk;
mod worker;

use crate::side_by_side::side_by_side;
pub(crate) use plan::{BLOCK_BYTES, MOST_UNIT_BYTES, check_unit, one_mib};

use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::task::{Cache, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, Load, ModeInfo, Needs, Params as PlanParams, Timing, Worker, Workload,
};
use attributes::Calls;
use calls::{Durable, listing_buffer};
use data::Data;
use layout::Home;
use modes::{MODES, Mode, Standing};
use name::Name;
use plan::{EFFECTS, KEYS, Plan, check_names};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tree::Directories;
use walk::Walk;
use worker::{FilesWorker, Tools};

const NAME: &str = "files";

/// The workload.
#[derive(Debug)]
pub struct Files;

impl Workload for Files {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "many files and directories, each made, looked at, changed and removed as a whole"
    }

    fn needs(&self) -> Needs {
        Needs::Target
    }

    fn modes(&self) -> &'static [ModeInfo] {
        MODES
    }

    fn keys(&self) -> &'static [KeyInfo] {
        KEYS
    }

    fn effects(&self) -> &'static [Effect] {
        EFFECTS
    }

    #[cfg(test)]
    fn understood(&self, mode: &str, params: &PlanParams) -> Result<String, ParamError> {
        Ok(format!("{:?}", Plan::of(self.mode(mode)?, params)?))
    }

    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = Plan::of(self.mode(mode)?, params)?;
        let files = plan.layout.shape.files;
        let beside = plan.mode.beside().is_some();
        let more = match plan.mode {
            Mode::Append => plan.added.append,
            _ => 0,
        };
        Ok(Footprint {
            workers: plan.layout.shape.workers,
            files: if beside { files * 2 } else { files },
            bytes: match beside {
                true => files.saturating_mul(BLOCK_BYTES),
                false => plan
                    .bytes(BLOCK_BYTES)
                    .saturating_add(files.saturating_mul(more.next_multiple_of(BLOCK_BYTES))),
            },
            scratch_bytes: 0,
            moved_bytes: match plan.mode {
                Mode::Create => plan.bytes(1),
                Mode::Read => plan.bytes(1).saturating_mul(plan.passes.count()),
                Mode::Append => files.saturating_mul(more),
                Mode::SetXattr | Mode::GetXattr => files
                    .saturating_mul(u64::from(plan.added.attribute))
                    .saturating_mul(plan.passes.count()),
                _ => 0,
            },
            runtime: plan.timing.total(),
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let mut plan = self
            .mode(&spec.mode)
            .and_then(|mode| Plan::of(mode, &spec.params))
            .map_err(TaskError::Params)?;
        plan.layout.shape.task = (spec.task_index, spec.tasks);
        check_names(&plan.layout.shape).map_err(TaskError::Params)?;
        if spec.cache == Cache::Bypass {
            let why = "small files are not read and written with O_DIRECT; use cache = \"cold\", or workload `io`".into();
            return Err(TaskError::Unfit { why });
        }
        let place = spec.place.clone().ok_or(TaskError::NoPlace {
            workload: spec.workload.clone(),
        })?;
        Ok(Box::new(FilesLoad {
            plan,
            warm: spec.cache == Cache::Warm,
            home: Home {
                task: spec.dir()?,
                place,
            },
            standing: Mutex::new(Standing::empty()),
            roots: Mutex::default(),
            whole: Arc::default(),
        }))
    }
}

struct FilesLoad {
    plan: Plan,
    warm: bool,
    home: Home,
    /// What the data are; known once prepared.
    standing: Mutex<Standing>,
    /// Where each worker works, for messages.
    roots: Mutex<BTreeMap<u32, PathBuf>>,
    whole: Arc<AtomicU32>,
}

impl FilesLoad {
    fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directories that a worker may keep open: together at most half of the descriptors that the process may have.
    fn directories_to_keep(&self) -> u64 {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        limit / 2 / u64::from(self.plan.layout.shape.workers)
    }

    fn walk(&self, worker: u32) -> Result<Walk, TaskError> {
        let layout = &self.plan.layout;
        let share = layout.shape.share(worker);
        let root = self.home.root(&layout.shape, worker)?;
        let path = root.path().to_owned();
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.insert(worker, path.clone());
        drop(roots);
        let directories =
            Directories::open(root, &share, self.directories_to_keep()).map_err(|errno| {
                TaskError::io(
                    format!("open the directories in `{}`", path.display()),
                    errno,
                )
            })?;
        Ok(Walk {
            directories,
            share,
            standing: self.standing(),
            sizes: layout.sizes.clone(),
            seed: layout.seed,
            order: self.plan.order,
            worker: u64::from(layout.shape.task.0) << 32 | u64::from(worker),
            path,
        })
    }

    /// One clear error for a file system that cannot do what the mode is about.
    fn try_attribute(&self) -> Result<(), TaskError> {
        let name = c"probe";
        let dir = self.home.task.fd();
        let path = self.home.task.path().join("probe");
        let failed = |doing: &str, errno: Errno| {
            TaskError::io(format!("{doing} `{}`", path.display()), errno)
        };
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("remove", errno)),
        }
        let mut nothing = Data::new(0, 0);
        calls::create(dir, name, 0, 0, &mut nothing, Durable::No, |_| ())
            .map_err(|error| failed("make", error.errno))?;
        let value = self.attribute();
        let tried = Calls::known().set(dir, name, &value);
        calls::delete(dir, name).map_err(|errno| failed("remove", errno))?;
        let bytes = value.len();
        let why = match tried.map_err(|error| error.errno) {
            Ok(_) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                format!(
                    "the file system of {} keeps no extended attributes (user.*)",
                    self.home.task.path().display()
                )
            }
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::DQUOT) => {
                format!(
                    "the file system of {} takes no extended attribute of {bytes} bytes; set a smaller `xattr-size`",
                    self.home.task.path().display()
                )
            }
            Err(errno) => return Err(failed("set an extended attribute of", errno)),
        };
        Err(TaskError::Unfit { why })
    }

    fn attribute(&self) -> Vec<u8> {
        vec![b'x'; usize::try_from(self.plan.added.attribute).unwrap_or(0)]
    }
}

impl Load for FilesLoad {
    fn workers(&self) -> u32 {
        self.plan.layout.shape.workers
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let (layout, mode) = (&self.plan.layout, self.plan.mode);
        if matches!(mode, Mode::SetXattr | Mode::GetXattr) {
            self.try_attribute()?;
        }
        let wanted = mode.wants(self.plan.added.attribute);
        let standing = layout.bring_about(&self.home, &wanted, control)?;
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        if self.warm {
            let total = (layout.shape.files, "files");
            side_by_side(layout.shape.workers, total, control, |worker, done| {
                let mut buffer = vec![1; layout.buffer_bytes(standing.extras.appended)];
                self.walk(worker)?.warm(mode, &mut buffer, done)
            })?;
        }
        if mode.leaves(standing, self.plan.added).is_some() {
            layout.unsettle(&self.home.task)?;
        }
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let plan = &self.plan;
        let tools = match plan.mode {
            Mode::Create => Tools::Write(plan.layout.data(), plan.durable),
            Mode::Append => {
                let bytes = usize::try_from(plan.added.append).unwrap_or(usize::MAX);
                let data = plan.layout.data_of(bytes.min(plan.layout.unit));
                Tools::Append(data, plan.durable, plan.added.append)
            }
            Mode::Read => {
                let appended = self.standing().extras.appended;
                let buffer = vec![1; plan.layout.buffer_bytes(appended)];
                match plan.layout.content() {
                    content if content.verifies() => {
                        Tools::Check(buffer, content, plan.added.append)
                    }
                    _ => Tools::Read(buffer),
                }
            }
            Mode::List | Mode::ListStat => Tools::List(listing_buffer()),
            Mode::SetXattr | Mode::GetXattr => Tools::Attribute(Calls::known(), self.attribute()),
            Mode::Chmod => Tools::Chmod(Calls::known()),
            Mode::Stat
            | Mode::Rename
            | Mode::Symlink
            | Mode::Mkdir
            | Mode::Rmdir
            | Mode::Delete => Tools::None,
        };
        Ok(Box::new(FilesWorker {
            mode: plan.mode,
            walk: self.walk(index)?,
            tools,
            whole: Arc::clone(&self.whole),
            passes: 0,
            left: plan.passes,
        }))
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let mode = self.plan.mode;
        let roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let root = roots.get(&worker)?;
        let path = match mode {
            Mode::List | Mode::ListStat => root.join(Name::directory(file).to_string()),
            _ => {
                let share = self.plan.layout.shape.share(worker);
                let names = self.standing().names();
                let letter = mode.beside().map_or(names.letter(), |kind| kind.letter());
                root.join(Name::directory(share.directory_of(file)).to_string())
                    .join(Name::new(letter, share.number(file)).to_string())
            }
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let left = self.plan.mode.leaves(self.standing(), self.plan.added);
        let Some(left) = left else {
            return Ok(());
        };
        if self.whole.load(Ordering::Acquire) < self.workers() {
            return Ok(());
        }
        if let Err(error) = self.plan.layout.state(left).write(&self.home.task) {
            // The result stands; the next mode will look at every file instead of reading the state.
            let path = self.home.task.path().display();
            tracing::warn!(%error, %path, "the state of the data was not written");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
