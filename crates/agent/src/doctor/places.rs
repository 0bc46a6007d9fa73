//! Targets and sources of the agent, and its state directory.

use super::Finding;
use crate::config::AgentConfig;
use crate::policy::{Bytes, Floors};
use crate::targets::{self, TargetNames, Targets};
use benchmesh_model::targets::{Locator, TargetKind};
use benchmesh_workloads::sandbox::Space;
use rustix::fs::{AtFlags, CWD};
use std::path::{Path, PathBuf};

pub fn examine(config: &AgentConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, name) in config.policy.targets.iter() {
        findings.extend(targets::examine(kind, name));
        findings.extend(floors(config, kind, name));
    }
    findings.extend(config.policy.allow_read.iter().map(|path| source(path)));
    findings.push(state(config));
    findings
}

/// The policy's finding for a target that is below its free-space floors.
pub(super) fn floors(
    config: &AgentConfig,
    kind: &'static TargetKind,
    name: &Path,
) -> Option<Finding> {
    let floors = Floors::new(&config.policy.resolved_limits());
    let locator = Locator {
        key: kind.key,
        value: name.to_str().filter(|_| kind.has_free_space)?.to_owned(),
    };
    let mut names = TargetNames::default();
    names.add(kind, name);
    let targets = Targets::allow(&names).ok()?;
    let denial = floors.check(targets.open(&locator).ok()?.free()).err()?;
    let shown = name.display();
    Some(Finding::fail(
        "path",
        format!("{shown} takes no load: {denial}"),
        format!(
            "make room, or start the agent with a smaller --{}",
            denial.key
        ),
    ))
}

fn source(path: &Path) -> Finding {
    match std::fs::read_dir(path) {
        Ok(_) => Finding::ok("source", format!("{}: can be read", path.display())),
        Err(error) => Finding::fail(
            "source",
            format!("{}: {error}", path.display()),
            "correct --allow-read",
        ),
    }
}

/// The state directory, or the nearest existing directory above it.
pub(super) fn state(config: &AgentConfig) -> Finding {
    let path = &config.state_dir;
    let shown = path.display();
    if let Some(target) = config
        .policy
        .targets
        .with_run_directories()
        .find(|target| path.starts_with(target))
    {
        return Finding::fail(
            "state",
            format!("{shown} lies under the target {}", target.display()),
            "choose another --state-dir: runs would measure the agent's own writes",
        );
    }
    let Some(there) = nearest(path) else {
        return Finding::fail(
            "state",
            format!("{shown}: no parent directory exists"),
            "choose another --state-dir",
        );
    };
    if let Err(error) =
        rustix::fs::accessat(CWD, &there, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)
    {
        return Finding::fail(
            "state",
            format!("this user cannot write to {}: {error}", there.display()),
            "run this as the agent's user, or choose another --state-dir",
        );
    }
    let bytes = Space::at(&there).map_or(0, |space| space.free_bytes);
    if bytes < config.spool_limit_bytes {
        return Finding::warn(
            "state",
            format!(
                "{shown}: {} free, but the spool may take {}",
                Bytes(bytes).about(),
                Bytes(config.spool_limit_bytes).about()
            ),
            "make room: a full spool merges seconds while the collector is away",
        );
    }
    Finding::ok("state", format!("{shown}: {} free", Bytes(bytes).about()))
}

fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}
