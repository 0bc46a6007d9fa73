//! Reads the results of runs, and the seconds behind them, from a database.
//!
//! For each step and operation it reads at most some thousand seconds: evenly spread stretches of a longer step, so
//! that a comparison of two weeks takes no longer than one of two hours. The figures themselves always cover whole
//! steps.

mod by;
mod cells;
mod clusters;
mod costs;
mod findings;
mod runs;
mod searches;
mod seconds;

pub use by::OWN_KEYS;

use super::cell::MeasuredCell;
use super::figure::FigureName;
use super::judge::{self, Loaded};
use super::model::{CompareAnswer, Comparison, Request, RunRef, Side, Subject};
use super::trend;
use crate::query::{QueryError, ReadOnly};
use crate::rows::{BoxError, borrow, rows_with};
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{NO_RUN_YET, RunId, no_such_run};
use benchmesh_results::Finding;
use benchmesh_workloads::figures::plural;
use benchmesh_workloads::histogram::DecodeError;
use cells::{Seconds, cells_of};
use futures::future::BoxFuture;
use rusqlite::Connection;
use sqlx::{SqliteConnection, SqlitePool};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use tokio::task::spawn_blocking;

/// Maximum number of runs of a plan in a trend; the newest are used.
const MAX_RUNS: u32 = 500;

/// Maximum number of sides that are compared pair by pair, so that the best can be named; of more, each is compared with
/// the first.
const MAX_PAIRED: usize = 6;

/// The reason why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error("{}", no_such_run(wanted, near.as_deref()))]
    NoRun {
        wanted: String,
        near: Option<String>,
    },
    #[error("{NO_RUN_YET}")]
    NoRunYet,
    #[error("run {run} ({name}) is {state}: compare it when it has ended")]
    NotEnded {
        run: RunId,
        name: String,
        state: String,
    },
    #[error("run {run} ({name}) has one target ({target}): a comparison by target needs two")]
    OneTarget {
        run: RunId,
        name: String,
        target: String,
    },
    #[error(
        "the results of run {run} have no key {key:?}; {}they have {known}",
        near.as_ref().map_or_else(String::new, |near| format!("did you mean {near}? "))
    )]
    UnknownKey {
        run: RunId,
        key: String,
        near: Option<String>,
        known: String,
    },
    #[error("there is nothing to compare by {key}: all results have {value}")]
    OneSide { key: String, value: String },
    #[error("no result of run {run} has {wanted}")]
    NothingSelected { run: RunId, wanted: String },
    #[error(
        "plan {plan:?} has {} in this database, but a comparison needs {needed}",
        plural(*.found, "ended run")
    )]
    TooFewRuns {
        plan: String,
        found: usize,
        needed: usize,
    },
    #[error(
        "no run of plan {plan:?} before run {run} has ended with results: name two runs to compare"
    )]
    NoneBefore { run: RunId, plan: String },
    #[error("there is no baseline {name:?}; save one with: benchmesh compare --save {name} RUN")]
    NoBaseline { name: String },
    #[error("both sides are run {run}: name two runs, or compare its targets with --by target")]
    SameRun { run: RunId },
    #[error(transparent)]
    Open(QueryError),
    #[error("cannot read {what}: this file is not a benchmesh database")]
    Read {
        what: &'static str,
        #[source]
        source: BoxError,
    },
    #[error("the thread of the comparison ended early")]
    Thread(#[from] tokio::task::JoinError),
    #[error("cannot read a stored histogram of step {step}")]
    Histogram {
        step: i64,
        #[source]
        source: DecodeError,
    },
}

impl CompareError {
    /// Whether the error is in the request, not in the database.
    pub fn is_request(&self) -> bool {
        !matches!(
            self,
            Self::Open(_) | Self::Read { .. } | Self::Thread(_) | Self::Histogram { .. }
        )
    }
}

/// Runs a comparison on an open database.
#[boxed]
#[inline(never)]
pub async fn compare(pool: &SqlitePool, request: &Request) -> Result<CompareAnswer, CompareError> {
    let mut connection = pool.acquire().await.map_err(reading("the database"))?;
    let loaded = load(&mut connection, &request.subject).await?;
    drop(connection);
    judged(loaded, request.figures.clone()).await
}

/// Like [`compare`], for a file that no collector in this process has open. Never creates or changes it.
#[boxed]
#[inline(never)]
pub async fn compare_file(path: &Path, request: &Request) -> Result<CompareAnswer, CompareError> {
    let mut file = ReadOnly::open(path).await.map_err(CompareError::Open)?;
    let loaded = load(&mut file.connection, &request.subject).await;
    file.close().await;
    judged(loaded?, request.figures.clone()).await
}

/// The statements about a pair of sides that come before its figures.
#[derive(Default)]
struct Beside {
    /// Findings of the second side only.
    new: Vec<Finding>,
    /// Differences between the clusters.
    clusters: Option<String>,
    /// The highest rates that the searches of both sides found.
    searches: Vec<String>,
}

/// The loaded data of a request, not judged yet.
enum LoadedRequest {
    /// Each pair with the statements that come before its figures.
    Sides(Vec<(Loaded, Loaded)>, Vec<Beside>),
    Trend {
        plan: String,
        runs: Vec<(RunRef, Vec<MeasuredCell>)>,
    },
}

/// Runs on a separate thread, because judging takes up to some seconds of CPU time.
async fn judged(
    loaded: LoadedRequest,
    figures: Vec<FigureName>,
) -> Result<CompareAnswer, CompareError> {
    let answer = spawn_blocking(move || match loaded {
        LoadedRequest::Sides(sides, beside) => with_beside(judge::answer(sides, &figures), beside),
        LoadedRequest::Trend { plan, runs } => CompareAnswer {
            format: super::COMPARISON_FORMAT,
            comparisons: Vec::new(),
            trend: Some(trend::trend(&plan, &runs, &figures)),
        },
    });
    Ok(answer.await?)
}

/// Adds the differences between the clusters, the comparison of searches, and the new findings.
fn with_beside(mut answer: CompareAnswer, beside: Vec<Beside>) -> CompareAnswer {
    for (one, beside) in answer.comparisons.iter_mut().zip(beside) {
        one.new_findings = beside.new;
        one.beside = beside.clusters.into_iter().chain(beside.searches).collect();
    }
    answer
}

/// The pairs of targets of an ended run; loaded, not judged yet. `None` if the run has fewer than
/// two, or has not ended.
pub(crate) struct LoadedTargets(Vec<(Loaded, Loaded)>);

impl LoadedTargets {
    /// Reads them in the caller's transaction.
    pub(crate) fn load(connection: &Connection, run: RunId) -> Result<Option<Self>, CompareError> {
        let Ok(run) = runs::ended(runs::by_id(connection, run)?) else {
            return Ok(None);
        };
        match by_target(connection, run) {
            Ok(sides) => Ok(Some(Self(with_cells(connection, sides)?))),
            Err(CompareError::OneTarget { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn judge(self) -> Result<Vec<Comparison>, CompareError> {
        judged_pairs(self.0).await
    }
}

/// The newest earlier run of the same plan, paired with an ended run; loaded, not judged yet. `None` without one.
pub(crate) struct LoadedEarlier(Vec<(Loaded, Loaded)>);

impl LoadedEarlier {
    /// Reads both in the caller's transaction.
    pub(crate) fn load(connection: &Connection, run: RunId) -> Result<Option<Self>, CompareError> {
        let Ok(run) = runs::ended(runs::by_id(connection, run)?) else {
            return Ok(None);
        };
        let Some(earlier) = runs::before(connection, &run)? else {
            return Ok(None);
        };
        let labels = labels(&earlier, &run);
        let pair = (side(labels.0, vec![earlier]), side(labels.1, vec![run]));
        Ok(Some(Self(with_cells(connection, vec![pair])?)))
    }

    pub(crate) async fn judge(self) -> Result<Option<Comparison>, CompareError> {
        Ok(judged_pairs(self.0).await?.pop())
    }
}

async fn judged_pairs(pairs: Vec<(Loaded, Loaded)>) -> Result<Vec<Comparison>, CompareError> {
    let answer = judged(LoadedRequest::Sides(pairs, Vec::new()), Vec::new()).await?;
    Ok(answer.comparisons)
}

fn reading<E: Into<BoxError>>(what: &'static str) -> impl Fn(E) -> CompareError {
    move |source| CompareError::Read {
        what,
        source: source.into(),
    }
}

/// Boxed, because other crates would otherwise compile a copy of it. It blocks its thread for up to seconds and cannot
/// be cancelled meanwhile.
#[inline(never)]
fn load<'c>(
    connection: &'c mut SqliteConnection,
    subject: &'c Subject,
) -> BoxFuture<'c, Result<LoadedRequest, CompareError>> {
    Box::pin(async move {
        let loaded = borrow(connection, |connection| sides_or_trend(connection, subject)).await;
        loaded.map_err(reading("the database"))?
    })
}

fn sides_or_trend(
    connection: &Connection,
    subject: &Subject,
) -> Result<LoadedRequest, CompareError> {
    let transaction = connection.unchecked_transaction();
    let transaction = transaction.map_err(reading("the database"))?;
    if let Subject::Trend { plan } = subject {
        return history(&transaction, plan);
    }
    if let Subject::By { run, key, only } = subject {
        let loaded = match by::is_of_runs(key) {
            true => by::runs_by(&transaction, run, key, only)?,
            false => {
                let run = runs::ended(runs::find(&transaction, run)?)?;
                by::cells_by(&transaction, &run, key, only)?
            }
        };
        return Ok(LoadedRequest::Sides(loaded, Vec::new()));
    }
    let sides = sides(&transaction, subject)?;
    let mut beside = Vec::with_capacity(sides.len());
    for (a, b) in &sides {
        beside.push(Beside {
            new: findings::new_ones(&transaction, a, b)?,
            clusters: clusters::difference(&transaction, a, b)?,
            searches: searches::sentences(&transaction, a, b)?,
        });
    }
    let loaded = with_cells(&transaction, sides)?;
    Ok(LoadedRequest::Sides(loaded, beside))
}

fn history(connection: &Connection, plan: &str) -> Result<LoadedRequest, CompareError> {
    let found = runs::ended_runs(connection, plan, MAX_RUNS)?;
    if found.is_empty() {
        return Err(runs::too_few(connection, plan, 0, 1)?);
    }
    let mut runs = Vec::with_capacity(found.len());
    for run in found {
        let cells = cells_of(connection, &run, None, Seconds::Skip)?;
        runs.push((run, cells));
    }
    Ok(LoadedRequest::Trend {
        plan: plan.to_owned(),
        runs,
    })
}

/// The pairs of sides to compare.
fn sides(connection: &Connection, subject: &Subject) -> Result<Vec<(Side, Side)>, CompareError> {
    Ok(match subject {
        // These have no sides of whole runs or targets.
        Subject::Trend { .. } | Subject::By { .. } => Vec::new(),
        Subject::Runs { a, b } => {
            let a = runs::ended(runs::find(connection, a)?)?;
            let b = runs::ended(runs::find(connection, b)?)?;
            if a.id == b.id {
                return Err(CompareError::SameRun { run: a.id });
            }
            let labels = labels(&a, &b);
            vec![(side(labels.0, vec![a]), side(labels.1, vec![b]))]
        }
        Subject::Targets { run } => {
            let run = runs::ended(runs::find(connection, run)?)?;
            by_target(connection, run)?
        }
        Subject::Last { plan, runs } => {
            let named = runs::find(connection, plan)?;
            let is_plan = plan == "last" || *plan == named.name;
            let (newest, found) = match is_plan {
                true => {
                    let most = runs.saturating_add(1);
                    let mut found = runs::ended_runs(connection, &named.name, most)?;
                    let count = found.len();
                    let newest = found.pop().filter(|_| count > 1);
                    let newest = newest.ok_or(CompareError::TooFewRuns {
                        plan: named.name,
                        found: count,
                        needed: 2,
                    })?;
                    (newest, found)
                }
                false => {
                    let run = runs::ended(named)?;
                    let found = runs::ended_before(connection, &run.name, run.id, *runs)?;
                    if found.is_empty() {
                        return Err(CompareError::NoneBefore {
                            run: run.id,
                            plan: run.name,
                        });
                    }
                    (run, found)
                }
            };
            let before = match found.as_slice() {
                [one] => format!("run {}", one.id),
                runs => format!("the {} runs before", runs.len()),
            };
            let label = format!("run {}", newest.id);
            vec![(side(before, found), side(label, vec![newest]))]
        }
        Subject::Baseline { name, run } => {
            let saved = runs::baseline(connection, name)?;
            let run = runs::ended(runs::find(connection, run)?)?;
            if saved.id == run.id {
                return Err(CompareError::SameRun { run: run.id });
            }
            let label = format!("run {}", run.id);
            vec![(
                side(format!("baseline {name}"), vec![saved]),
                side(label, vec![run]),
            )]
        }
    })
}

fn side(label: String, runs: Vec<RunRef>) -> Side {
    Side {
        label,
        target: None,
        runs,
    }
}

/// Runs of the same name are labelled by their ids.
fn labels(a: &RunRef, b: &RunRef) -> (String, String) {
    match a.name == b.name {
        true => (format!("run {}", a.id), format!("run {}", b.id)),
        false => (a.name.clone(), b.name.clone()),
    }
}

const TARGETS: &str = "
    SELECT target FROM steps WHERE run_id = ? AND target IS NOT NULL GROUP BY target ORDER BY min(ordinal)";

/// The sides of a comparison of the targets of one run: each pair of up to [`MAX_PAIRED`] targets; of more, each against
/// the first of the plan. Fewer than two targets are an error.
fn by_target(connection: &Connection, run: RunRef) -> Result<Vec<(Side, Side)>, CompareError> {
    let targets: Vec<String> = rows_with(connection, TARGETS, &[run.id.0.into()], |row| row.get(0))
        .map_err(reading("steps"))?;
    let of = |target: &String| Side {
        label: target.clone(),
        target: Some(target.clone()),
        runs: vec![run.clone()],
    };
    match targets.split_first() {
        Some((first, others)) if targets.len() > MAX_PAIRED => {
            Ok(others.iter().map(|other| (of(first), of(other))).collect())
        }
        Some((_, others)) if !others.is_empty() => {
            let pairs = targets.iter().enumerate().flat_map(|(at, a)| {
                let later = targets.iter().skip(at + 1);
                later.map(move |b| (of(a), of(b)))
            });
            Ok(pairs.collect())
        }
        _ => Err(CompareError::OneTarget {
            run: run.id,
            name: run.name,
            target: targets.first().cloned().unwrap_or_default(),
        }),
    }
}

/// Loads each run's or target's cells once, however many sides contain them.
fn with_cells(
    connection: &Connection,
    sides: Vec<(Side, Side)>,
) -> Result<Vec<(Loaded, Loaded)>, CompareError> {
    let mut known: BTreeMap<(RunId, Option<String>), Vec<MeasuredCell>> = BTreeMap::new();
    for side in sides.iter().flat_map(|(a, b)| [a, b]) {
        for run in &side.runs {
            let key = (run.id, side.target.clone());
            if let Entry::Vacant(place) = known.entry(key) {
                let target = side.target.as_deref();
                let cells = cells_of(connection, run, target, Seconds::Read)?;
                place.insert(cells);
            }
        }
    }
    let of = |side: Side| {
        let cells = side.runs.iter().filter_map(|run| {
            let key = (run.id, side.target.clone());
            known.get(&key).cloned()
        });
        let cells = cells.flatten().collect();
        (side, cells)
    };
    Ok(sides.into_iter().map(|(a, b)| (of(a), of(b))).collect())
}
