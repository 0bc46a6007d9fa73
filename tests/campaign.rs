//! A fault campaign: one collector and six agents, each on its own network node, under load, and a seeded sequence of
//! faults of all kinds. The tests' own file system counts what the workers did, and the database is compared with these
//! counts.
//!
//! Each round is a new mesh that meets every kind of fault once, in an order drawn from its seed. CI runs one round.
//! `BENCHMESH_CAMPAIGN_FAULTS=300` runs as many rounds as this number of faults needs, with consecutive seeds;
//! `BENCHMESH_CAMPAIGN_SEED=N` begins with this seed, which replays a failed round.

mod checks;
mod fault;
mod tally;

use crate::needs;
use crate::support::fuse_fs::{Fault as Slow, FuseFs, Op, Rule};
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use crate::support::net::Network;
use crate::support::process::Process;
use fault::{Fault, KINDS};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const AGENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Time limit for a mesh without faults to complete its work.
const LIMIT: Duration = Duration::from_secs(180);
/// Size of the disks of the agents' spools, and of the database's.
const AGENT_DISK_BYTES: u64 = 8 << 20;
const COLLECTOR_DISK_BYTES: u64 = 96 << 20;
/// `loss-after` of a run: a fault must take longer to cost an agent its task.
const LOSS_AFTER_S: u64 = 3;
const LEASE_S: u64 = 6;

/// Random numbers from a seed (splitmix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn ms(&mut self, from: u64, until: u64) -> Duration {
        Duration::from_millis(from + self.next() % (until - from))
    }
}

/// One mesh and its history of faults.
struct Campaign {
    mesh: Mesh,
    daemons: Vec<Process>,
    network: Network,
    /// Disks of the spools, in the order of [`AGENTS`].
    disks: Vec<Mounted>,
    collector_disk: Mounted,
    fs: FuseFs,
    random: Random,
    /// Killed agent processes: the agent and the wall clock.
    kills: Vec<(&'static str, i64)>,
    /// The times at which an older copy of the database was restored.
    restores: Vec<i64>,
    /// The databases that were replaced then.
    replaced: Vec<PathBuf>,
    /// Agents with a damaged spool.
    damaged: Vec<&'static str>,
}

impl Campaign {
    fn begin(seed: u64) -> Self {
        let fs = FuseFs::mount();
        // Files are created at a pace that leaves CPU time to other tests.
        fs.add_rule(Rule {
            path: "benchmesh-".to_owned(),
            ..Rule::every(Op::Create, Slow::Delay(Duration::from_millis(20)))
        });
        let network = Network::new(AGENTS.len() as u8);
        let collector_disk = Mounted::tmpfs(COLLECTOR_DISK_BYTES);
        let listen = format!("{}:0", network.host());
        let mut mesh = Mesh::listening_with_database_in(&listen, &collector_disk.path());
        let target = mesh.directory().join("target");
        std::fs::create_dir(&target).unwrap();
        let mut disks = Vec::new();
        for (node, name) in (1..).zip(AGENTS) {
            let own = fs.path().join(name);
            std::fs::create_dir(&own).unwrap();
            let disk = Mounted::tmpfs(AGENT_DISK_BYTES);
            let agent = Agent::named(name)
                .allow(&target)
                .mounting(&own, &target)
                .state_dir(&disk.path().join("state"))
                .inside(&network.namespace(node));
            disks.push(disk);
            mesh.launch(agent);
        }
        mesh.until_attached(&AGENTS);
        let mut campaign = Self {
            mesh,
            daemons: Vec::new(),
            network,
            disks,
            collector_disk,
            fs,
            random: Random(seed),
            kills: Vec::new(),
            restores: Vec::new(),
            replaced: Vec::new(),
            damaged: Vec::new(),
        };
        campaign.daemons = (0..2).map(|number| campaign.daemon(number)).collect();
        campaign
    }

    /// A process that the sampler identifies as a storage daemon.
    fn daemon(&self, number: usize) -> Process {
        let program = self.mesh.directory().join("ceph-osd");
        if !program.exists() {
            std::fs::copy("/bin/sleep", &program).unwrap();
        }
        let mut command = Command::new(program);
        command.arg("1000000");
        let log = self.mesh.directory().join(format!("osd-{number}.log"));
        Process::start("ceph-osd", command, &log)
    }

    /// A load of this duration.
    fn plan(&self, time: Duration) -> String {
        format!(
            "loop-for = \"{}s\"\nloss-after = \"{LOSS_AFTER_S}s\"\nlease = \"{LEASE_S}s\"\n\
             [targets.t]\nsystem = \"fuse\"\npath = \"{}\"\n\
             [[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nsize = \"256k\"\nbs = \"4k\"\nnumjobs = 2\n\
             runtime = \"5s\"\nrate_iops = 15\n\
             [[phase]]\nworkload = \"files\"\nfiles = 120\nsize = \"100\"\nmodes = [\"create\"]\n",
            time.as_secs(),
            self.mesh.directory().join("target").display()
        )
    }

    fn agent(&mut self) -> &'static str {
        AGENTS[self.random.below(AGENTS.len())]
    }

    fn node(name: &str) -> u8 {
        (1..).zip(AGENTS).find(|(_, it)| *it == name).unwrap().0
    }

    fn kill_agent(&mut self, name: &'static str) {
        self.kills.push((name, wall_us()));
        self.mesh.kill_agent(name);
    }
}

/// Fills a disk until the value is dropped.
struct Ballast(PathBuf);

impl Ballast {
    fn on(disk: &Mounted) -> Self {
        let path = disk.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// One mesh that meets every kind of fault.
fn round(seed: u64) {
    let mut campaign = Campaign::begin(seed);
    let faults = Fault::drawn(&mut campaign.random);
    let time: Duration = faults.iter().map(Fault::time).sum();
    let mut run = campaign.mesh.begin(&campaign.plan(time));
    campaign.mesh.until_step_is("write", "running", LIMIT);
    // This ends the command, not the run.
    run.kill();
    for fault in faults {
        benchmesh_testing::say(&format!("campaign {seed}: {fault:?}"));
        fault.strike(&mut campaign);
    }
    campaign.check();
}

#[test]
fn every_fault_leaves_each_operation_in_the_database_once() {
    needs!("root", "netns", "tmpfs", "fuse", "timens");
    let number = |name: &str| -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(text.parse().expect("a number"))
    };
    let first = number("BENCHMESH_CAMPAIGN_SEED").unwrap_or(1);
    let faults = number("BENCHMESH_CAMPAIGN_FAULTS").unwrap_or(1);
    let rounds = faults.div_ceil(KINDS as u64);
    for seed in first..first + rounds {
        benchmesh_testing::say(&format!(
            "campaign: a failure is replayed by BENCHMESH_CAMPAIGN_SEED={seed}"
        ));
        round(seed);
    }
}
