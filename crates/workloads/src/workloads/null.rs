//! `null`: operations that do nothing, to measure the harness's own cost.
//!
//! Each operation is two clock readings and one record, the same cost that every other workload has per operation.

use crate::engine::author::*;

const DEFAULT_OPS: u64 = 10_000_000;

/// The workload.
pub const NULL: &dyn Workload = workload::<Null>();

declare_keys! {
    struct NullKeys {
        /// Workers per task.
        "numjobs" workers: u32 = 1, min 1, max 4096;
        /// Operations per worker.
        "ops" ops: Option<u64> = none("10000000, or no limit with `runtime`"), min 1;
        /// Duration of the load.
        "runtime" runtime: Option<Span> = none("until `ops` are done");
        include ramp: RampKeys;
    }
}

struct Null {
    threads: Threads,
    ops: u64,
}

impl Definition for Null {
    const ABOUT: About = About {
        name: "null",
        summary: "operations that do nothing: the cost of the harness itself",
        modes: &[ModeInfo::without_data("run", "does nothing", &[Op::Null])],
        rejoins: Rejoins::InAnyMode,
        ..About::WITHOUT_TARGET
    };
    type Keys = NullKeys;

    fn new(_mode: &ModeInfo, keys: NullKeys) -> Result<Null, ParamError> {
        let most = keys.runtime.map_or(DEFAULT_OPS, |_| u64::MAX);
        Ok(Null {
            threads: Threads::of(keys.workers, &keys.ramp, keys.runtime)?,
            ops: keys.ops.unwrap_or(most),
        })
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn load(self, _spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        Ok(Box::new(self))
    }
}

impl Load for Null {
    fn worker(&self, _index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let ops = self.ops;
        Ok(Box::new(move |recorder: &mut Recorder| {
            for _ in 0..ops {
                let Some(began) = recorder.next(Op::Null, 0) else {
                    break;
                };
                recorder.end(Op::Null, began, 0);
            }
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::workload::Params;
    use serde_json::json;

    #[test]
    fn parameters_are_checked() {
        let check = |params: serde_json::Value| NULL.check("run", params.as_object().unwrap());
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
            NULL.check("walk", &Params::new())
                .unwrap_err()
                .message
                .contains("it has run")
        );
    }
}
