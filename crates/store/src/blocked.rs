//! Whether the database can be written at present.
//!
//! The writer reports it blocked when a commit fails for an external reason (a full disk, above all), and unblocked
//! when a commit succeeds; a slow commit does not count as blocked.

use super::Store;
use crate::database::Blocked;
use tokio::sync::watch;

/// The writer's word on it.
pub(super) type Blockage = watch::Sender<Option<Blocked>>;

impl Store {
    /// Follows whether the database can be written; `Some`: it cannot.
    pub fn blocked(&self) -> watch::Receiver<Option<Blocked>> {
        self.shared.blocked.subscribe()
    }

    /// Resolves once nothing can be written.
    pub async fn is_blocked(&self) -> Blocked {
        let mut blocked = self.blocked();
        loop {
            if let Some(blocked) = blocked.borrow_and_update().clone() {
                return blocked;
            }
            // The store holds the sender.
            if blocked.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
