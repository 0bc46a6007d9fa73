//! Checks of a host for an agent with a given configuration: one line per finding, with a remedy.
//!
//! A check tries the thing that the agent would use, where that is harmless: an unnamed file on a target, a ring, one
//! sample. It leaves no changes behind, attaches to nothing, and does not format its findings.

mod collector;
mod host;
mod places;
mod ports;

pub use crate::finding::{DoctorVerdict, Finding};
pub use collector::examine_collector;

use crate::config::AgentConfig;
use crate::facts::{FactSource, Failure};
use crate::policy::Policy;
use crate::sampler::{Sampled, Sampler, SamplerConfig, Sampling};
use benchmesh_model::limits::Limit;
use benchmesh_model::systems::facts::summary;
use benchmesh_model::targets::{KINDS, TargetKind};
use benchmesh_workloads::error_chain;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

/// Timeout of one sample. A host with many thousand processes needs a fraction of it.
const SAMPLE_WITHIN: Duration = Duration::from_secs(5);

/// Checks this host. Blocks for a moment.
#[must_use]
pub fn examine_host(config: &AgentConfig) -> Vec<Finding> {
    let mut findings = host::examine(config);
    findings.extend(places::examine(config));
    findings.push(policy(config));
    findings.extend(limits(config));
    findings.extend(ports::examine(config));
    findings.push(daemons(config));
    findings.extend((config.facts.iter()).map(|source| facts(source, config.facts_timeout)));
    findings
}

/// Loads that the agent's configuration allows.
fn policy(config: &AgentConfig) -> Finding {
    if let Err(error) = crate::check(config) {
        return Finding::fail(
            "policy",
            error_chain(&error),
            "correct the agent's configuration: the agent does not start with it",
        );
    }
    let count = |number: usize, what: &str| (number > 0).then(|| format!("{what}: {number}"));
    let targets = &config.policy.targets;
    let of_kind = |kind: &&'static TargetKind| count(targets.of(kind).count(), kind.plural);
    let others = [
        count(config.policy.allow_read.len(), "source directories"),
        config
            .policy
            .allow_drop_caches
            .then(|| "dropping of caches".to_owned()),
    ];
    let allowed: Vec<String> = KINDS
        .iter()
        .filter_map(of_kind)
        .chain(others.into_iter().flatten())
        .collect();
    if targets.is_empty() {
        return Finding::warn(
            "policy",
            "no target is allowed: this agent only samples and takes no load on storage",
            "on a client, allow its targets: --allow PATH",
        );
    }
    Finding::ok("policy", allowed.join(", "))
}

/// Limits of the allowed load, by the keys of the policy.
fn limits(config: &AgentConfig) -> Option<Finding> {
    // The error is already reported.
    let policy = Policy::open(&config.policy).ok()?;
    let mut keys: Vec<String> = (Limit::ALL.iter())
        .map(|limit| {
            let setting = policy.limits[*limit].map(|setting| limit.about(setting));
            let value = setting.unwrap_or_else(|| "no limit".to_owned());
            format!("`{}` {value}", limit.row().option)
        })
        .collect();
    keys.push(format!("`workloads` {}", policy.workloads));
    Some(Finding::ok("limits", keys.join(", ")))
}

/// Reads a source of facts once and reports the result.
fn facts(source: &FactSource, timeout: Duration) -> Finding {
    let reading = source.read(&AtomicBool::new(false), timeout);
    let system = source.system();
    if !reading.failures.is_empty() {
        let failures: Vec<String> = reading.failures.iter().map(Failure::to_string).collect();
        return Finding::warn(
            "facts",
            format!("{system}: {}", failures.join("; ")),
            "try the command as the agent's user, or correct --facts",
        );
    }
    let found = reading.facts.as_slice().len();
    match summary(&reading.facts.texts()) {
        state if state.is_empty() => Finding::ok("facts", format!("{system}: {found} facts")),
        state => Finding::ok("facts", format!("{system}: {state}; {found} facts")),
    }
}

/// The storage daemons that one sample finds, and whether their counters can be read.
fn daemons(config: &AgentConfig) -> Finding {
    let watch = "name others with --watch";
    let sampled = match sample(config) {
        Ok(sampled) => sampled,
        Err(problem) => {
            return Finding::fail("daemons", problem, "see the other findings on this host");
        }
    };
    let own = std::process::id();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for seen in &sampled.seen {
        if u32::try_from(seen.pid) != Ok(own) && seen.name != "benchmesh" {
            *found.entry(&seen.name).or_default() += 1;
        }
    }
    if found.is_empty() {
        return Finding::ok("daemons", format!("no storage daemon runs here; {watch}"));
    }
    let names: Vec<String> = found
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let names = names.join(", ");
    let is_foreign = |pid: i32| u32::try_from(pid) != Ok(own);
    let is_hidden = sampled
        .daemons
        .iter()
        .any(|daemon| is_foreign(daemon.pid) && daemon.figures.read_bytes < 0);
    if is_hidden {
        return Finding::warn(
            "daemons",
            format!("{names}; the agent cannot read the I/O bytes of some of them"),
            "run the agent as root or with CAP_SYS_PTRACE",
        );
    }
    Finding::ok("daemons", names)
}

fn sample(config: &AgentConfig) -> Result<Sampled, String> {
    let (send, receive) = mpsc::sync_channel(1);
    let watching = SamplerConfig {
        rules: config.daemon_rules.clone(),
        sampling: Sampling {
            interfaces: false,
            ..Sampling::default()
        },
        ..SamplerConfig::default()
    };
    // Only the first sample is needed; later ones find the channel full and are dropped.
    let sampler = Sampler::start(watching, move |sampled| drop(send.try_send(sampled)))
        .map_err(|error| error_chain(&error))?;
    let sampled = receive.recv_timeout(SAMPLE_WITHIN);
    sampler.stop();
    sampled.map_err(|_| format!("no sample within {} s", SAMPLE_WITHIN.as_secs()))
}

#[cfg(test)]
mod tests;
