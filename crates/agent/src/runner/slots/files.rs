//! Commands that work on files, each on a thread of its own, because each may block for as long as the target does.

use super::threads::{target_of, unpanicked};
use super::{RunPath, Slots};
use crate::command::{
    Answer, CommandRequest, MakeDirectory, PlaceName, ProgressReport, Refusal, RefusalKind,
};
use crate::runner::per_minute::PerMinute;
use crate::runner::reply::{ProgressReporter, ReplyHandle};
use crate::runner::task_events::StallReports;
use crate::runner::{Permissions, caches, survey};
use crate::targets::RunName;
use crate::telemetry::{RunId, RunScope, RunUid};
use benchmesh_model::limits::Limit;
use benchmesh_workloads::sandbox::Make;
use benchmesh_workloads::task::{PrepThreads, StallEvent, TaskPhase};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// On a working file system, each system call of a command takes less than this.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Upper limit of concurrent surveys; each dry run and each start needs one.
const MAX_SURVEYS: usize = 16;
/// Lower limit: one dead mount blocks a few surveys, and plans on other mounts continue.
const MIN_SURVEYS: usize = 4;

impl Slots {
    /// Executes the request on a thread, which replies.
    pub(super) fn on_files(
        &mut self,
        request: CommandRequest,
        run: Option<RunId>,
        reply_to: ReplyHandle,
    ) {
        let permissions = self.deps.permissions.clone();
        let mesh = self.mesh.clone().unwrap_or_default();
        let replying = reply_to.clone();
        let (requests, acked) = (self.requests.clone(), self.deps.acked.last());
        let recent_drops = Arc::clone(&self.recent_drops);
        let survey = match matches!(request, CommandRequest::Survey { .. }) {
            true => match self.begin_survey() {
                Ok(survey) => Some(survey),
                Err(refusal) => return reply_to.reply(Err(refusal)),
            },
            false => None,
        };
        let path = RunPath::of(&mesh, &request);
        let queued = path.as_ref().map(|path| self.queues.next(path));
        let word = word_of(&request);
        let reports = StallReports {
            scope: RunScope {
                run_uid: uid_of(&request),
                run,
                step: None,
            },
            dating: self.deps.dating.clone(),
            entries: self.deps.entries.clone(),
        };
        let on_stall = move |event: StallEvent| {
            let (StallEvent::Begun(stall) | StallEvent::Over(stall)) = &event;
            if stall.hangs {
                tracing::warn!(command = word, "{stall} hangs, or has hung");
                reports.send(&event);
            }
        };
        let target = target_of(&request);
        let started = self.threads.run("bm-command", target, move || {
            let _survey = survey;
            let mut queued = queued;
            if let Some(queued) = &mut queued {
                queued.wait();
            }
            let work = || work(&permissions, &mesh, request, &recent_drops, &replying);
            let phase = TaskPhase::Command(word);
            let outcome =
                PrepThreads::default().watched(phase, HANGS_AFTER, on_stall, || unpanicked(work));
            if let (Some(requests), Some(change)) = (
                requests.upgrade(),
                path.and_then(|path| path.change(&outcome, acked)),
            ) {
                let _ = requests.blocking_send(change);
            }
            replying.reply_from_thread(outcome);
        });
        if let Err(refusal) = started {
            reply_to.reply(Err(refusal));
        }
    }
}

/// A survey in progress.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slots {
    /// Admits a survey: a bounded number at once, and no more than the policy has threads. The other file commands keep
    /// their own threads, even if many surveys hang on a dead file system.
    fn begin_survey(&self) -> Result<UnderWay, Refusal> {
        let threads = self.deps.permissions.policy.limits.amount(Limit::Threads);
        let most = threads
            .and_then(|threads| usize::try_from(threads).ok())
            .unwrap_or(usize::MAX)
            .clamp(MIN_SURVEYS, MAX_SURVEYS);
        let before = self.surveys.fetch_add(1, Ordering::Relaxed);
        let survey = UnderWay(Arc::clone(&self.surveys));
        if before < most {
            return Ok(survey);
        }
        Err(Refusal::new(
            RefusalKind::NotAllowed,
            format!("this agent makes {most} surveys at once: does a file system hang?"),
        ))
    }
}

/// The request's name in events.
fn word_of(request: &CommandRequest) -> &'static str {
    match request {
        CommandRequest::Survey { .. } => "survey",
        CommandRequest::OpenRunDirectory { .. } => "open-run-directory",
        CommandRequest::RemoveRunDirectory { .. } => "remove-run-directory",
        CommandRequest::RemoveCell { .. } => "remove-cell",
        CommandRequest::DropCaches => "drop-caches",
        _ => "command",
    }
}

/// The uid of the run that a request belongs to. Empty if it has none.
fn uid_of(request: &CommandRequest) -> RunUid {
    match request {
        CommandRequest::OpenRunDirectory { run_uid, .. }
        | CommandRequest::RemoveRunDirectory { run_uid, .. }
        | CommandRequest::RemoveCell { run_uid, .. } => run_uid.clone().into(),
        _ => RunUid::default(),
    }
}

fn work(
    permissions: &Permissions,
    mesh: &str,
    request: CommandRequest,
    recent_drops: &PerMinute,
    reply_to: &ReplyHandle,
) -> Result<Answer, Refusal> {
    let reporter = ProgressReporter::new(reply_to.clone());
    let mut removed = |done: u64| {
        reporter.report(ProgressReport {
            done,
            total: 0,
            unit: "files",
        })
    };
    match request {
        CommandRequest::Survey { targets, sources } => Ok(Answer::Survey(survey::survey(
            &permissions.policy,
            permissions.scratch.as_deref(),
            &targets,
            &sources,
        ))),
        CommandRequest::OpenRunDirectory {
            run_uid,
            target,
            make,
        } => {
            let run = RunName {
                mesh,
                uid: &run_uid,
            };
            let open = |make| permissions.open_run(run, &target, make);
            // An existing directory may have been created by this command before its answer was lost.
            let mut facts = open(Make::Never)?;
            if !facts.found && matches!(make, MakeDirectory::IfMissing) {
                facts = open(Make::IfMissing)?;
            }
            Ok(Answer::RunDirectory(facts))
        }
        CommandRequest::RemoveRunDirectory { run_uid, target } => {
            let run = RunName {
                mesh,
                uid: &run_uid,
            };
            permissions
                .remove_run(run, &target, &mut removed)
                .map(|()| Answer::Done)
        }
        CommandRequest::RemoveCell {
            run_uid,
            target,
            cell,
            task_index,
        } => {
            let place = PlaceName {
                run_uid,
                target,
                cell,
            };
            permissions
                .remove_cell(mesh, &place, task_index, &mut removed)
                .map(|()| Answer::Done)
        }
        CommandRequest::DropCaches => Ok(Answer::Dropped(match permissions.policy.drop_caches {
            true => caches::drop_caches(recent_drops),
            false => caches::not_allowed(),
        })),
        other => Err(Refusal::failed(format!(
            "not a command on files: {other:?}"
        ))),
    }
}
