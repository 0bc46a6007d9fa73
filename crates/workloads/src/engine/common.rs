//! The keys that every workload shares: its pace, and the reaction to errors and stalls.
//!
//! A workload does not declare them. They are checked with its own keys, and the task passes their values to each
//! worker's recorder.

use crate::declare_keys;
use crate::engine::mode::ModeInfo;
use crate::measure::op::Op;
use crate::measure::pacing::{ArrivalProcess, Pace, Per, RateUnit, Schedule, WorkerShare};
pub use crate::measure::recorder::{ErrorPolicy, OnError};
use crate::params::units::{Bytes, Span};
use crate::params::{KeySet, Keys, ParamError, Params, check_names};
use std::time::Duration;

declare_keys! {
    #[derive(Debug)]
    pub struct CommonKeys {
        /// Operations per second. They are scheduled in advance, and the schedule does not slip if the target is slow.
        /// Response time starts at the scheduled time.
        "rate_iops" rate_iops: Option<u64> = none("as fast as possible"), min 1, max 1000000000;
        /// Bytes per second, instead of `rate_iops`. Files of `copy`, `files` and `tree` that take longer than a sixteenth
        /// of a second at this rate are moved in parts, each with an instant of its own; a call of `bs` is not divided.
        /// With `rate_process = "poisson"` only whole operations have instants.
        "rate" rate: Option<Bytes> = none("as fast as possible"), min 1, max "1p";
        /// Scope of the rate. The rate of a task or a step is divided evenly among its workers.
        "rate-per" rate_per: Per = "worker", only "with `rate` or `rate_iops`" if |_, scope| scope.has_any(&["rate", "rate_iops"]);
        /// `linear`: operations are scheduled at equal intervals. `poisson`: at random intervals, as from independent
        /// users.
        "rate_process" rate_process: ArrivalProcess = "linear",
            only "with `rate` or `rate_iops`" if |_, scope| scope.has_any(&["rate", "rate_iops"]);
        /// Whether the step continues after a failed operation. A full target and `errors-limit` always end it. A
        /// broken TCP link cannot be restored, so the TCP modes of `network` support only `stop`.
        "on-error" on_error: OnError = "continue";
        /// A worker with only errors for this time (and at least 10) ends its task: its target is gone. The plan's
        /// `on-loss` then applies, as for a lost agent. After 100 equal errors in a row, the worker waits between
        /// operations, 1 ms at first and at most 100 ms.
        "errors-limit" errors_limit: Span = "30s", min "1s";
        /// An operation that has neither ended nor moved a byte for this time is a stall. The event `stall` names its
        /// worker, path and offset (of the oldest of several in flight); `stall-over` follows when it continues or
        /// ends. The plan's `on-stall` decides the reaction. An fsync within an operation moves no bytes and counts as
        /// a stall if it takes longer: for large files on a slow target, allow enough time to write back the cached
        /// data. The same applies to a system call before or after the load, except flushing laid-out data to stable
        /// storage (fsync, syncfs), which may take any time.
        "stall-after" stall_after: Span = "30s", min "1s";
    }
}

/// As long as a lost client is waited for, because a storage system may fail over meanwhile.
const DEFAULT_STALL: Duration = Duration::from_secs(30);

/// Reads a workload's own keys. A key that is neither its own nor common is an error.
pub fn read_keys<K: Keys>(workload: &str, params: &Params) -> Result<K, ParamError> {
    let sets = [KeySet::of::<K>(), KeySet::of::<CommonKeys>()];
    check_names(&format!("workload `{workload}`"), &sets, params)?;
    K::read(params)
}

/// The values of the common keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    pub pace: Option<Pace>,
    pub errors: ErrorPolicy,
    /// An operation in flight for this long is a stall.
    pub stall_after: Duration,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            pace: None,
            errors: ErrorPolicy::default(),
            stall_after: DEFAULT_STALL,
        }
    }
}

impl Common {
    /// Reads the common keys from a workload's parameters.
    pub fn of(params: &Params) -> Result<Common, ParamError> {
        let keys = CommonKeys::read(params)?;
        Ok(Common {
            pace: Pace::of(keys.rate, keys.rate_iops, keys.rate_per, keys.rate_process)?,
            errors: ErrorPolicy {
                on_error: keys.on_error,
                limit: keys.errors_limit.0,
            },
            stall_after: keys.stall_after.0,
        })
    }

    /// Refuses keys that this mode does not support.
    pub fn check(&self, mode: &ModeInfo) -> Result<(), ParamError> {
        match self.pace {
            Some(pace)
                if pace.unit == RateUnit::Bytes
                    && !mode.ops.iter().any(|op| Op::has_bytes(*op)) =>
            {
                let message = format!("mode `{}` moves no bytes; use `rate_iops`", mode.name);
                Err(ParamError::of("rate", message))
            }
            _ => Ok(()),
        }
    }

    /// The schedule of one worker; `None` if the load is not paced.
    pub fn schedule(&self, share: WorkerShare) -> Option<Schedule> {
        self.pace.map(|pace| Schedule::new(&pace, share))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::workload::all_keys;
    use crate::registry;
    use benchmesh_testing::table;
    use serde_json::{Value, json};

    fn common(params: &Value) -> Result<Common, ParamError> {
        Common::of(params.as_object().unwrap())
    }

    #[test]
    fn every_workload_refuses_invalid_common_keys() {
        for workload in registry::all() {
            for mode in workload.modes() {
                let params = json!({"size": "1m", "objects": 10, "operations": "- mkdir a", "timing": "none", "rate_iops": 0});
                let mut params = params.as_object().unwrap().clone();
                params.retain(|key, _| all_keys(*workload).any(|known| known.name == key));
                let error = registry::check(*workload, mode.name, &params).unwrap_err();
                assert_eq!(error.key.as_deref(), Some("rate_iops"), "{error}");
            }
        }
    }

    #[test]
    fn common_keys_parse() {
        assert_eq!(common(&json!({"bs": "4k"})).unwrap(), Common::default());
        let read = common(
            &json!({"rate": "1m", "rate-per": "step", "rate_process": "poisson", "on-error": "stop", "errors-limit": "5s", "stall-after": "90s"}),
        );
        let expected = Common {
            pace: Some(Pace {
                unit: RateUnit::Bytes,
                per_second: 1 << 20,
                per: Per::Step,
                process: ArrivalProcess::Poisson,
            }),
            errors: ErrorPolicy {
                on_error: OnError::Stop,
                limit: Duration::from_secs(5),
            },
            stall_after: Duration::from_secs(90),
        };
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn invalid_common_keys_are_named() {
        for [bad, key, part] in table(
            r#"
            {"rate": 0}                         | rate         | 1 to 1p
            {"rate_iops": 0}                    | rate_iops    | 1 to 1000000000
            {"rate_iops": -1}                   | rate_iops    | found `-1`
            {"rate_iops": 2000000000}           | rate_iops    | 1 to 1000000000
            {"rate": "2000p"}                   | rate         | 1 to 1p
            {"rate": "4k", "rate_iops": 5}      | rate_iops    | one rate
            {"rate": 5, "rate-per": "host"}     | rate-per     | "worker", "task" or "step"
            {"rate": 5, "rate_process": "even"} | rate_process | "linear" or "poisson"
            {"stall-after": "0s"}               | stall-after  | 1s or more
            {"errors-limit": "0s"}              | errors-limit | 1s or more
            {"on-error": "ignore"}              | on-error     | "continue" or "stop"
            "#,
        ) {
            let error = common(&serde_json::from_str(&bad).unwrap()).unwrap_err();
            assert_eq!(error.key.as_ref(), Some(&key), "{error}");
            assert!(error.message.contains(&part), "{error}");
        }
    }

    #[test]
    fn bytes_per_second_need_bytes() {
        let params = json!({"rate": "1m"});
        let refused = registry::check(
            crate::workloads::files::FILES,
            "stat",
            params.as_object().unwrap(),
        );
        assert!(refused.unwrap_err().message.contains("use `rate_iops`"));
        registry::check(
            crate::workloads::files::FILES,
            "read",
            params.as_object().unwrap(),
        )
        .unwrap();
    }
}
