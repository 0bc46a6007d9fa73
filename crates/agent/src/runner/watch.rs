//! The sampler, as it was appointed.
//!
//! It is started when this agent is first appointed to sample something, and told of every change after that. What it
//! reads goes to [`Samples`] in its own thread.

use super::command::{Refusal, Sampling};
use crate::sampler::{self, DaemonRule, Sampler, SamplerConfig};
use crate::spool::Samples;
use benchmesh_workloads::clock::MonoNanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The sampler and what it was told.
#[derive(Debug)]
pub struct Watch {
    rules: Vec<DaemonRule>,
    /// The agent's own period, in the place of the collector's: the operator of a host decides what it bears.
    period: Duration,
    samples: Samples,
    sampler: Option<Sampler>,
    /// Whether what the sampler still reads is wanted.
    live: Arc<AtomicBool>,
    appointed: Sampling,
}

impl Watch {
    /// Nothing is sampled yet.
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

    /// Samples that from now on.
    ///
    /// # Errors
    /// When the sampler cannot be started.
    pub fn appoint(&mut self, sampling: Sampling) -> Result<(), Refusal> {
        if sampling == self.appointed && self.sampler.is_some() {
            return Ok(());
        }
        self.appointed = sampling;
        let nothing = !sampling.host_wide && !sampling.interfaces;
        let wanted = sampler::Sampling {
            host_wide: sampling.host_wide,
            interfaces: sampling.interfaces,
            period: sampling.period.filter(|_| !nothing).map(|_| self.period),
        };
        if let Some(sampler) = &self.sampler {
            sampler.set(wanted);
            return Ok(());
        }
        if nothing {
            return Ok(());
        }
        let config = SamplerConfig {
            rules: self.rules.clone(),
            sampling: wanted,
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

    /// Takes a sample then.
    pub fn mark(&self, at: MonoNanos) {
        if let Some(sampler) = &self.sampler {
            sampler.mark(at);
        }
    }

    /// Ends the sampler's thread, off this one: it may be in the middle of a sample.
    pub fn stop(&mut self) -> Option<std::thread::JoinHandle<()>> {
        self.appointed = Sampling::default();
        let sampler = self.sampler.take()?;
        // Without a thread it is dropped here, which waits for the sample in hand.
        std::thread::Builder::new()
            .name("bm-stop".to_owned())
            .spawn(move || sampler.stop())
            .ok()
    }

    /// Ends the sampler and forgets what it has read: another mesh knows none of its daemons.
    pub fn start_over(&mut self) {
        self.live.store(false, Ordering::Relaxed);
        self.stop();
        self.samples.clear();
    }
}
