//! The scheduler's decisions as a pure state machine: `handle(event, now)` changes plain fields and returns what to
//! store, ask, await and show.
//!
//! It knows no tokio, no store and no fleet; time is passed in. The rows of one event are one transaction, and the
//! effects follow its commit (`effect`). A restarted collector rebuilds the machine from the rows and continues, so all
//! lasting state is in rows. `simulation` drives it through thousands of faults.

mod arm;
mod caches;
mod cell;
mod close;
mod departures;
mod directories;
pub(super) mod effect;
mod end;
mod ended;
pub(super) mod event;
mod finish;
mod kept;
mod late;
mod lead;
mod loops;
mod loss;
pub(super) mod members;
mod next;
mod orphan_cleanup;
mod outputs;
mod parts;
mod prepare;
mod rates;
mod removal;
mod requests;
mod resume;
mod returns;
mod run;
mod running;
mod search;
mod settle;
mod shares;
mod stage;
mod steady;
mod step;
mod step_rows;
mod stop;
mod tasks;
mod undrivable;
mod waiting;

#[cfg(test)]
pub(super) use directories::directory_row;
pub(super) use run::STOPPING;
#[cfg(test)]
pub(super) use tasks::TaskOutcome;
pub(super) use tasks::has_ended;
#[cfg(test)]
pub(super) use tasks::{NEVER_BEGAN, is_undecided};

use crate::sessions::command::CommandProgress;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId, RunState};
use benchmesh_store::rows::{NewEvent, Row, RunChange};
use effect::{Effect, Output, Show};
use event::{Completion, Event, LoadedRun, Token};
use members::Members;
use orphan_cleanup::OrphanCleanup;
use run::{Run, Tokens, after};
use stage::Goal;
#[cfg(test)]
use stage::Stage;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use waiting::Waiting;

/// Samplers keep their period for this long after a run.
const SAMPLE_AFTER: Duration = Duration::from_secs(5);
/// Sampling period during a run.
const SAMPLE_PERIOD_US: i64 = 1_000_000;
/// Size of one run's range of token numbers.
const TOKENS_PER_RUN: u64 = 1 << 40;

/// The scheduler's state: the run under way, and the agents being cleaned up.
#[derive(Debug)]
pub(super) struct Machine {
    members: Arc<Members>,
    run: Option<Box<Run>>,
    orphan_cleanup: OrphanCleanup,
    /// The next run is being looked for.
    loading: bool,
    /// Another run may have been queued since the load began.
    load_again: bool,
    /// Runs to stop, collected while the next run is being looked for.
    stops: BTreeMap<RunId, (String, MeshMicros)>,
    /// Runs that are to begin no further loop, requested while the next run is being loaded.
    last_loops: BTreeSet<RunId>,
    /// Runs that have ended, or were stopped in the queue, and were not resumed since.
    ended: BTreeSet<RunId>,
    /// The run under way was resumed after its end, while its last commands were still awaited.
    resumed_at_end: bool,
    /// The next run, while a directory left by its earlier end is being removed.
    waits_for_removal: Option<RunId>,
    runs_begun: u64,
    own_tokens: Tokens,
    /// Timer after which samplers rest.
    sampling_ends: Option<Token>,
    blocked: Option<(MeshMicros, String)>,
}

impl Machine {
    /// A new machine, and its first output.
    pub fn start() -> (Self, Output) {
        let mut machine = Self {
            members: Arc::default(),
            run: None,
            orphan_cleanup: OrphanCleanup::new(Tokens::from(TOKENS_PER_RUN)),
            loading: false,
            load_again: false,
            stops: BTreeMap::new(),
            last_loops: BTreeSet::new(),
            ended: BTreeSet::new(),
            resumed_at_end: false,
            waits_for_removal: None,
            runs_begun: 1,
            own_tokens: Tokens::default(),
            sampling_ends: None,
            blocked: None,
        };
        let mut out = Output::default();
        machine.load(&mut out);
        (machine, out)
    }

    /// Everything that the machine waits for. With a run under way it must not be empty: the run would hang forever.
    #[cfg(test)]
    pub fn waits_for(&self) -> impl Iterator<Item = Token> + '_ {
        let run = self.run.iter().flat_map(|run| run.waiting.keys().copied());
        let own = self.sampling_ends.iter().copied();
        run.chain(self.orphan_cleanup.waits_for()).chain(own)
    }

    /// The awaited entry as text, for messages.
    #[cfg(test)]
    pub fn awaited(&self, token: Token) -> String {
        let waiting = self.run.as_ref().and_then(|run| run.waiting.get(&token));
        format!("{waiting:?}")
    }

    /// The run under way.
    pub fn running(&self) -> Option<RunId> {
        self.run.as_ref().map(|run| run.row.id)
    }

    #[cfg(test)]
    pub fn stage(&self) -> String {
        let run = self.run.as_ref();
        run.map_or_else(|| String::from("no run"), |run| format!("{:?}", run.stage))
    }

    /// Handles one event, and returns its output.
    pub fn handle(&mut self, event: Event, now: MeshMicros) -> Output {
        let mut out = Output::default();
        let step = self.run.as_ref().and_then(|run| run.step.as_ref());
        let is_needed = |task| step.is_some_and(|step| step.tasks.is_live(task));
        if self.orphan_cleanup.handle(&event, is_needed, now, &mut out) {
            self.load_after_removal(&mut out);
            return out;
        }
        match event {
            Event::Agents(all) => {
                let members = Arc::new(Members::new(all));
                let before = std::mem::replace(&mut self.members, members);
                if let Some(run) = &mut self.run {
                    run.members = Arc::clone(&self.members);
                    run.now = now;
                    run.note_departures(&before);
                    run.stop_on_returned_agents(&before);
                    run.repeat_after_restore();
                    run.find_task_holders();
                    run.advance_stages();
                    out.append(std::mem::take(&mut run.out));
                }
                self.stop_orphans(&mut out);
                self.orphan_cleanup.on_agents(&self.members, &mut out);
                self.load_after_removal(&mut out);
            }
            Event::Queued => self.load(&mut out),
            Event::Resumed { run } => self.resumed(run, &mut out),
            Event::Loaded(loaded) => self.loaded(loaded, now, &mut out),
            Event::Stop { run, reason, at } => self.stop(run, reason, at, now, &mut out),
            Event::EndAfterLoop { run } => self.end_after_loop(run, now, &mut out),
            Event::Abort { run, reason } => self.abort(run, reason, now, &mut out),
            Event::Steadiness { step, judged } => {
                if let Some(run) = &mut self.run {
                    run.now = now;
                    run.on_steadiness(step, judged);
                    out.append(std::mem::take(&mut run.out));
                }
            }
            Event::Blocked { why, remedy } => self.blocked(why, &remedy, now, &mut out),
            Event::Unblocked => self.unblocked(now, &mut out),
            Event::Due { token } if self.sampling_ends == Some(token) => {
                self.sampling_ends = None;
                out.then.push(Effect::Sample {
                    period_us: 0,
                    run: None,
                });
            }
            Event::Due { token } => self.of_run(token, now, &mut out, Run::on_due),
            Event::Completed { token, completion } => {
                self.of_run(token, now, &mut out, |run, waiting| {
                    run.on_completion(waiting, completion);
                });
            }
            Event::Answered { token, answer } => {
                self.of_run(token, now, &mut out, |run, waiting| {
                    run.on_answered(waiting, answer);
                });
            }
            Event::Progressed { token, progress } => {
                if let Some(run) = &mut self.run {
                    run.now = now;
                    run.on_progress(token, &progress);
                    out.append(std::mem::take(&mut run.out));
                }
            }
        }
        self.after_run(now, &mut out);
        out
    }

    fn load(&mut self, out: &mut Output) {
        if self.loading || self.run.is_some() {
            self.load_again = true;
            return;
        }
        self.loading = true;
        self.load_again = false;
        out.then.push(Effect::Load);
    }

    /// Handles an ended run that is queued again.
    fn resumed(&mut self, resumed: RunId, out: &mut Output) {
        self.ended.remove(&resumed);
        self.stops.remove(&resumed);
        self.resumed_at_end = self.running() == Some(resumed);
        self.load(out);
    }

    fn load_after_removal(&mut self, out: &mut Output) {
        let is_over = |run: &mut RunId| !self.orphan_cleanup.is_removing(*run);
        if self.waits_for_removal.take_if(is_over).is_some() {
            self.load(out);
        }
    }

    fn loaded(&mut self, loaded: Option<Box<LoadedRun>>, now: MeshMicros, out: &mut Output) {
        if !self.loading {
            return;
        }
        self.loading = false;
        let run = loaded.as_ref().map(|loaded| loaded.row.id);
        self.waits_for_removal = run.filter(|run| self.orphan_cleanup.is_removing(*run));
        if let Some(loaded) = loaded.filter(|_| self.waits_for_removal.is_none()) {
            self.ended.remove(&loaded.row.id);
            self.orphan_cleanup
                .exclude_directories_of(Some(loaded.row.id));
            let tokens = Tokens::from((self.runs_begun + 1).saturating_mul(TOKENS_PER_RUN));
            self.runs_begun += 1;
            if let Some(token) = self.sampling_ends.take() {
                out.at_once.push(Effect::Cancel(token));
            }
            out.then.push(Effect::Sample {
                period_us: SAMPLE_PERIOD_US,
                run,
            });
            let members = Arc::clone(&self.members);
            let mut run = Run::load(*loaded, members, tokens, now);
            out.append(std::mem::take(&mut run.out));
            self.run = Some(Box::new(run));
        }
        self.stop_orphans(out);
        for run in std::mem::take(&mut self.last_loops) {
            self.end_after_loop(run, now, out);
        }
        for (run, (reason, at)) in std::mem::take(&mut self.stops) {
            self.stop(run, reason, at, now, out);
        }
        if self.run.is_none() && self.load_again {
            self.load(out);
        }
    }

    /// Stops attached tasks of steps that are over. While the next run is being looked for, the step under way is
    /// unknown.
    fn stop_orphans(&mut self, out: &mut Output) {
        if self.loading {
            return;
        }
        let step = self.run.as_ref().and_then(|run| run.step.as_ref());
        let is_under_way = |task| step.is_some_and(|step| step.tasks.get(task).is_some());
        self.orphan_cleanup
            .stop_orphans(&self.members, is_under_way, out);
    }

    fn stop(
        &mut self,
        wanted: RunId,
        reason: String,
        at: MeshMicros,
        now: MeshMicros,
        out: &mut Output,
    ) {
        match &mut self.run {
            Some(run) if run.row.id == wanted => {
                run.now = now;
                run.stop(reason, at);
                run.advance_stages();
                out.append(std::mem::take(&mut run.out));
            }
            _ if self.loading => {
                self.stops.entry(wanted).or_insert((reason, at));
            }
            _ if !self.ended.insert(wanted) => {}
            // The run waits in the queue.
            _ => {
                out.rows.push(Row::Event(NewEvent {
                    run: Some(wanted),
                    ..NewEvent::new(now, EventKind::RunStopped, reason.clone())
                }));
                let change = RunChange {
                    state: RunState::Stopped,
                    partial: false,
                    reason: Some(reason),
                    at: now,
                };
                out.rows.push(Row::Run {
                    run: wanted,
                    change: change.clone(),
                });
                out.then.push(Effect::Show {
                    run: wanted,
                    show: Show::Ended(change),
                });
            }
        }
    }

    /// Lets the run end after its loop. A run that waits in the queue is loaded with the request.
    fn end_after_loop(&mut self, wanted: RunId, now: MeshMicros, out: &mut Output) {
        match &mut self.run {
            Some(run) if run.row.id == wanted => {
                run.now = now;
                run.end_after_loop();
                run.advance_stages();
                out.append(std::mem::take(&mut run.out));
            }
            _ if self.loading => {
                self.last_loops.insert(wanted);
            }
            _ => {}
        }
    }

    /// Ends the run if it is under way; a run that has ended or waits in the queue is left as it is.
    fn abort(&mut self, wanted: RunId, reason: String, now: MeshMicros, out: &mut Output) {
        let run = self.run.as_mut().filter(|run| run.row.id == wanted);
        if let Some(run) = run.filter(|run| !run.is_ending()) {
            run.now = now;
            run.abort(reason);
            run.advance_stages();
            out.append(std::mem::take(&mut run.out));
        }
    }

    /// Passes an answer to the run by its token. An unknown token is late or repeated, and ignored.
    fn of_run(
        &mut self,
        token: Token,
        now: MeshMicros,
        out: &mut Output,
        act: impl FnOnce(&mut Run, Waiting),
    ) {
        let Some(run) = &mut self.run else { return };
        let Some(waiting) = run.waiting.remove(&token) else {
            return;
        };
        run.now = now;
        act(run, waiting);
        run.advance_stages();
        out.append(std::mem::take(&mut run.out));
    }

    /// Loads the next run after the end of one.
    fn after_run(&mut self, now: MeshMicros, out: &mut Output) {
        let Some(run) = self.run.take_if(|run| run.is_over()) else {
            return;
        };
        if !std::mem::take(&mut self.resumed_at_end) {
            self.ended.insert(run.row.id);
        }
        self.orphan_cleanup.exclude_directories_of(None);
        let agents = self
            .orphan_cleanup
            .after_run(run.lost_removers, run.failed_removers);
        self.orphan_cleanup.clean_again(&agents, &self.members, out);
        out.then.push(Effect::LossAfter(None));
        let token = self.own_tokens.next();
        self.sampling_ends = Some(token);
        let at = after(now, SAMPLE_AFTER);
        out.then.push(Effect::Wait { token, at });
        self.load(out);
    }

    fn blocked(&mut self, why: String, remedy: &str, now: MeshMicros, out: &mut Output) {
        if self.blocked.is_none() {
            out.at_once.push(Effect::ShowAll(format!(
                "the collector cannot write its database ({why}): {remedy}; until it can, agents keep their \
                 measurements"
            )));
            self.blocked = Some((now, why));
        }
    }

    fn unblocked(&mut self, now: MeshMicros, out: &mut Output) {
        let Some((from, why)) = self.blocked.take() else {
            return;
        };
        let lasted_us = now.0.saturating_sub(from.0).max(0);
        let (s, tenths) = (lasted_us / 1_000_000, lasted_us % 1_000_000 / 100_000);
        let message = format!(
            "the collector could not write its database for {s}.{tenths} s ({why}); agents kept their measurements"
        );
        out.at_once.push(Effect::ShowAll(message.clone()));
        let detail = serde_json::json!({ "from_us": from.0, "until_us": now.0 });
        out.rows.push(Row::Event(NewEvent {
            run: self.running(),
            detail_json: Some(detail.to_string()),
            ..NewEvent::new(now, EventKind::DatabaseBlocked, message)
        }));
    }
}

impl Run {
    fn on_due(&mut self, waiting: Waiting) {
        match waiting {
            // The step should have ended long ago.
            Waiting::Overtime => self.close(Goal::CutOff),
            Waiting::PreparationDue => self.on_preparation_due(),
            Waiting::BeginningDue => self.check_begun(Waiting::BegunBefore),
            Waiting::BeginTimeout { before } => {
                self.check_begun(Waiting::BegunAfter { before });
            }
            Waiting::LeaseOver { task } => self.on_lease_over(task),
            // The stage continues.
            _ => {}
        }
    }

    fn on_completion(&mut self, waiting: Waiting, completion: Completion) {
        match (waiting, completion) {
            (Waiting::Environment, Completion::Environment(agents)) => self.on_environment(agents),
            (
                Waiting::StepsMade {
                    range,
                    only,
                    attempt,
                },
                Completion::StepsMade(ids),
            ) => self.on_steps_made(range, only, attempt, &ids),
            (Waiting::TasksMade, Completion::TasksMade(ids)) => self.on_tasks_made(&ids),
            (Waiting::PartsMade { agent, parts }, Completion::TasksMade(ids)) => {
                self.on_parts_made(agent, parts, &ids);
            }
            (Waiting::LinkSpeeds, Completion::LinkSpeeds(speeds)) => {
                self.link_speeds.extend(speeds)
            }
            (Waiting::Secrets, Completion::Secrets(secrets)) => self.on_secrets(secrets),
            (Waiting::Busy, Completion::Busy(all)) => self.on_busy(&all),
            (Waiting::Daemons, Completion::Daemons(daemons)) => self.on_daemons(daemons),
            (Waiting::Clocks, Completion::Clocks(clocks)) => self.on_clocks(&clocks),
            (Waiting::LoopPlanned, Completion::Loop(planned)) => self.on_loop_planned(planned),
            (Waiting::ProbesRead { last }, Completion::Probes(measured)) => {
                self.on_probes_read(last, &measured);
            }
            (Waiting::EndStored { task, end }, Completion::Rows(missing)) => {
                self.on_end_stored(task, end, missing);
            }
            (Waiting::EndRead { task, end, why }, Completion::Tasks(rows)) => {
                self.on_end_read(task, end, &why, &rows);
            }
            (Waiting::ReceiverLost { receiver }, Completion::Lost(why)) => {
                self.lose_receiver(receiver, &why);
            }
            (Waiting::TasksRead, Completion::Tasks(rows)) => self.on_tasks_read(rows),
            (Waiting::RowsStored { task }, Completion::Rows(missing)) => {
                self.on_rows_stored(task, missing);
            }
            (Waiting::BegunBefore, Completion::Begun(begun)) => self.on_begun_before(begun),
            (Waiting::BegunAfter { before }, Completion::Begun(begun)) => {
                self.on_begun_after(&before, &begun);
            }
            (Waiting::Finished, Completion::Finished { without, failed }) => {
                self.on_finished(without, failed);
            }
            _ => {}
        }
    }

    fn on_answered(
        &mut self,
        waiting: Waiting,
        answer: Result<crate::sessions::command::AgentAnswer, crate::sessions::command::CallError>,
    ) {
        match waiting {
            Waiting::Opened { agent, path, make } => self.on_opened(agent, &path, make, answer),
            Waiting::Listening {
                task,
                receiver,
                token,
            } => self.on_listening(task, receiver, token, answer),
            Waiting::Prepared { task } => self.on_prepared(task, answer),
            Waiting::ReceiverThere { task, refusal } => {
                self.on_receiver_there(task, refusal, answer);
            }
            Waiting::Dropped { kernel, agent } => self.on_dropped(kernel, agent, answer),
            Waiting::Armed { task } => self.on_armed(task, answer),
            Waiting::Ended { task } => self.on_ended(task, answer),
            Waiting::Stopped { task } => self.on_stopped(task, &answer),
            Waiting::EndedAfterStop { task } => self.on_ended_after_stop(task, answer),
            Waiting::CellRemoved { agent, .. } => self.on_cell_removed(agent, &answer),
            Waiting::DirectoryRemoved { entry, .. } => self.on_directory_removed(entry, answer),
            Waiting::RateShared { load } => self.on_rate_shared(load, &answer),
            Waiting::StopLost { task } => self.on_lost_stopped(task, &answer),
            Waiting::EndOfLost { task } => self.on_lost_ended(task, &answer),
            Waiting::PartPrepared { task } => self.on_part_prepared(task, answer),
            Waiting::PartArmed { task, start } => self.on_part_armed(task, start, answer),
            // The agent has forgotten the task, or `orphan_cleanup` asks again when it attaches.
            _ => {}
        }
    }

    fn on_progress(&mut self, token: Token, progress: &CommandProgress) {
        let more = match self.waiting.get_mut(&token) {
            Some(Waiting::Prepared { task }) => {
                let task = *task;
                return self.show_progress(task, progress.clone());
            }
            Some(Waiting::Ended { task }) => {
                let task = task.task;
                return self.on_load_over(task);
            }
            Some(Waiting::CellRemoved { files, .. } | Waiting::DirectoryRemoved { files, .. }) => {
                let more = progress.done.saturating_sub(*files);
                // An agent that is asked again counts from zero.
                *files = progress.done;
                more
            }
            _ => return,
        };
        self.show_at_once(Show::Removed(more));
    }
}

#[cfg(test)]
impl Machine {
    pub fn is_idle(&self) -> bool {
        let over = |run: &Run| matches!(run.stage, Stage::Over);
        !self.loading && self.run.as_ref().is_none_or(|run| over(run))
    }
}
