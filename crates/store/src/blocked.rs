//! Whether the database can be written at present.
//!
//! The writer reports it blocked when a commit fails for an external reason (a full disk, above all), and unblocked
//! when a commit succeeds; a slow commit does not count as blocked.

use super::Store;
use crate::database::Blocked;
use tokio::sync::watch;

/// The writer's side of the channel.
pub(super) type Blockage = watch::Sender<Option<Blocked>>;

impl Store {
    /// Watches whether the database can be written; `Some` while it cannot.
    pub fn blocked(&self) -> watch::Receiver<Option<Blocked>> {
        self.shared.blocked.subscribe()
    }

    /// Resolves once the database cannot be written.
    pub async fn is_blocked(&self) -> Blocked {
        let mut blocked = self.blocked();
        loop {
            if let Some(blocked) = blocked.borrow_and_update().clone() {
                return blocked;
            }
            // Unreachable while `self` exists: the store holds the sender.
            if blocked.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
