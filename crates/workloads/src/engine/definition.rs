//! The traits that the author of a workload implements.
//!
//! A [`Definition`] is the parameters of one mode, read and checked; it computes a task's footprint and opens the task.
//! The task is a [`Load`], one thread of it a [`Worker`]. The engine does the rest: it finds the mode, reads the keys,
//! applies `cache`, opens threads, starts them at one instant and collects their records. `workloads/null.rs` is the
//! smallest example, docs/workloads.md has the steps.

use crate::engine::mode::ModeInfo;
use crate::engine::prepare_control::PrepareControl;
use crate::engine::receiver::{ListenSpec, Receiver};
use crate::engine::spec::{TaskError, TaskSpec};
use crate::measure::recorder::{OpError, Recorder};
use crate::measure::thread_cpu::CpuTime;
use crate::measure::timing::{RampKeys, Timing};
use crate::params::units::Span;
use crate::params::{Keys, ParamError, Params};
use crate::target::data::VARIETY_BYTES;
use benchmesh_model::events::EventKind;
use benchmesh_model::limits::Limit;
use benchmesh_model::targets::{DIRECTORY, TargetKind};
use std::time::Duration;

/// Buffers of a worker with blocks of ordinary size.
const ORDINARY_BUFFERS: u64 = 1 << 20;

/// Memory of a worker with blocks of up to `block` bytes: one buffer to write from, one to check against, and the pool
/// from which written content is taken.
pub(crate) fn buffers_of(block: usize) -> u64 {
    let bytes = block.saturating_mul(2).saturating_add(VARIETY_BYTES);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether a workload needs a target or a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Target,
    Peer,
}

/// Meaning of `cache = "bypass"` for a workload.
#[derive(Debug, Clone, Copy)]
pub enum Bypass {
    /// Refused, with the reason and what to do instead.
    Refused(&'static str),
    /// Sets this key to this value, a JSON literal. Another value in the plan is refused with this message.
    Sets {
        key: &'static str,
        value: &'static str,
        contradiction: &'static str,
    },
}

/// Facts about a workload, independent of its parameters.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub name: &'static str,
    /// Changes whenever the meaning of a key or an operation does; a mesh runs one revision.
    pub revision: u32,
    /// One line for users.
    pub summary: &'static str,
    pub modes: &'static [ModeInfo],
    pub needs: Needs,
    /// The kinds of targets that it supports.
    pub targets: &'static [&'static TargetKind],
    /// Whether it makes an unmeasured pass for `cache = "warm"`: see [`Load::warm`].
    pub warms: bool,
    /// The modes in which a returning client may go on with its remaining data while the other clients still run: those
    /// that only `runtime` ends.
    pub rejoins: Rejoins,
    pub bypass: Bypass,
}

/// Modes of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejoins {
    Never,
    InAnyMode,
    In(&'static [&'static str]),
}

impl Rejoins {
    pub fn allows(self, mode: &str) -> bool {
        match self {
            Self::Never => false,
            Self::InAnyMode => true,
            Self::In(modes) => modes.contains(&mode),
        }
    }
}

impl About {
    /// The supported kinds of targets, for a sentence.
    pub fn target_nouns(&self) -> String {
        let nouns: Vec<&str> = self.targets.iter().map(|kind| kind.noun).collect();
        nouns.join(" or ")
    }

    /// For `..About::WITHOUT_TARGET`: a workload that needs neither target nor peer.
    pub const WITHOUT_TARGET: About = About {
        name: "",
        revision: 1,
        summary: "",
        modes: &[],
        needs: Needs::Nothing,
        targets: &[&DIRECTORY],
        warms: false,
        rejoins: Rejoins::Never,
        bypass: Bypass::Refused("there is no target, so there is nothing to cache"),
    };

    /// For `..About::ON_TARGET`: a workload that works in a directory of the target and can warm caches.
    pub const ON_TARGET: About = About {
        needs: Needs::Target,
        warms: true,
        bypass: Bypass::Refused("it does not use O_DIRECT; use cache = \"cold\""),
        ..About::WITHOUT_TARGET
    };
}

/// Number of threads of a task, and how long they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Threads {
    pub workers: u32,
    pub timing: Timing,
}

impl Threads {
    /// Reads it from the common keys of a load.
    ///
    /// # Errors
    /// Those of [`Timing::of`].
    pub(crate) fn of(
        workers: u32,
        ramp: &RampKeys,
        runtime: Option<Span>,
    ) -> Result<Self, ParamError> {
        let timing = Timing::of(ramp.ramp_time, runtime)?;
        Ok(Self { workers, timing })
    }
}

/// Resources of one task, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    pub workers: u32,
    pub files: u64,
    /// Directories beside these files, which take inodes too.
    pub directories: u64,
    /// Space on the target.
    pub bytes: u64,
    /// Space in the scratch directory.
    pub scratch_bytes: u64,
    /// Memory of its workers: buffers, recorders and stacks; set by the engine.
    pub memory_bytes: u64,
    /// Bytes read or written in one pass.
    pub moved_bytes: u64,
    /// Duration including the ramp, if it does not end by itself.
    pub runtime: Option<Duration>,
    /// Set if it fills its target.
    pub fill: Option<FillAim>,
}

/// The keys that determine the data of a workload, with their values.
pub type DataShape = Vec<(&'static str, String)>;

/// How full a task makes its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillAim {
    /// Percentage of the space available to ordinary users that is in use at the end; `None`: the aim is
    /// [`Footprint::bytes`].
    pub percent: Option<u8>,
    /// Bytes that the task leaves free: it fails if it reaches them before its aim. 0: a full target ends it without an
    /// error.
    pub floor_bytes: u64,
}

impl Footprint {
    /// For a task that takes no space.
    pub fn of(threads: Threads) -> Footprint {
        Footprint {
            workers: threads.workers,
            runtime: threads.timing.total(),
            ..Footprint::default()
        }
    }

    /// The part of a limit of an agent's policy that the task takes from before its preparation until its end. 0 for a
    /// limit that is kept in another way: by waiting (`rate`), or by watching the target.
    #[must_use]
    pub fn claim_of(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Memory => self.memory_bytes,
            Limit::Threads => self.workers.into(),
            Limit::Rate | Limit::FreeSpace | Limit::FreeInodes => 0,
        }
    }
}

/// The parameters of one mode of a workload, read and checked.
pub trait Definition: Sized + 'static {
    const ABOUT: About;
    /// Its own keys, without the common ones: see [`declare_keys!`](crate::declare_keys).
    type Keys: Keys;

    /// Checks that go beyond the declaration of the keys. `mode` is one of [`About::modes`].
    fn new(mode: &'static ModeInfo, keys: Self::Keys) -> Result<Self, ParamError>;

    fn threads(&self) -> Threads;

    fn footprint(&self) -> Footprint {
        Footprint::of(self.threads())
    }

    /// Memory for the data of each worker, in bytes, which agents count against their policy's `memory`.
    fn buffer_bytes(&self) -> u64 {
        ORDINARY_BUFFERS
    }

    /// The keys that determine its data: data of equal shapes are the same. `None`: the data cannot be kept beyond
    /// their cell.
    fn data_shape(&self) -> Option<DataShape> {
        None
    }

    /// Opens one task; creates nothing but its directory.
    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError>;

    /// Refuses common keys that conflict with its own.
    fn check_common(&self, _params: &Params) -> Result<(), ParamError> {
        Ok(())
    }

    /// Refuses parameters that are impossible on this kind of target, which is one of [`About::targets`].
    fn check_target(&self, _kind: &'static TargetKind) -> Result<(), ParamError> {
        Ok(())
    }

    /// The parameters as stored with a result, including the defaults that are needed to interpret it.
    fn as_stored(_mode: &str, params: &Params) -> Params {
        params.clone()
    }

    /// The receiving end, for workloads that need a peer.
    fn listen(self, _spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError> {
        Err(TaskError::NoReceiver {
            workload: Self::ABOUT.name,
        })
    }
}

/// A deviation from the plan that matters for reading a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub kind: EventKind,
    pub message: String,
}

/// How the workers of a task issue operations, if not one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issue {
    /// Operations in flight per worker by [`Recorder::submit`]; 0: one at a time.
    pub depth: u16,
    /// Number of threads per requested worker; they share its rate.
    pub shards: u32,
    /// Operations have instants of their own, for which workers wait by [`Recorder::next_at`]. Response time starts
    /// there.
    pub own_instants: bool,
    /// Workers have an io_uring, so the kernel may execute operations in threads of its own.
    pub rings: bool,
}

impl Default for Issue {
    fn default() -> Issue {
        Issue {
            depth: 0,
            shards: 1,
            own_instants: false,
            rings: false,
        }
    }
}

/// One task of a workload.
pub trait Load: Send + Sync {
    /// Opens everything that worker `index` needs and touches its buffers. Called in the worker's own thread before the
    /// start.
    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError>;

    /// Lays out and syncs the data that the mode needs; never measured. Keeps existing data.
    fn prepare(&self, _control: &PrepareControl) -> Result<(), TaskError> {
        Ok(())
    }

    /// One unmeasured pass over the data, for `cache = "warm"`. Comes after [`Load::prepare`].
    fn warm(&self, _control: &PrepareControl) -> Result<(), TaskError> {
        Ok(())
    }

    /// After the last worker has ended.
    fn finish(&self) -> Result<(), TaskError> {
        Ok(())
    }

    fn issue(&self) -> Issue {
        Issue::default()
    }

    /// CPU time so far of a library's threads for the task, without its workers; `None`: not known.
    fn library_cpu(&self) -> Option<CpuTime> {
        Some(CpuTime::default())
    }

    /// How the task deviates from the plan. Called once all workers are opened.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }

    /// Resolves a number passed to [`Recorder::set_file`]: a file's path, a peer's address. Called from other threads
    /// if an operation does not end.
    fn path_of(&self, _worker: u32, _file: u64) -> Option<String> {
        None
    }
}

/// One thread of a task. Implemented for closures that take the recorder.
pub trait Worker: Send {
    /// The measured loop: runs until the work is done, or [`Recorder::next`] returns `None`.
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError>;
}

impl<F> Worker for F
where
    F: FnMut(&mut Recorder) -> Result<(), OpError> + Send,
{
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        self(recorder)
    }
}
