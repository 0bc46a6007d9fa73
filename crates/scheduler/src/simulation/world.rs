//! One schedule: virtual time, its events, and the state of the collector, its agents and its database.

mod driver;
mod faults;
mod holders;
mod mesh;
mod reads;
mod shares;
mod sim_event;
mod waits;

pub(super) use sim_event::SimEvent;

use super::{
    agent::{Disks, Faults, Hostile, SimAgent},
    plans::{Planned, Plans},
    store::SimStore,
};
use crate::{
    live::Steadiness,
    machine::{
        Machine,
        effect::Output,
        event::{Event, Policy, Token},
    },
};
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_plan::{self as plan, OnLoss, OnStall, PlannedStep};
use benchmesh_store::rows::NewRun;
use benchmesh_workloads::random::Random;
use holders::Resumed;
use sim_event::Call;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

const MS: i64 = 1000;
const S: i64 = 1_000_000;
/// By how much a deadline may be missed.
const TICK: i64 = 10 * MS;
/// How long it takes to read a run, at most.
const LONGEST_LOAD: i64 = 500 * MS;
/// Upper limit of the events of a schedule.
const MAX_EVENTS: usize = 60_000;

/// Which faults happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultMode {
    All,
    /// Only those of the test itself.
    None,
}

pub(super) struct World {
    pub trace: bool,
    pub random: Random,
    pub now: i64,
    pub store: SimStore,
    pub planned: Planned,
    pub policy: Policy,
    pub agents: Vec<SimAgent>,
    pub disks: Disks,
    pub faults: Faults,
    pub machine: Option<Machine>,
    /// Counts starts of the collector.
    pub generation: u64,
    /// By their instants.
    schedule: BTreeMap<(i64, u64), Box<SimEvent>>,
    numbers: u64,
    queue: VecDeque<Output>,
    committing: Option<(u64, Output)>,
    pub blocked: bool,
    blocked_until: i64,
    calls: BTreeMap<Token, Call>,
    lookups: BTreeSet<Token>,
    /// Looks that wait for rows up to a sequence, or for the agent's loss.
    row_lookups: BTreeMap<Token, (usize, Option<u64>)>,
    timers: BTreeMap<Token, i64>,
    cancelled: BTreeSet<Token>,
    loading: bool,
    sessions: u64,
    pub stop_requested_at: Option<i64>,
    /// The last loop that may begin after a request for the run to end with its loop.
    pub last_loop: Option<u32>,
    /// The request to stop the run that waits for a database that is blocked.
    stop_to_keep: Option<(String, MeshMicros)>,
    pub events_handled: usize,
    /// Tasks that had ended when the collector was started last.
    pub ended_at_load: BTreeMap<TaskId, TaskState>,
    /// The step that was running when the run was loaded, and who holds it.
    resumed: Option<Resumed>,
    /// When the database could be written again.
    unblocked_at: i64,
    fault_mode: FaultMode,
    /// One event in this many brings a fault; 0: none does.
    fault_chance: u64,
    faults_at_events: u32,
}

impl World {
    pub fn new(seed: u64, plans: &Plans, fault_mode: FaultMode) -> Self {
        let mut random = Random::of(&[seed, 0x5eed]);
        let count = usize::try_from(random.below(8)).unwrap() + 1;
        let shapes = plans.of(count);
        let shape = usize::try_from(random.below(shapes.len() as u64)).unwrap();
        Self::with(seed, random, shapes[shape].clone(), fault_mode)
    }

    pub fn with(seed: u64, mut random: Random, planned: Planned, fault_mode: FaultMode) -> Self {
        let count = planned.agents.members().count();
        let on_loss = match random.below(3) {
            0 => OnLoss::Continue,
            1 => OnLoss::Abort,
            _ => OnLoss::AtLeast(u32::try_from(random.below(count as u64) + 1).unwrap()),
        };
        let seconds = |random: &mut Random, most| Duration::from_secs(random.below(most) + 1);
        let policy = Policy {
            on_loss,
            on_stall: OnStall::Abort,
            loss_after: seconds(&mut random, 30),
            lease: seconds(&mut random, 60),
        };
        let shared = random.below(3);
        let agents = (0..count).map(|agent| {
            let own = match shared {
                0 => 0,
                1 => agent,
                _ => usize::try_from(random.below(2)).unwrap(),
            };
            SimAgent::new(AgentId(i64::try_from(agent).unwrap() + 1), own)
        });
        let mut agents: Vec<SimAgent> = agents.collect();
        if fault_mode == FaultMode::All && random.below(8) == 0 {
            let one = usize::try_from(random.below(count as u64)).unwrap();
            agents[one].hostile = Some(match random.below(3) {
                0 => Hostile::PreparesForEver,
                1 => Hostile::IgnoresArm,
                _ => Hostile::RefusesPrepare,
            });
        }
        // Most schedules have a few kinds of faults, some none.
        let mut likely = |thousandths: u64| match random.below(4) {
            0 => thousandths,
            _ => 0,
        };
        let faults = match fault_mode {
            FaultMode::None => Faults::default(),
            FaultMode::All => Faults {
                refuses_prepare: likely(30),
                unsupported: None,
                never_prepares: likely(30),
                stalls: likely(20),
                late_arm: likely(200),
                late_ask: likely(50),
                fails: likely(50),
                hangs: likely(40),
                refuses_directory: likely(50),
                starts_apart: likely(20),
                never_begins: likely(30),
                ignores_stop: likely(200),
                lasts_us: None,
                hangs_on: None,
            },
        };
        let start = 1_700_000_000 * S;
        let run = NewRun {
            uid: format!("uid-{seed}"),
            name: String::from("simulated"),
            plan_text: planned.text.to_string(),
            agents_json: planned.agents.to_json(),
            order_seed: None,
            created: MeshMicros(start),
            due: None,
            version: String::from("0"),
        };
        let ids: Vec<AgentId> = agents.iter().map(|agent| agent.id).collect();
        let mut world = Self {
            trace: false,
            now: start,
            store: SimStore::new(run, &ids),
            planned,
            policy,
            agents,
            disks: Disks::new(),
            faults,
            machine: None,
            generation: 0,
            schedule: BTreeMap::new(),
            numbers: 0,
            queue: VecDeque::new(),
            committing: None,
            blocked: false,
            blocked_until: start,
            calls: BTreeMap::new(),
            lookups: BTreeSet::new(),
            row_lookups: BTreeMap::new(),
            timers: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            loading: false,
            sessions: 0,
            stop_requested_at: None,
            last_loop: None,
            stop_to_keep: None,
            events_handled: 0,
            ended_at_load: BTreeMap::new(),
            resumed: None,
            unblocked_at: start,
            fault_mode,
            fault_chance: 0,
            faults_at_events: 0,
            random,
        };
        for agent in 0..world.agents.len() {
            world.attach(agent);
        }
        world.plan_faults();
        world
    }

    pub fn at(&mut self, at: i64, what: SimEvent) {
        self.numbers += 1;
        self.schedule.insert((at, self.numbers), Box::new(what));
    }

    fn when_unblocked(&mut self, what: SimEvent) {
        self.at(self.blocked_until.max(self.now + 100 * MS), what);
    }

    pub fn after(&mut self, time: i64, what: SimEvent) {
        self.at(self.now + time, what);
    }

    /// Plays the schedule to its end, and checks the invariants.
    pub fn play(mut self) {
        self.start_collector();
        self.run_to_end();
        self.check_end();
        while self.fault_mode == FaultMode::All && self.random.below(3) == 0 && self.resume() {
            self.plan_faults();
            self.run_to_end();
            self.check_end();
        }
    }

    /// Plays on until nothing is left to happen, and everyone is back.
    pub fn run_to_end(&mut self) {
        self.run_until(|_| false);
        self.fault_chance = 0;
        // All agents attach again; whatever they still hold has to be cleaned up.
        if self.machine.is_none() {
            self.start_collector();
        }
        if self.blocked {
            self.run_event(SimEvent::Unblock);
        }
        for agent in 0..self.agents.len() {
            if self.agents[agent].session == 0 {
                self.attach(agent);
            }
        }
        self.run_until(|_| false);
    }

    /// Plays until `over`, or until nothing is left.
    pub fn run_until(&mut self, over: impl Fn(&Self) -> bool) {
        while !over(self) {
            let Some(((at, _), what)) = self.schedule.pop_first() else {
                return;
            };
            self.now = self.now.max(at);
            self.run_event(*what);
            self.events_handled += 1;
            assert!(
                self.events_handled < MAX_EVENTS,
                "it does not come to an end; {}",
                self.machine.as_ref().map_or(String::new(), Machine::stage)
            );
            self.check_waits();
            self.maybe_fault();
        }
    }

    /// In whichever loop.
    pub fn planned_step(&self, ordinal: u32) -> Option<PlannedStep> {
        let steps = self
            .planned
            .steps_of((ordinal - 1) / self.planned.ordinals() + 1);
        plan::step_of_ordinal(&steps, ordinal)
    }

    pub fn mesh_now(&self) -> MeshMicros {
        MeshMicros(self.now)
    }

    #[expect(
        clippy::print_stderr,
        reason = "the trace of a schedule that is replayed"
    )]
    fn log(&self, what: impl FnOnce() -> String) {
        if self.trace {
            let ms = (self.now - 1_700_000_000 * S) / MS;
            eprintln!("{ms:>9} ms  {}", what());
        }
    }

    /// A random time.
    fn below(&mut self, most: i64) -> i64 {
        i64::try_from(self.random.below(most.unsigned_abs())).unwrap()
    }

    fn delay(&mut self) -> i64 {
        let most = match self.random.below(20) {
            0 => 200 * MS,
            _ => 2 * MS,
        };
        i64::try_from(self.random.below(most.unsigned_abs())).unwrap() + 100
    }

    pub fn run_event(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrives {
                token,
                agent,
                session,
                command,
            } => self.arrives(token, agent, session, &command),
            SimEvent::Replied {
                token,
                agent,
                session,
                reply,
                doubled,
            } => self.replied(token, agent, session, *reply, doubled),
            SimEvent::Later { agent, later } => self.later(agent, &later),
            SimEvent::SpoolStored { agent, session } => self.spool_stored(agent, session),
            SimEvent::RowsStored => self.rows_may_be_there(),
            SimEvent::LostCheck { token } => self.lost_check(token),
            SimEvent::Deadline { token } => self.deadline(token),
            SimEvent::Timer { token, at } => {
                if self.timers.get(&token) == Some(&at) {
                    self.timers.remove(&token);
                    self.handle(Event::Due { token });
                }
            }
            SimEvent::Committed { number } => self.committed(number),
            SimEvent::LookupDone {
                token,
                lookup,
                generation,
            } => self.lookup_done(token, lookup, generation),
            SimEvent::Finished {
                token,
                step,
                finished,
                generation,
            } => self.finished(token, step, finished, generation),
            SimEvent::Steady {
                step,
                steady,
                generation,
            } if generation == self.generation => {
                let judged = Steadiness {
                    is_steady: true,
                    after: steady.window,
                    steady,
                    window: Default::default(),
                };
                self.handle(Event::Steadiness { step, judged });
            }
            SimEvent::Steady { .. } => {}
            SimEvent::Loaded { loaded, generation } => self.loaded(loaded, generation),
            SimEvent::AgentsChanged { generation } => {
                if generation == self.generation && self.machine.is_some() {
                    self.note_holders();
                    let agents = self.presences();
                    self.handle(Event::Agents(agents));
                }
            }
            SimEvent::LeaseOver { agent } => self.lease_over(agent),
            SimEvent::Cut { agent } => self.cut_for_a_while(agent),
            SimEvent::Attach { agent } => self.attach(agent),
            SimEvent::RestartAgent { agent } => self.restart_agent(agent),
            SimEvent::TargetDies { agent } => self.target_dies(agent),
            SimEvent::TargetIsBack { agent } => self.agents[agent].target_is_dead = false,
            SimEvent::Crash => self.crash(),
            SimEvent::StartCollector => self.start_collector(),
            SimEvent::Stop => self.stop(),
            SimEvent::EndAfterLoop => self.end_after_loop(),
            SimEvent::Abort => self.abort(),
            SimEvent::Resume => {
                self.resume();
            }
            SimEvent::Block => self.block(),
            SimEvent::Unblock => self.unblock(),
            SimEvent::CheckShares {
                lost,
                since,
                generation,
            } => self.check_shares(lost, since, generation),
            SimEvent::CheckStop {
                reached,
                generation,
            } => self.check_stop(&reached, generation),
            SimEvent::CheckStoppedOnAgent {
                agent,
                session,
                task,
                generation,
            } => self.check_stopped_on_agent(agent, session, task, generation),
        }
    }
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
