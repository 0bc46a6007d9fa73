//! RADOS pools: each run has its own namespace in an allowed pool.
//!
//! A connection is opened at the first use of a target, so an agent can start while its cluster is down.

use super::{AllowedTargets, PathFacts, RequestedTarget, RunDirectoryFacts, RunName, TargetOpener};
use crate::finding::Finding;
use benchmesh_model::targets::{IMAGE_LIBRARY, Locator, POOL, POOL_NAME};
use benchmesh_workloads::error_chain;
use benchmesh_workloads::sandbox::{Make, SandboxError, Space};
use benchmesh_workloads::target::place::{PoolRun, facts, space};
use benchmesh_workloads::target::rados::{PoolFacts, PoolSpec, image_library_version};
use benchmesh_workloads::task::Place;
use benchmesh_workloads::units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const KIND: TargetOpener = TargetOpener {
    about: &POOL,
    allow: |names| Ok(Arc::new(AllowedPools::new(names)?)),
    examine,
};

/// The pools of the configuration, each as written there.
#[derive(Debug)]
struct AllowedPools(Vec<(Locator, PoolSpec)>);

fn locator(value: String) -> Locator {
    Locator {
        key: &POOL_NAME,
        value,
    }
}

impl AllowedPools {
    fn new(names: Vec<PathBuf>) -> Result<Self, SandboxError> {
        let mut pools = Vec::new();
        for name in names {
            let value = name.to_string_lossy().into_owned();
            let spec = PoolSpec::parse(&value)?;
            pools.push((locator(value), spec));
        }
        Ok(Self(pools))
    }
}

impl AllowedTargets for AllowedPools {
    /// Options that a request omits are taken from the configuration; options that it gives must match.
    fn find(&self, name: &str) -> Option<Box<dyn RequestedTarget + '_>> {
        let asked = locator(name.to_owned());
        let mut pools = self.0.iter();
        let (_, spec) = pools.find(|(allowed, _)| allowed.allows(&asked))?;
        Some(Box::new(PoolTarget { spec }))
    }

    fn names(&self) -> Vec<PathBuf> {
        let names = self.0.iter().map(|(allowed, _)| allowed.value.clone());
        names.map(PathBuf::from).collect()
    }
}

struct PoolTarget<'a> {
    spec: &'a PoolSpec,
}

impl PoolTarget<'_> {
    fn run(&self, run: RunName<'_>) -> PoolRun {
        PoolRun {
            spec: self.spec.clone(),
            mesh: run.mesh.to_owned(),
            run: run.uid.to_owned(),
        }
    }
}

impl RequestedTarget for PoolTarget<'_> {
    fn open_run(&self, run: RunName<'_>, make: Make) -> Result<RunDirectoryFacts, SandboxError> {
        let marked = self.run(run).marker(make == Make::IfMissing)?;
        let Some((marker, made)) = marked else {
            return Ok(RunDirectoryFacts::default());
        };
        Ok(RunDirectoryFacts {
            found: true,
            made,
            nonce: marker.nonce,
            free_bytes: self
                .free()
                .map_or(i64::MAX, |space| clamped(space.free_bytes)),
        })
    }

    fn remove_run(
        &self,
        run: RunName<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        self.run(run).remove(progress)
    }

    fn remove_cell(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        self.run(run).remove_cell(cell, task_index, progress)
    }

    fn place(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
    ) -> Result<Option<Place>, SandboxError> {
        let task = self.run(run).task(cell, task_index)?;
        Ok(task.map(|task| Place::Pool(Arc::new(task))))
    }

    fn free(&self) -> Option<Space> {
        facts(self.spec).ok()?.space.map(space)
    }

    fn survey(&self) -> PathFacts {
        let known = PathFacts {
            allowed: true,
            free_files: -1,
            file_system: "rados".to_owned(),
            ..PathFacts::default()
        };
        match facts(self.spec) {
            Ok(facts) => {
                let space = facts.space.map(space);
                PathFacts {
                    exists: true,
                    free_bytes: space.map_or(i64::MAX, |space| clamped(space.free_bytes)),
                    free_files: match space {
                        Some(space) if space.files > 0 => clamped(space.free_files),
                        _ => -1,
                    },
                    size_bytes: space.map_or(0, |space| clamped(space.size_bytes)),
                    usable_bytes: space.map_or(0, |space| clamped(space.usable_bytes)),
                    mount_source: format!("{}:{}", facts.fsid, self.spec.pool),
                    mount_options: options(self.spec, &facts),
                    ..known
                }
            }
            Err(error) => PathFacts {
                problem: error_chain(&error),
                ..known
            },
        }
    }
}

/// For example `name=admin,size=3,librbd=1.16.0`.
fn options(spec: &PoolSpec, facts: &PoolFacts) -> String {
    let mut options = format!("name={}", spec.user);
    if let Some(size) = facts.replicas {
        options.push_str(&format!(",size={size}"));
    }
    if let Ok(version) = image_library_version() {
        options.push_str(&format!(",{IMAGE_LIBRARY}={version}"));
    }
    options
}

fn examine(name: &Path) -> Vec<Finding> {
    let remedy = "correct --allow-pool, or fix the problem";
    let failed = |error: &dyn std::error::Error| {
        let message = format!("{}: {}", name.display(), error_chain(error));
        vec![Finding::fail("pool", message, remedy)]
    };
    let spec = match PoolSpec::parse(&name.to_string_lossy()) {
        Ok(spec) => spec,
        Err(error) => return failed(&error),
    };
    let facts = match facts(&spec) {
        Ok(facts) => facts,
        Err(error) => return failed(&error),
    };
    let copies = match facts.replicas {
        Some(1) => ", 1 copy".to_owned(),
        Some(count) => format!(", {count} copies"),
        None => String::new(),
    };
    let free = match facts.space {
        Some(space) => format!("{} free", Bytes(space.free_bytes).about()),
        None => format!("client.{} may not query the free space", spec.user),
    };
    let images = match image_library_version() {
        Ok(version) => format!("RBD images by {IMAGE_LIBRARY} {version}"),
        Err(error) => format!("no RBD images for `io`: {}", error_chain(&error)),
    };
    let (pool, fsid) = (&spec.pool, &facts.fsid);
    vec![Finding::ok(
        "pool",
        format!("{pool} of cluster {fsid}{copies}: {free}; {images}"),
    )]
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_plan_chooses_among_allowed_pools_and_names_no_other_files() {
        let names = ["bench,user=a,keyring=/etc/k", "bench,user=b", "rbd"];
        let allowed = AllowedPools::new(names.map(PathBuf::from).to_vec()).unwrap();
        assert_eq!(allowed.names(), names.map(PathBuf::from));
        for (asked, is_allowed) in [
            ("bench", true),
            ("bench,user=b", true),
            ("bench,user=a,keyring=/etc/k", true),
            ("bench,user=c", false),
            ("bench,user=b,keyring=/etc/k", false),
            ("rbd,conf=/tmp/evil.conf", false),
            ("other", false),
        ] {
            assert_eq!(allowed.find(asked).is_some(), is_allowed, "{asked}");
        }
        assert!(AllowedPools::new(vec![PathBuf::from("a,conf=relative")]).is_err());
    }
}
