//! Conditions that the collector evaluates during a run: alarms, which hold at one moment, and objectives, which cover
//! the whole run.

use super::AlarmAction;
use super::keys::{AlarmKeys, ObjectiveKeys, names};
use super::read::{Section, kind};
use super::source::{Mistakes, ValuePosition};
use benchmesh_model::figures::{DaemonFigures, Figure, Figures, Kind, Unit};
use benchmesh_workloads::declare_words;
use benchmesh_workloads::params::units::{Bytes, Span};
use benchmesh_workloads::params::{Absent, Keys};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Maximum number of alarms and objectives of a plan: each is evaluated every second, for each daemon that it names.
const MAX_TABLES: usize = 64;
/// Every second of a window is examined, and growth needs some minutes.
const MAX_LASTING: Duration = Duration::from_secs(86_400);

/// The valid forms of a condition, for error messages.
const FORMS: &str = "write \"p99 > 500ms for 60s\", \"rate < 1000 for 30s\", \"no progress for 30s\", \
                     \"rss of ceph-osd > 8g\", \"rss of ceph-osd grows 10% per hour\" or \"ceph-osd dies\"";

const OBJECTIVE_FORMS: &str =
    "write \"p99 < 10ms for 99.9% of seconds\" or \"rate > 1000 for 95% of seconds\"";

/// One alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The condition as written in the plan.
    pub when: String,
    pub condition: Condition,
    pub then: AlarmAction,
}

/// A condition that most seconds of a run must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// The condition as written in the plan, with single spaces.
    pub holds: String,
    pub figure: StepFigure,
    /// The good side of the limit.
    pub side: Side,
    pub limit: f64,
    /// Minimum share of good seconds: above 0, at most 1.
    pub share: f64,
}

/// The condition that raises an alarm.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A figure is above or below a limit for this long.
    Beyond {
        figure: Watched,
        side: Side,
        limit: f64,
        lasting: Duration,
    },
    /// No operation of the running step has ended for this long.
    NoProgress { lasting: Duration },
    /// A daemon's figure grows faster than this share of its value per hour.
    Grows {
        figure: DaemonFigure,
        daemon: String,
        share_per_hour: f64,
    },
    /// A daemon ended or restarted.
    Dies { daemon: String },
}

/// The figure that a limit applies to.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    Step(StepFigure),
    Daemon {
        figure: DaemonFigure,
        daemon: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Above,
    Below,
}

declare_words! {
    /// A figure of the running step, over its last seconds.
    pub enum StepFigure {
        P50 = "p50",
        P99 = "p99",
        Max = "max",
        Rate = "rate",
        Throughput = "throughput",
    }
}

/// A figure of a daemon.
#[derive(Clone, Copy, Debug)]
pub enum DaemonFigure {
    /// Percent of a processor.
    Cpu,
    /// A gauge among the sampled figures.
    Sampled(&'static Figure),
}

impl PartialEq for DaemonFigure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu, Self::Cpu) => true,
            (Self::Sampled(one), Self::Sampled(other)) => one.name == other.name,
            _ => false,
        }
    }
}

impl DaemonFigure {
    /// Finds a figure by name; `rss` means `rss_bytes`.
    fn of(name: &str) -> Option<Self> {
        if name == "cpu" {
            return Some(Self::Cpu);
        }
        Self::gauges()
            .find(|figure| short(figure) == name || figure.name == name)
            .map(Self::Sampled)
    }

    fn gauges() -> impl Iterator<Item = &'static Figure> {
        let all = DaemonFigures::ALL.iter();
        all.filter(|figure| figure.kind == Kind::Gauge)
    }

    fn unit(self) -> Unit {
        match self {
            Self::Cpu => Unit::Hundredths,
            Self::Sampled(figure) => figure.unit,
        }
    }
}

impl fmt::Display for DaemonFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Sampled(figure) => f.write_str(short(figure)),
        }
    }
}

/// The name of a figure in conditions.
fn short(figure: &Figure) -> &'static str {
    figure.name.strip_suffix("_bytes").unwrap_or(figure.name)
}

/// The alarms of a plan, in the plan's order.
pub(super) fn alarms(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Alarm> {
    read_tables(
        top,
        "alarm",
        mistakes,
        |keys: AlarmKeys, section, mistakes| match condition(&keys.when) {
            Ok(condition) => Some(Alarm {
                when: keys.when,
                condition,
                then: keys.then,
            }),
            Err(error) => {
                mistakes.at(&section.place_of("when"), error, FORMS);
                None
            }
        },
    )
}

/// The objectives of a plan, in the plan's order.
pub(super) fn objectives(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Objective> {
    let mut known = BTreeSet::new();
    read_tables(
        top,
        "objective",
        mistakes,
        |keys: ObjectiveKeys, section, mistakes| {
            let error = match objective(&keys.holds) {
                Ok(objective) if known.insert(objective.holds.clone()) => return Some(objective),
                Ok(_) => String::from("another objective of the plan is the same"),
                Err(error) => error,
            };
            mistakes.at(&section.place_of("holds"), error, OBJECTIVE_FORMS);
            None
        },
    )
}

/// Reads and checks each table of an array separately.
fn read_tables<K: Keys, T>(
    top: &mut Section<'_, '_>,
    key: &str,
    mistakes: &mut Mistakes<'_>,
    mut read: impl FnMut(K, &Section<'_, '_>, &mut Mistakes<'_>) -> Option<T>,
) -> Vec<T> {
    let Some((value, position)) = top.take(key) else {
        return Vec::new();
    };
    let required = K::all().iter().find(|key| key.absent == Absent::Required);
    let required = required.map_or("", |key| key.name);
    let remedy = format!("write [[{key}]], each with `{required}`");
    let Some(list) = value.as_array() else {
        let found = format!("expected tables, found {}", kind(value));
        mistakes.at(&position, found, remedy);
        return Vec::new();
    };
    if list.len() > MAX_TABLES {
        let found = format!("{} {key}s; at most {MAX_TABLES} are allowed", list.len());
        mistakes.at(&position, found, "leave some out");
        return Vec::new();
    }
    let mut all = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let at = ValuePosition {
            span: item.span(),
            key: format!("{key}.{}", index + 1),
        };
        let Some(table) = item.get_ref().as_table() else {
            mistakes.at(&at, "expected a table", remedy.as_str());
            continue;
        };
        let mut section = Section::new(table, at);
        let keys = section.keys::<K>(mistakes);
        section.refuse_rest(&names(&[K::all()]), mistakes);
        all.extend(keys.and_then(|keys| read(keys, &section, mistakes)));
    }
    all
}

/// Parses a condition.
fn condition(text: &str) -> Result<Condition, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words.as_slice() {
        ["no", "progress", "for", lasting] => Ok(Condition::NoProgress {
            lasting: span(lasting)?,
        }),
        [daemon, "dies"] => Ok(Condition::Dies {
            daemon: daemon.to_owned(),
        }),
        [figure, "of", daemon, "grows", share, "per", "hour"] => Ok(Condition::Grows {
            figure: daemon_figure(figure)?,
            daemon: daemon.to_owned(),
            share_per_hour: percent(share)? / 100.0,
        }),
        [figure, "of", daemon, side, limit, ref rest @ ..] => {
            let figure = daemon_figure(figure)?;
            Ok(Condition::Beyond {
                side: side_of(side)?,
                limit: match figure.unit() {
                    Unit::Bytes => bytes(limit)?,
                    Unit::Hundredths => percent(limit)?,
                    Unit::Micros | Unit::Count => number(limit)?,
                },
                lasting: lasting(rest)?,
                figure: Watched::Daemon {
                    figure,
                    daemon: daemon.to_owned(),
                },
            })
        }
        [figure, side, limit, ref rest @ ..] => {
            let (figure, side, limit) = step_limit(figure, side, limit)?;
            Ok(Condition::Beyond {
                side,
                limit,
                lasting: lasting(rest)?,
                figure: Watched::Step(figure),
            })
        }
        _ => Err(format!("`{text}` is not a condition")),
    }
}

/// Parses an objective.
fn objective(text: &str) -> Result<Objective, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [figure, side, limit, "for", share, "of", "seconds"] = *words.as_slice() else {
        return Err(format!("`{text}` is not an objective"));
    };
    let (figure, side, limit) = step_limit(figure, side, limit)?;
    let percent = percent(share)?;
    if percent <= 0.0 || percent > 100.0 {
        return Err(format!("`{share}` is not above 0% and up to 100%"));
    }
    Ok(Objective {
        holds: words.join(" "),
        figure,
        side,
        limit,
        share: percent / 100.0,
    })
}

/// A figure of the step, and its limit in the figure's unit.
pub(super) fn step_limit(
    figure: &str,
    side: &str,
    limit: &str,
) -> Result<(StepFigure, Side, f64), String> {
    let figure = StepFigure::parse(figure).ok_or_else(|| unknown_step_figure(figure))?;
    let side = side_of(side)?;
    let limit = match figure {
        StepFigure::P50 | StepFigure::P99 | StepFigure::Max => latency(limit)?,
        StepFigure::Rate => number(limit)?,
        StepFigure::Throughput => bytes(limit)?,
    };
    Ok((figure, side, limit))
}

fn daemon_figure(name: &str) -> Result<DaemonFigure, String> {
    DaemonFigure::of(name).ok_or_else(|| unknown_figure(name))
}

fn unknown_figure(name: &str) -> String {
    let of_daemon: Vec<&str> = DaemonFigure::gauges().map(short).collect();
    format!(
        "{}, of a daemon cpu, {}",
        unknown_step_figure(name),
        of_daemon.join(", ")
    )
}

fn unknown_step_figure(name: &str) -> String {
    let of_step = StepFigure::WORDS.to_vec().join(", ");
    format!("unknown figure `{name}`: figures of a step are {of_step}")
}

fn side_of(word: &str) -> Result<Side, String> {
    match word {
        ">" => Ok(Side::Above),
        "<" => Ok(Side::Below),
        other => Err(format!("expected > or <, found `{other}`")),
    }
}

/// Parses `for 60s`; without it the condition applies at once.
fn lasting(rest: &[&str]) -> Result<Duration, String> {
    match rest {
        [] => Ok(Duration::ZERO),
        ["for", lasting] => span(lasting),
        other => Err(format!(
            "expected `for` and a duration, found `{}`",
            other.join(" ")
        )),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span.0 > MAX_LASTING {
        return Err(format!("`{text}` is longer than a day"));
    }
    Ok(span.0)
}

/// Returns milliseconds. A bare number is refused: it would mean seconds, which is rarely intended.
fn latency(text: &str) -> Result<f64, String> {
    match number(text) {
        Ok(_) => Err(format!("`{text}` has no unit: write {text}ms or {text}us")),
        Err(_) => Ok(span(text)?.as_secs_f64() * 1e3),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a limit to compare with")]
fn bytes(text: &str) -> Result<f64, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    Ok(bytes.0 as f64)
}

fn number(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("`{text}` is not a number of 0 or more"))
}

fn percent(text: &str) -> Result<f64, String> {
    let number_of = text.strip_suffix('%').map(number);
    number_of.unwrap_or_else(|| Err(format!("`{text}` is not a percentage such as 10%")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn conditions_are_read() {
        let beyond = |figure, side, limit, seconds| Condition::Beyond {
            figure,
            side,
            limit,
            lasting: Duration::from_secs(seconds),
        };
        let of = |name: &str, daemon: &str| Watched::Daemon {
            figure: DaemonFigure::of(name).unwrap(),
            daemon: daemon.to_owned(),
        };
        let p99 = Watched::Step(StepFigure::P99);
        let rate = Watched::Step(StepFigure::Rate);
        let cases = [
            ("p99 > 500ms for 60s", beyond(p99, Side::Above, 500.0, 60)),
            ("rate < 1000", beyond(rate, Side::Below, 1000.0, 0)),
            (
                "rss of ceph-osd > 1k for 1m",
                beyond(of("rss_bytes", "ceph-osd"), Side::Above, 1024.0, 60),
            ),
            (
                "cpu of glusterfsd > 150%",
                beyond(of("cpu", "glusterfsd"), Side::Above, 150.0, 0),
            ),
            (
                "no progress for 30s",
                Condition::NoProgress {
                    lasting: Duration::from_secs(30),
                },
            ),
            (
                "threads of osd.7 grows 10% per hour",
                Condition::Grows {
                    figure: DaemonFigure::of("threads").unwrap(),
                    daemon: "osd.7".to_owned(),
                    share_per_hour: 0.1,
                },
            ),
            (
                "ceph-osd dies",
                Condition::Dies {
                    daemon: "ceph-osd".to_owned(),
                },
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(condition(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_the_reason() {
        for (text, expected) in [
            ("", "not a condition"),
            ("p99 > 500", "has no unit"),
            ("no progress for 2d", "longer than a day"),
            ("p98 > 500ms", "unknown figure `p98`"),
            ("p99 = 500ms", "expected > or <"),
            ("p99 > fast", "duration"),
            ("p99 > 5ms for ever", "duration"),
            ("p99 > 5ms during 5s", "expected `for`"),
            ("rss of ceph-osd > -1", "size"),
            ("rss of ceph-osd grows 10 per hour", "percentage"),
            ("minor_faults of ceph-osd > 5", "unknown figure"),
            ("cpu of ceph-osd > NaN%", "not a number"),
        ] {
            let error = condition(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn objectives_are_read_and_mistakes_are_refused_with_the_reason() {
        let read = objective("p99  < 10ms for 99.9% of seconds").unwrap();
        assert_eq!(read.holds, "p99 < 10ms for 99.9% of seconds");
        assert_eq!((read.figure, read.side), (StepFigure::P99, Side::Below));
        assert!((read.limit - 10.0).abs() < 1e-9 && (read.share - 0.999).abs() < 1e-9);
        for (text, expected) in [
            ("p99 < 10ms", "not an objective"),
            ("p99 < 10ms for 99.9 of seconds", "percentage"),
            ("p99 < 10 for 99.9% of seconds", "has no unit"),
            ("p98 < 10ms for 99.9% of seconds", "unknown figure"),
            ("rate > 5 for 0% of seconds", "not above 0%"),
            ("rate > 5 for 101% of seconds", "not above 0%"),
        ] {
            let error = objective(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_objective_is_refused_with_line_and_caret() {
        const PHASE: &str =
            "name = \"x\"\n[[phase]]\nworkload = \"null\"\nmodes = [\"run\"]\nruntime = \"1s\"\n";
        let errors = |objective: &str| {
            let text = format!("{PHASE}[[objective]]\n{objective}");
            let parsed = crate::parse(&text, "x.toml");
            parsed.map_err(|error| error.to_string()).unwrap_err()
        };
        let error = errors("holds = \"p99 < 10 for 99% of seconds\"");
        assert!(error.contains("x.toml:7") && error.contains("^"), "{error}");
        assert!(error.contains("has no unit"), "{error}");
        let error = errors("holds = 5");
        assert!(error.contains("x.toml:7"), "{error}");
        let text = crate::with_objectives(PHASE, &[String::from("p98 < 1ms for 9% of seconds")]);
        let error = crate::parse(&text, "x.toml").unwrap_err().to_string();
        assert_eq!(
            error,
            "x.toml with --objective: objective.1.holds: unknown figure `p98`: figures of a step are p50, p99, max, \
             rate, throughput\n  \
             --objective | holds = \"p98 < 1ms for 9% of seconds\" # --objective\n              \
             |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  \
             help: write \"p99 < 10ms for 99.9% of seconds\" or \"rate > 1000 for 95% of seconds\""
        );
        let error = errors("then = \"stop\"");
        assert!(error.contains("holds"), "{error}");
        let twice = "holds = \"rate > 5 for 9% of seconds\"\n";
        let error = errors(&format!("{twice}[[objective]]\n{twice}"));
        assert!(error.contains("is the same"), "{error}");
    }
}
