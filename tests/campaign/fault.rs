//! The kinds of faults, and how each is injected and repaired.

use super::{AGENTS, Ballast, Campaign, LEASE_S, LIMIT, Random};
use crate::support::mesh::spool_files;
use crate::support::meter::wall_us;
use crate::support::wait::{pass, until_true};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of kinds, and of the faults of a round.
pub(super) const KINDS: usize = 18;

/// One fault and its duration. The mesh is left alone for `before` first.
#[derive(Debug)]
pub(super) struct Fault {
    before: Duration,
    kind: Kind,
    lasts: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    CollectorKilled,
    AgentKilled,
    /// The collector and two agents.
    BothEndsKilled,
    AllKilled,
    LinkCut,
    /// For longer than every timeout.
    LinkCutLong,
    AllLinksCut,
    AgentSuspended,
    AgentSuspendedLong,
    CollectorSuspended,
    AllSuspended,
    AgentDiskFull,
    CollectorDiskFull,
    DatabaseRestored,
    SpoolTruncated,
    SpoolDamaged,
    /// The agent is restarted with monotonic clocks that are hours ahead: relative to them its wall clock went back.
    ClockStepped,
    /// One daemon is killed, another one is suspended.
    DaemonsStruck,
}

impl Fault {
    /// One fault of each kind, with the order and the times drawn from the seed.
    pub(super) fn drawn(random: &mut Random) -> Vec<Self> {
        use Kind::*;
        let mut kinds = [
            CollectorKilled,
            AgentKilled,
            BothEndsKilled,
            AllKilled,
            LinkCut,
            LinkCutLong,
            AllLinksCut,
            AgentSuspended,
            AgentSuspendedLong,
            CollectorSuspended,
            AllSuspended,
            AgentDiskFull,
            CollectorDiskFull,
            DatabaseRestored,
            SpoolTruncated,
            SpoolDamaged,
            ClockStepped,
            DaemonsStruck,
        ];
        for last in (1..kinds.len()).rev() {
            kinds.swap(last, random.below(last + 1));
        }
        let of = |kind: Kind| Self {
            before: random.ms(200, 3000),
            kind,
            lasts: match kind {
                LinkCutLong | AgentSuspendedLong => {
                    Duration::from_secs(LEASE_S) + random.ms(1000, 4000)
                }
                _ => random.ms(100, 2500),
            },
        };
        kinds.map(of).into()
    }

    /// Its duration, without the recovery of the mesh.
    pub(super) fn time(&self) -> Duration {
        self.before + self.lasts
    }

    pub(super) fn strike(&self, campaign: &mut Campaign) {
        pass(self.before);
        match self.kind {
            Kind::CollectorKilled => {
                campaign.mesh.kill_collector();
                pass(self.lasts);
                campaign.mesh.restart_collector();
            }
            Kind::AgentKilled => {
                let name = campaign.agent();
                campaign.kill_agent(name);
                pass(self.lasts);
                campaign.mesh.restart_agent(name);
            }
            Kind::BothEndsKilled => {
                let first = campaign.random.below(AGENTS.len());
                kill(
                    campaign,
                    &[AGENTS[first], AGENTS[(first + 1) % AGENTS.len()]],
                    self.lasts,
                );
            }
            Kind::AllKilled => kill(campaign, &AGENTS, self.lasts),
            Kind::LinkCut | Kind::LinkCutLong => {
                let node = Campaign::node(campaign.agent());
                campaign.network.cut(node);
                pass(self.lasts);
                campaign.network.rejoin(node);
            }
            Kind::AllLinksCut => {
                let nodes = 1..=AGENTS.len() as u8;
                nodes.clone().for_each(|node| campaign.network.cut(node));
                pass(self.lasts);
                nodes.for_each(|node| campaign.network.rejoin(node));
            }
            Kind::AgentSuspended | Kind::AgentSuspendedLong => {
                let name = campaign.agent();
                campaign.mesh.agent(name).signal(libc::SIGSTOP);
                pass(self.lasts);
                campaign.mesh.agent(name).signal(libc::SIGCONT);
            }
            Kind::CollectorSuspended => {
                campaign.mesh.collector().signal(libc::SIGSTOP);
                pass(self.lasts);
                campaign.mesh.collector().signal(libc::SIGCONT);
            }
            Kind::AllSuspended => {
                let signal = |signal| {
                    campaign.mesh.collector().signal(signal);
                    AGENTS
                        .iter()
                        .for_each(|name| campaign.mesh.agent(name).signal(signal));
                };
                signal(libc::SIGSTOP);
                pass(self.lasts);
                signal(libc::SIGCONT);
            }
            Kind::AgentDiskFull => {
                let node = Campaign::node(campaign.agent());
                let ballast = Ballast::on(&campaign.disks[usize::from(node) - 1]);
                // The spool has to grow.
                campaign.network.cut(node);
                pass(self.lasts);
                campaign.network.rejoin(node);
                drop(ballast);
            }
            Kind::CollectorDiskFull => {
                let ballast = Ballast::on(&campaign.collector_disk);
                pass(self.lasts);
                drop(ballast);
            }
            Kind::DatabaseRestored => restore(campaign, self.lasts),
            Kind::SpoolTruncated | Kind::SpoolDamaged => self.damage_spool(campaign),
            Kind::ClockStepped => {
                let name = campaign.agent();
                campaign.kill_agent(name);
                let hours = 1 + campaign.random.below(48) as u64;
                let ahead = Duration::from_secs(3600 * hours);
                campaign
                    .mesh
                    .restart_agent_as(name, |agent| agent.clock_ahead(ahead));
            }
            Kind::DaemonsStruck => {
                campaign.daemons[0].kill();
                campaign.daemons[1].signal(libc::SIGSTOP);
                pass(self.lasts);
                campaign.daemons[1].signal(libc::SIGCONT);
                campaign.daemons[0] = campaign.daemon(0);
            }
        }
    }

    /// Damages the spool of an agent that could not send for a while: while the agent is down, the spool loses its end,
    /// or bytes in the middle.
    fn damage_spool(&self, campaign: &mut Campaign) {
        let name = campaign.agent();
        let node = Campaign::node(name);
        campaign.network.cut(node);
        pass(self.lasts + Duration::from_secs(1));
        campaign.kill_agent(name);
        campaign.damaged.push(name);
        let state = campaign.disks[usize::from(node) - 1].path().join("state");
        for file in spool_files(&state) {
            damage(&file, self.kind, &mut campaign.random);
        }
        campaign.network.rejoin(node);
        campaign.mesh.restart_agent(name);
    }
}

/// Cuts a file off, or inverts some of its bits.
fn damage(path: &Path, kind: Kind, random: &mut Random) {
    let mut bytes = std::fs::read(path).unwrap();
    if bytes.is_empty() {
        return;
    }
    match kind {
        Kind::SpoolTruncated => bytes.truncate(bytes.len() / 2 + random.below(bytes.len() / 2)),
        _ => {
            let from = random.below(bytes.len());
            let until = (from + 64).min(bytes.len());
            bytes[from..until].iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// Kills the collector and these agents at the same moment; the order of their return is random.
fn kill(campaign: &mut Campaign, agents: &[&'static str], lasts: Duration) {
    campaign.mesh.kill_collector();
    for name in agents {
        campaign.kill_agent(name);
    }
    let is_collector_first = campaign.random.below(2) == 0;
    if is_collector_first {
        campaign.mesh.restart_collector();
    }
    pass(lasts);
    for name in agents {
        campaign.mesh.restart_agent(name);
    }
    if !is_collector_first {
        pass(lasts);
        campaign.mesh.restart_collector();
    }
}

/// Restores a copy that is this much older.
fn restore(campaign: &mut Campaign, lasts: Duration) {
    let mesh = &mut campaign.mesh;
    let number = campaign.replaced.len();
    let copy = mesh.directory().join(format!("copy-{number}.db"));
    let vacuum = format!("VACUUM INTO '{}'", copy.display());
    // An earlier fault may still delay the collector.
    until_true("the database can be copied", LIMIT, || {
        let _ = std::fs::remove_file(&copy);
        let file = rusqlite::Connection::open(mesh.db_path()).unwrap();
        file.execute(&vacuum, []).is_ok()
    });
    pass(lasts);
    mesh.kill_collector();
    let replaced = mesh.directory().join(format!("replaced-{number}.db"));
    let beside = |path: &Path, suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    for suffix in ["", "-wal"] {
        let from = beside(mesh.db_path(), suffix);
        if from.exists() {
            std::fs::copy(&from, beside(&replaced, suffix)).unwrap();
            std::fs::remove_file(from).unwrap();
        }
    }
    let _ = std::fs::remove_file(beside(mesh.db_path(), "-shm"));
    std::fs::copy(&copy, mesh.db_path()).unwrap();
    campaign.replaced.push(replaced);
    campaign.restores.push(wall_us());
    mesh.restart_collector();
}
