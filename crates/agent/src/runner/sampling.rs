//! The sampler with its current configuration.
//!
//! It starts with the first configuration that requests samples and applies every later change. Its readings go to
//! [`Samples`] in its own thread.

use crate::command::{Refusal, Sampling};
use crate::sampler::{self, DaemonRule, Mark, Sampler, SamplerConfig};
use crate::spool::Samples;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The sampler and its last configuration.
#[derive(Debug)]
pub struct SamplerControl {
    rules: Vec<DaemonRule>,
    /// The agent's own period, which overrides the collector's: the host's operator limits the cost of sampling.
    period: Duration,
    samples: Samples,
    sampler: Option<Sampler>,
    /// Whether further readings of the current sampler are kept.
    live: Arc<AtomicBool>,
    appointed: Sampling,
}

impl SamplerControl {
    /// A control without a running sampler.
    #[must_use]
    pub fn new(rules: Vec<DaemonRule>, period: Duration, samples: Samples) -> Self {
        Self {
            rules,
            period,
            samples,
            sampler: None,
            live: Arc::default(),
            appointed: Sampling::default(),
        }
    }

    /// Applies this configuration from now on.
    ///
    /// # Errors
    /// When the sampler cannot be started.
    pub fn appoint(&mut self, sampling: Sampling) -> Result<(), Refusal> {
        if sampling == self.appointed && self.sampler.is_some() {
            return Ok(());
        }
        let rules = joined(&self.rules, &sampling.daemon_rules);
        let nothing = !sampling.host_wide && !sampling.interfaces;
        let wanted = sampler::Sampling {
            host_wide: sampling.host_wide,
            interfaces: sampling.interfaces,
            period: sampling.period.filter(|_| !nothing).map(|_| self.period),
        };
        let mesh_pids = sampling.mesh_pids.clone();
        self.appointed = sampling;
        if let Some(sampler) = &self.sampler {
            // The rules were checked on arrival.
            sampler
                .watch(rules, mesh_pids)
                .map_err(|error| Refusal::failed(error.to_string()))?;
            sampler.set(wanted);
            return Ok(());
        }
        if nothing {
            return Ok(());
        }
        let config = SamplerConfig {
            rules,
            sampling: wanted,
            mesh_pids: Some(mesh_pids),
            ..SamplerConfig::default()
        };
        let live = Arc::new(AtomicBool::new(true));
        self.live = Arc::clone(&live);
        let samples = self.samples.clone();
        let started = Sampler::start(config, move |sampled| {
            if live.load(Ordering::Relaxed) {
                samples.push(sampled);
            }
        });
        self.sampler = Some(started.map_err(|error| {
            tracing::error!(%error, "the sampler cannot be started");
            Refusal::failed(format!("the sampler cannot be started: {error}"))
        })?);
        Ok(())
    }

    /// Takes a sample at this mark.
    pub fn mark(&self, mark: Mark) {
        if let Some(sampler) = &self.sampler {
            sampler.mark(mark);
        }
    }

    /// Rules that name the same processes differently, as text for an event; empty if there are none.
    #[must_use]
    pub fn conflicts(&self) -> Vec<String> {
        conflicts(&joined(&self.rules, &self.appointed.daemon_rules))
    }

    /// Ends the sampler's thread from another thread, because it may be in the middle of a sample.
    pub fn stop(&mut self) -> Option<std::thread::JoinHandle<()>> {
        self.appointed = Sampling::default();
        let sampler = self.sampler.take()?;
        // If no thread can be started, the sampler is dropped here, which waits for the current sample.
        std::thread::Builder::new()
            .name("bm-stop".to_owned())
            .spawn(move || sampler.stop())
            .ok()
    }

    /// Stops the sampler and forgets its readings, because another mesh does not know its daemons.
    pub fn start_over(&mut self) {
        self.live.store(false, Ordering::Relaxed);
        self.stop();
        self.samples.clear();
    }
}

/// This agent's own rules, and those of the other agents on its host.
fn joined(own: &[DaemonRule], all: &[DaemonRule]) -> Vec<DaemonRule> {
    let mut joined = all.to_vec();
    let missing = own.iter().filter(|rule| !all.contains(rule));
    joined.extend(missing.cloned());
    joined
}

/// Rules with equal conditions and a different name or instance: the first of them applies.
fn conflicts(rules: &[DaemonRule]) -> Vec<String> {
    let conditions = |rule: &DaemonRule| {
        (
            rule.comm.clone(),
            rule.cmdline.clone(),
            rule.cgroup.clone(),
            rule.unit.clone(),
        )
    };
    let mut found = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let first = rules
            .iter()
            .take(place)
            .find(|held| conditions(held) == conditions(rule));
        if let Some(first) = first {
            found.push(format!(
                "agents of this host watch the same processes as {:?} and as {:?}: the first holds",
                first.name, rule.name
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_host_are_joined_and_their_conflicts_told() {
        let rule = |name: &str, comm: &str| DaemonRule {
            name: name.to_owned(),
            comm: Some(comm.to_owned()),
            ..DaemonRule::default()
        };
        let own = [rule("shard", "mysqld")];
        let all = [
            rule("db", "mysqld"),
            rule("shard", "mysqld"),
            rule("queue", "kafka"),
        ];
        assert_eq!(joined(&own, &all), all);
        assert_eq!(
            joined(&own, &all[..1]),
            [rule("db", "mysqld"), rule("shard", "mysqld")]
        );
        let found = conflicts(&all);
        assert!(
            matches!(&found[..], [one] if one.contains("\"db\" and as \"shard\"")),
            "{found:?}"
        );
        assert!(conflicts(&own).is_empty());
    }
}
