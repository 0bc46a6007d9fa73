//! Pruning on request; it continues while its caller is connected.

use super::super::audit::{self, Requester};
use super::super::wire::store_status;
use super::{ControlService, ResponseStream};
use benchmesh_proto::v1;
use benchmesh_store::prune::Resolution;
use benchmesh_store::retention::{PruneProgress, Request as Wanted};
use benchmesh_workloads::figures;
use futures::stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};

/// Interval between progress reports.
const TOLD_EVERY: Duration = Duration::from_millis(500);
/// Queue of progress and final reply, small because a caller that does not read is not waited for long.
const QUEUED_REPLIES: usize = 4;

impl ControlService {
    pub(super) async fn pruned(
        &self,
        request: Request<v1::PruneRequest>,
    ) -> Result<Response<ResponseStream<v1::PruneReply>>, Status> {
        let by = Requester::of(&request);
        let wanted = wanted(request.into_inner())?;
        if !wanted.dry_run {
            let what = what(&wanted);
            audit::prune_requested(&self.store, &self.clock, &what, &by).await;
        }
        let (replies, coming) = mpsc::channel(QUEUED_REPLIES);
        let (retainer, closing) = (self.retainer.clone(), self.closing.clone());
        let now = Arc::clone(&self.clock).now();
        tokio::spawn(async move {
            let (told, progress) = watch::channel(PruneProgress::default());
            let pruning = retainer.by_hand(&wanted, now, &told);
            let telling = async {
                loop {
                    tokio::time::sleep(TOLD_EVERY).await;
                    let now = reply(&progress.borrow(), false);
                    if replies.send(Ok(now)).await.is_err() {
                        return;
                    }
                }
            };
            let last = tokio::select! {
                () = closing.cancelled() => Err(Status::unavailable("the collector is closing")),
                () = replies.closed() => return,
                () = telling => return,
                done = pruning => done
                    .map(|()| reply(&progress.borrow(), true))
                    .map_err(|error| store_status(&error)),
            };
            // The caller may be gone.
            let _ = replies.send(last).await;
        });
        let replies = stream::unfold(coming, |mut coming| async {
            coming.recv().await.map(|reply| (reply, coming))
        });
        Ok(Response::new(Box::pin(replies)))
    }
}

fn wanted(request: v1::PruneRequest) -> Result<Wanted, Status> {
    let to = Resolution::ALL
        .into_iter()
        .find(|to| to.seconds() == i64::from(request.resolution_s))
        .ok_or_else(|| Status::invalid_argument("merge rows into 10 s or 60 s, or delete them"))?;
    let older = u64::try_from(request.older_us)
        .map_err(|_| Status::invalid_argument("the age must not be negative"))?;
    let keep_tags = request.keep_tags.iter().map(|tag| {
        let tag = tag.split_once('=');
        tag.map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    Ok(Wanted {
        older: Duration::from_micros(older),
        to,
        keep_tags: keep_tags
            .collect::<Option<_>>()
            .ok_or_else(|| Status::invalid_argument("a tag must have the form K=V"))?,
        dry_run: request.dry_run,
    })
}

fn what(wanted: &Wanted) -> String {
    let mut what = format!(
        "rows of seconds of runs that ended over {} ago are {}",
        figures::span(wanted.older),
        wanted.to.done_to_rows()
    );
    for (key, value) in &wanted.keep_tags {
        what.push_str(&format!(
            ", except those of runs with the tag {key}={value}"
        ));
    }
    what
}

fn reply(progress: &PruneProgress, done: bool) -> v1::PruneReply {
    v1::PruneReply {
        steps: progress.steps,
        steps_total: progress.steps_total,
        runs_total: progress.runs_total,
        rows: progress.rows,
        longest_us: i64::try_from(progress.longest.as_micros()).unwrap_or(i64::MAX),
        used_bytes: progress.used_bytes,
        file_bytes: progress.file_bytes,
        done,
    }
}
