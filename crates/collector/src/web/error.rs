//! Errors as JSON: always one document, `{"error": "..."}`.

use axum::{
    Json,
    body::to_bytes,
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Maximum length of a framework message that is passed on.
const MAX_TEXT: usize = 64 << 10;

/// A refusal with its status.
#[derive(Debug)]
pub struct HttpRefusal {
    status: StatusCode,
    message: String,
}

impl HttpRefusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub fn busy(what: &str, most: usize) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "this collector serves at most {most} {what} over HTTP at once; try again when one has ended"
            ),
        )
    }

    pub fn failed(error: &dyn std::error::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, crate::error_chain(error))
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let body = Json(serde_json::json!({ "error": self.message }));
        (self.status, body).into_response()
    }
}

/// Middleware: converts the framework's own refusals (an unknown parameter, an unsupported method), which are plain
/// text or have no body, into the same document.
pub async fn as_document(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let response = next.run(request).await;
    let status = response.status();
    let is_text = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_TEXT).await.unwrap_or_default();
    let message = match String::from_utf8_lossy(&text).trim() {
        "" if status == StatusCode::METHOD_NOT_ALLOWED => {
            format!("this address does not support {method}")
        }
        "" => status.canonical_reason().unwrap_or("refused").to_owned(),
        text => text.to_owned(),
    };
    let mut refusal = HttpRefusal::new(status, message).into_response();
    if let Some(allow) = parts.headers.get(header::ALLOW) {
        refusal.headers_mut().insert(header::ALLOW, allow.clone());
    }
    refusal
}

pub async fn not_found() -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::NOT_FOUND,
        "unknown address; /api/openapi.json lists all addresses",
    )
}
