//! `settle` before a start: waits a fixed time, or until the storage is idle according to its samples.
//!
//! Idle means below the threshold for `IDLE_FOR` without interruption, judged from samples since the wait began. A host
//! without samples is not idle. The limit ends every wait.

use super::{
    effect::Lookup,
    event::HostBusy,
    run::{Run, between, micros},
    stage::{Idle, Stage},
    waiting::Waiting,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{HostId, MeshMicros, StepState};
use benchmesh_plan::{IDLE_FOR, PathFacts, Settle};
use benchmesh_store::Busy;
use std::{collections::BTreeMap, time::Duration};

/// Poll interval; samples come once a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum delay until the samples of a second have arrived.
const MAX_SAMPLE_DELAY: Duration = Duration::from_millis(1500);
/// How much of the judged time samples must cover; the sampling period is one second.
const COVERED: Duration = Duration::from_secs(2);
/// Maximum number of busy devices named when the limit was reached.
const NAMED: usize = 3;

impl Run {
    /// Waits as the plan asks.
    pub(super) fn settle_storage(&mut self) {
        self.stage = Stage::Settling;
        let Some(settle) = self.active_plan().map(|step| step.settle) else {
            return;
        };
        match settle {
            Settle::For(time) if time.is_zero() => {}
            Settle::For(time) => {
                self.enter(StepState::Settle, None);
                self.wait(Waiting::Settled, time);
            }
            Settle::Idle { percent, limit } => {
                self.enter(StepState::Settle, None);
                let hosts = self.storage_hosts();
                if hosts.is_empty() {
                    let message = "no agent samples a storage host, so benchmesh cannot tell \
                                   when the storage is idle; the step starts at once";
                    return self.record_event(None, EventKind::SettleBlind, message.to_owned());
                }
                self.stage = Stage::SettlingUntilIdle(Idle {
                    percent,
                    limit,
                    began: self.now,
                    hosts,
                });
            }
        }
    }

    pub(super) fn check_idle(&mut self, idle: &Idle) {
        let window = micros(IDLE_FOR + MAX_SAMPLE_DELAY);
        let since = MeshMicros(self.now.0.saturating_sub(window).max(idle.began.0));
        let hosts = idle.hosts.keys().copied().collect();
        self.lookup(Waiting::Busy, Lookup::Busy { hosts, since });
    }

    pub(super) fn on_busy(&mut self, all: &[HostBusy]) {
        let Stage::SettlingUntilIdle(idle) = self.stage.clone() else {
            return;
        };
        let mut verdicts = Vec::new();
        for (host, name) in &idle.hosts {
            let known = all.iter().find(|one| one.host == *host);
            let (covered_us, busy) =
                known.map_or((0, [].as_slice()), |one| (one.covered_us, &one.busy));
            let reasons = busy_reasons(covered_us, &self.of_target(busy), idle.percent);
            verdicts.extend(
                reasons
                    .into_iter()
                    .map(|what| format!("{what} on host {name}")),
            );
        }
        let rested = between(idle.began, self.now);
        if verdicts.is_empty() {
            self.stage = Stage::Settling;
        } else if rested >= idle.limit {
            let more = verdicts.len().saturating_sub(NAMED);
            verdicts.truncate(NAMED);
            if more > 0 {
                verdicts.push(format!("{more} more"));
            }
            let message = format!(
                "the storage was not idle (below {} %) within {}: {}; the step starts anyway",
                idle.percent,
                benchmesh_workloads::units::Span(idle.limit),
                verdicts.join(", ")
            );
            self.record_event(None, EventKind::SettleLimit, message);
            self.stage = Stage::Settling;
        } else {
            // The next check follows when this timer is due.
            self.wait(
                Waiting::Settled,
                POLL_INTERVAL.min(idle.limit.saturating_sub(rested)),
            );
        }
    }

    /// Keeps disks, and the daemons known to serve the step's target; other storage systems need not be idle.
    fn of_target(&self, busy: &[Busy]) -> Vec<Busy> {
        let step = self.active_plan();
        let found = step.and_then(|step| {
            let mut clients = self.clients().into_iter();
            clients.find_map(|agent| self.agents.path_facts(agent, &step.path))
        });
        let unknown = PathFacts::default();
        let place = found
            .unwrap_or(&unknown)
            .place(step.map_or("", |step| &step.system));
        let is_of_target = |one: &&Busy| {
            let daemon = one.daemon.as_deref();
            daemon.is_none_or(|daemon| place.is_served_by(daemon) != Some(false))
        };
        busy.iter().filter(is_of_target).cloned().collect()
    }

    /// The sampled hosts labelled as storage. If no host has the label, all sampled hosts.
    fn storage_hosts(&self) -> BTreeMap<HostId, String> {
        let attached = || self.members.all().filter(|member| member.attached);
        let labelled: Vec<HostId> = attached()
            .filter(|member| member.is_storage)
            .map(|member| member.host)
            .collect();
        attached()
            .filter(|member| member.samples_host)
            .filter(|member| labelled.is_empty() || labelled.contains(&member.host))
            .map(|member| (member.host, member.host_name.clone()))
            .collect()
    }
}

/// Why a host is not idle, as a sentence.
fn busy_reasons(covered_us: i64, busy: &[Busy], percent: f64) -> Vec<String> {
    if covered_us < micros(COVERED) {
        return vec![String::from("too few samples")];
    }
    let daemons = || busy.iter().filter(|one| one.daemon.is_some());
    let together: f64 = daemons().map(|one| one.percent).sum();
    let mut reasons = Vec::new();
    if together >= percent {
        let worst = daemons().max_by(|a, b| a.percent.total_cmp(&b.percent));
        let name = worst.map_or_else(String::new, |one| {
            let daemon = one.daemon.as_deref().unwrap_or_default();
            format!(", most of all {daemon} {}", one.name)
                .trim_end()
                .to_owned()
        });
        reasons.push(format!("daemons at {together:.0} % of a CPU{name}"));
    }
    let disks = busy
        .iter()
        .filter(|one| one.daemon.is_none() && one.percent >= percent);
    reasons.extend(disks.map(|disk| format!("disk {} busy for {:.0} %", disk.name, disk.percent)));
    reasons
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
    fn a_host_is_idle_below_the_threshold_with_samples() {
        let osd = |percent| busy(Some("ceph-osd"), "osd.3", percent);
        let disk = |percent| busy(None, "sda", percent);
        let check = |covered_us, all: &[Busy], reasons: &[&str]| {
            assert_eq!(busy_reasons(covered_us, all, 5.0), reasons, "{all:?}");
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
