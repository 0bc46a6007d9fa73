//! Comparisons and annotations of runs, over the wire and over HTTP, on a generated database. These calls only read or
//! annotate, so no agent is needed. Some 4 s each, mostly to generate. What a comparison says is tested in
//! `crates/answers`.

use super::page::Page;
use super::stage::{Stage, shown};
use benchmesh_model::mesh::{MeshMicros, RunId};
use benchmesh_proto::v1;
use benchmesh_store::annotate::{Annotated, Annotation};
use benchmesh_synthetic::{Shape, generate};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Status};

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

/// Two runs of plan `nightly`, each on two targets, and one of `soak`.
async fn stage() -> Stage {
    let directory = TempDir::new().unwrap();
    let shape = Shape {
        step_seconds: 10,
        repeats: 1,
        ..Shape::small()
    };
    let path = directory.path().join("mesh.db");
    tokio::task::spawn_blocking(move || generate(&path, &shape).unwrap())
        .await
        .unwrap();
    Stage::on(directory).await
}

fn change(stage: &Stage, sql: &str) {
    let file = rusqlite::Connection::open(stage.db()).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(30))
        .unwrap();
    file.execute_batch(sql).unwrap();
}

async fn asked(stage: &Stage, request: &str) -> Result<Value, Status> {
    let request = v1::CompareRequest {
        request_json: request.as_bytes().to_vec(),
    };
    let mut pieces = stage.control().await.compare(request).await?.into_inner();
    let mut document = Vec::new();
    while let Some(piece) = pieces.message().await? {
        document.extend(piece.report_json);
    }
    Ok(serde_json::from_slice(&document).unwrap())
}

const RUNS: &str = r#"{"kind":"runs","a":"1","b":"2"}"#;
const TARGETS: &str = r#"{"kind":"targets","run":"2"}"#;

pub async fn annotated(
    stage: &Stage,
    run: &str,
    annotation: Option<Annotation>,
) -> Result<Annotated, Status> {
    let request = v1::AnnotateRequest {
        run: run.to_owned(),
        annotation_json: serde_json::to_vec(&annotation).unwrap(),
    };
    let reply = stage.control().await.annotate(request).await?;
    Ok(shown(&reply.get_ref().annotated_json))
}

fn tag(set: &[(&str, &str)], remove: &[&str]) -> Option<Annotation> {
    let text = |text: &&str| (*text).to_owned();
    let set = set.iter().map(|(key, value)| (text(key), text(value)));
    Some(Annotation::Tag {
        set: set.collect(),
        remove: remove.iter().map(text).collect(),
    })
}

fn mark(text: &str, at_us: Option<i64>) -> Option<Annotation> {
    Some(Annotation::Mark {
        text: text.to_owned(),
        at: at_us.map(MeshMicros),
    })
}

/// What is refused, with its status; the rest is kept, and nothing else.
#[tokio::test]
async fn tags_notes_marks_and_baselines_are_kept_or_refused() {
    let stage = stage().await;
    let long = "x".repeat(10_000);
    let year_2100 = 4_102_444_800_000_000;
    let wrong = Code::InvalidArgument;
    for (run, annotation, code) in [
        ("77", mark("x", None), Code::NotFound),
        ("1", None, wrong),
        ("1", mark(" ", None), wrong),
        ("1", mark("too early", Some(0)), wrong),
        ("1", mark("too late", Some(year_2100)), wrong),
        ("1", mark(&long, None), wrong),
        ("1", tag(&[], &[]), wrong),
        ("1", tag(&[("a=b", "c")], &[]), wrong),
        ("1", tag(&[("a\nb", "c")], &[]), wrong),
        ("1", Some(Annotation::Note(String::new())), wrong),
        ("1", Some(Annotation::Baseline(String::new())), wrong),
    ] {
        let status = annotated(&stage, run, annotation.clone())
            .await
            .unwrap_err();
        assert_eq!(status.code(), code, "{annotation:?}: {status}");
    }
    let reply = annotated(
        &stage,
        "1",
        tag(&[("pool", "ssd"), ("ticket", HOSTILE)], &[]),
    )
    .await
    .unwrap();
    assert_eq!((reply.run_id, reply.run.as_str()), (RunId(1), "nightly"));
    annotated(&stage, "run-1", tag(&[], &["ticket"]))
        .await
        .unwrap();
    annotated(&stage, "soak", Some(Annotation::Note(HOSTILE.to_owned())))
        .await
        .unwrap();
    let start: i64 = stage.rows("SELECT start_us FROM steps WHERE id = 1").await[0]
        .parse()
        .unwrap();
    let marked = annotated(&stage, "1", mark("osd.7 out", Some(start + 3_000_000)))
        .await
        .unwrap();
    assert_eq!(marked.at_us, start + 3_000_000);
    annotated(&stage, "1", Some(Annotation::Baseline("good".to_owned())))
        .await
        .unwrap();
    for (sql, expected) in [
        ("SELECT run_id || key || value FROM run_tags", "1poolssd"),
        (
            "SELECT run_id || text FROM run_notes",
            format!("3{HOSTILE}").as_str(),
        ),
        (
            "SELECT run_id || source || text || step_id FROM v_marks",
            "1markosd.7 out1",
        ),
        ("SELECT name || run_id FROM baselines", "good1"),
    ] {
        assert_eq!(stage.rows(sql).await, [expected], "{sql}");
    }
    let held = asked(&stage, r#"{"kind":"baseline","name":"good","run":"2"}"#)
        .await
        .unwrap();
    assert_eq!(held["comparisons"][0]["a"]["label"], "baseline good");
    for (request, code, word) in [
        ("", wrong, "invalid comparison request"),
        (r#"{"kind":"guess"}"#, wrong, "guess"),
        (
            r#"{"kind":"runs","a":"' OR 1=1 --","b":"1"}"#,
            Code::NotFound,
            "no run",
        ),
        (
            r#"{"kind":"baseline","name":"good","run":"1"}"#,
            wrong,
            "both sides are run 1",
        ),
        (
            r#"{"kind":"baseline","name":"none","run":"1"}"#,
            Code::NotFound,
            "compare --save none",
        ),
    ] {
        let status = asked(&stage, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{request}: {status}");
        assert!(status.message().contains(word), "{request}: {status}");
    }
}

#[tokio::test]
async fn a_key_selections_and_figures_are_parameters_as_in_the_command() {
    let stage = stage().await;
    let page = Page::of(&stage);
    for (query, request) in [
        (
            "by=bs&where=mode=randread&run=2&where=target=cephfs&figure=p95,client-cpu&figure=p99.9",
            json!({
                "kind": "by", "run": "2", "key": "bs", "figures": ["p95", "client-cpu", "p99.9"],
                "only": [{ "key": "mode", "value": "randread" }, { "key": "target", "value": "cephfs" }],
            }),
        ),
        (
            "by=version&run=nightly",
            json!({ "kind": "by", "run": "nightly", "key": "version" }),
        ),
        ("by=target", json!({ "kind": "targets", "run": "last" })),
    ] {
        let answer = page.get(&format!("/api/v1/compare?{query}")).await;
        let over_the_wire = asked(&stage, &request.to_string()).await;
        match over_the_wire {
            Ok(expected) => {
                let mut document = answer.json();
                document.as_object_mut().unwrap().remove("card");
                assert_eq!((answer.status, document), (200, expected), "{query}");
            }
            Err(status) => {
                assert_eq!(answer.status, 400, "{query}: {status}");
                assert_eq!(answer.json()["error"], status.message(), "{query}");
            }
        }
    }
    let by_size = page
        .get("/api/v1/compare?by=bs&run=2&where=mode=randread&figure=p95")
        .await;
    let rows = by_size.json()["comparisons"][0]["rows"].clone();
    let rows = rows.as_array().unwrap();
    let of = |figure: &str| rows.iter().filter(|row| row["figure"] == figure).count();
    // Two targets.
    assert_eq!((of("ops"), of("p95"), of("p90")), (2, 2, 0));
}

#[tokio::test]
async fn a_comparison_is_served_as_json_as_pictures_and_as_a_file() {
    let stage = stage().await;
    change(
        &stage,
        &format!(
            "UPDATE runs SET name = '{HOSTILE}' WHERE id = 2; UPDATE steps SET target = '{HOSTILE}' WHERE target = 'sr33'"
        ),
    );
    let page = Page::of(&stage);
    let runs = asked(&stage, RUNS).await.unwrap();
    let answer = page.get("/api/v1/compare?a=1&b=2").await;
    // As `compare --format json` prints it: the answer with its card.
    let mut document = answer.json();
    let card = document.as_object_mut().unwrap().remove("card").unwrap();
    assert_eq!(
        card["title"],
        format!("{HOSTILE} (run 2) against nightly (run 1)")
    );
    assert_eq!((answer.status, document), (200, runs));
    let drawn = page.get("/api/v1/compare/pictures?a=1&b=2").await.json();
    let overlays = &drawn["overlays"];
    assert_eq!(overlays["loads"].as_array().unwrap().len(), 18);
    let lines = overlays["loads"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 2);
    for (line, run) in lines.iter().zip([1, 2]) {
        let seen: Vec<f64> = serde_json::from_value(line["series"]["ops_per_s"].clone()).unwrap();
        let stored = stage
            .rows(&format!(
                "SELECT i.ops * 1e6 / i.span_us FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id
                 WHERE s.run_id = {run} AND s.ordinal = 1 ORDER BY i.at_us"
            ))
            .await;
        assert_eq!(seen.len(), stored.len());
        for (seen, stored) in seen.iter().zip(&stored) {
            let stored: f64 = stored.parse().unwrap();
            assert!((seen - stored).abs() <= stored * 0.001, "{seen} {stored}");
        }
    }
    assert_eq!(overlays["runs"][0]["lines"].as_array().unwrap().len(), 2);
    let file = page.get("/api/v1/compare.html?targets=2").await;
    assert_eq!(file.status, 200);
    let over_the_wire = v1::CompareRequest {
        request_json: TARGETS.as_bytes().to_vec(),
    };
    let mut pieces = stage
        .control()
        .await
        .compare_file(over_the_wire)
        .await
        .unwrap()
        .into_inner();
    let mut html = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        html.extend(piece.html);
    }
    for text in [file.body, String::from_utf8(html).unwrap()] {
        // Names are data: they contain no tag, and cannot end the block around them.
        assert!(!text.contains("<img"), "a name became markup");
        assert_eq!(text.matches("</script>").count(), 2);
        assert!(text.contains("default-src 'none'"));
        assert!(!text.contains("unsafe-inline"));
    }
    for (query, status, word) in [
        ("", 400, "name one comparison"),
        ("?a=1", 400, "name one comparison"),
        ("?a=1&b=2&targets=1", 400, "name one comparison"),
        ("?plan=nightly&last=0", 400, "name one comparison"),
        ("?a=1&b=1", 400, "both sides are run 1"),
        ("?targets=soak", 400, "one target"),
        ("?by=nothing&run=2", 400, "no key"),
        ("?by=bs&by=mode&run=2", 400, "name one comparison"),
        ("?a=1&b=2&where=mode=write", 400, "name one comparison"),
        ("?by=bs&run=2&where=write", 400, "write KEY=VALUE"),
        ("?by=bs&run=2&where=mode=none", 400, "mode=none"),
        ("?a=1&b=2&figure=p95,p98", 400, "p95, p99, p99.9, spread"),
        ("?a=1&b=77", 404, "no run"),
        ("?baseline=good", 404, "no baseline"),
    ] {
        for path in ["compare", "compare/pictures", "compare.html"] {
            let answer = page.get(&format!("/api/v1/{path}{query}")).await;
            assert_eq!(answer.status, status, "{path}{query}: {}", answer.body);
            let error = answer.json()["error"].as_str().unwrap().to_owned();
            assert!(error.contains(word), "{path}{query}: {error}");
        }
    }
}
