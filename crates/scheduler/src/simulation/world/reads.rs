//! Reads of the machine in a schedule: answered from the rows after a delay, or when an agent's rows have come.

use super::{
    super::{agent::SimTaskState, plans::name},
    MS, World, micros,
    sim_event::SimEvent,
};
use crate::{
    machine::{
        effect::Lookup,
        event::{ClockQuality, Completion, Event, HostBusy, LoadedRun, Token},
        has_ended, is_undecided,
    },
    sessions::command::CallError,
};
use benchmesh_model::mesh::{StepId, StepState, TaskId};
use benchmesh_plan::search::{Latencies, ProbeOp};
use benchmesh_store::rows::FinishedStep;
use std::time::Duration;

/// Rate that the storage reaches in a search, and the rate up to which it answers in time.
const MAX_PER_S: f64 = 1000.0;
const KNEE_PER_S: f64 = 600.0;

impl World {
    pub(super) fn rows_may_be_there_later(&mut self) {
        self.after(MS, SimEvent::RowsStored);
        for agent in 0..self.agents.len() {
            let session = self.agents[agent].session;
            if session != 0 {
                self.after(MS, SimEvent::SpoolStored { agent, session });
            }
        }
    }

    pub(super) fn rows_may_be_there(&mut self) {
        let there: Vec<Token> = self
            .row_lookups
            .iter()
            .filter(|(_, (agent, sequence))| {
                let id = self.agents[*agent].id;
                sequence.is_some_and(|sequence| self.store.has_rows(id, sequence))
            })
            .map(|(token, _)| *token)
            .collect();
        for token in there {
            self.row_lookups.remove(&token);
            let completion = Completion::Rows(None);
            self.handle(Event::Completed { token, completion });
        }
    }

    pub(super) fn lost_check(&mut self, token: Token) {
        if let Some((agent, sequence)) = self.row_lookups.get(&token).copied() {
            let one = &self.agents[agent];
            let lost = format!("agent `{}` is lost", name(agent));
            let completion = match sequence {
                Some(_) => Completion::Rows(Some(lost)),
                None if self.now - one.last_contact < micros(self.policy.loss_after) => return,
                None => Completion::Lost(lost),
            };
            if one.session == 0 {
                self.row_lookups.remove(&token);
                self.handle(Event::Completed { token, completion });
            }
            return;
        }
        let Some(call) = self.calls.get(&token) else {
            return;
        };
        let one = &self.agents[call.agent];
        let silent = self.now - one.last_contact;
        if one.session != 0 || silent < call.loss_after {
            return;
        }
        let answer = Err(CallError::Lost {
            agent: name(call.agent),
            silent_s: silent.unsigned_abs() / 1_000_000,
        });
        self.calls.remove(&token);
        self.log(|| format!("{token:?}: {answer:?}"));
        self.handle(Event::Answered { token, answer });
    }

    pub(super) fn lookup_done(&mut self, token: Token, lookup: Lookup, generation: u64) {
        if generation != self.generation || !self.lookups.remove(&token) {
            return;
        }
        let completion = self.completion(lookup);
        self.handle(Event::Completed { token, completion });
    }

    /// Answers of agents and storage are random; everything else is read from the rows.
    fn completion(&mut self, lookup: Lookup) -> Completion {
        match lookup {
            Lookup::Probes(steps) => {
                Completion::Probes(steps.iter().map(|step| self.probe_ops(*step)).collect())
            }
            Lookup::Clocks(agents) => {
                let clock = ClockQuality {
                    round_trip: Duration::from_micros(self.random.below(3000)),
                    error: Duration::from_micros(self.random.below(500)),
                };
                Completion::Clocks(agents.iter().map(|_| clock).collect())
            }
            Lookup::Secrets(count) => {
                Completion::Secrets((0..count).map(|it| format!("secret-{it}")).collect())
            }
            Lookup::Busy { hosts, .. } => {
                let covered_us = i64::try_from(self.random.below(6_000_000)).unwrap();
                let busy = hosts.iter().map(|host| HostBusy {
                    host: *host,
                    covered_us,
                    busy: Vec::new(),
                });
                Completion::Busy(busy.collect())
            }
            lookup => match self.store.lookup(lookup) {
                Completion::Begun(mut begun) => {
                    // Agents send rows of what they run.
                    begun.without_rows.retain(|task| !self.is_under_way(*task));
                    Completion::Begun(begun)
                }
                completion => completion,
            },
        }
    }

    fn is_under_way(&self, task: TaskId) -> bool {
        self.agents.iter().any(|agent| {
            let held = agent.tasks.get(&task);
            held.is_some_and(|held| {
                let runs =
                    matches!(held.state, SimTaskState::Running { start, .. } if start.0 <= self.now);
                held.begins && runs && agent.session != 0
            })
        })
    }

    pub(super) fn finished(
        &mut self,
        token: Token,
        step: StepId,
        finished: Box<FinishedStep>,
        generation: u64,
    ) {
        if generation != self.generation || !self.lookups.contains(&token) {
            return;
        }
        if self.blocked {
            let again = SimEvent::Finished {
                token,
                step,
                finished,
                generation,
            };
            return self.when_unblocked(again);
        }
        self.lookups.remove(&token);
        let completion = self.store.finish(step, (*finished).clone());
        self.check_step(step, &finished);
        self.handle(Event::Completed { token, completion });
    }

    /// What a probe measured: the storage does [`MAX_PER_S`] operations and answers in time up to [`KNEE_PER_S`].
    fn probe_ops(&self, step: StepId) -> Vec<ProbeOp> {
        let row = self.store.step(step);
        if row.state != StepState::Done {
            return Vec::new();
        }
        let params: serde_json::Value = serde_json::from_str(&row.params_json).unwrap();
        let rate = params.get("rate_iops").and_then(serde_json::Value::as_f64);
        let latency_ms = match rate.is_some_and(|rate| rate <= KNEE_PER_S) {
            true => 1.0,
            false => 100.0,
        };
        let latencies = Latencies {
            p50_ms: latency_ms,
            p99_ms: latency_ms,
            max_ms: latency_ms,
        };
        vec![ProbeOp {
            op: String::from("read"),
            ops_per_s: Some(rate.unwrap_or(MAX_PER_S).min(MAX_PER_S)),
            errors: 0,
            service: latencies,
            response: rate.map(|_| latencies),
        }]
    }

    pub(super) fn loaded(&mut self, loaded: Option<Box<LoadedRun>>, generation: u64) {
        if generation != self.generation || !self.loading {
            return;
        }
        self.loading = false;
        if let Some(loaded) = &loaded {
            let ended = loaded
                .tasks
                .iter()
                .filter(|task| has_ended(task.state) && !is_undecided(task));
            self.ended_at_load = ended.map(|task| (task.id, task.state)).collect();
            self.expect_holders(loaded);
        }
        self.handle(Event::Loaded(loaded));
    }
}
