//! Reads of the machine in a schedule: answered from the rows after a delay, or when an agent's rows have come.

use super::{
    super::{agent::State, plans::name},
    MS, World, micros,
    sim_event::SimEvent,
};
use crate::{
    machine::{
        effect::Lookup,
        event::{
            Begun, CellData, ClockQuality, Completion, EndedSteps, Event, HostBusy, Leftover,
            LoadedRun, RunPlan, StrayTask, Token,
        },
        has_ended, is_undecided,
    },
    sessions::command::CallError,
};
use benchmesh_model::mesh::{RunId, StepId, StepState, TaskId};
use benchmesh_plan::search::{Latencies, ProbeOp};
use benchmesh_store::rows::{FinishedStep, steps_done};
use std::time::Duration;

/// What the storage does of a search, and up to which rate it answers in time.
const MOST_PER_S: f64 = 1000.0;
pub(super) const KNEE_PER_S: f64 = 600.0;

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
        let stored = |world: &Self, agent: usize, sequence: u64| {
            let id = world.agents[agent].id;
            world
                .store
                .positions
                .get(&id)
                .is_some_and(|last| *last >= sequence)
        };
        let there: Vec<Token> = self
            .row_lookups
            .iter()
            .filter(|(_, (agent, sequence))| {
                sequence.is_some_and(|sequence| stored(self, *agent, sequence))
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

    pub(super) fn lookup_done(&mut self, token: Token, lookup: &Lookup, generation: u64) {
        if generation != self.generation || !self.lookups.remove(&token) {
            return;
        }
        let completion = self.completion(lookup);
        self.handle(Event::Completed { token, completion });
    }

    pub(super) fn completion(&mut self, lookup: &Lookup) -> Completion {
        match lookup {
            Lookup::Environment { .. } => Completion::Environment(Vec::new()),
            Lookup::Loop { number, .. } => Completion::Loop(Ok(self.planned.steps_of(*number))),
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
            Lookup::LinkSpeeds(agents) => {
                Completion::LinkSpeeds(agents.iter().map(|agent| (*agent, None)).collect())
            }
            Lookup::Secrets(count) => Completion::Secrets(
                (0..*count)
                    .map(|secret| format!("secret-{secret}"))
                    .collect(),
            ),
            Lookup::Tasks(step) => Completion::Tasks(self.store.tasks_of(*step)),
            Lookup::Rows { .. } => Completion::Rows(None),
            Lookup::Loss { .. } => unreachable!("it waits among the row looks"),
            Lookup::Busy { hosts, .. } => {
                let covered_us = i64::try_from(self.random.below(6_000_000)).unwrap();
                let busy = hosts.iter().map(|host| HostBusy {
                    host: *host,
                    covered_us,
                    busy: Vec::new(),
                });
                Completion::Busy(busy.collect())
            }
            Lookup::Daemons(hosts) => {
                Completion::Daemons(hosts.iter().map(|host| (*host, Vec::new())).collect())
            }
            Lookup::Begun { step, agents } => {
                let rows = self.store.tasks_of(*step).into_iter();
                let begun = |task: &TaskId| {
                    let sent = self.store.with_rows.contains(task);
                    sent || self.agents.iter().any(|agent| {
                        let held = agent.tasks.get(task);
                        let runs = |state: &State| {
                            matches!(state, State::Running { start, .. } if start.0 <= self.now)
                        };
                        held.is_some_and(|held| {
                            held.begins && runs(&held.state) && agent.session != 0
                        })
                    })
                };
                let positions = agents.iter().map(|agent| {
                    let last = self.store.positions.get(agent).copied().unwrap_or(0);
                    (*agent, vec![(format!("spool-{agent}"), last)])
                });
                Completion::Begun(Begun {
                    without_rows: rows.map(|row| row.id).filter(|task| !begun(task)).collect(),
                    positions: positions.collect(),
                })
            }
            Lookup::Leftovers { agent, held } => {
                let known =
                    |task: &&TaskId| usize::try_from(task.0).unwrap() <= self.store.tasks.len();
                let strays = held
                    .iter()
                    .filter(known)
                    .filter(|task| self.store.is_stray(**task));
                let tasks = strays
                    .map(|task| {
                        let row = self.store.task(*task).clone();
                        let step = self.store.step(row.step);
                        StrayTask {
                            run: RunId(1),
                            ordinal: step.ordinal,
                            data: (row.id.0 % 2 == 0).then(|| CellData {
                                run_uid: self.store.run.uid.clone(),
                                path: String::from("/mnt/a"),
                                cell: step.cell.clone(),
                                task_index: row.task_index,
                            }),
                            task: row,
                        }
                    })
                    .collect();
                Completion::Leftovers(Leftover {
                    tasks,
                    directories: self.store.directories_left(*agent),
                })
            }
        }
    }

    pub(super) fn finished(
        &mut self,
        token: Token,
        step: StepId,
        finished: FinishedStep,
        generation: u64,
    ) {
        if generation != self.generation || !self.lookups.contains(&token) {
            return;
        }
        if self.blocked {
            let finished = Box::new(finished);
            let again = SimEvent::Finished {
                token,
                step,
                finished,
                generation,
            };
            return self.when_unblocked(again);
        }
        self.lookups.remove(&token);
        self.store.finish(step, &finished);
        self.check_step(step, &finished);
        let completion = Completion::Finished {
            without: None,
            failed: None,
        };
        self.handle(Event::Completed { token, completion });
    }

    /// What a probe measured: the storage does [`MOST_PER_S`] operations and answers in time up to [`KNEE_PER_S`].
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
            ops_per_s: Some(rate.unwrap_or(MOST_PER_S).min(MOST_PER_S)),
            errors: 0,
            service: latencies,
            response: rate.map(|_| latencies),
        }]
    }

    /// The run as its rows are now; `None`: it has ended.
    pub(super) fn read_run(&self) -> Option<Box<LoadedRun>> {
        let row = self.store.run.clone();
        (!row.state.is_end()).then(|| {
            let all = self.store.newest_steps();
            let loop_number = all.last().map_or(1, |step| step.loop_number);
            let (earlier_steps, steps): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|step| step.loop_number < loop_number);
            let mut earlier = EndedSteps::default();
            earlier.add_done(steps_done(&earlier_steps));
            for step in &earlier_steps {
                earlier.add_flawed(step);
            }
            let open = steps
                .iter()
                .find(|step| !step.state.is_end() && step.state != StepState::Planned);
            let tasks = open.map(|step| self.store.tasks_of(step.id));
            let tasks = tasks.unwrap_or_default();
            let mut plan = RunPlan {
                policy: self.policy,
                agents: self.planned.agents.clone(),
                loops: self.planned.loops(),
                steps: self.planned.steps_of(loop_number),
                left_out: Vec::new(),
            };
            plan.add_probes(&steps);
            Box::new(LoadedRun {
                row,
                plan: Ok(plan),
                loop_number,
                earlier,
                steps,
                tasks,
                directories: self.store.directories.clone(),
                left_out: self.store.left_out(),
                searched: self.store.searched(),
            })
        })
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
