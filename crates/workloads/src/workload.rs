//! What a workload is to everyone else, and the list of those there are.
//!
//! A workload is one module that implements [`Workload`] (what can be known without a target), [`Load`] (one task of
//! it) and [`Worker`] (one thread of that task), and one line in [`registry`]. Planner, agent and documentation work
//! from these traits alone.

use crate::common::Common;
use crate::op::Op;
pub use crate::params::KeyInfo;
use crate::params::ParamError;
use crate::params::effect::Effect;
use crate::recorder::{OpError, Recorder};
use crate::task::{PrepareControl, TaskError, TaskSpec};
use crate::units::Span;
use serde_json::{Map, Value};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Parameters as they stand in a plan and cross the wire.
pub type Params = Map<String, Value>;

/// The data that a mode finds or leaves in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Nothing,
    /// Described for people; laid out by [`Load::prepare`] where it is missing.
    Laid(&'static str),
}

/// One way to run a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeInfo {
    pub name: &'static str,
    pub meaning: &'static str,
    pub needs: Data,
    pub leaves: Data,
    /// The operations that its workers record; the usual one first.
    pub ops: &'static [Op],
}

impl ModeInfo {
    /// For a workload that lists a mode and does not know it: never another one in its place.
    pub(crate) fn unknown(&self) -> ParamError {
        ParamError::of("modes", format!("no mode `{}`", self.name))
    }
}

/// What a workload works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Target,
    Peer,
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
    /// Bytes read or written in one pass.
    pub moved_bytes: u64,
    /// How long it runs, with its ramp, when it does not end by itself.
    pub runtime: Option<Duration>,
}

/// Of every load that `runtime` can end.
pub(crate) const RAMP_TIME: KeyInfo = KeyInfo {
    name: "ramp_time",
    kind: "duration",
    default: "none",
    meaning: "how long it runs before the results count, on top of `runtime`",
};

/// When a load starts to count and when it ends. As fio has it, the ramp comes before the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    pub ramp: Option<Duration>,
    /// `None`: one pass over its data.
    pub runtime: Option<Duration>,
}

impl Timing {
    /// From the keys `ramp_time` and `runtime`, which every workload spells the same.
    pub fn of(ramp_time: Option<Span>, runtime: Option<Span>) -> Result<Timing, ParamError> {
        if runtime.is_some_and(|span| span.0.is_zero()) {
            return Err(ParamError::of("runtime", "must be longer than 0"));
        }
        Ok(Timing {
            ramp: ramp_time.map(|span| span.0).filter(|span| !span.is_zero()),
            runtime: runtime.map(|span| span.0),
        })
    }

    /// Ramp and runtime together, where the load is timed.
    pub fn total(&self) -> Option<Duration> {
        self.runtime
            .map(|runtime| runtime.saturating_add(self.ramp.unwrap_or_default()))
    }
}

/// A fact about how a task is done that is not what was asked for, and that a result has to be read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A word for queries, such as `engine-fallback`.
    pub kind: &'static str,
    pub message: String,
}

/// A kind of load.
pub trait Workload: Sync {
    fn name(&self) -> &'static str;
    /// Changes whenever the meaning of a key or an operation does; a mesh runs one revision.
    fn revision(&self) -> u32;
    /// One line for people.
    fn summary(&self) -> &'static str;
    fn needs(&self) -> Needs;
    /// Whether its target may be a raw block device.
    fn takes_devices(&self) -> bool {
        false
    }
    fn modes(&self) -> &'static [ModeInfo];
    fn keys(&self) -> &'static [KeyInfo];

    /// Validates its own keys; [`check`] does this and more.
    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError>;

    /// Of the keys that do not have an effect everywhere.
    fn effects(&self) -> &'static [Effect];

    /// The parameters that ask for what `cache = "bypass"` does; an error says why there are none, or what contradicts them.
    fn bypassing(&self, _params: &Params) -> Result<Params, ParamError> {
        Err(ParamError {
            key: None,
            message: format!("workload `{}` does not use O_DIRECT", self.name()),
        })
    }

    /// Whether it makes an unmeasured pass for `cache = "warm"`.
    fn warms(&self) -> bool {
        self.needs() == Needs::Target
    }

    /// The parameters as they are stored with a result: with those defaults spelled out that it cannot be read without.
    fn as_stored(&self, _mode: &str, params: &Params) -> Params {
        params.clone()
    }

    /// What it understands of the parameters, for the test that holds the documented defaults against the code.
    #[cfg(test)]
    fn understood(&self, mode: &str, params: &Params) -> Result<String, ParamError>;

    /// One task of it; makes no more than its directory.
    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError>;

    /// The receiving end, for workloads that need a peer.
    fn listen(&self, _spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError> {
        Err(TaskError::NoReceiver {
            workload: self.name(),
        })
    }

    /// The mode of that name, or an error that names the nearest one.
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
}

/// One task of a workload.
pub trait Load: Send + Sync {
    fn workers(&self) -> u32;
    fn timing(&self) -> Timing;

    /// How many of the workers stand for one of those that were asked for, and share its rate.
    fn lanes(&self) -> u32 {
        1
    }

    /// How many operations each worker keeps in flight by [`Recorder::launch`]; 0: one after the other.
    fn depth(&self) -> u16 {
        0
    }

    /// Whether its operations have instants of their own, which workers wait for by [`Recorder::next_at`]. Response time
    /// runs from them.
    fn has_instants(&self) -> bool {
        false
    }

    /// What is to be said of it once all workers are opened.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }

    /// Lays out the data that the mode needs and syncs them; never measured. Data that are there are kept.
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError>;

    /// Opens all that worker `index` needs and touches its buffers. Called in the worker's own thread, before the start.
    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError>;

    /// What the number that a worker gave to [`Recorder::place`] stands for: a file's path, a peer's address. Asked from
    /// other threads, when an operation does not end.
    fn path_of(&self, _worker: u32, _file: u64) -> Option<String> {
        None
    }

    /// After the last worker has ended.
    fn finish(&self) -> Result<(), TaskError> {
        Ok(())
    }
}

/// One thread of a task.
pub trait Worker: Send {
    /// The measured loop: until the work is done or [`Recorder::should_stop`] says so.
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError>;
}

/// What a receiving end is to listen for.
#[derive(Debug, Clone)]
pub struct ListenSpec {
    pub mode: String,
    pub params: Params,
    /// The address to listen on; the port is chosen by the kernel.
    pub bind: IpAddr,
    /// The only peer that is let in, where its address is known.
    pub peer: Option<IpAddr>,
    /// What the peer has to present.
    pub token: String,
}

/// The receiving end of a task; it serves on threads of its own until it is closed.
pub trait Receiver: Send {
    fn address(&self) -> SocketAddr;
    /// Ends every connection and returns what arrived.
    fn close(self: Box<Self>) -> Result<Received, TaskError>;
}

/// What a receiving end saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    pub connections: u64,
    pub bytes: u64,
}

/// Every workload there is, in the order that documentation lists them.
pub fn registry() -> &'static [&'static dyn Workload] {
    &[
        &crate::files::Files,
        &crate::io::Io,
        &crate::bytes::ByteStreams,
        &crate::copy::Copy,
        &crate::tree::Tree,
        &crate::fill::Fill,
        &crate::replay::Replay,
        &crate::network::Network,
        &crate::null::Null,
    ]
}

/// Validates everything that can be known without the target: the workload's own keys, and the common ones.
pub fn check(
    workload: &dyn Workload,
    mode: &str,
    params: &Params,
) -> Result<Footprint, ParamError> {
    let footprint = workload.check(mode, params)?;
    Common::of(params)?.check(workload.mode(mode)?)?;
    Ok(footprint)
}

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    registry()
        .iter()
        .copied()
        .find(|workload| workload.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn switches_are_fios_too() {
        for workload in registry() {
            for key in workload
                .keys()
                .iter()
                .filter(|key| key.kind == "true or false")
            {
                for mode in workload.modes() {
                    let understood = |value: Value| {
                        let params = serde_json::json!({"size": "16m", "operations": "- mkdir a", key.name: value});
                        let mut params = params.as_object().cloned().unwrap_or_default();
                        params.retain(|name, _| workload.keys().iter().any(|key| key.name == name));
                        workload.understood(mode.name, &params)
                    };
                    let name = (workload.name(), mode.name, key.name);
                    for (number, word) in [(0, false), (1, true)] {
                        let read = understood(number.into());
                        assert!(
                            read.is_ok() && read == understood(word.into()),
                            "{name:?} {read:?}"
                        );
                    }
                    assert!(understood(2.into()).is_err(), "{name:?}");
                }
            }
        }
    }

    /// A mode that is listed and that its workload's own code does not know would be taken for another one.
    #[test]
    fn no_mode_is_taken_for_another() {
        // To `io` the modes are patterns, and what is read is read in one way, whether for the first time or again.
        for workload in registry().iter().filter(|it| it.name() != "io") {
            let params = serde_json::json!({"operations": "- mkdir a"});
            let mut params = params.as_object().cloned().unwrap_or_default();
            params.retain(|name, _| workload.keys().iter().any(|key| key.name == name));
            let modes = workload.modes().iter();
            let understood: Result<HashSet<String>, ParamError> = modes
                .map(|mode| workload.understood(mode.name, &params))
                .collect();
            let count = understood.as_ref().map(HashSet::len);
            assert_eq!(count, Ok(workload.modes().len()), "{}", workload.name());
        }
    }

    #[test]
    fn every_workload_is_listed_once_and_documented() {
        let mut names = HashSet::new();
        for workload in registry() {
            assert!(names.insert(workload.name()));
            assert!(find(workload.name()).is_some());
            assert!(workload.revision() > 0 && !workload.summary().is_empty());
            assert!(!workload.modes().is_empty());
            for mode in workload.modes() {
                assert!(
                    !mode.ops.is_empty() && !mode.meaning.is_empty(),
                    "{}",
                    mode.name
                );
                assert!(workload.mode(mode.name).is_ok());
            }
            let keys: HashSet<_> = workload.keys().iter().map(|key| key.name).collect();
            assert_eq!(keys.len(), workload.keys().len());
            let mut effects = HashSet::new();
            for effect in workload.effects() {
                let key = (workload.name(), effect.key);
                assert!(
                    effects.insert(effect.key) && keys.contains(effect.key),
                    "{key:?}"
                );
                let (modes, words) = effect.places();
                assert!(modes.is_some() || words.is_some(), "{key:?}");
                for mode in modes.unwrap_or_default() {
                    assert!(workload.mode(mode).is_ok(), "{key:?} {mode}");
                }
            }
        }
    }
}
