//! Commands that work on files, each on a thread of its own: it may block for as long as the target does.

use super::Slots;
use super::threads::unpanicked;
use crate::runner::command::{Answer, MakeDirectory, PlaceName, Progress, Refusal, Request};
use crate::runner::voice::{Teller, Voice};
use crate::runner::{Grounds, caches, survey};
use benchmesh_workloads::sandbox::Make;

impl Slots {
    /// Does it on a thread, which replies.
    pub(super) fn on_files(&self, request: Request, voice: Voice) {
        let grounds = self.around.grounds.clone();
        let mesh = self.mesh.clone().unwrap_or_default();
        let replying = voice.clone();
        let started = self.on_thread("bm-command", move || {
            let outcome = unpanicked(|| work(&grounds, &mesh, request, &replying));
            replying.reply_from_thread(outcome);
        });
        if let Err(refusal) = started {
            voice.reply(Err(refusal));
        }
    }
}

fn work(grounds: &Grounds, mesh: &str, request: Request, voice: &Voice) -> Result<Answer, Refusal> {
    let teller = Teller::new(voice.clone());
    let mut removed = |done: u64| {
        teller.tell(Progress {
            done,
            total: 0,
            unit: "files",
        })
    };
    match request {
        Request::Survey { paths, sources } => Ok(Answer::Survey(survey::survey(
            &grounds.targets,
            &grounds.devices,
            &grounds.sources,
            grounds.scratch.as_deref(),
            &paths,
            &sources,
        ))),
        Request::OpenRunDirectory {
            run_uid,
            path,
            make,
        } => {
            let make = match make {
                MakeDirectory::IfMissing => Make::IfMissing,
                MakeDirectory::Never => Make::Never,
            };
            grounds
                .open_run(mesh, &run_uid, &path, make)
                .map(Answer::RunDirectory)
        }
        Request::RemoveRunDirectory { run_uid, path } => grounds
            .remove_run(mesh, &run_uid, &path, &mut removed)
            .map(|()| Answer::Done),
        Request::RemoveCell {
            run_uid,
            path,
            cell,
            task_index,
        } => {
            let place = PlaceName {
                run_uid,
                path,
                cell,
            };
            grounds
                .remove_cell(mesh, &place, task_index, &mut removed)
                .map(|()| Answer::Done)
        }
        Request::DropCaches => Ok(Answer::Dropped(caches::drop_caches())),
        other => Err(Refusal::failed(format!(
            "not a command on files: {other:?}"
        ))),
    }
}
