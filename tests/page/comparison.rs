//! The page of comparisons and its file in a real browser, on a generated history: compares the card and verdicts with
//! the JSON, and ratios with the database.

use super::{START, assert_no_complaints, assert_presentable, axe, cells, picture};
use crate::support::browser::Browser;
use crate::support::mesh::Mesh;
use crate::support::wait::until;
use benchmesh_synthetic::{Shape, generate};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// Two runs of two targets and a saved baseline. A target, the baseline and two marks have names that try to be markup.
fn history(path: &Path) {
    let shape = Shape {
        hosts: 2,
        daemons_per_host: 3,
        step_seconds: 40,
        ..Shape::small()
    };
    generate(path, &shape).unwrap();
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(
        "UPDATE steps SET target = '<img src=x onerror=alert(1)>' WHERE target = 'sr33';
         INSERT INTO marks (run_id, at_us, text) SELECT run_id, start_us + 30000000, '<img src=y onerror=alert(2)>'
             FROM steps WHERE ordinal IN (1, 4);
         INSERT INTO baselines VALUES ('<img src=z onerror=alert(3)>', 1, 1750000000000000)",
    )
    .unwrap();
}

/// Selects values in the form, field by field, and submits it.
fn choose(browser: &mut Browser, kind: &str, fields: &[&str]) {
    browser.go("#/compare");
    browser.until(
        "runs and baselines can be chosen",
        "(() => { const select = document.querySelector('[aria-label=\"What to compare\"]');
           if (!select) return false;
           select.value = 'a run against a baseline'; select.dispatchEvent(new Event('change'));
           const [baseline, run] = document.querySelectorAll('span.compare-form select');
           return baseline.options.length === 1 && run.options.length >= 3; })()",
    );
    let fields = Value::from(fields.to_vec());
    browser.evaluate(&format!(
        "{{ const select = document.querySelector('[aria-label=\"What to compare\"]');
            select.value = {kind:?}; select.dispatchEvent(new Event('change'));
            document.querySelectorAll('span.compare-form select, span.compare-form input')
                .forEach((one, at) => {{ one.value = {fields}[at]; }});
            document.querySelector('form.compare-form').requestSubmit(); }}"
    ));
}

/// Expected content of the page.
struct Expected<'a> {
    /// The query of the comparison.
    asked: &'a str,
    title: &'a str,
    loads: usize,
    /// Conditions on `v_results` that select both sides of the first load.
    sides: [&'a str; 2],
}

const RUNS: Expected<'_> = Expected {
    asked: "a=1&b=2",
    title: "run 2 against run 1",
    loads: 18,
    sides: [
        "run_id = 1 AND target = 'cephfs'",
        "run_id = 2 AND target = 'cephfs'",
    ],
};
const TARGETS: Expected<'_> = Expected {
    asked: "targets=2",
    title: "<img src=x onerror=alert(1)> against cephfs",
    loads: 9,
    sides: [
        "run_id = 2 AND target = 'cephfs'",
        "run_id = 2 AND target <> 'cephfs'",
    ],
};

/// Takes about 25 s: a collector on a generated history, and a browser.
#[test]
fn a_comparison_is_shown_on_the_page_and_in_a_file() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let axe = axe();
    let directory = TempDir::new().unwrap();
    history(&directory.path().join("benchmesh.db"));
    let address = directory.path().join("url");
    let mesh = Mesh::on_database_in(
        directory.path(),
        &[
            "--http",
            "127.0.0.1:0",
            "--http-url-file",
            address.to_str().unwrap(),
        ],
    );
    let url = until("the collector writes the page's address", START, || {
        std::fs::read_to_string(&address).ok()
    });
    browser.size(1440, 900);
    browser.open_page(url.trim());
    // Without a question: the targets of the newest run.
    browser.go("#/compare");
    browser.until(
        "the newest run's targets are compared",
        &format!(
            "document.querySelector('.report h1')?.textContent === {:?}",
            TARGETS.title
        ),
    );
    choose(&mut browser, "two runs", &["1", "2"]);
    let axe = axe.as_deref();
    let runs = answer(&mut browser, RUNS.asked);
    compared(&mut browser, &mesh, axe, &RUNS, &runs, "page-runs");
    choose(&mut browser, "targets of a run", &["2"]);
    let targets = answer(&mut browser, TARGETS.asked);
    compared(&mut browser, &mesh, axe, &TARGETS, &targets, "page-targets");
    the_values_of_a_key_can_be_chosen(&mut browser);
    plans_and_baselines_can_be_chosen(&mut browser);
    no_line_joins_the_steps_of_whole_runs(&mut browser, &mesh);
    assert_no_complaints(&mut browser);
    browser.go("#/compare/a%3D1%26b%3D77");
    browser.until(
        "a run that is not there is told",
        "/no run/.test(document.querySelector('[role=alert]')?.textContent)",
    );
    // The browser itself logs the failed status.
    let complaints = browser.complaints();
    assert!(
        complaints.iter().all(|one| one.contains("404")),
        "{complaints:#?}"
    );
    // The marks are on the time axis of the run, as text.
    browser.go("#/runs/2");
    browser.until(
        "the mark is drawn",
        "[...document.querySelectorAll('#loads .mark-name')].some((one) => one.textContent.includes('onerror=alert(2)'))",
    );
    picture(&mut browser, "page-marks");
    let out = mesh.directory().join("comparison.html");
    let out = out.to_str().unwrap();
    let db = mesh.db_path().to_str().unwrap();
    for source in [&[][..], &["--db", db][..]] {
        let arguments = [
            "compare", "--by", "target", "2", "--format", "html", "--out", out,
        ];
        let output = mesh.command(&[&arguments[..], source].concat());
        assert!(output.code == 0, "{}", output.err);
        browser.open_page(&format!("file://{out}"));
        compared(
            &mut browser,
            &mesh,
            axe,
            &TARGETS,
            &targets,
            "file-comparison",
        );
        let loaded = browser.evaluate("performance.getEntriesByType('resource').length");
        assert_eq!(loaded, 0, "it loads nothing");
    }
    assert_no_complaints(&mut browser);
}

/// The document of `benchmesh compare --format json`.
fn answer(browser: &mut Browser, asked: &str) -> Value {
    browser.evaluate(&format!(
        "fetch('/api/v1/compare?{asked}').then((answer) => answer.json())"
    ))
}

/// A selection of cells, and figures besides the usual ones; known keys and figures are offered.
fn the_values_of_a_key_can_be_chosen(browser: &mut Browser) {
    let kind = "values of a key in a run";
    choose(browser, kind, &["2", "bs", "mode=randread", "p95, spread"]);
    browser.until(
        "the sizes of random reads are compared",
        "document.querySelector('.report h1')?.textContent.startsWith('bs=16k against bs=4k')",
    );
    for title in ["p95", "variation between seconds"] {
        let shown = format!(
            "[...document.querySelectorAll('#ratios-0 .choice button')].some((one) => one.textContent === {title:?})"
        );
        assert_eq!(browser.evaluate(&shown), true, "{title}");
    }
    browser.until(
        "the form shows what is compared, and what else there is",
        "[...document.querySelectorAll('span.compare-form select, span.compare-form input')].map((one) => one.value).join()
             === '2,bs,mode=randread,p95, spread'
         && ['#compare-keys [value=iodepth], #compare-keys [value=size]', '#compare-where [value=\"bs=4k\"]', '#compare-figures [value=p95]']
             .every((one) => document.querySelector(one))",
    );
}

/// The address with the parameters of the JSON; each step of a whole run is a line of its own.
fn no_line_joins_the_steps_of_whole_runs(browser: &mut Browser, mesh: &Mesh) {
    browser.go("#/compare?a=1&b=2");
    browser.until(
        "whole runs are drawn",
        "document.querySelectorAll('#whole-latency-0 .plot path.line').length === 2",
    );
    let parts = browser.evaluate(
        "[...document.querySelectorAll('#whole-latency-0 .plot path.line')].map((line) => line.getAttribute('d').split('M').length - 1)",
    );
    let steps = |run| {
        let sql = format!("SELECT count(DISTINCT step_id) FROM v_timeline WHERE run_id = {run}");
        mesh.db().one::<i64>(&sql)
    };
    assert_eq!(parts, Value::from(vec![steps(1), steps(2)]));
}

/// The choices that the address does not offer: the number of earlier runs, and baselines by name.
fn plans_and_baselines_can_be_chosen(browser: &mut Browser) {
    choose(
        browser,
        "newest of a plan against those before",
        &["nightly", "1"],
    );
    browser.until(
        "the newest run is held against the one before",
        "location.hash.endsWith('last%3D1') && document.querySelector('.report h1')?.textContent.startsWith('run 2 against')",
    );
    choose(
        browser,
        "a run against a baseline",
        &["<img src=z onerror=alert(3)>", "2"],
    );
    browser.until(
        "the run is held against the baseline",
        "document.querySelector('.report h1')?.textContent === 'run 2 against baseline <img src=z onerror=alert(3)>'",
    );
    assert_eq!(
        browser.evaluate("[...document.querySelectorAll('span.compare-form select')].map((one) => one.value).join()"),
        "<img src=z onerror=alert(3)>,2",
        "the form shows what is compared"
    );
    assert_eq!(
        browser.evaluate("document.querySelectorAll('img').length"),
        0
    );
}

/// Card and verdicts equal those of the JSON, a ratio equals the database's, and both curves are drawn; at the
/// widths of a desktop and a phone.
fn compared(
    browser: &mut Browser,
    mesh: &Mesh,
    axe: Option<&str>,
    expected: &Expected<'_>,
    answer: &Value,
    name: &str,
) {
    let title = expected.title;
    browser.until(
        &format!("{title} is drawn"),
        &format!("document.querySelector('.report h1')?.textContent === {title:?} && document.querySelectorAll('#load-rate path.line').length >= 2"),
    );
    let shown = browser.evaluate(
        "[...document.querySelectorAll('.card .answers tbody tr')].map((row) => [row.cells[0].textContent, row.cells[1].textContent])",
    );
    let loads = answer["card"]["loads"].as_array().unwrap();
    let expected_loads: Vec<Value> = loads
        .iter()
        .map(|load| serde_json::json!([load["load"], load["text"]]))
        .collect();
    assert_eq!(shown, Value::from(expected_loads), "{name}");
    let comparison = &answer["comparisons"][0];
    // It opens with what is judged.
    let judged = comparison["rows"].as_array().unwrap().iter();
    let judged = judged.filter(|row| row["judged"] == true).count();
    assert_eq!(cells(browser, "Ratios of what is judged").len(), judged);
    browser.evaluate("[...document.querySelectorAll('.choice button')].find((one) => one.textContent === 'rate').click()");
    let rows = cells(browser, "Ratios of rate");
    assert_eq!(rows.len(), expected.loads, "{rows:?}");
    let verdicts: Vec<String> = comparison["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["figure"] == "ops")
        .map(|row| row["verdict"].as_str().unwrap().replace('-', " "))
        .collect();
    let seen: Vec<&String> = rows.iter().map(|row| &row[4]).collect();
    assert_eq!(seen, verdicts.iter().collect::<Vec<_>>());
    // The geometric mean of the repeats of the first load.
    let [of_a, of_b] = expected.sides.map(|of| -> f64 {
        let rates: Vec<f64> = mesh.db().column(&format!(
            "SELECT ops_per_s FROM v_results WHERE {of} AND mode = 'write' AND params ->> 'bs' = '4k'"
        ));
        let (sum, count) = rates
            .iter()
            .fold((0.0, 0.0), |(sum, count), rate| (sum + rate.ln(), count + 1.0));
        f64::exp(sum / count)
    });
    let change = (of_b / of_a - 1.0) * 100.0;
    let seen: f64 = rows[0][1].trim_end_matches(" %").parse().unwrap();
    assert!((seen - change).abs() < 0.6, "{change}: {rows:?}");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('img').length"),
        0
    );
    browser.evaluate("{ const select = document.querySelector('[aria-label=Load]'); select.value = '1'; select.dispatchEvent(new Event('change')); }");
    browser.until(
        "another load is drawn",
        "document.querySelectorAll('#load-rate path.line').length >= 2",
    );
    for (width, dark) in [(1440, false), (400, true)] {
        browser.dark(dark);
        assert_presentable(browser, axe, name, width);
    }
    browser.size(1440, 900);
    browser.dark(false);
}
