//! A run that cannot be driven: its plan no longer yields steps, or the database keeps refusing its rows. It fails in
//! its stored state, so that the queued runs get their turn.

use super::{
    run::Run,
    tasks::{TaskHandle, has_ended},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::RunState;
use benchmesh_store::rows::{Row, RunDirectoryRow, TaskRow};

impl Run {
    /// Ends the run with everything that is open in it. Its tasks are stopped where they run, and its directories are
    /// removed as leftovers.
    pub(super) fn fail_as_stored(
        &mut self,
        tasks: &[TaskRow],
        directories: &[RunDirectoryRow],
        reason: String,
    ) {
        self.partial = true;
        self.out.rows.push(Row::OpenFailed {
            run: self.row.id,
            reason: reason.clone(),
            at: self.now,
        });
        for task in tasks.iter().filter(|task| !has_ended(task.state)) {
            self.stop_lost(TaskHandle {
                task: task.id,
                agent: task.agent,
                peer: task.peer,
            });
        }
        for directory in directories.iter().filter(|directory| directory.made) {
            let path = &directory.path;
            let message = format!(
                "the run's directory {path}/benchmesh-{} stays: the scheduler could not finish the run; benchmesh \
                 removes the directory when the agent attaches again",
                self.row.uid
            );
            let detail = serde_json::json!({ "run_uid": self.row.uid, "path": path });
            let (kind, detail) = (EventKind::DirectoryLeft, Some(detail.to_string()));
            self.record_event_of(None, Some(directory.agent), kind, message, detail);
        }
        if !directories.is_empty() {
            self.directories.clear();
            self.out
                .rows
                .push(Row::DirectoriesGone { run: self.row.id });
        }
        self.end(RunState::Failed, Some(reason));
    }
}
