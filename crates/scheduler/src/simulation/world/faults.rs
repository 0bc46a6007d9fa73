//! Faults of a schedule: agents that are cut off or restarted, a collector that is killed, a full disk, a stop.

use super::{
    super::plans::name, FaultMode, LONGEST_LOAD, MS, S, World, micros, sim_event::SimEvent,
};
use crate::machine::{Machine, event::Event};
use benchmesh_model::mesh::{RunId, StepState, TaskId};
use benchmesh_store::rows::StepRow;

/// So that a schedule ends.
const MAX_FAULTS_AT_EVENTS: u32 = 20;

impl World {
    pub(super) fn plan_faults(&mut self) {
        if self.fault_mode == FaultMode::None {
            return;
        }
        let span = match self.random.below(3) {
            0 => 2 * S,
            1 => 30 * S,
            _ => 200 * S,
        };
        let events = self.random.below(8);
        for _ in 0..events {
            let after = self.below(span);
            self.plan_fault(after);
        }
        // Half of the schedules have faults at their events too: in the middle of whatever the machine is doing.
        self.fault_chance = match self.random.below(4) {
            0 => 16,
            1 => 200,
            _ => 0,
        };
    }

    /// After an event: another fault, with the chance of this schedule.
    pub(super) fn maybe_fault(&mut self) {
        if self.fault_chance > 0
            && self.faults_at_events < MAX_FAULTS_AT_EVENTS
            && self.random.below(self.fault_chance) == 0
        {
            self.faults_at_events += 1;
            self.plan_fault(0);
        }
    }

    fn plan_fault(&mut self, after: i64) {
        let at = self.now + after;
        let agent = usize::try_from(self.random.below(self.agents.len() as u64)).unwrap();
        match self.random.below(12) {
            0 | 1 => self.at(at, SimEvent::Crash),
            2..=4 => self.at(at, SimEvent::Cut { agent }),
            5 => self.at(at, SimEvent::RestartAgent { agent }),
            6 => match self.random.below(4) {
                0 => self.at(at, SimEvent::Abort),
                1 => self.at(at, SimEvent::EndAfterLoop),
                _ => self.at(at, SimEvent::Stop),
            },
            7 => self.at(at, SimEvent::Block),
            8 | 9 => self.at(at, SimEvent::TargetDies { agent }),
            10 => self.at(at, SimEvent::Resume),
            _ => {
                // A link that flaps.
                self.at(at, SimEvent::Cut { agent });
                self.at(at + 200 * MS, SimEvent::Cut { agent });
            }
        }
    }

    pub(super) fn cut_for_a_while(&mut self, agent: usize) {
        self.detach(agent);
        let away = match self.random.below(3) {
            0 => 50 * MS,
            1 => {
                micros(self.policy.loss_after) - 500 * MS
                    + 1000 * i64::try_from(self.random.below(1000)).unwrap()
            }
            _ => 90 * S,
        };
        self.after(away, SimEvent::Attach { agent });
    }

    pub(super) fn target_dies(&mut self, agent: usize) {
        self.log(|| format!("the target of agent {} dies", name(agent)));
        self.agents[agent].target_is_dead = true;
        let dead = match self.random.below(3) {
            0 => 500 * MS,
            1 => 20 * S,
            _ => 3600 * S,
        };
        self.after(dead, SimEvent::TargetIsBack { agent });
    }

    pub(super) fn restart_agent(&mut self, agent: usize) {
        self.detach(agent);
        self.log(|| format!("agent {} is started again", name(agent)));
        self.agents[agent].restart();
        self.after(500 * MS, SimEvent::Attach { agent });
    }

    pub fn crash(&mut self) {
        if self.machine.take().is_none() {
            return;
        }
        self.log(|| String::from("the collector is killed"));
        // A commit that was under way may have reached the disk.
        if let Some((_, out)) = self.committing.take()
            && !self.blocked
            && self.random.below(2) == 0
        {
            self.store_rows(&out.rows);
        }
        self.queue.clear();
        self.calls.clear();
        self.lookups.clear();
        self.row_lookups.clear();
        self.timers.clear();
        self.cancelled.clear();
        // Deadlines and timers die with the process; the next one counts its tokens from the start again.
        self.schedule.retain(|_, sim_event| {
            !matches!(
                **sim_event,
                SimEvent::Deadline { .. } | SimEvent::LostCheck { .. } | SimEvent::Timer { .. }
            )
        });
        self.loading = false;
        self.resumed = None;
        self.stop_to_keep = None;
        for agent in 0..self.agents.len() {
            if self.agents[agent].session != 0 {
                self.agents[agent].session_over();
                self.agents[agent].last_contact = self.now;
                let lease = micros(self.policy.lease);
                self.after(lease, SimEvent::LeaseOver { agent });
            }
        }
        let down = match self.random.below(3) {
            0 => 100 * MS,
            1 => 5 * S,
            _ => 40 * S,
        };
        self.after(down, SimEvent::StartCollector);
    }

    pub fn start_collector(&mut self) {
        if self.machine.is_some() {
            return;
        }
        self.generation += 1;
        self.log(|| String::from("the collector starts"));
        let (machine, out) = Machine::start();
        self.machine = Some(machine);
        self.take(out);
        if self.fault_mode == FaultMode::All && self.random.below(16) == 0 {
            let soon = self.below(LONGEST_LOAD);
            self.after(soon, SimEvent::Stop);
        }
        let first = self.generation == 1;
        let generation = self.generation;
        for agent in 0..self.agents.len() {
            if first {
                continue;
            }
            // Known agents are expected from now on.
            self.agents[agent].last_contact = self.now;
            if self.fault_mode == FaultMode::None {
                continue;
            }
            let comes = match self.random.below(6) {
                0 => 60 * S,
                1 => 3 * S,
                _ => 200 * MS,
            };
            let comes = i64::try_from(self.random.below(comes.unsigned_abs())).unwrap();
            self.after(comes, SimEvent::Attach { agent });
        }
        self.run_event(SimEvent::AgentsChanged { generation });
        if self.blocked {
            self.handle(Event::Blocked {
                why: String::from("its disk is full"),
                remedy: String::from("free space"),
            });
        }
    }

    pub fn stop(&mut self) {
        if self.machine.is_none() || self.store.run.state.is_end() {
            return;
        }
        self.log(|| String::from("someone stops the run"));
        let at = self.mesh_now();
        let reason = String::from("enough");
        // Kept beside the event; the caller waits for it.
        self.stop_to_keep.get_or_insert((reason.clone(), at));
        if !self.blocked {
            self.store_stop_request();
        }
        let load: Vec<(usize, u64, TaskId)> = (0..self.agents.len())
            .filter(|agent| self.agents[*agent].session != 0)
            .flat_map(|agent| {
                let one = &self.agents[agent];
                let of_one = one.loads().map(move |task| (agent, one.session, task));
                of_one.collect::<Vec<_>>()
            })
            .collect();
        let generation = self.generation;
        self.stop_requested_at.get_or_insert(self.now);
        self.after(
            S,
            SimEvent::CheckStop {
                reached: load,
                generation,
            },
        );
        self.handle(Event::Stop {
            run: RunId(1),
            reason,
            at,
        });
    }

    /// As the scheduler does it: refused while nothing can be stored.
    pub fn end_after_loop(&mut self) {
        if self.machine.is_none() || self.blocked || self.store.run.state.is_end() {
            return;
        }
        self.log(|| String::from("someone lets the run end after its loop"));
        self.store.request_last_loop(self.mesh_now());
        let newest = self.store.newest_steps();
        let loops = newest.last().map_or(1, |step| step.loop_number);
        // The next one may be about to begin.
        self.last_loop.get_or_insert(loops + 1);
        self.handle(Event::EndAfterLoop { run: RunId(1) });
    }

    /// Only the machine's own rows are stored, so a collector that is killed before that forgets the request.
    pub fn abort(&mut self) {
        if self.machine.is_some() {
            self.log(|| String::from("an alarm ends the run"));
            self.handle(Event::Abort {
                run: RunId(1),
                reason: String::from("too slow"),
            });
        }
    }

    /// As the scheduler does it: refused unless the run has ended with something left to do, and all agents are there.
    pub fn resume(&mut self) -> bool {
        let all_are_there = self.agents.iter().all(|agent| agent.session != 0);
        if self.machine.is_none() || self.blocked || !all_are_there || !self.has_more_to_do() {
            return false;
        }
        self.log(|| String::from("someone resumes the run"));
        self.note_finished_cells();
        if !self.store.resume() {
            return false;
        }
        self.stop_requested_at = None;
        self.stop_to_keep = None;
        self.last_loop = None;
        self.handle(Event::Resumed { run: RunId(1) });
        true
    }

    fn has_more_to_do(&self) -> bool {
        let newest = self.store.newest_steps();
        let loops = newest.last().map_or(0, |step| step.loop_number);
        let elapsed = self.store.run.ran_for(self.mesh_now());
        let is_done = |step: &StepRow| step.state == StepState::Done;
        !newest.iter().all(is_done) || self.planned.loops().continues(loops, elapsed)
    }

    /// Their steps stay as they are.
    fn note_finished_cells(&mut self) {
        let newest = self.store.newest_steps();
        for step in newest.iter().filter(|step| step.state == StepState::Done) {
            let mut cell = newest.iter().filter(|other| {
                (&other.cell, other.repeat, other.loop_number)
                    == (&step.cell, step.repeat, step.loop_number)
            });
            if cell.all(|other| other.state == StepState::Done) {
                self.store.kept.insert(step.id);
            }
        }
    }

    fn store_stop_request(&mut self) {
        if let Some((reason, at)) = self.stop_to_keep.take() {
            self.store.store_stop_request(reason, at);
        }
    }

    pub(super) fn block(&mut self) {
        if self.blocked {
            return;
        }
        self.log(|| String::from("the disk is full"));
        self.blocked = true;
        self.handle(Event::Blocked {
            why: String::from("its disk is full"),
            remedy: String::from("free space"),
        });
        let lasts = match self.random.below(2) {
            0 => 2 * S,
            _ => 60 * S,
        };
        self.blocked_until = self.now + lasts;
        self.after(lasts, SimEvent::Unblock);
    }

    pub(super) fn unblock(&mut self) {
        if !self.blocked {
            return;
        }
        self.log(|| String::from("the disk has room again"));
        self.blocked = false;
        self.unblocked_at = self.now;
        self.store_stop_request();
        self.handle(Event::Unblocked);
    }
}
