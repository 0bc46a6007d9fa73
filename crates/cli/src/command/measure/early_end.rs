//! The end of a measurement before its time: as soon as it is precise enough, another loop would take too long, or
//! nothing can be measured any more.

use super::Mesh;
use super::precision::Precision;
use crate::client::{Client, Detail, StopWhen};
use crate::failure;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a directory may take to answer whether it exists.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// By how much the time may be exceeded for the sake of another whole loop.
const OVERRUN: f64 = 1.15;

/// Ends the run after a loop if the intervals are narrow or another loop would take too long, and at once if it cannot
/// measure any more. Never returns: the follower of the run sees its end.
pub(super) async fn end_early(
    mesh: &Mesh<'_>,
    run: &str,
    mut precision: Precision,
    time: Duration,
) -> std::convert::Infallible {
    if let Err(error) = end_if_enough(mesh, run, &mut precision, time).await {
        // The run ends by its time.
        tracing::warn!(error = %failure::chain(&error), "cannot tell whether the measurement is precise enough");
    }
    std::future::pending().await
}

async fn end_if_enough(
    mesh: &Mesh<'_>,
    run: &str,
    precision: &mut Precision,
    time: Duration,
) -> anyhow::Result<()> {
    let mut client = Client::connect(mesh.address).await?;
    let mut watch = client.watch_run(run, Detail::Step).await?;
    let mut is_late = false;
    let mut directories = Directories {
        paths: Arc::from(mesh.local),
        existence_check: None,
    };
    while let Some(update) = watch.next().await? {
        if update.run.state.is_end() {
            return Ok(());
        }
        if update.run.finished.is_empty() {
            continue;
        }
        let loops = precision.loops();
        for step in &update.run.finished {
            precision.add(step);
        }
        if precision.loops() > loops {
            is_late = is_time_over(update.run.elapsed_us, precision.loops(), time);
        }
        let (reason, when) = if let Some(path) = directories.vanished().await {
            (format!("{} has vanished", path.display()), StopWhen::Now)
        } else if precision.is_fruitless() {
            (String::from("nothing could be measured"), StopWhen::Now)
        } else if precision.is_enough() {
            (
                String::from("the intervals are narrow"),
                StopWhen::AfterLoop,
            )
        } else if is_late {
            (
                String::from("another loop would exceed the time"),
                StopWhen::AfterLoop,
            )
        } else {
            continue;
        };
        client.stop_run(run, &reason, when).await?;
        if when == StopWhen::Now {
            return Ok(());
        }
        // A directory may still vanish in the last loop.
        while let Some(update) = watch.next().await? {
            if update.run.state.is_end() {
                return Ok(());
            }
            if let Some(path) = directories.vanished().await {
                let reason = format!("{} has vanished", path.display());
                client.stop_run(run, &reason, StopWhen::Now).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The measured directories of this machine, while they are measured.
struct Directories {
    paths: Arc<[PathBuf]>,
    /// A check that has not ended: a file system may hang.
    existence_check: Option<JoinHandle<Option<PathBuf>>>,
}

impl Directories {
    /// A directory that has vanished. One whose file system does not answer counts as existing. Waits for at most
    /// [`CHECK_TIMEOUT`].
    async fn vanished(&mut self) -> Option<PathBuf> {
        let paths = &self.paths;
        let existence_check = self.existence_check.get_or_insert_with(|| {
            let paths = Arc::clone(paths);
            tokio::task::spawn_blocking(move || paths.iter().find(|path| !path.is_dir()).cloned())
        });
        let ended = tokio::time::timeout(CHECK_TIMEOUT, existence_check)
            .await
            .ok()?;
        self.existence_check = None;
        ended.ok().flatten()
    }
}

/// Whether the loop after the one that begins now would end too late.
fn is_time_over(elapsed_us: i64, loops: u32, time: Duration) -> bool {
    let elapsed = Duration::from_micros(u64::try_from(elapsed_us).unwrap_or(0));
    elapsed / loops.max(1) * (loops + 2) > time.mul_f64(OVERRUN)
}
