//! Ctrl-C and SIGTERM, counted: the first asks for a clean end, the second exits at once.

use anyhow::Context;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Contains the id of the process that this one ends with, if there is one.
pub const PARENT_VARIABLE: &str = "BENCHMESH_PARENT";

/// The kernel signals the end of the parent once for each of its threads: signals within this time are one.
const ONE_END: Duration = Duration::from_millis(250);

/// The effect of Ctrl-C on the run that a command follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    /// The run is stopped, and followed to its clean end.
    StopRun,
    /// The run continues; only the following ends.
    Leave,
}

/// The number of end requests to this process.
#[derive(Clone, Debug)]
pub struct Interrupts {
    count: watch::Receiver<u32>,
}

impl Interrupts {
    /// From now on signals are counted and do not end the process by themselves. Needs a runtime.
    pub fn listen() -> anyhow::Result<Self> {
        let what = "listen for signals";
        let mut interrupt = signal(SignalKind::interrupt()).context(what)?;
        let mut terminate = signal(SignalKind::terminate()).context(what)?;
        let (counter, count) = watch::channel(0);
        let ends_with_parent = std::env::var_os(PARENT_VARIABLE).is_some();
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            loop {
                let came = tokio::select! {
                    came = interrupt.recv() => came,
                    came = terminate.recv() => came,
                };
                if came.is_none() {
                    return;
                }
                let is_same = last.is_some_and(|last| last.elapsed() < ONE_END);
                last = Some(Instant::now());
                if !(ends_with_parent && is_same) {
                    counter.send_modify(|count| *count += 1);
                }
            }
        });
        Ok(Self { count })
    }

    /// Returns after the first signal; at once if it has already arrived. Cancel-safe.
    pub async fn first(&mut self) {
        self.at_least(1).await;
    }

    /// Returns after the second signal. Cancel-safe.
    pub async fn second(&mut self) {
        self.at_least(2).await;
    }

    async fn at_least(&mut self, wanted: u32) {
        if self.count.wait_for(|count| *count >= wanted).await.is_err() {
            // The counting task ended with the runtime: no signal will arrive.
            std::future::pending::<()>().await;
        }
    }
}
