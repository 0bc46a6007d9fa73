//! What the author of a workload writes.
//!
//! A [`Definition`] is the parameters of one mode, read and checked; it says what a task of them takes and opens one.
//! The task is a [`Load`], one thread of it a [`Worker`]. The engine does everything else: it finds the mode, reads the
//! keys, applies `cache`, opens threads, starts them at one instant and collects what they record. `workloads/null.rs`
//! is the smallest example, docs/workloads.md has the steps.

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
use benchmesh_model::targets::{DIRECTORY, TargetKind};
use std::time::Duration;

/// Buffers of a worker that moves blocks of ordinary size.
const ORDINARY_BUFFERS: u64 = 1 << 20;

/// Memory of a worker that moves blocks of up to `block` bytes: one to write from, one to check against, and what the
/// content of written ones is taken from.
pub(crate) fn buffers_of(block: usize) -> u64 {
    let bytes = block.saturating_mul(2).saturating_add(VARIETY_BYTES);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What a workload works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Target,
    Peer,
}

/// What `cache = "bypass"` means for a workload.
#[derive(Debug, Clone, Copy)]
pub enum Bypass {
    /// Refused, with the reason and what to do instead.
    Refused(&'static str),
    /// This key gets this value, a JSON literal. A plan that gives it another one contradicts itself, in these words.
    Sets {
        key: &'static str,
        value: &'static str,
        contradiction: &'static str,
    },
}

/// What is known of a workload before it has parameters.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub name: &'static str,
    /// Changes whenever the meaning of a key or an operation does; a mesh runs one revision.
    pub revision: u32,
    /// One line for people.
    pub summary: &'static str,
    pub modes: &'static [ModeInfo],
    pub needs: Needs,
    /// The kinds of targets that its tasks may have.
    pub targets: &'static [&'static TargetKind],
    /// Whether it makes an unmeasured pass for `cache = "warm"`: see [`Load::warm`].
    pub warms: bool,
    /// The modes in which a client that was away may go on with what it finds of its data, while the others of its step
    /// load on: those that `runtime` alone ends.
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
    /// The kinds of targets that it takes, in a sentence.
    pub fn target_nouns(&self) -> String {
        let nouns: Vec<&str> = self.targets.iter().map(|kind| kind.noun).collect();
        nouns.join(" or ")
    }

    /// For `..About::WITHOUT_TARGET` in a workload that needs neither target nor peer.
    pub const WITHOUT_TARGET: About = About {
        name: "",
        revision: 1,
        summary: "",
        modes: &[],
        needs: Needs::Nothing,
        targets: &[&DIRECTORY],
        warms: false,
        rejoins: Rejoins::Never,
        bypass: Bypass::Refused("there is no target, and nothing of it is cached"),
    };

    /// For `..About::ON_TARGET` in a workload that works in a directory of the target, and can warm caches.
    pub const ON_TARGET: About = About {
        needs: Needs::Target,
        warms: true,
        bypass: Bypass::Refused("it does not use O_DIRECT; use cache = \"cold\""),
        ..About::WITHOUT_TARGET
    };
}

/// How many threads a task has, and how long they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Threads {
    pub workers: u32,
    pub timing: Timing,
}

impl Threads {
    /// From the common keys of a load.
    ///
    /// # Errors
    /// What [`Timing::of`] refuses.
    pub(crate) fn of(
        workers: u32,
        ramp: &RampKeys,
        runtime: Option<Span>,
    ) -> Result<Self, ParamError> {
        let timing = Timing::of(ramp.ramp_time, runtime)?;
        Ok(Self { workers, timing })
    }
}

/// What one task takes, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    pub workers: u32,
    pub files: u64,
    /// Space on the target.
    pub bytes: u64,
    /// Space in the scratch directory.
    pub scratch_bytes: u64,
    /// Memory of its workers: their buffers, their recorders and their stacks; set by the engine.
    pub memory_bytes: u64,
    /// Bytes read or written in one pass.
    pub moved_bytes: u64,
    /// How long it runs, with its ramp, when it does not end by itself.
    pub runtime: Option<Duration>,
    /// For one that fills its target.
    pub fill: Option<FillAim>,
}

/// The keys that decide which data a workload lays out, with their values.
pub type DataShape = Vec<(&'static str, String)>;

/// How full a task makes its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillAim {
    /// Percent of what ordinary users can have that are in use in the end; `None`: [`Footprint::bytes`] are the aim.
    pub percent: Option<u8>,
    /// Bytes that the task leaves free: it fails where it comes down to them before its aim. 0: a full target is an
    /// end.
    pub floor_bytes: u64,
}

impl Footprint {
    /// Of a task that takes no space.
    pub fn of(threads: Threads) -> Footprint {
        Footprint {
            workers: threads.workers,
            runtime: threads.timing.total(),
            ..Footprint::default()
        }
    }
}

/// The parameters of one mode of a workload, read and checked.
pub trait Definition: Sized + 'static {
    const ABOUT: About;
    /// Its own keys, without the common ones: see [`declare_keys!`](crate::declare_keys).
    type Keys: Keys;

    /// Checks what the declaration of the keys cannot. `mode` is one of [`About::modes`].
    fn new(mode: &'static ModeInfo, keys: Self::Keys) -> Result<Self, ParamError>;

    fn threads(&self) -> Threads;

    fn footprint(&self) -> Footprint {
        Footprint::of(self.threads())
    }

    /// Memory for the data of each worker, in bytes: what agents count against their policy's `memory`.
    fn buffer_bytes(&self) -> u64 {
        ORDINARY_BUFFERS
    }

    /// What decides which data it lays out, by the names of its keys: data of equal shapes are the same. `None`: they
    /// do not outlive their cell.
    fn data_shape(&self) -> Option<DataShape> {
        None
    }

    /// Opens one task; makes no more than its directory.
    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError>;

    /// Refuses common keys that cannot stand beside its own.
    fn check_common(&self, _params: &Params) -> Result<(), ParamError> {
        Ok(())
    }

    /// Refuses parameters that a target of this kind, one of [`About::targets`], cannot have.
    fn check_target(&self, _kind: &'static TargetKind) -> Result<(), ParamError> {
        Ok(())
    }

    /// The parameters as they are stored with a result: with those defaults spelled out that it cannot be read without.
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

/// A fact about how a task is done that is not what was asked for, and that a result has to be read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A word for queries, such as `engine-fallback`.
    pub kind: &'static str,
    pub message: String,
}

/// How the workers of a task issue their operations, where that is not one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issue {
    /// How many operations each worker keeps in flight by [`Recorder::submit`]; 0: one after the other.
    pub depth: u16,
    /// How many threads stand for each worker that was asked for, and share its rate.
    pub shards: u32,
    /// Operations have instants of their own, which workers wait for by [`Recorder::next_at`]. Response time runs from
    /// them.
    pub own_instants: bool,
    /// Workers have an io_uring: the kernel may carry operations out in threads of its own.
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
    /// Opens all that worker `index` needs and touches its buffers. Called in the worker's own thread, before the
    /// start.
    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError>;

    /// Lays out the data that the mode needs and syncs them; never measured. Data that are there are kept.
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

    /// CPU time so far of threads that a library has for the task, beside its workers; `None`: not known.
    fn library_cpu(&self) -> Option<CpuTime> {
        Some(CpuTime::default())
    }

    /// How the task differs from what was asked for. Asked once all workers are opened.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }

    /// What the number that a worker gave to [`Recorder::place`] stands for: a file's path, a peer's address. Asked
    /// from other threads, when an operation does not end.
    fn path_of(&self, _worker: u32, _file: u64) -> Option<String> {
        None
    }
}

/// One thread of a task. A closure that takes the recorder is one.
pub trait Worker: Send {
    /// The measured loop: until the work is done, or [`Recorder::next`] has no further operation.
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
