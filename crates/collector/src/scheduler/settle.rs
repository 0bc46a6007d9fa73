//! The rest before a start: a time, or until the storage is idle, as far as its samples say.
//!
//! Idle is what was below the threshold for `IDLE_FOR` without a break, judged from the samples since the rest began;
//! a host whose samples do not come is not taken for idle. The limit ends every wait.

use super::drive::{Drive, Fact};
use crate::{
    model::{HostId, MeshMicros, Severity, StepId, StepState},
    plan::{IDLE_FOR, PlannedStep, Settle},
    store::{StoreError, busy::Busy, rows::StepRow},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

/// Samples come once a second.
const LOOK: Duration = Duration::from_millis(500);
/// Samples of a second are here so much later, at the latest.
const BEHIND: Duration = Duration::from_millis(1500);
/// Of the time looked at, so much has to be covered by samples: the beat is a second.
const COVERED: Duration = Duration::from_secs(2);
/// Busy ones that are named when the limit was reached.
const NAMED: usize = 3;

impl Drive {
    /// Rests as the plan wants it.
    pub(super) async fn settle(&self, step: &PlannedStep, row: &StepRow) -> Result<(), StoreError> {
        match step.settle {
            Settle::For(time) if time.is_zero() => Ok(()),
            Settle::For(time) => {
                self.enter(row.id, StepState::Settle, None).await?;
                sleep(time).await;
                Ok(())
            }
            Settle::Idle { percent, limit } => {
                self.enter(row.id, StepState::Settle, None).await?;
                self.until_idle(row.id, percent, limit).await
            }
        }
    }

    async fn until_idle(
        &self,
        step: StepId,
        percent: f64,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let hosts = self.storage_hosts();
        if hosts.is_empty() {
            return self
                .rested(
                    step,
                    "settle-blind",
                    String::from("no host of the storage is sampled, so nothing says when it is idle; the step starts at once"),
                )
                .await;
        }
        let began = (Instant::now(), self.clock.now());
        loop {
            let now = self.clock.now();
            let window = i64::try_from((IDLE_FOR + BEHIND).as_micros()).unwrap_or(i64::MAX);
            let since = MeshMicros(now.0.saturating_sub(window).max(began.1.0));
            let mut verdicts = Vec::new();
            for (host, name) in &hosts {
                let (covered_us, busy) = self.store.busy_since(*host, since).await?;
                verdicts.extend(
                    verdict(covered_us, &busy, percent)
                        .into_iter()
                        .map(|what| format!("{what} on host {name}")),
                );
            }
            if verdicts.is_empty() {
                return Ok(());
            }
            if began.0.elapsed() >= limit {
                let more = verdicts.len().saturating_sub(NAMED);
                verdicts.truncate(NAMED);
                if more > 0 {
                    verdicts.push(format!("{more} more"));
                }
                return self
                    .rested(
                        step,
                        "settle-limit",
                        format!(
                            "the storage was not idle (below {percent} %) within {}: {}; the step starts all the same",
                            benchmesh_workloads::units::Span(limit),
                            verdicts.join(", ")
                        ),
                    )
                    .await;
            }
            sleep(LOOK.min(limit.saturating_sub(began.0.elapsed()))).await;
        }
    }

    async fn rested(
        &self,
        step: StepId,
        kind: &'static str,
        message: String,
    ) -> Result<(), StoreError> {
        self.event(Fact {
            step: Some(step),
            agent: None,
            severity: Severity::Warning,
            kind,
            message,
        })
        .await
    }

    /// The sampled hosts that are labelled as storage; without a label, all that are sampled.
    fn storage_hosts(&self) -> BTreeMap<HostId, String> {
        let members: Vec<_> = self
            .fleet
            .members()
            .into_iter()
            .filter(|member| member.attached)
            .collect();
        let labelled: Vec<HostId> = members
            .iter()
            .filter(|member| member.is_storage())
            .map(|member| member.host)
            .collect();
        members
            .into_iter()
            .filter(|member| member.sampling.host_wide)
            .filter(|member| labelled.is_empty() || labelled.contains(&member.host))
            .map(|member| (member.host, member.hello.host_name))
            .collect()
    }
}

/// What stands against a host's being idle, in words.
fn verdict(covered_us: i64, busy: &[Busy], percent: f64) -> Vec<String> {
    let enough = i64::try_from(COVERED.as_micros()).unwrap_or(i64::MAX);
    if covered_us < enough {
        return vec![String::from("too few samples")];
    }
    let daemons = || busy.iter().filter(|one| one.daemon.is_some());
    let together: f64 = daemons().map(|one| one.percent).sum();
    let mut said = Vec::new();
    if together >= percent {
        let worst = daemons().max_by(|a, b| a.percent.total_cmp(&b.percent));
        let name = worst.map_or_else(String::new, |one| {
            let daemon = one.daemon.as_deref().unwrap_or_default();
            format!(", most of all {daemon} {}", one.name)
                .trim_end()
                .to_owned()
        });
        said.push(format!("daemons at {together:.0} % of a CPU{name}"));
    }
    let disks = busy
        .iter()
        .filter(|one| one.daemon.is_none() && one.percent >= percent);
    said.extend(disks.map(|disk| format!("disk {} busy for {:.0} %", disk.name, disk.percent)));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(daemon: Option<&str>, name: &str, percent: f64) -> Busy {
        Busy {
            host: HostId(1),
            daemon: daemon.map(str::to_owned),
            name: name.to_owned(),
            percent,
            covered_us: 2_000_000,
        }
    }

    #[test]
    fn a_host_is_idle_when_nothing_stands_against_it() {
        let osd = |percent| busy(Some("ceph-osd"), "osd.3", percent);
        let disk = |percent| busy(None, "sda", percent);
        let check = |covered_us, all: &[Busy], said: &[&str]| {
            assert_eq!(verdict(covered_us, all, 5.0), said, "{all:?}");
        };
        check(2_000_000, &[], &[]);
        check(1_900_000, &[], &["too few samples"]);
        check(2_000_000, &[osd(4.9), disk(4.9)], &[]);
        check(
            2_000_000,
            &[osd(3.0), busy(Some("ceph-mon"), "", 2.0)],
            &["daemons at 5 % of a CPU, most of all ceph-osd osd.3"],
        );
        check(2_000_000, &[disk(5.0)], &["disk sda busy for 5 %"]);
    }
}
