//! `null`: operations that do nothing, to show the harness's own cost.
//!
//! Each operation is two clock readings and one record, exactly what every other workload pays for its own.

use crate::common;
use crate::op::Op;
use crate::params::effect::{self, Effect};
use crate::params::{self, KeyInfo, ParamError};
use crate::recorder::{OpError, Recorder};
use crate::task::{PrepareControl, TaskError, TaskSpec};
use crate::units::Span;
use crate::workload::{
    Data, Footprint, Load, ModeInfo, Needs, Params, RAMP_TIME, Timing, Worker, Workload,
};
use serde::Deserialize;

const NAME: &str = "null";
const DEFAULT_OPS: u64 = 10_000_000;

const MODES: &[ModeInfo] = &[ModeInfo {
    name: "run",
    meaning: "operations that do nothing",
    needs: Data::Nothing,
    leaves: Data::Nothing,
    ops: &[Op::Null],
}];

const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + common::KEYS.len() }>(&[OWN_KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "workers per task",
    },
    KeyInfo {
        name: "ops",
        kind: "count",
        default: "10000000, or without limit when `runtime` is set",
        meaning: "operations per worker",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "until `ops` are done",
        meaning: "how long it runs",
    },
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
const EFFECTS: &[Effect] = &[effect::RAMP];

#[derive(Debug, Deserialize)]
struct NullParams {
    #[serde(default = "one")]
    numjobs: u32,
    ops: Option<u64>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
}

fn one() -> u32 {
    1
}

/// The workload.
#[derive(Debug)]
pub struct Null;

impl Null {
    fn parse(&self, mode: &str, params: &Params) -> Result<NullLoad, ParamError> {
        self.mode(mode)?;
        let params: NullParams = params::parse(NAME, KEYS, params)?;
        params::check_numjobs(params.numjobs)?;
        if params.ops == Some(0) {
            return Err(ParamError::of("ops", "must be at least 1"));
        }
        let timing = Timing::of(params.ramp_time, params.runtime)?;
        let unlimited = match timing.runtime {
            Some(_) => u64::MAX,
            None => DEFAULT_OPS,
        };
        Ok(NullLoad {
            workers: params.numjobs,
            ops: params.ops.unwrap_or(unlimited),
            timing,
        })
    }
}

impl Workload for Null {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        1
    }

    fn summary(&self) -> &'static str {
        "operations that do nothing: the cost of the harness itself"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
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
    fn understood(&self, mode: &str, params: &Params) -> Result<String, ParamError> {
        Ok(format!("{:?}", self.parse(mode, params)?))
    }

    fn check(&self, mode: &str, params: &Params) -> Result<Footprint, ParamError> {
        let load = self.parse(mode, params)?;
        Ok(Footprint {
            workers: load.workers,
            runtime: load.timing.total(),
            ..Footprint::default()
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let load = self.parse(&spec.mode, &spec.params);
        Ok(Box::new(load.map_err(TaskError::Params)?))
    }
}

#[derive(Debug)]
struct NullLoad {
    workers: u32,
    ops: u64,
    timing: Timing,
}

impl Load for NullLoad {
    fn workers(&self) -> u32 {
        self.workers
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn prepare(&self, _control: &PrepareControl) -> Result<(), TaskError> {
        Ok(())
    }

    fn worker(&self, _index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(Box::new(NullWorker { ops: self.ops }))
    }
}

struct NullWorker {
    ops: u64,
}

impl Worker for NullWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        for _ in 0..self.ops {
            let Some(began) = recorder.next(Op::Null, 0) else {
                break;
            };
            recorder.end(Op::Null, began, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_checked() {
        let check = |params: serde_json::Value| Null.check("run", params.as_object().unwrap());
        assert_eq!(check(json!({"numjobs": 3})).unwrap().workers, 3);
        let timed = check(json!({"runtime": "2s", "ramp_time": "1s"})).unwrap();
        assert_eq!(timed.runtime.unwrap().as_secs(), 3);
        for (bad, key) in [
            (json!({"numjobs": 0}), "numjobs"),
            (json!({"ops": 0}), "ops"),
            (json!({"runtime": "0s"}), "runtime"),
            (json!({"bs": 1}), "bs"),
        ] {
            assert_eq!(check(bad).unwrap_err().key.as_deref(), Some(key));
        }
        assert!(
            Null.check("walk", &Params::new())
                .unwrap_err()
                .message
                .contains("it has run")
        );
    }
}
