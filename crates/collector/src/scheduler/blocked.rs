//! A database that cannot be written for a while: those who watch runs are told at once, and when it can be written
//! again the time becomes an event, for until then nothing can be kept.

use super::Inner;
use crate::{model::Severity, store::rows::NewEvent};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tells of each such time, until `closing`.
pub(super) async fn tell(inner: Arc<Inner>, closing: CancellationToken) {
    let mut state = inner.store.blocked();
    let mut since = None;
    loop {
        let blocked = state.borrow_and_update().clone();
        match (blocked, since) {
            (Some(blocked), None) => {
                since = Some((inner.clock.now(), blocked.why.clone()));
                inner.board.tell_all(&format!(
                    "the database cannot be written ({}): {}; agents keep what they measure until it can",
                    blocked.why, blocked.remedy
                ));
            }
            (None, Some((from, why))) => {
                since = None;
                let until = inner.clock.now();
                let lasted_us = until.0.saturating_sub(from.0).max(0);
                #[expect(clippy::cast_precision_loss, reason = "seconds to read")]
                let message = format!(
                    "the database could not be written for {:.1} s ({why}); agents kept what they measured",
                    lasted_us as f64 / 1e6
                );
                inner.board.tell_all(&message);
                let event = NewEvent {
                    at: until,
                    run: inner.board.running(),
                    step: None,
                    agent: None,
                    severity: Severity::Warning,
                    kind: String::from("database-blocked"),
                    message,
                    detail_json: Some(
                        json!({ "from_us": from.0, "until_us": until.0 }).to_string(),
                    ),
                };
                if let Err(error) = inner.store.add_event(event).await {
                    tracing::debug!(%error, "that the database was blocked is not kept");
                }
            }
            (_, same) => since = same,
        }
        tokio::select! {
            () = closing.cancelled() => return,
            changed = state.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
