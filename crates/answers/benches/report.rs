//! The cost of a report, its HTML file, a comparison, each documented question and each view, for one run in a large
//! database and for one in a database without other runs.
//!
//! `cargo bench -p benchmesh-answers --bench report` generates a week of 12 hosts with 10 daemons each (9 GB, some
//! minutes) or uses the one named by `BENCHMESH_WEEK_DB`. It prints the median in milliseconds with the fastest and
//! the slowest round, and `over` if the time exceeds its limit. It also measures the day's soak, a run of 86400
//! seconds, to which the limits do not apply.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

use benchmesh_answers::compare::{Request, Subject, compare_file};
use benchmesh_answers::pictures;
use benchmesh_answers::query::questions;
use benchmesh_answers::report::{self, Detail};
use benchmesh_synthetic::{Shape, generate};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

/// Time limits.
const REPORT: Duration = Duration::from_secs(1);
const HTML: Duration = Duration::from_secs(5);
const HTML_BYTES: usize = 8 << 20;
const COMPARE: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_millis(300);

const VIEWS: [&str; 9] = [
    "v_results",
    "v_timeline",
    "v_daemon_usage",
    "v_cost",
    "v_host_usage",
    "v_host_timeline",
    "v_links",
    "v_marks",
    "v_runs",
];

/// A database and a run in it.
struct Place {
    path: PathBuf,
    run: u32,
}

fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let week = Shape::week();
    let large = match std::env::var_os("BENCHMESH_WEEK_DB") {
        Some(path) => PathBuf::from(path),
        None => {
            let path = directory.path().join("week.db");
            generate(&path, &week).unwrap();
            path
        }
    };
    let small = directory.path().join("two.db");
    let two = Shape {
        runs: 2,
        soak_seconds: 0,
        ..week
    };
    generate(&small, &two).unwrap();
    let mib = |path: &Path| std::fs::metadata(path).unwrap().len() >> 20;
    println!("week: {} MiB; two runs: {} MiB", mib(&large), mib(&small));
    println!(
        "{:24}{:>22}{:>22}{:>22}",
        "ms, median (least, most)", "of two runs", "of 961 runs", "soak of a day"
    );
    let places = [
        Place {
            path: small,
            run: 2,
        },
        Place {
            path: large.clone(),
            run: 480,
        },
        Place {
            path: large,
            run: week.soak_run(),
        },
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    row("report", REPORT, &places, |place| {
        let run = place.run.to_string();
        let report = runtime
            .block_on(report::load_file(&place.path, &run))
            .unwrap();
        let tables = report::tables_within(&report, Detail::Summary, Some(100));
        assert!(tables.len() > 4);
    });
    let mut largest = 0;
    row("report --format html", HTML, &places, |place| {
        let run = place.run.to_string();
        let report = runtime
            .block_on(report::load_file(&place.path, &run))
            .unwrap();
        let drawn = runtime
            .block_on(pictures::load(&place.path, Arc::new(report.clone())))
            .unwrap();
        largest = largest.max(pictures::html(&report, &drawn).len());
    });
    let over = if largest > HTML_BYTES { " over" } else { "" };
    println!("largest HTML file: {} KiB{over}", largest >> 10);
    row("compare", COMPARE, &places[..2], |place| {
        let request = Request::from(Subject::Runs {
            a: (place.run - 1).to_string(),
            b: place.run.to_string(),
        });
        let answer = runtime
            .block_on(compare_file(&place.path, &request))
            .unwrap();
        assert!(!answer.comparisons.is_empty());
    });
    // `report` begins with these if a plan has several targets.
    row("sentences of a report", REPORT, &places[..2], |place| {
        let request = Request::from(Subject::Targets {
            run: place.run.to_string(),
        });
        let answer = runtime
            .block_on(compare_file(&place.path, &request))
            .unwrap();
        assert!(!answer.comparisons[0].rows.is_empty());
    });
    for question in questions::all() {
        row(question.name, ANSWER, &places, |place| {
            read_all(&place.path, &question.about(place.run.into()));
        });
    }
    for view in VIEWS {
        row(view, ANSWER, &places, |place| {
            let sql = format!("SELECT * FROM {view} WHERE run_id = {}", place.run);
            read_all(&place.path, &sql);
        });
    }
}

/// Prints one line with the times at each place.
fn row(name: &str, bar: Duration, places: &[Place], mut run: impl FnMut(&Place)) {
    let mut line = format!("{name:24}");
    for place in places {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                run(place);
                began.elapsed()
            })
            .collect();
        times.sort();
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        let over = if times[ROUNDS / 2] > bar { " over" } else { "" };
        let spread = format!("({:.0}, {:.0}){over}", ms(0), ms(ROUNDS - 1));
        line += &format!("{:>8.1} {spread:<13}", ms(ROUNDS / 2));
    }
    println!("{line}");
}

fn read_all(path: &Path, sql: &str) {
    let file = rusqlite::Connection::open(path).unwrap();
    let mut statement = file.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().unwrap() {
        for column in 0..columns {
            row.get_ref(column).unwrap();
        }
    }
}
