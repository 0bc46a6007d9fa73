//! The list of workloads, and functions that find them by name.
//!
//! A new workload is one folder in `workloads` and one line here.

use crate::engine::common::Common;
use crate::engine::task::{PrepareControl, Task, TaskError, TaskSpec};
use crate::engine::workload::{Footprint, Params, Workload};
use crate::params::ParamError;
use crate::workloads;

/// All workloads, in the order of the documentation.
static ALL: [&dyn Workload; 9] = [
    workloads::files::FILES,
    workloads::io::IO,
    workloads::copy::COPY,
    workloads::tree::TREE,
    workloads::fill::FILL,
    workloads::replay::REPLAY,
    workloads::objects::OBJECTS,
    workloads::network::NETWORK,
    workloads::null::NULL,
];

pub fn all() -> &'static [&'static dyn Workload] {
    &ALL
}

/// Validates everything that does not depend on the target: the workload's own keys, and the common ones.
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
    all()
        .iter()
        .copied()
        .find(|workload| workload.name() == name)
}

/// The replacement of a former workload, or of another tool that a workload replaces; `None` for any other name.
pub fn successor(name: &str) -> Option<&'static str> {
    match name {
        "fio" => Some(
            "write workload = \"io\": its keys are fio's; `benchmesh plan from-fio JOB.fio` converts a job file",
        ),
        "iozone" => Some("write workload = \"io\", or preset = \"iozone-a\""),
        "bonnie" | "bonnie++" => Some("write preset = \"bonnie-1.97\""),
        "dd" => Some("write workload = \"io\", or preset = \"dd-nc\""),
        "iperf" | "iperf3" => Some("write workload = \"network\""),
        "rados-bench" => Some("write workload = \"objects\", or preset = \"rados-bench\""),
        "cp" | "rsync" => Some("write workload = \"copy\""),
        "tar" | "untar" => Some("write workload = \"tree\""),
        "bytes" => Some(
            "write workload = \"io\", with `rmw` for its mode `rewrite`, `end_fsync` for `fsync`, `randseed` for `seed`, \
             and file-per = \"task\", ranges = \"whole\" and `numjobs` for `seekers`",
        ),
        _ => None,
    }
}

/// Lays out the data of a task and opens one OS thread per worker; blocks until all are parked. A failed preparation
/// leaves nothing behind but the data.
pub fn prepare(spec: &TaskSpec, control: &PrepareControl) -> Result<Task, TaskError> {
    control.watched(&spec.params, || prepare_here(spec, control))
}

/// As [`prepare`], in a thread that is watched already.
pub fn prepare_here(spec: &TaskSpec, control: &PrepareControl) -> Result<Task, TaskError> {
    let workload = find(&spec.workload).ok_or_else(|| TaskError::UnknownWorkload {
        name: spec.workload.clone(),
    })?;
    Task::prepare(workload, spec, control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::workload::all_keys;
    use std::collections::HashSet;

    #[test]
    fn every_workload_is_listed_once_and_documented() {
        let mut names = HashSet::new();
        for workload in all() {
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
            let mut keys = HashSet::new();
            for key in all_keys(*workload) {
                let name = (workload.name(), key.name);
                assert!(keys.insert(key.name), "{name:?} is declared twice");
                assert!(key.meaning().ends_with('.'), "{name:?}: {}", key.meaning());
                assert!(key.has_readable_default(), "{name:?}");
                for mode in key.modes.unwrap_or_default() {
                    assert!(workload.mode(mode).is_ok(), "{name:?} {mode}");
                }
            }
        }
    }

    #[test]
    fn modes_that_keep_their_data() {
        let mut kept = Vec::new();
        for workload in all() {
            let modes = workload.modes().iter();
            let names = modes.filter(|mode| mode.keeps_its_data());
            kept.extend(names.map(|mode| format!("{} {}", workload.name(), mode.name)));
        }
        let expected = [
            "files list",
            "files list-stat",
            "files stat",
            "files read",
            "files chmod",
            "files mix",
            "files rename",
            "io rewrite",
            "io read",
            "io reread",
            "io randwrite",
            "io randread",
            "io rw",
            "io randrw",
            "io backread",
            "io strideread",
            "io recrewrite",
            "io getc",
            "io frewrite",
            "io fread",
            "io rmw",
            "io seek",
            "copy overwrite",
            "copy list",
            "copy out",
            "tree read",
            "tree walk",
            "fill hold",
            "fill read",
            "objects seq",
            "objects rand",
            "objects stat",
        ];
        assert_eq!(kept, expected);
    }
}
