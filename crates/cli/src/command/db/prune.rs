//! `benchmesh db prune`: asks the collector, or does it in a file that no collector has open.

use crate::args::db::{PruneArguments, PruneTo};
use crate::args::values::wall_clock;
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::interrupts::Interrupts;
use crate::output;
use anyhow::Context;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::Store;
use benchmesh_store::maintain::prunable;
use benchmesh_store::prune::Resolution;
use benchmesh_store::retention::{PruneProgress, Request, Retainer, Retention};
use benchmesh_workloads::figures;
use indicatif::ProgressBar;
use std::path::Path;
use std::time::SystemTime;
use tokio::sync::watch;

pub(super) async fn prune(arguments: PruneArguments) -> anyhow::Result<Outcome> {
    let request = Request {
        older: arguments.older,
        to: match arguments.to {
            PruneTo::TenSeconds => Resolution::TenSeconds,
            PruneTo::Minute => Resolution::Minute,
            PruneTo::Nothing => Resolution::Nothing,
        },
        keep_tags: arguments.keep,
        dry_run: arguments.dry_run,
    };
    let mut interrupts = Interrupts::listen()?;
    let shown = PruneBar::default();
    let pruning = async {
        match &arguments.db {
            Some(file) => in_file(file, &request, &shown).await,
            None => by_collector(&arguments.collector.collector, &request, &shown).await,
        }
    };
    let done = tokio::select! {
        done = pruning => Some(done?),
        () = interrupts.first() => None,
    };
    shown.bar.finish_and_clear();
    let Some(done) = done else {
        output::print_notice(
            "stopped; the database is consistent; run the same command again to continue",
        );
        return Ok(Outcome::Partial);
    };
    let count =
        |count: u64, word| figures::plural(usize::try_from(count).unwrap_or(usize::MAX), word);
    let what = format!(
        "{} of {}",
        count(done.steps_total, "step"),
        count(done.runs_total, "run")
    );
    let size = |bytes: i64| figures::bytes(u64::try_from(bytes).unwrap_or(0));
    output::print_notice(&match request.dry_run {
        true => format!(
            "rows of {what} would be {}, and so would samples of that time; the database has {}, of which {} are in \
             use",
            request.to.done_to_rows(),
            size(done.file_bytes),
            size(done.used_bytes)
        ),
        false => format!(
            "rows of {what} are {}: {} fewer; the database has {}, of which {} are in use",
            request.to.done_to_rows(),
            count(done.rows, "row"),
            size(done.file_bytes),
            size(done.used_bytes)
        ),
    });
    Ok(Outcome::Done)
}

/// Its progress, drawn on a terminal only.
struct PruneBar {
    bar: ProgressBar,
}

impl Default for PruneBar {
    fn default() -> Self {
        Self {
            bar: ProgressBar::new(0).with_message("steps"),
        }
    }
}

impl PruneBar {
    fn show(&self, progress: &PruneProgress) {
        self.bar.set_length(progress.steps_total);
        self.bar.set_position(progress.steps);
    }
}

async fn by_collector(
    address: &str,
    request: &Request,
    shown: &PruneBar,
) -> anyhow::Result<PruneProgress> {
    let mut client = Client::connect(address)
        .await
        .map_err(CallError::into_error)?;
    let mut pruning = client.prune(request).await.map_err(CallError::into_error)?;
    while let Some((progress, is_last)) = pruning.next().await.map_err(CallError::into_error)? {
        if is_last {
            return Ok(progress);
        }
        shown.show(&progress);
    }
    anyhow::bail!("the collector at {address} aborted the prune; see its log for the reason")
}

async fn in_file(
    file: &Path,
    request: &Request,
    shown: &PruneBar,
) -> anyhow::Result<PruneProgress> {
    if !file.is_file() {
        return Err(wrong_usage(format!(
            "there is no database {}",
            file.display()
        )));
    }
    let now = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    if request.dry_run {
        let before =
            now.saturating_sub(i64::try_from(request.older.as_micros()).unwrap_or(i64::MAX));
        let counted = prunable(file, MeshMicros(before), request.to, &request.keep_tags);
        let (steps_total, runs_total, kept) = counted.map_err(super::into_error)?;
        return Ok(PruneProgress {
            steps_total,
            runs_total,
            used_bytes: kept.size.used_bytes(),
            file_bytes: kept.size.file_bytes,
            ..PruneProgress::default()
        });
    }
    let opening = || format!("open {}", file.display());
    let store = Store::open(file).await.with_context(opening)?;
    let retention = Retention {
        keep_tags: store.kept_tags().await.with_context(opening)?,
        ..Retention::default()
    };
    let retainer = Retainer::new(store.clone(), retention);
    let (progress_sender, mut progress) = watch::channel(PruneProgress::default());
    let pruning = retainer.by_hand(request, MeshMicros(now), &progress_sender);
    tokio::pin!(pruning);
    let done = loop {
        tokio::select! {
            done = &mut pruning => break done,
            Ok(()) = progress.changed() => shown.show(&progress.borrow_and_update()),
        }
    };
    store.close().await;
    done.with_context(|| format!("prune {}", file.display()))?;
    Ok(progress_sender.borrow().clone())
}
