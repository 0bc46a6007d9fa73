//! Judges the running step for steady state.

use crate::{
    Inner,
    live::{self, Follower, SteadyJudge},
    machine::event::Event,
};
use benchmesh_model::mesh::StepId;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Judges until the load is steady, or until the returned value is dropped.
pub(super) fn follow(
    inner: &Arc<Inner>,
    step: StepId,
    judge: SteadyJudge,
    events: &mpsc::Sender<Event>,
) -> Follower {
    let feed = inner.store.live().clone();
    let clock = Arc::clone(&inner.clock);
    let events = events.clone();
    Follower::of(async move {
        let on_judged = |judged| {
            let events = events.clone();
            async move {
                // The send fails only while the collector is closing.
                let _ = events.send(Event::Steadiness { step, judged }).await;
            }
        };
        live::judge(feed, clock, judge, on_judged).await;
    })
}
