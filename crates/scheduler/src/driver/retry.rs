//! Retries reads in place: a database that is busy for a while is no reason to restart from the rows.

use benchmesh_store::StoreError;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::warn;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// A read that fails for longer fails the scheduler, which restarts from the rows.
const RETRY_TIMEOUT: Duration = Duration::from_secs(300);

/// Repeats `read` while its error is transient; returns the final result.
pub(super) async fn retried<T, F>(mut read: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match read().await {
            Err(error) if error.is_retryable() && began.elapsed() < RETRY_TIMEOUT => {
                warn!(
                    error = %benchmesh_workloads::error_chain(&error),
                    "a database read of the scheduler failed; the scheduler retries it"
                );
            }
            outcome => return outcome,
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_store::Doing;
    use std::cell::Cell;

    #[tokio::test]
    async fn an_error_that_is_over_later_is_waited_for() {
        let tries = Cell::new(0);
        let read = || async {
            tries.set(tries.get() + 1);
            match tries.get() {
                1..3 => Err(sqlx::Error::PoolTimedOut).doing("be read"),
                tries => Ok(tries),
            }
        };
        assert_eq!(retried(read).await.unwrap(), 3);
        let missing = || async {
            tries.set(tries.get() + 1);
            Err::<(), _>(StoreError::NoSuch {
                what: "run",
                id: String::from("7"),
            })
        };
        assert!(retried(missing).await.is_err());
        assert_eq!(tries.get(), 4);
    }
}
