//! The driver of a schedule: commits with a duration, effects after them, and commands in transit.

use super::{
    super::{agent::Hostile, plans::name},
    FaultMode, LONGEST_LOAD, MS, S, World, micros,
    sim_event::{Call, SimEvent},
};
use crate::{
    machine::{
        effect::{Ask, Effect, Lookup, NewIds, Output, Within},
        event::{Event, Token},
    },
    sessions::command::{CallError, Command},
};
use benchmesh_model::mesh::TaskState;
use benchmesh_store::rows::Row;
use std::time::Duration;

/// A load of a longer one is never found to be steady.
const LONGEST_WINDOW: Duration = Duration::from_secs(15);

impl World {
    pub fn handle(&mut self, event: Event) {
        let now = self.mesh_now();
        let Some(machine) = &mut self.machine else {
            return;
        };
        let before = if self.trace {
            machine.stage()
        } else {
            String::new()
        };
        let out = machine.handle(event, now);
        if self.trace {
            let stage = machine.stage();
            if stage != before {
                self.log(|| format!("stage {stage}"));
            }
        }
        self.take(out);
    }

    pub(super) fn take(&mut self, mut out: Output) {
        for effect in std::mem::take(&mut out.at_once) {
            self.carry_out(effect);
        }
        if !out.is_empty() {
            self.queue.push_back(out);
            self.process_queue();
        }
    }

    pub(super) fn process_queue(&mut self) {
        while self.committing.is_none() {
            let Some(mut out) = self.queue.pop_front() else {
                self.cancelled.clear();
                return;
            };
            if out.rows.is_empty() {
                for effect in std::mem::take(&mut out.then) {
                    self.carry_out(effect);
                }
                continue;
            }
            for next in self.queue.drain(..) {
                out.append(next);
            }
            self.numbers += 1;
            let number = self.numbers;
            self.committing = Some((number, out));
            let takes = match self.random.below(50) {
                0 => 300 * MS,
                _ => MS,
            };
            let takes = i64::try_from(self.random.below(takes.unsigned_abs())).unwrap();
            self.after(takes, SimEvent::Committed { number });
        }
    }

    pub(super) fn committed(&mut self, number: u64) {
        if self.committing.as_ref().map(|(number, _)| *number) != Some(number) {
            return;
        }
        if self.blocked {
            return self.when_unblocked(SimEvent::Committed { number });
        }
        let Some((_, out)) = self.committing.take() else {
            return;
        };
        let made = self.store_rows(&out.rows);
        for effect in out.then {
            self.carry_out(effect);
        }
        let kinds = NewIds::of_rows(&out.rows).into_iter().zip(made);
        for (token, (kind, ids)) in out.made.into_iter().zip(kinds) {
            let completion = kind.completion(ids);
            self.handle(Event::Completed { token, completion });
        }
        self.process_queue();
    }

    pub(super) fn store_rows(&mut self, rows: &[Row]) -> Vec<Vec<i64>> {
        for row in rows {
            self.log(|| format!("stored: {row:?}"));
        }
        let made = self.store.apply(rows);
        let generation = self.generation;
        for row in rows {
            if let Row::Step { step, change } = row {
                self.check_holders(*step, change);
            }
            let Row::Task { task, state, .. } = row else {
                continue;
            };
            self.expect_share_of(*task, *state);
            if matches!(state, TaskState::Lost | TaskState::Stopped) {
                let agent = usize::try_from(self.store.task(*task).agent.0).unwrap() - 1;
                let check = SimEvent::CheckStoppedOnAgent {
                    agent,
                    session: self.agents[agent].session,
                    task: *task,
                    generation,
                };
                self.after(S, check);
            }
        }
        made
    }

    pub(super) fn carry_out(&mut self, effect: Effect) {
        let generation = self.generation;
        match effect {
            Effect::Ask(ask) => self.ask(*ask),
            Effect::Cancel(token) => {
                let there = self.calls.remove(&token).is_some()
                    | self.lookups.remove(&token)
                    | self.row_lookups.remove(&token).is_some()
                    | self.timers.remove(&token).is_some();
                if !there {
                    self.cancelled.insert(token);
                }
            }
            Effect::Wait { token, at } => {
                if !self.cancelled.remove(&token) {
                    let at = at.0.max(self.now);
                    self.timers.insert(token, at);
                    self.at(at, SimEvent::Timer { token, at });
                }
            }
            Effect::Lookup { token, lookup } => {
                if self.cancelled.remove(&token) {
                    return;
                }
                let awaited = match lookup {
                    Lookup::Rows {
                        agent,
                        sequence,
                        loss_after,
                        ..
                    } => Some((agent, Some(sequence), loss_after)),
                    Lookup::Loss { agent, loss_after } => Some((agent, None, loss_after)),
                    _ => None,
                };
                if let Some((agent, sequence, loss_after)) = awaited {
                    let agent = usize::try_from(agent.0).unwrap() - 1;
                    self.row_lookups.insert(token, (agent, sequence));
                    let lost_at = match self.agents[agent].session {
                        0 => self.agents[agent].last_contact + micros(loss_after),
                        _ => i64::MAX,
                    };
                    if lost_at < i64::MAX {
                        self.at(lost_at.max(self.now), SimEvent::LostCheck { token });
                    }
                    self.rows_may_be_there_later();
                    return;
                }
                self.lookups.insert(token);
                let delay = match lookup {
                    // A hanging file system or an agent that is away delays it.
                    Lookup::Environment { .. } if self.random.below(20) == 0 => 20 * S,
                    _ => self.delay(),
                };
                self.after(
                    delay,
                    SimEvent::LookupDone {
                        token,
                        lookup,
                        generation,
                    },
                );
            }
            Effect::Finish {
                token,
                step,
                finished,
                ..
            } => {
                self.lookups.insert(token);
                let delay = self.delay();
                let finished = Box::new(finished);
                let done = SimEvent::Finished {
                    token,
                    step,
                    finished,
                    generation,
                };
                self.after(delay, done);
            }
            Effect::Load => {
                self.loading = true;
                let mut loaded = self.store.load();
                if let Some(Ok(plan)) = loaded.as_mut().map(|loaded| &mut loaded.plan) {
                    plan.policy = self.policy;
                }
                // Rows that come meanwhile are not part of it.
                let takes = match self.random.below(4) {
                    0 if self.fault_mode == FaultMode::All => self.below(LONGEST_LOAD),
                    _ => MS,
                };
                self.after(takes, SimEvent::Loaded { loaded, generation });
            }
            Effect::JudgeSteadiness {
                step,
                steady,
                start,
                ..
            } => {
                // Its loads last some seconds.
                if steady.window > LONGEST_WINDOW {
                    return;
                }
                let at = start.0.max(self.now) + self.below(4 * S);
                let found = SimEvent::Steady {
                    step,
                    steady,
                    generation,
                };
                self.at(at, found);
            }
            Effect::Mark { .. }
            | Effect::Sample { .. }
            | Effect::LossAfter(_)
            | Effect::Show { .. }
            | Effect::ShowAll(_) => {}
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        let Ask {
            token,
            agent,
            command,
            loss_after,
            within,
            silence,
            ..
        } = ask;
        if self.cancelled.remove(&token) {
            return;
        }
        self.check_ask(token, &command);
        let agent = usize::try_from(agent.0).unwrap() - 1;
        let within = match within {
            // It reports progress all the time.
            Within::Contact
                if matches!(command, Command::Prepare(_))
                    && self.agents[agent].hostile == Some(Hostile::PreparesForEver) =>
            {
                None
            }
            Within::Contact => silence,
            Within::For(time) => Some(time),
            Within::Until(_) if self.random.below(1000) < self.faults.late_ask => {
                Some(Duration::ZERO)
            }
            Within::Until(at) => Some(Duration::from_micros(
                at.0.saturating_sub(self.now).max(0).unsigned_abs(),
            )),
        };
        let call = Call {
            agent,
            command,
            loss_after: micros(loss_after),
            within,
            asked_at: self.now,
            deadline: within.map(|within| self.now + micros(within)),
        };
        self.calls.insert(token, call);
        if let Some(within) = within {
            self.after(micros(within), SimEvent::Deadline { token });
            if within.is_zero() {
                return;
            }
        }
        self.send(token);
    }

    pub(super) fn send(&mut self, token: Token) {
        let Some(call) = self.calls.get(&token).cloned() else {
            return;
        };
        let one = &self.agents[call.agent];
        let session = one.session;
        if session == 0 {
            let lost_at = one.last_contact + call.loss_after;
            return self.at(lost_at.max(self.now), SimEvent::LostCheck { token });
        }
        // Commands come in the order in which they were sent.
        let at = (self.now + self.delay()).max(self.agents[call.agent].last_arrival + 1);
        self.agents[call.agent].last_arrival = at;
        let arrives = SimEvent::Arrives {
            token,
            agent: call.agent,
            session,
            command: Box::new(call.command),
        };
        self.at(at, arrives);
    }

    pub(super) fn deadline(&mut self, token: Token) {
        let Some(call) = self.calls.remove(&token) else {
            return;
        };
        let (agent, doing) = (name(call.agent), call.command.action());
        let answer = Err(match call.within {
            Some(Duration::ZERO) => CallError::TooLateToAsk { agent, doing },
            within => CallError::Deadline {
                agent,
                doing,
                within: within.unwrap_or_default(),
            },
        });
        self.log(|| format!("{token:?}: {answer:?}"));
        self.handle(Event::Answered { token, answer });
    }
}
