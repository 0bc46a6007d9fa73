//! Process duties of a daemon: signals, the service manager, the end of its parent.

use crate::failure::Outcome;
use crate::interrupts::{Interrupts, PARENT_VARIABLE};
use crate::systemd::Notifier;
use anyhow::Context;
use std::future::Future;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs a daemon until a signal asks it to end; a second signal exits at once.
///
/// `daemon` gets the token that the first signal cancels, and the service manager's notifier. The watchdog monitors
/// that the runtime makes progress.
pub async fn until_signal<F>(
    daemon: impl FnOnce(CancellationToken, Arc<Notifier>) -> F,
) -> anyhow::Result<Outcome>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut interrupts = Interrupts::listen()?;
    let mut hurried = interrupts.clone();
    let cancel = CancellationToken::new();
    let notifier = Arc::new(Notifier::from_environment());
    let watchdog = tokio::spawn(report_life(Arc::clone(&notifier)));
    let work = daemon(cancel.clone(), Arc::clone(&notifier));
    tokio::pin!(work);
    let ended = loop {
        tokio::select! {
            result = &mut work => break result.map(|()| Outcome::Done),
            () = interrupts.first(), if !cancel.is_cancelled() => {
                tracing::info!("stopping; a second signal exits at once");
                notifier.stopping();
                cancel.cancel();
            }
            () = hurried.second() => break Err(anyhow::anyhow!("exited at once, on a second signal")),
        }
    };
    watchdog.abort();
    ended
}

async fn report_life(notifier: Arc<Notifier>) {
    let Some(period) = notifier.watchdog() else {
        return;
    };
    let mut ticks = tokio::time::interval(period);
    loop {
        ticks.tick().await;
        notifier.alive();
    }
}

/// Ends this process when its parent ends, for whatever reason.
pub fn end_with_parent() -> anyhow::Result<()> {
    let what = "tie this process to the one that started it";
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context(what)?;
    // The parent may have ended before the call above; then this process has been reparented.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let meant = std::env::var(PARENT_VARIABLE)
        .ok()
        .and_then(|pid| pid.parse().ok());
    if meant.is_some() && parent != meant {
        anyhow::bail!("{what}: it has ended already");
    }
    Ok(())
}
