//! A workload as planner, agent and documentation use it: a [`Definition`] behind a trait object.
//!
//! Parameters become a definition in one place; [`Workload::check`] and [`Workload::load`] both use it.

use crate::engine::common::{CommonKeys, read_keys};
pub(crate) use crate::engine::definition::buffers_of;
pub use crate::engine::definition::{
    About, Bypass, DataShape, Definition, FillAim, Footprint, Issue, Load, Needs, Note, Rejoins,
    Threads, Worker,
};
pub use crate::engine::mode::{Data, ModeInfo};
pub use crate::engine::receiver::{ListenSpec, Received, Receiver};
use crate::engine::spec::{Cache, TaskError, TaskSpec};
use crate::measure::recorder;
pub(crate) use crate::measure::timing::RampKeys;
pub use crate::measure::timing::Timing;
pub use crate::params::Params;
use crate::params::{Key, KeySet, ParamError};
use benchmesh_model::targets::TargetKind;
use std::marker::PhantomData;
use std::sync::Arc;

/// Memory of a worker's stack in use, and of the kernel for a thread.
const STACK_BYTES: u64 = 64 << 10;

/// A kind of load.
pub trait Workload: Sync {
    fn about(&self) -> &'static About;
    /// Its own keys, without the common ones.
    fn keys(&self) -> KeySet;
    /// Validates its own keys; [`crate::registry::check`] calls this and more.
    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError>;
    /// Why a task with valid parameters cannot be on a target of this kind.
    fn check_target(
        &self,
        mode: &str,
        params: &Params,
        kind: &'static TargetKind,
    ) -> Result<(), ParamError>;

    /// See [`Definition::data_shape`]. `None` also for invalid parameters.
    fn data_shape(&self, mode: &str, params: &Params) -> Option<DataShape>;

    /// The parameters as stored with a result.
    fn as_stored(&self, mode: &str, params: &Params) -> Params;
    /// Opens one task; creates nothing but its directory.
    fn load(&self, spec: &TaskSpec) -> Result<Opened, TaskError>;
    /// The receiving end, for workloads that need a peer.
    fn listen(&self, spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError>;

    fn name(&self) -> &'static str {
        self.about().name
    }

    fn revision(&self) -> u32 {
        self.about().revision
    }

    fn summary(&self) -> &'static str {
        self.about().summary
    }

    fn needs(&self) -> Needs {
        self.about().needs
    }

    fn warms(&self) -> bool {
        self.about().warms
    }

    fn rejoins(&self, mode: &str) -> bool {
        self.about().rejoins.allows(mode)
    }

    fn modes(&self) -> &'static [ModeInfo] {
        self.about().modes
    }

    /// The mode of that name, or an error that lists all modes.
    fn mode(&self, name: &str) -> Result<&'static ModeInfo, ParamError> {
        let modes = self.modes();
        if let Some(mode) = modes.iter().find(|mode| mode.name == name) {
            return Ok(mode);
        }
        let known: Vec<&str> = modes.iter().map(|mode| mode.name).collect();
        let known = known.join(", ");
        Err(ParamError::of(
            "modes",
            format!(
                "workload `{}` has no mode `{name}`; it has {known}",
                self.name()
            ),
        ))
    }

    /// The parameters with `cache = "bypass"` applied. An error says why it is impossible, or which key conflicts.
    fn bypassing(&self, params: &Params) -> Result<Params, ParamError> {
        match self.about().bypass {
            Bypass::Refused(_) => Err(ParamError {
                key: None,
                message: format!("workload `{}` does not use O_DIRECT", self.name()),
            }),
            Bypass::Sets {
                key,
                value,
                contradiction,
            } => {
                let mut params = params.clone();
                let value = crate::params::literal(value);
                let given = params.insert(key.to_owned(), value.clone());
                let agrees = given.is_none_or(|given| {
                    given == value || (value == serde_json::Value::Bool(true) && given == 1)
                });
                match agrees {
                    true => Ok(params),
                    false => Err(ParamError::of(key, contradiction)),
                }
            }
        }
    }
}

/// A task that is opened but not prepared yet.
pub struct Opened {
    /// Includes the threads of each shard: see [`Issue::shards`].
    pub threads: Threads,
    pub load: Arc<dyn Load>,
}

impl Opened {
    pub(crate) fn new(threads: Threads, load: Arc<dyn Load>) -> Opened {
        let workers = threads.workers.saturating_mul(load.issue().shards);
        Opened {
            threads: Threads { workers, ..threads },
            load,
        }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// The workload defined by `D`.
pub const fn workload<D: Definition>() -> &'static dyn Workload {
    const { &Defined::<D>(PhantomData) }
}

struct Defined<D>(PhantomData<fn() -> D>);

impl<D: Definition> Defined<D> {
    /// Turns parameters into a definition; no other function does.
    fn read(&self, mode: &str, params: &Params) -> Result<D, ParamError> {
        let mode = self.mode(mode)?;
        let definition = D::new(mode, read_keys(D::ABOUT.name, params)?)?;
        definition.check_common(params)?;
        Ok(definition)
    }
}

impl<D: Definition> Workload for Defined<D> {
    fn about(&self) -> &'static About {
        &D::ABOUT
    }

    fn keys(&self) -> KeySet {
        KeySet::of::<D::Keys>()
    }

    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError> {
        let definition = self.read(mode, params)?;
        let per_worker = definition
            .buffer_bytes()
            .saturating_add(STACK_BYTES)
            .saturating_add(recorder::memory_bytes(self.mode(mode)?.ops));
        let footprint = definition.footprint();
        Ok(Footprint {
            memory_bytes: per_worker.saturating_mul(footprint.workers.into()),
            ..footprint
        })
    }

    fn check_target(
        &self,
        mode: &str,
        params: &Params,
        kind: &'static TargetKind,
    ) -> Result<(), ParamError> {
        match self.read(mode, params) {
            Ok(definition) => definition.check_target(kind),
            Err(_) => Ok(()),
        }
    }

    fn data_shape(&self, mode: &str, params: &Params) -> Option<DataShape> {
        self.read(mode, params).ok()?.data_shape()
    }

    fn as_stored(&self, mode: &str, params: &Params) -> Params {
        D::as_stored(mode, params)
    }

    fn load(&self, spec: &TaskSpec) -> Result<Opened, TaskError> {
        let refuse = |why: String| Err(TaskError::Unsupported { why });
        let read = match (spec.cache, D::ABOUT.bypass) {
            (Cache::Bypass, Bypass::Refused(why)) => return refuse(why.to_owned()),
            (Cache::Bypass, Bypass::Sets { .. }) => self
                .bypassing(&spec.params)
                .and_then(|params| self.read(&spec.mode, &params)),
            (Cache::Warm, _) if !D::ABOUT.warms => {
                return refuse(format!(
                    "workload `{}` has no pass that could warm the caches",
                    D::ABOUT.name
                ));
            }
            _ => self.read(&spec.mode, &spec.params),
        };
        let definition = read.map_err(TaskError::Params)?;
        let threads = definition.threads();
        Ok(Opened::new(threads, definition.load(spec)?.into()))
    }

    fn listen(&self, spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError> {
        let definition = self.read(&spec.mode, &spec.params);
        definition.map_err(TaskError::Params)?.listen(spec)
    }
}

/// Both declarations of a workload's keys: its own, and the common ones.
pub fn key_sets(workload: &dyn Workload) -> [KeySet; 2] {
    [workload.keys(), KeySet::of::<CommonKeys>()]
}

/// The keys of a workload, its own first.
pub fn all_keys(workload: &dyn Workload) -> impl Iterator<Item = &'static Key> {
    key_sets(workload)
        .into_iter()
        .flat_map(|set| set.list.iter().copied())
}
