//! Whether the database can be written at present, for those who would have to wait for it.
//!
//! The writer says so when a commit fails for what is around the database (a full disk, above all), and again when one
//! has come through; a commit that is merely slow is not blocked.

use super::Store;
use super::error::StoreError;
use tokio::sync::watch;

/// Why nothing can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub why: String,
    /// What someone can do about it.
    pub remedy: &'static str,
}

impl Blocked {
    pub(super) fn by(error: &StoreError) -> Self {
        Self {
            why: error.why_blocked(),
            remedy: error.remedy(),
        }
    }
}

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
