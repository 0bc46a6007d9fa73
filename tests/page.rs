//! The live page and the report file in a real browser: compares their figures with the database, at the widths of a
//! desktop and a phone, and requires that axe finds no serious problem.

mod comparison;
mod metrics;

use crate::support::browser::Browser;
use crate::support::mesh::Mesh;
use crate::support::wait::{until, until_true};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

const START: Duration = Duration::from_secs(60);
const RUN: Duration = Duration::from_secs(120);

/// A phase with a matrix, one that runs for some seconds, and links.
fn plan(path: &Path) -> String {
    format!(
        "name = \"<img src=x onerror=alert(1)>\"\n[targets.disk]\nsystem = \"ext4\"\npath = \"{}\"\n\
         [[phase]]\nname = \"records\"\nworkload = \"io\"\nmodes = [\"write\", \"read\"]\nruntime = \"300ms\"\nmatrix = {{ size = [\"1m\", \"2m\"], bs = [\"4k\", \"64k\"] }}\n\
         [[phase]]\nname = \"paced\"\nworkload = \"null\"\nrate_iops = 1000\nruntime = \"10s\"\n",
        path.display()
    )
}

struct Shown {
    mesh: Mesh,
    url: String,
    _directory: TempDir,
    target: TempDir,
}

fn shown() -> Shown {
    shown_by(&[])
}

/// `arguments` are passed to the collector in addition to those that the page needs.
fn shown_by(arguments: &[&str]) -> Shown {
    let directory = TempDir::new().unwrap();
    let target = TempDir::new().unwrap();
    let file = directory.path().join("url");
    let url_file = file.to_str().unwrap();
    let page = ["--http", "127.0.0.1:0", "--http-url-file", url_file];
    let mut mesh = Mesh::with_collector_arguments(&[&page[..], arguments].concat());
    let url = until("the collector writes the page's address", START, || {
        std::fs::read_to_string(&file).ok()
    });
    for name in ["one", "two"] {
        mesh.add(crate::support::mesh::Agent::named(name).allow(target.path()));
    }
    Shown {
        mesh,
        url: url.trim().to_owned(),
        _directory: directory,
        target,
    }
}

/// The file of axe-core from the registry; `None`, with a reported skip, if it is not available.
fn axe() -> Option<String> {
    // Only one test fetches it at a time.
    static FETCHING: Mutex<()> = Mutex::new(());
    let _fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("axe-core");
    let script = directory.join("package/axe.min.js");
    if !script.is_file() {
        std::fs::create_dir_all(&directory).unwrap();
        let packed = Command::new("npm")
            .args(["pack", "axe-core@4", "--silent"])
            .current_dir(&directory)
            .output();
        let name = match packed {
            Ok(packed) if packed.status.success() => {
                String::from_utf8_lossy(&packed.stdout).trim().to_owned()
            }
            _ => {
                benchmesh_testing::skip("axe-core", "npm brings it from the registry");
                return None;
            }
        };
        let unpacked = Command::new("tar")
            .args(["-xzf", &name])
            .current_dir(&directory)
            .status()
            .unwrap();
        assert!(unpacked.success());
    }
    Some(std::fs::read_to_string(script).unwrap())
}

/// Fails on problems that axe rates as serious or critical.
fn assert_accessible(browser: &mut Browser, axe: Option<&str>, what: &str) {
    let Some(axe) = axe else { return };
    browser.evaluate(&format!("{axe}; true"));
    let found = browser.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((result) => JSON.stringify(result.violations
            .filter((one) => ['serious', 'critical'].includes(one.impact))
            .map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary)])))",
    );
    assert_eq!(found, "[]", "{what}");
}

/// Fails on console errors and uncaught exceptions.
fn assert_no_complaints(browser: &mut Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Saves a screenshot under the target directory.
fn picture(browser: &mut Browser, name: &str) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&directory).unwrap();
    browser.picture(&directory.join(format!("{name}.png")));
}

/// At this width nothing overflows, and axe finds nothing serious; saves a screenshot.
fn assert_presentable(browser: &mut Browser, axe: Option<&str>, name: &str, width: u32) {
    browser.size(width, 900);
    // Charts are redrawn a moment later.
    browser.until(
        &format!("{name} fits into {width}"),
        &format!("document.documentElement.scrollWidth <= {width}"),
    );
    picture(browser, &format!("{name}-{width}"));
    assert_accessible(browser, axe, &format!("{name} at {width}"));
}

/// The cells of the table in a region, row by row.
fn cells(browser: &mut Browser, label: &str) -> Vec<Vec<String>> {
    let rows = browser.evaluate(&format!(
        "[...document.querySelectorAll('[role=group][aria-label={label:?}] tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    ));
    serde_json::from_value(rows).unwrap()
}

/// A figure as the page formats it: three digits, or whole units.
fn figure(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(2 - value.abs().log10().floor() as i32);
    if value.abs() >= 99.95 {
        value.round()
    } else {
        (value * scale).round() / scale
    }
}

fn number(text: &str) -> f64 {
    text.replace(',', "")
        .parse()
        .unwrap_or_else(|_| panic!("{text:?} is no figure"))
}

/// Takes about 45 s: a mesh, a run of nine steps, a browser.
#[test]
fn the_page_shows_what_the_database_holds() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let axe = axe();
    let shown = shown();
    browser.size(1440, 900);
    browser.open_page(&shown.url);
    browser.until(
        "the page is connected",
        "document.getElementById('status').textContent.includes('2 of 2 agents')",
    );
    // The token is not in the history, and no script reads it.
    assert_eq!(browser.evaluate("location.search + document.cookie"), "");
    let mut run = shown.mesh.begin(&plan(shown.target.path()));
    browser.until(
        "the running step is shown",
        "/paced: run.*running, 2 agents/.test(document.querySelector('.step-line')?.textContent)",
    );
    assert!(
        browser
            .names_of("progressbar")
            .contains(&"Progress of the run".to_owned())
    );
    browser.until(
        "the rate of 2 agents of 1000 each is shown",
        "(() => { const rate = Number(document.querySelector('.figures dd').textContent.replace(',', '')); return rate > 1500 && rate < 2500; })()",
    );
    browser.until(
        "both clients are listed",
        "document.querySelectorAll('[aria-label=Clients] tbody tr').length === 2",
    );
    browser.until(
        "latency is drawn",
        "document.querySelectorAll('.plot path.line').length >= 2",
    );
    picture(&mut browser, "live");
    assert_accessible(&mut browser, axe.as_deref(), "live, running");
    assert!(run.exit_within(RUN).unwrap().success(), "{}", run.log());
    browser.until(
        "the end is shown",
        "document.querySelector('.run-head .chip')?.textContent === 'done'",
    );
    browser.until(
        "the card of the run is shown",
        "document.querySelector('#main .card .answers tbody tr')",
    );
    assert!(
        browser.names_of("region").contains(&"Answer".to_owned()),
        "a finished run is told by its card"
    );
    finished_steps_agree(&mut browser, &shown);
    for (hash, heading) in [
        ("#/", "Finished steps"),
        ("#/runs", "Runs"),
        ("#/mesh", "Agents"),
        ("#/events", "Events"),
        ("#/query", "SQL"),
        ("#/compare", "Compare runs and targets"),
        ("#/runs/1", "Load by load"),
    ] {
        browser.go(hash);
        browser.until(
            &format!("{hash} is drawn"),
            &format!("[...document.querySelectorAll('h2')].some((one) => one.textContent === {heading:?})"),
        );
        assert!(
            browser.names_of("heading").contains(&heading.to_owned()),
            "{hash}"
        );
        let name = hash.replace(['#', '/'], "_");
        for (width, dark) in [(1440, false), (400, true)] {
            browser.dark(dark);
            assert_presentable(&mut browser, axe.as_deref(), &format!("page{name}"), width);
        }
        browser.size(1440, 900);
        browser.dark(false);
    }
    a_policy_is_shown(&mut browser);
    browser.go("#/runs/1");
    browser.until(
        "the report is drawn again",
        "document.querySelectorAll('#load-0 .plot path.line').length > 0",
    );
    the_report_agrees(&mut browser, &shown);
    the_list_agrees(&mut browser);
    a_query_agrees(&mut browser, &shown);
    // A name is shown as text everywhere.
    assert_eq!(
        browser.evaluate("document.querySelectorAll('img').length"),
        0
    );
    assert_no_complaints(&mut browser);
    the_file_agrees(&mut browser, &shown, axe.as_deref());
}

/// A page that is opened in the middle of a step: its line starts with the run and has no gap, because rows stored
/// after the opening are read too.
#[test]
fn a_page_that_is_opened_late_shows_no_hole() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let shown = shown();
    browser.size(1440, 900);
    let plan = "[[phase]]\nworkload = \"null\"\nrate_iops = 1000\nruntime = \"50s\"\n";
    let mut run = shown.mesh.begin(plan);
    until_true("some seconds are stored", RUN, || {
        let sql = "SELECT count(DISTINCT at_us) FROM step_intervals";
        shown.mesh.db().one::<i64>(sql) >= 8
    });
    browser.open_page(&shown.url);
    let lines =
        "[...document.querySelectorAll('[aria-label^=\"Throughput of the run\"] path.line')]";
    browser.until(
        "what was stored before is drawn, and then the hole is filled",
        &format!(
            "(() => {{ const parts = {lines}.flatMap((line) => line.getAttribute('d').split('M').slice(1));
               return parts.length === 1 && parts[0].split('L').length > 24; }})()"
        ),
    );
    picture(&mut browser, "opened-late");
    assert!(
        shown
            .mesh
            .db()
            .one::<i64>("SELECT state = 'running' FROM runs")
            == 1
    );
    assert_no_complaints(&mut browser);
    run.kill();
}

/// The seconds that the page draws while a run runs are those of the database, from the first of each step.
#[test]
fn live_seconds_are_those_of_the_database() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let shown = shown();
    let plan = "[[phase]]\nname = \"a\"\nworkload = \"null\"\nruntime = \"7s\"\n\
                [[phase]]\nname = \"b\"\nworkload = \"null\"\nrate_iops = 500\nruntime = \"7s\"\n";
    browser.size(1440, 900);
    browser.open_page(&shown.url);
    browser.until(
        "the page is connected",
        "document.getElementById('status').textContent.includes('2 of 2 agents')",
    );
    browser.evaluate(
        "{ window.seen = {};
           new EventSource('/api/v1/stream').addEventListener('run', (event) => {
             const { step } = JSON.parse(event.data) || {};
             for (const second of step ? step.seconds : []) window.seen[second.at_us] = second.ops_per_s;
           }); }",
    );
    let mut run = shown.mesh.begin(plan);
    browser.until(
        "the second step is shown",
        "/b: run.*running/.test(document.querySelector('.step-line')?.textContent) && document.querySelector('.plot path.line')",
    );
    assert!(run.exit_within(RUN).unwrap().success(), "{}", run.log());
    let seen = browser.evaluate("window.seen");
    let stored: Vec<String> = shown.mesh.db().column(
        "SELECT json_array(CAST(at_us AS TEXT), ops * 1e6 / span_us) FROM step_intervals
         WHERE span_us >= 950000 ORDER BY at_us",
    );
    assert_eq!(stored.len(), 14, "{stored:?}");
    for (place, second) in stored.iter().enumerate() {
        let (at_us, rate): (String, f64) = serde_json::from_str(second).unwrap();
        match seen[at_us.as_str()].as_f64() {
            Some(shown) => assert!((shown - rate).abs() <= rate * 1e-9, "{second}: {shown}"),
            // A second is shown two to three seconds after its end. Those that the end of the step overtakes are read
            // from the database: all are drawn below.
            None => assert!(place % 7 >= 4, "{second} is not among {seen}"),
        }
    }
    browser.until(
        "both steps are drawn with all their seconds, and no line joins them",
        "(() => { const parts = [...document.querySelectorAll('[aria-label^=\"Throughput of the run\"] path.line')]
             .flatMap((line) => line.getAttribute('d').split('M').slice(1));
           return parts.length === 2 && parts.every((part) => part.split('L').length === 7); })()",
    );
    picture(&mut browser, "live-seconds");
    assert_no_complaints(&mut browser);
}

/// Every page of a mesh without TLS shows a warning.
#[test]
fn the_page_warns_of_a_mesh_without_tls() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let axe = axe();
    let shown = shown_by(&["--insecure"]);
    browser.size(1440, 900);
    browser.open_page(&shown.url);
    for hash in ["#/", "#/runs", "#/mesh", "#/query"] {
        browser.go(hash);
        browser.until(
            &format!("{hash} warns"),
            "(() => { const banner = document.querySelector('#warning [role=alert]');
               return banner && banner.textContent.includes('without TLS') && banner.getBoundingClientRect().height > 10; })()",
        );
        let name = hash.replace(['#', '/'], "_");
        for width in [1440, 400] {
            assert_presentable(
                &mut browser,
                axe.as_deref(),
                &format!("insecure{name}"),
                width,
            );
        }
    }
    assert_no_complaints(&mut browser);
}

/// The policy of an agent on the mesh page.
fn a_policy_is_shown(browser: &mut Browser) {
    browser.go("#/mesh");
    browser.until(
        "the agents are listed",
        "document.querySelectorAll('[aria-label=Agents] tbody tr').length === 2",
    );
    for row in cells(browser, "Agents") {
        assert!(
            row.iter()
                .any(|cell| cell.contains("threads=") && cell.contains("free-inodes=1%")),
            "{row:?}"
        );
    }
}

fn finished_steps_agree(browser: &mut Browser, shown: &Shown) {
    browser.until(
        "all steps are listed",
        "document.querySelectorAll('[aria-label=\"Finished steps\"] tbody tr').length === 9",
    );
    let rows = cells(browser, "Finished steps");
    for row in &rows {
        let sql = format!(
            "SELECT {{}} FROM v_results WHERE run_id = 1 AND ordinal = {}",
            row[0]
        );
        let of = |column: &str| {
            shown
                .mesh
                .db()
                .one::<Option<f64>>(&sql.replace("{}", column))
        };
        match of("ops_per_s") {
            Some(rate) => assert_eq!(number(&row[3]), figure(rate), "{row:?}"),
            // Its tasks did not overlap: they take less than a millisecond, and without root their starts differ by
            // more.
            None => assert_eq!(row[3], "-", "{row:?}"),
        }
        for (column, cell) in [("p50_ms", 5), ("p99_ms", 6), ("max_ms", 7)] {
            let (seen, stored) = (number(&row[cell]), of(column).unwrap());
            assert!((seen - stored).abs() <= stored * 0.006, "{column}: {row:?}");
        }
    }
}

/// The matrix of the writes, cell by cell.
fn the_report_agrees(browser: &mut Browser, shown: &Shown) {
    let rows = cells(browser, "records: write (io, on disk, 2 clients), MiB/s");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in &rows {
        for (cell, bs) in [(1, "4k"), (2, "64k")] {
            let sql = format!(
                "SELECT mib_per_s FROM v_results WHERE run_id = 1 AND mode = 'write' AND params ->> 'size' = '{}' AND params ->> 'bs' = '{bs}'",
                row[0]
            );
            let stored: f64 = shown.mesh.db().one(&sql);
            let seen = number(&row[cell]);
            assert!(
                (seen - stored).abs() <= stored * 0.006 + 0.5,
                "{sql}: {seen}"
            );
        }
    }
    // Each point of the charts equals the database's value for its second.
    let pictures = browser.evaluate(
        "fetch('/api/v1/runs/1/pictures').then((answer) => answer.json()).then((answer) => answer.pictures)",
    );
    assert_eq!(pictures["bucket_s"], 1.0);
    let steps = pictures["steps"].as_array().unwrap();
    let step = steps
        .iter()
        .find(|one| one["load"].as_str().unwrap().starts_with("paced: run"));
    let series = &step.unwrap()["series"][0];
    assert_eq!(series["name"], "null");
    // Operations that move no bytes have no bytes per second, which is not 0.
    let bytes = series["mib_per_s"].as_array().unwrap();
    assert!(bytes.iter().all(Value::is_null), "{bytes:?}");
    let drawn: Vec<f64> = serde_json::from_value(series["ops_per_s"].clone()).unwrap();
    let mut stored: Vec<f64> = shown.mesh.db().column(
        "SELECT sum(i.ops) * 1e6 / sum(i.span_us) FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id
         WHERE s.phase = 'paced' AND i.at_us >= s.start_us GROUP BY (i.at_us - s.start_us) / 1000000 ORDER BY min(i.at_us)",
    );
    // A worker that ended late leaves a fragment of a second without operations, which is not drawn.
    let _ = stored.pop_if(|last| *last < 0.5);
    assert!(
        drawn.len() >= 6 && drawn.len() == stored.len(),
        "{drawn:?} {stored:?}"
    );
    for (drawn, stored) in drawn.iter().zip(&stored) {
        assert!((drawn - stored).abs() <= stored * 0.001, "{drawn} {stored}");
    }
    // Hover, zoom and legend, with mouse and keyboard.
    browser.evaluate(
        "{ const plot = document.querySelector('#load-0-rate .plot'); const box = plot.getBoundingClientRect();
           plot.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width * 0.6, clientY: box.top + 50 })); }",
    );
    browser.until(
        "the chart tells values",
        "!document.querySelector('#load-0-rate .tip').hidden",
    );
    browser.evaluate("document.querySelector('#load-0-rate .plot').dispatchEvent(new KeyboardEvent('keydown', { key: '+' }))");
    browser.until("all charts are zoomed", "!document.querySelector('#load-0-rate .reset').hidden && !document.querySelector('#load-0-latency .reset').hidden");
    browser.evaluate("document.querySelector('#load-0-rate .plot').dispatchEvent(new KeyboardEvent('keydown', { key: '0' }))");
    let lines = "document.querySelectorAll('#load-0-rate path.line').length";
    let before = browser.evaluate(lines);
    browser.evaluate("document.querySelector('#load-0-rate .legend button').click()");
    assert_ne!(browser.evaluate(lines), before);
    assert_eq!(
        browser.evaluate(
            "document.querySelector('#load-0-rate .legend button').getAttribute('aria-pressed')"
        ),
        "false"
    );
}

/// A run in the list has its answer, its targets and its validity.
fn the_list_agrees(browser: &mut Browser) {
    browser.go("#/runs");
    browser.until(
        "the list has the run's answer",
        "document.querySelector('[aria-label=Runs] [data-label=answer]')?.textContent",
    );
    let card = browser.evaluate("fetch('/api/v1/runs/1/card').then((answer) => answer.json())");
    let rows = cells(browser, "Runs");
    let load = card["loads"][0]["load"].as_str().unwrap();
    assert!(rows[0][2].starts_with(&format!("{load}: ")), "{rows:?}");
    assert_eq!(rows[0][5], "disk");
    // On a phone a row is a card, in which each figure stands beside its name.
    browser.size(400, 900);
    let names = browser.evaluate(
        "[...document.querySelectorAll('[aria-label=Runs] tbody tr:first-child td')].filter((cell) => cell.offsetHeight > 0)
           .map((cell) => [cell.dataset.label, getComputedStyle(cell, '::before').content])",
    );
    let names: Vec<(String, String)> = serde_json::from_value(names).unwrap();
    assert!(names.len() >= 6, "{names:?}");
    for (label, shown) in &names {
        assert_eq!(shown, &format!("{label:?}"), "{names:?}");
    }
    browser.size(1440, 900);
}

fn a_query_agrees(browser: &mut Browser, shown: &Shown) {
    browser.go("#/query");
    browser.until("the box is there", "document.querySelector('textarea')");
    browser.evaluate(
        "{ const box = document.querySelector('textarea'); box.value = 'SELECT count(*), run FROM v_results GROUP BY run';
           document.querySelector('form').requestSubmit(); }",
    );
    browser.until(
        "the answer comes",
        "document.querySelectorAll('[aria-label=Answer] tbody tr').length === 1",
    );
    let count: i64 = shown.mesh.db().one("SELECT count(*) FROM v_results");
    assert_eq!(
        cells(browser, "Answer"),
        [[count.to_string(), "<img src=x onerror=alert(1)>".to_owned()]]
    );
    assert!(
        browser
            .names_of("button")
            .contains(&"Save as CSV".to_owned()),
        "an answer can be saved"
    );
    // A query without end is ended by its button, and by nothing else before its time limit.
    browser.evaluate(
        "{ document.querySelector('textarea').value = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n';
           document.querySelector('form').requestSubmit();
           [...document.querySelectorAll('button')].find((one) => one.textContent === 'Cancel').click(); }",
    );
    browser.until(
        "the query is cancelled",
        "document.querySelector('.answer [role=status]')?.textContent === 'Cancelled.'",
    );
    browser.until(
        "the schema is listed",
        "[...document.querySelectorAll('.schema summary')].some((one) => one.textContent.startsWith('v_results'))",
    );
    browser.evaluate(
        "{ document.querySelector('textarea').value = 'DELETE FROM runs'; document.querySelector('form').requestSubmit(); }",
    );
    browser.until(
        "the refusal is told",
        "/only reading/.test(document.querySelector('[role=alert]')?.textContent)",
    );
    // The browser itself logs the failed status.
    let complaints = browser.complaints();
    assert!(
        complaints.iter().all(|one| one.contains("400")),
        "{complaints:#?}"
    );
}

/// The file of `benchmesh report --format html`, from the collector and from the database, opened without either.
fn the_file_agrees(browser: &mut Browser, shown: &Shown, axe: Option<&str>) {
    let out = shown.mesh.directory().join("report.html");
    let out = out.to_str().unwrap();
    let db = shown.mesh.db_path().to_str().unwrap();
    for source in [&[][..], &["--db", db][..]] {
        let arguments = [
            &["report", "1", "--format", "html", "--out", out][..],
            source,
        ]
        .concat();
        let output = shown.mesh.command(&arguments);
        assert!(output.code == 0, "{}", output.err);
        browser.open_page(&format!("file://{out}"));
        browser.until(
            "the file draws itself",
            "document.querySelectorAll('.plot path.line').length > 0",
        );
        assert_eq!(
            browser.evaluate("document.querySelectorAll('img').length"),
            0
        );
        assert_eq!(
            browser.evaluate("performance.getEntriesByType('resource').length"),
            0,
            "it loads nothing"
        );
        let heading: Value = browser.evaluate("document.querySelector('h1').textContent");
        assert!(
            heading
                .as_str()
                .unwrap()
                .contains("<img src=x onerror=alert(1)>"),
            "{heading}"
        );
    }
    a_chart_zooms_by_mouse(browser);
    for width in [1440, 400] {
        assert_presentable(browser, axe, "file", width);
    }
    assert_no_complaints(browser);
}

/// The time axis of the load: positions of its ticks on the plot, and the seconds of their labels.
fn time_axis(browser: &mut Browser) -> Vec<(f64, f64)> {
    let ticks = browser.evaluate(
        "{ const ticks = [...document.querySelectorAll('#load-0-rate .plot text.tick')];
           ticks.filter((tick) => /^[0-9]+:[0-9]+$/.test(tick.textContent)).map((tick) => [Number(tick.getAttribute('x')),
             tick.textContent.split(':').reduce((seconds, part) => seconds * 60 + Number(part), 0)]); }",
    );
    serde_json::from_value(ticks).unwrap()
}

/// The second at a place, from the first and the last tick.
fn second_at(axis: &[(f64, f64)], x: f64) -> f64 {
    let (first, last) = (axis[0], axis[axis.len() - 1]);
    assert!(first.0 < last.0 && first.1 < last.1, "{axis:?}");
    first.1 + (x - first.0) * (last.1 - first.1) / (last.0 - first.0)
}

/// Dragging over a part of the time zooms all charts to it; a double click shows everything again.
fn a_chart_zooms_by_mouse(browser: &mut Browser) {
    let place = browser.evaluate(
        "{ document.querySelector('#load-0-rate .plot').scrollIntoView({ block: 'center', behavior: 'instant' });
           const box = document.querySelector('#load-0-rate .plot').getBoundingClientRect();
           const axis = document.querySelector('#load-0-rate .plot line.grid');
           [box.left, box.top + box.height / 2, Number(axis.getAttribute('x1')), Number(axis.getAttribute('x2'))]; }",
    );
    let [left, middle, from, until]: [f64; 4] = serde_json::from_value(place).unwrap();
    let whole = time_axis(browser);
    let latency =
        "document.querySelector('#load-0-latency .plot').innerHTML.replace(/clip-[0-9]+/g, '')";
    let latency_before = browser.evaluate(latency);
    let (begin, end) = (from + (until - from) * 0.25, from + (until - from) * 0.75);
    let dragged = [begin, end].map(|x| second_at(&whole, x));
    browser.mouse("mousePressed", (left + begin, middle), 1);
    browser.mouse("mouseMoved", (left + (begin + end) / 2.0, middle), 1);
    browser.mouse("mouseMoved", (left + end, middle), 1);
    browser.mouse("mouseReleased", (left + end, middle), 1);
    browser.until(
        "the charts are zoomed",
        "!document.querySelector('#load-0-rate .reset').hidden && !document.querySelector('#load-0-latency .reset').hidden",
    );
    let zoomed = time_axis(browser);
    let shown = [from, until].map(|x| second_at(&zoomed, x));
    // One pixel of tolerance at each side.
    let tolerance = 2.0 * (dragged[1] - dragged[0]) / (until - from);
    for (dragged, shown) in dragged.iter().zip(shown) {
        assert!(
            (dragged - shown).abs() <= tolerance,
            "{dragged} {shown}: {whole:?} {zoomed:?}"
        );
    }
    assert_ne!(browser.evaluate(latency), latency_before);
    let on_plot = (left + (begin + end) / 2.0, middle);
    for clicks in [1, 2] {
        browser.mouse("mousePressed", on_plot, clicks);
        browser.mouse("mouseReleased", on_plot, clicks);
    }
    browser.until(
        "the charts show everything",
        "document.querySelector('#load-0-rate .reset').hidden && document.querySelector('#load-0-latency .reset').hidden",
    );
    assert_eq!(time_axis(browser), whole);
}
