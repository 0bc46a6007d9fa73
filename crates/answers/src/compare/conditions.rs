//! `--fail-if`: what counts as a regression.
//!
//! ```text
//! condition = figure ("<" | ">") change        p99 > +10%    ops < -5%    cpu > 2x
//!           | verdict                           slower        costlier     worse     "not comparable"
//! figure    = a name of the table in `figure.rs`
//! change    = ["+" | "-"] number "%" | number "x"
//! ```
//!
//! A condition on a figure holds if B's figure exceeds the change from A's and the difference is significant, corrected
//! over all loads that have the figure, so that noise alone does not fulfil it. A verdict is that of a load's primary
//! figure; `costlier` refers to the daemons' CPU time, `worse` to what was lost on links and to their jitter. `not
//! comparable` holds if a load has no verdict, or only one side has a cell.

use super::figure::{FigureName, UnknownFigure};
use super::model::{CompareAnswer, ComparisonRow, Verdict};
use super::words::{change, change_like, subject};
use benchmesh_analysis::estimate::ALPHA;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    Figure {
        figure: FigureName,
        beyond: Beyond,
        /// The ratio of B to A.
        ratio: f64,
    },
    Verdict(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    Above,
    Below,
}

impl Condition {
    /// The figure that it needs; `None` if it refers to a verdict.
    pub fn figure(&self) -> Option<FigureName> {
        match self {
            Self::Figure { figure, .. } => Some(*figure),
            Self::Verdict(_) => None,
        }
    }
}

/// The error of a text that is not a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotACondition(String);

impl fmt::Display for NotACondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; examples: 'p99 > +10%', 'ops < -5%', 'cpu > 2x', slower, costlier, worse, 'not comparable'",
            self.0
        )
    }
}

impl std::error::Error for NotACondition {}

impl FromStr for Condition {
    type Err = NotACondition;

    fn from_str(text: &str) -> Result<Self, NotACondition> {
        let wrong = |why: String| NotACondition(why);
        let text = text.trim();
        for verdict in [
            Verdict::Slower,
            Verdict::Costlier,
            Verdict::Worse,
            Verdict::NotComparable,
        ] {
            if text == verdict.as_str() {
                return Ok(Self::Verdict(verdict));
            }
        }
        let Some(at) = text.find(['<', '>']) else {
            return Err(wrong(format!(
                "{text:?} has neither < nor >, and is not a verdict"
            )));
        };
        let (name, rest) = text.split_at(at);
        let beyond = match rest.starts_with('>') {
            true => Beyond::Above,
            false => Beyond::Below,
        };
        let name = name.trim();
        let figure: FigureName = name
            .parse()
            .map_err(|error: UnknownFigure| wrong(error.to_string()))?;
        let change = rest.get(1..).unwrap_or_default().trim();
        let ratio = ratio_of(change).ok_or_else(|| {
            wrong(format!(
                "{change:?} is not a change such as +10%, -5% or 2x"
            ))
        })?;
        Ok(Self::Figure {
            figure,
            beyond,
            ratio,
        })
    }
}

fn ratio_of(change: &str) -> Option<f64> {
    let number = |text: &str| {
        let value: f64 = text.trim().parse().ok()?;
        value.is_finite().then_some(value)
    };
    let ratio = match (change.strip_suffix('%'), change.strip_suffix('x')) {
        (Some(percent), _) => 1.0 + number(percent)? / 100.0,
        (None, Some(times)) => number(times)?,
        (None, None) => return None,
    };
    (ratio > 0.0).then_some(ratio)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => f.write_str(verdict.as_str()),
            Self::Figure {
                figure,
                beyond,
                ratio,
            } => {
                let sign = match beyond {
                    Beyond::Above => '>',
                    Beyond::Below => '<',
                };
                write!(f, "{} {sign} {}", figure.as_str(), change(*ratio))
            }
        }
    }
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionResult {
    /// The rows in which it holds, in words.
    pub holds: Vec<String>,
    /// No figure matched the condition: it has no result.
    pub is_untested: bool,
}

/// Checks a condition on an answer.
pub fn check(condition: &Condition, answer: &CompareAnswer) -> ConditionResult {
    let mut holds = Vec::new();
    let mut tested = false;
    for comparison in &answer.comparisons {
        for row in &comparison.rows {
            let fits = match condition {
                Condition::Figure { figure, .. } => row.figure == *figure,
                Condition::Verdict(Verdict::Costlier) => row.figure == FigureName::Cpu,
                Condition::Verdict(Verdict::Slower) => row.judged && !row.figure.is_observed(),
                Condition::Verdict(Verdict::Worse) => row.figure.is_observed(),
                Condition::Verdict(_) => row.judged,
            };
            if !fits {
                continue;
            }
            let is_open = matches!(row.verdict, Verdict::NotComparable | Verdict::TooFewRepeats);
            tested |= (row.p.is_some() && !is_open)
                || *condition == Condition::Verdict(Verdict::NotComparable);
            if is_met(condition, row) {
                holds.push(format!(
                    "{}: {} {} ({})",
                    subject(row),
                    row.figure.as_str(),
                    change(row.ratio),
                    match (row.low, row.high) {
                        (Some(low), Some(high)) => format!(
                            "95 % CI {} to {}",
                            change_like(low, row.ratio),
                            change_like(high, row.ratio)
                        ),
                        _ => row.verdict.as_str().to_owned(),
                    }
                ));
            }
        }
        if *condition == Condition::Verdict(Verdict::NotComparable) {
            tested = true;
            let others = comparison.incomparable.iter();
            holds.extend(others.map(|one| format!("{}: {}", one.what, one.why)));
        }
    }
    ConditionResult {
        holds,
        is_untested: !tested,
    }
}

fn is_met(condition: &Condition, row: &ComparisonRow) -> bool {
    let is_shown = row.p_corrected.is_some_and(|p| p < ALPHA);
    match condition {
        Condition::Verdict(Verdict::Costlier) => is_shown && row.ratio > 1.0,
        Condition::Verdict(verdict) => row.verdict == *verdict,
        Condition::Figure { beyond, ratio, .. } => {
            is_shown
                && match beyond {
                    Beyond::Above => row.ratio > *ratio,
                    Beyond::Below => row.ratio < *ratio,
                }
        }
    }
}
