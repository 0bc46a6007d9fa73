//! The files of the page, built into the binary. They are hand-written, and the page loads nothing else.

use super::error::HttpRefusal;
use axum::{
    body::Body,
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use benchmesh_answers::compare::{FigureName, OWN_KEYS};
use benchmesh_answers::pictures::file;
use benchmesh_model::figures::{DaemonFigures, Figures, HostFigures, Kind, ShownIn, shown_in};
use benchmesh_model::limits::{Limit, Scope, Unit};
use benchmesh_results::Flag;
use serde_json::{Value, json};

const HTML: &str = "text/html; charset=utf-8";
const PAGE: &str = include_str!("assets/page.html");
const LOGIN: &str = include_str!("assets/login.html");
const ICON: &str = include_str!("assets/icon.svg");
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// Name, content type, text.
static ASSETS: [(&str, &str, &str); 6] = [
    ("page.css", "text/css; charset=utf-8", file::STYLE),
    (
        "page.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/page.js"),
    ),
    ("charts.js", "text/javascript; charset=utf-8", file::CHARTS),
    ("report.js", "text/javascript; charset=utf-8", file::REPORT),
    (
        "compare.js",
        "text/javascript; charset=utf-8",
        file::COMPARE,
    ),
    ("icon.svg", "image/svg+xml", ICON),
];

/// The table of flags, for the page's explanations.
const FLAGS: &str = "flags.js";

/// The sampled figures shown by the page, by table; what can be compared: figures and keys; the limits of policies.
const FIGURES: &str = "figures.js";

fn figures_script() -> String {
    fn shown<F: Figures>() -> Value {
        let figures = shown_in::<F>(ShownIn::Page).map(|(_, figure)| {
            let title = match figure.kind {
                Kind::Counter => format!("{}/s", figure.word),
                Kind::Gauge => figure.word.to_owned(),
            };
            json!({ "key": figure.live_key(), "title": title, "unit": figure.unit.as_str() })
        });
        Value::Array(figures.collect())
    }
    let tables = json!({
        DaemonFigures::TABLE: shown::<DaemonFigures>(),
        HostFigures::TABLE: shown::<HostFigures>(),
    });
    let figures = FigureName::ROWS.iter().map(|row| [row.name, row.title]);
    let compared = json!({ "figures": figures.collect::<Vec<_>>(), "keys": OWN_KEYS });
    let limits = Limit::ALL.iter().map(|limit| {
        let row = limit.row();
        // A minimum of each target is a text, with its unit.
        let unit = match (row.scope, row.unit) {
            (Scope::AllLoad, Unit::Bytes | Unit::BytesPerSecond) => "bytes",
            (Scope::AllLoad, Unit::Count) | (Scope::EachTarget, _) => "",
        };
        json!({ "key": row.name, "option": row.option, "unit": unit })
    });
    let limits = Value::Array(limits.collect());
    format!(
        "'use strict';\nconst BenchmeshFigures = {tables};\nconst BenchmeshCompared = {compared};\n\
         const BenchmeshLimits = {limits};\n"
    )
}

fn flags_script() -> String {
    let rows = Flag::ROWS.iter().map(|row| {
        let known = json!({ "meaning": row.meaning, "severity": row.severity });
        (row.name.to_owned(), known)
    });
    let rows = Value::Object(rows.collect());
    format!("'use strict';\nconst BenchmeshFlags = {rows};\n")
}

pub async fn page() -> Response {
    text(StatusCode::OK, HTML, PAGE)
}

pub async fn icon() -> Response {
    text(StatusCode::OK, "image/svg+xml", ICON)
}

pub async fn openapi() -> Response {
    text(StatusCode::OK, "application/json", OPENAPI)
}

pub async fn asset(Path(name): Path<String>) -> Result<Response, HttpRefusal> {
    let made = match name.as_str() {
        FLAGS => Some(flags_script()),
        FIGURES => Some(figures_script()),
        _ => None,
    };
    if let Some(script) = made {
        return Ok(asset_of("text/javascript; charset=utf-8", script));
    }
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, content)) = found else {
        return Err(super::error::not_found().await);
    };
    Ok(asset_of(kind, *content))
}

fn asset_of(kind: &'static str, content: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content.into()).into_response()
}

/// The form that asks for the token. `problem` is one of our own sentences.
pub fn login(status: StatusCode, problem: &str) -> Response {
    text(status, HTML, LOGIN.replace("<!-- problem -->", problem))
}

/// A response with a fixed text.
fn text(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, kind)], body.into()).into_response()
}
