//! The live state as server-sent events: each part of a snapshot is sent after it changes.

use super::{App, MAX_VIEWERS, error::HttpRefusal};
use crate::overview::{Published, Viewer};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use futures::stream;
use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use tokio_util::sync::CancellationToken;

/// A line is sent at least this often, so that a lost client is noticed.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One open stream.
struct Stream {
    viewer: Viewer,
    sent: HashMap<&'static str, u64>,
    unsent: VecDeque<Arc<[u8]>>,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

pub async fn stream(State(app): State<App>) -> Result<Response, HttpRefusal> {
    let permit = Arc::clone(&app.viewers)
        .try_acquire_owned()
        .map_err(|_| HttpRefusal::busy("viewers", MAX_VIEWERS))?;
    let stream = Stream {
        viewer: app.overview.viewer(),
        sent: HashMap::new(),
        unsent: VecDeque::new(),
        closing: app.closing.clone(),
        _permit: permit,
    };
    let events = stream::unfold(stream, |mut stream| async {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    Ok((headers, Body::from_stream(events)).into_response())
}

impl Stream {
    /// The next event. A viewer that falls behind receives the newest text of each changed topic, so that at most one
    /// event per topic is queued.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.unsent.pop_front() {
                return Some(Bytes::from_owner(event));
            }
            let next = tokio::select! {
                () = self.closing.cancelled() => return None,
                next = timeout(HEARTBEAT, self.viewer.next()) => next,
            };
            match next {
                Ok(published) => self.take(&published?),
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }

    /// The events that this viewer has not received yet.
    fn take(&mut self, published: &Published) {
        for topic in published.topics.iter() {
            if self.sent.insert(topic.name, topic.version) != Some(topic.version) {
                self.unsent.push_back(Arc::clone(&topic.event));
            }
        }
    }
}
