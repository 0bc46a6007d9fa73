//! Reports and comparisons, sent in pieces.

use super::ResponseStream;
use benchmesh_proto::v1;
use futures::{StreamExt, stream};
use std::time::Duration;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking, time::sleep};
use tonic::{Response, Status};

/// A report is dropped if it is not fetched within this time.
const REPORT_TIME_LIMIT: Duration = Duration::from_secs(300);
/// Maximum bytes of a report in one message.
const REPORT_CHUNK_BYTES: usize = 1 << 20;

/// A document as JSON in pieces; the permit is held until the last one is fetched.
pub(super) async fn document<D: serde::Serialize + Send + 'static>(
    document: D,
    permit: OwnedSemaphorePermit,
) -> Result<Response<ResponseStream<v1::ReportReply>>, Status> {
    let report_json = spawn_blocking(move || serde_json::to_vec(&document))
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|error| Status::internal(format!("cannot write the answer as JSON: {error}")))?;
    let chunks: Vec<_> = report_json
        .chunks(REPORT_CHUNK_BYTES)
        .map(<[u8]>::to_vec)
        .collect();
    let chunks = stream::iter(chunks).map(move |report_json| {
        let _held_to_the_end = &permit;
        Ok(v1::ReportReply { report_json })
    });
    Ok(Response::new(Box::pin(
        chunks.take_until(sleep(REPORT_TIME_LIMIT)),
    )))
}

/// An HTML file in pieces; the permit is held until the last one is fetched.
pub(super) fn file(
    html: String,
    permit: OwnedSemaphorePermit,
) -> Response<ResponseStream<v1::ReportFileReply>> {
    let chunks: Vec<_> = html
        .into_bytes()
        .chunks(REPORT_CHUNK_BYTES)
        .map(<[u8]>::to_vec)
        .collect();
    let chunks = stream::iter(chunks).map(move |html| {
        let _held_to_the_end = &permit;
        Ok(v1::ReportFileReply { html })
    });
    Response::new(Box::pin(chunks.take_until(sleep(REPORT_TIME_LIMIT))))
}
