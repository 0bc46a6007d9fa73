//! The figures that are compared, in one table: name, unit, which direction is better, and the words of a difference.
//!
//! Sentences, tables, cards, conditions, options and documents take names, verdicts and phrases from here, so that they
//! cannot disagree.

use super::model::Verdict;
use benchmesh_analysis::Figure;
use benchmesh_workloads::figures;
use benchmesh_workloads::op::Op;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A figure of a load on one side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureName {
    Ops,
    /// Bytes per second, where a side is an imported log that counts no operations.
    Bytes,
    /// p99 of the response time of a paced load, measured from the instant at which an operation was due.
    Response,
    Mean,
    P50,
    P90,
    P95,
    P99,
    #[serde(rename = "p99.9")]
    P999,
    /// Variation of the rate between the seconds of a step.
    Spread,
    /// CPU time of the storage's daemons per operation.
    Cpu,
    /// CPU time of the clients' workers per operation.
    ClientCpu,
    /// Bytes received and sent by the interfaces of the clients' hosts, per operation.
    NetBytes,
    /// Lost, reordered, duplicate or late datagrams or requests, in percent of all.
    Share,
    /// The mean interarrival jitter at a receiver.
    Jitter,
}

/// A name that is in no row of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a figure ({})", FigureName::names().join(", "))]
pub struct UnknownFigure {
    name: String,
}

/// The direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// When a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    Always,
    /// If a request or a condition names it.
    OnRequest,
}

/// How values of a figure are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Rate,
    Millis,
}

/// The definition of one figure.
#[derive(Debug)]
pub struct FigureRow {
    pub figure: FigureName,
    /// The name in commands and documents.
    pub name: &'static str,
    /// The name beside a value.
    pub title: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub listed: Listed,
    /// Completes a sentence about the better side: `is 9 % faster than`, `answers 27 times sooner than`; and about the
    /// worse: `is 8 % slower than`.
    verb: &'static str,
    comparative: &'static str,
    worse: &'static str,
    digits: Digits,
    analysed: Figure,
    /// The verdicts on side B if it has the better value, and the worse.
    verdicts: (Verdict, Verdict),
}

impl FigureRow {
    /// A service time.
    const fn service(
        figure: FigureName,
        name: &'static str,
        title: &'static str,
        analysed: Figure,
        listed: Listed,
    ) -> Self {
        Self {
            figure,
            name,
            title,
            unit: "ms",
            better: Better::Less,
            listed,
            verb: "is done",
            comparative: "sooner",
            worse: "later",
            digits: Digits::Millis,
            analysed,
            verdicts: (Verdict::Faster, Verdict::Slower),
        }
    }

    /// What an operation costs.
    const fn cost(
        figure: FigureName,
        name: &'static str,
        title: &'static str,
        unit: &'static str,
        (comparative, worse): (&'static str, &'static str),
        listed: Listed,
    ) -> Self {
        Self {
            figure,
            name,
            title,
            unit,
            better: Better::Less,
            listed,
            verb: "costs",
            comparative,
            worse,
            digits: Digits::Rate,
            analysed: Figure::Rate,
            verdicts: (Verdict::Cheaper, Verdict::Costlier),
        }
    }
}

impl FigureName {
    /// The table, in the order of listing.
    pub const ROWS: &'static [FigureRow] = &[
        FigureRow {
            figure: Self::Ops,
            name: "ops",
            title: "rate",
            unit: "ops/s",
            better: Better::More,
            listed: Listed::Always,
            verb: "is",
            comparative: "faster",
            worse: "slower",
            digits: Digits::Rate,
            analysed: Figure::Rate,
            verdicts: (Verdict::Faster, Verdict::Slower),
        },
        FigureRow {
            figure: Self::Bytes,
            name: "bytes",
            title: "bytes per second",
            unit: "MiB/s",
            better: Better::More,
            listed: Listed::Always,
            verb: "is",
            comparative: "faster",
            worse: "slower",
            digits: Digits::Rate,
            analysed: Figure::Rate,
            verdicts: (Verdict::Faster, Verdict::Slower),
        },
        FigureRow {
            figure: Self::Response,
            name: "response",
            title: "response p99",
            unit: "ms",
            better: Better::Less,
            listed: Listed::Always,
            verb: "answers",
            comparative: "sooner",
            worse: "later",
            digits: Digits::Millis,
            analysed: Figure::P99,
            verdicts: (Verdict::Faster, Verdict::Slower),
        },
        FigureRow::service(
            Self::Mean,
            "mean",
            "mean latency",
            Figure::Mean,
            Listed::Always,
        ),
        FigureRow::service(Self::P50, "p50", "p50", Figure::P50, Listed::Always),
        FigureRow::service(Self::P90, "p90", "p90", Figure::P90, Listed::OnRequest),
        FigureRow::service(Self::P95, "p95", "p95", Figure::P95, Listed::OnRequest),
        FigureRow::service(Self::P99, "p99", "p99", Figure::P99, Listed::Always),
        FigureRow::service(
            Self::P999,
            "p99.9",
            "p99.9",
            Figure::P999,
            Listed::OnRequest,
        ),
        FigureRow {
            figure: Self::Spread,
            name: "spread",
            title: "variation between seconds",
            unit: "%",
            better: Better::Less,
            listed: Listed::OnRequest,
            verb: "is",
            comparative: "steadier",
            worse: "less steady",
            digits: Digits::Rate,
            analysed: Figure::Rate,
            verdicts: (Verdict::Better, Verdict::Worse),
        },
        FigureRow::cost(
            Self::Cpu,
            "cpu",
            "daemons' CPU per operation",
            "us/op",
            ("less CPU", "more CPU"),
            Listed::Always,
        ),
        FigureRow::cost(
            Self::ClientCpu,
            "client-cpu",
            "clients' CPU per operation",
            "us/op",
            ("less CPU of the clients", "more CPU of the clients"),
            Listed::OnRequest,
        ),
        FigureRow::cost(
            Self::NetBytes,
            "net-bytes",
            "clients' network traffic per operation",
            "B/op",
            ("less network traffic", "more network traffic"),
            Listed::OnRequest,
        ),
        FigureRow {
            figure: Self::Share,
            name: "share",
            title: "share of datagrams",
            unit: "%",
            better: Better::Less,
            listed: Listed::Always,
            verb: "has",
            comparative: "fewer",
            worse: "more",
            digits: Digits::Rate,
            analysed: Figure::Rate,
            verdicts: (Verdict::Better, Verdict::Worse),
        },
        FigureRow {
            figure: Self::Jitter,
            name: "jitter",
            title: "jitter",
            unit: "ms",
            better: Better::Less,
            listed: Listed::Always,
            verb: "has",
            comparative: "less jitter",
            worse: "more jitter",
            digits: Digits::Millis,
            analysed: Figure::Mean,
            verdicts: (Verdict::Better, Verdict::Worse),
        },
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::ROWS.iter().map(|row| row.figure)
    }

    pub fn names() -> Vec<&'static str> {
        Self::ROWS.iter().map(|row| row.name).collect()
    }

    /// Whether it is compared if these are requested.
    pub(super) fn is_listed(self, requested: &[Self]) -> bool {
        self.row().listed == Listed::Always || requested.contains(&self)
    }

    /// Whether it covers all operations of a step, or of a group, together.
    pub(super) fn is_of_step(self) -> bool {
        matches!(self, Self::Cpu | Self::ClientCpu | Self::NetBytes)
    }

    pub fn row(self) -> &'static FigureRow {
        let row = Self::ROWS.iter().find(|row| row.figure == self);
        row.expect("each figure has a row: a test holds it")
    }

    /// The figures of an operation that are compared. Operations observed at the other end of a link, such as lost
    /// datagrams, have their own: they are not work, and fewer are better. Received datagrams only have a rate, which
    /// follows from those sent and lost.
    pub(super) fn of_op(op: &str) -> &'static [Self] {
        match Op::parse(op).filter(|op| op.is_observed()) {
            None => &[
                Self::Ops,
                Self::Bytes,
                Self::Response,
                Self::Mean,
                Self::P50,
                Self::P90,
                Self::P95,
                Self::P99,
                Self::P999,
                Self::Spread,
                Self::Cpu,
                Self::ClientCpu,
                Self::NetBytes,
            ],
            Some(Op::Receive) => &[Self::Ops, Self::Bytes],
            Some(Op::Jitter) => &[Self::Jitter],
            Some(_) => &[Self::Share],
        }
    }

    /// The figures of which an operation has at least one if it was measured.
    pub(super) fn leading(op: &str) -> &'static [Self] {
        match Self::of_op(op) {
            [Self::Ops, Self::Bytes, ..] => &[Self::Ops, Self::Bytes],
            other => other,
        }
    }

    /// Whether it is a figure of what the other end of a link observed.
    pub(super) fn is_observed(self) -> bool {
        matches!(self, Self::Share | Self::Jitter)
    }

    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    pub fn unit(self) -> &'static str {
        self.row().unit
    }

    pub(super) fn analysed(self) -> Figure {
        self.row().analysed
    }

    pub fn more_is_better(self) -> bool {
        self.row().better == Better::More
    }

    /// Whether the first value is better than the second.
    pub fn is_better(self, one: f64, other: f64) -> bool {
        match self.row().better {
            Better::More => one > other,
            Better::Less => one < other,
        }
    }

    /// The verdict on a significant change by this ratio.
    pub(crate) fn verdict(self, ratio: f64) -> Verdict {
        let row = self.row();
        let is_better = (ratio > 1.0) == (row.better == Better::More);
        match is_better {
            true => row.verdicts.0,
            false => row.verdicts.1,
        }
    }

    /// A value without its unit.
    pub fn shown(self, value: f64) -> String {
        match self.row().digits {
            Digits::Rate => figures::rate(value),
            Digits::Millis => figures::millis(value),
        }
    }

    /// How many times as good as the other the better of two values is, from the ratio of one to the other.
    pub fn advantage(ratio: f64) -> f64 {
        ratio.max(1.0 / ratio)
    }

    /// `is 9.1 % faster than`, `answers 27 times sooner than`: what a side does whose value is this many times as good
    /// as the other's.
    pub fn phrase(self, advantage: f64) -> String {
        let row = self.row();
        let size = self.size(advantage);
        format!("{} {size} {} than", row.verb, row.comparative)
    }

    /// `is 9.1 % slower than`, `answers 27 times sooner than`: what a later side does whose value is this ratio of an
    /// earlier one's. The share is that of the earlier value, as in tables.
    pub fn change(self, ratio: f64) -> String {
        let row = self.row();
        let word = match self.is_better(ratio, 1.0) {
            true => row.comparative,
            false => row.worse,
        };
        let size = match Self::advantage(ratio) {
            times if times >= 2.0 => self.size(times),
            _ => format!("{} %", percent((ratio - 1.0).abs() * 100.0)),
        };
        format!("{} {size} {word} than", row.verb)
    }

    /// The ends of an interval of ratios, in the form that [`change`](Self::change) gives the ratio between them.
    pub fn change_interval(self, ratio: f64, (low, high): (f64, f64)) -> String {
        let is_less = ratio < 1.0;
        match Self::advantage(ratio) {
            times if times >= 2.0 => {
                let ends = if is_less {
                    (1.0 / high, 1.0 / low)
                } else {
                    (low, high)
                };
                self.interval(times, ends)
            }
            _ => {
                let sign = if is_less { -100.0 } else { 100.0 };
                let mut ends = [low, high].map(|end| (end - 1.0) * sign);
                ends.sort_by(f64::total_cmp);
                format!("{} to {} %", percent(ends[0]), percent(ends[1]))
            }
        }
    }

    /// `27 times`, `9.1 %`: below twice, a figure of which more is better is larger by this share, and one of which
    /// less is better is smaller by it.
    pub fn size(self, advantage: f64) -> String {
        match advantage {
            _ if advantage >= 9.95 => format!("{advantage:.0} times"),
            _ if advantage >= 2.0 => format!("{advantage:.1} times"),
            _ => format!("{} %", percent(self.share(advantage))),
        }
    }

    /// The size of the ends of an interval, in the form that [`size`](Self::size) gives the advantage between them.
    pub fn interval(self, advantage: f64, (low, high): (f64, f64)) -> String {
        let times = |value: f64| match value {
            _ if value >= 9.95 => format!("{value:.0}"),
            // On which side of "no difference" it is.
            _ if (0.95..1.05).contains(&value) => format!("{value:.2}"),
            _ if value >= 0.5 => format!("{value:.1}"),
            _ => format!("1/{:.0}", 1.0 / value),
        };
        match advantage >= 2.0 {
            true => format!("{} to {} times", times(low), times(high)),
            false => format!(
                "{} to {} %",
                percent(self.share(low)),
                percent(self.share(high))
            ),
        }
    }

    /// The advantage in percent of the worse value; negative if it is none.
    fn share(self, advantage: f64) -> f64 {
        match self.row().better {
            Better::More => (advantage - 1.0) * 100.0,
            Better::Less => (1.0 - 1.0 / advantage) * 100.0,
        }
    }
}

impl FromStr for FigureName {
    type Err = UnknownFigure;

    fn from_str(name: &str) -> Result<Self, UnknownFigure> {
        let mut rows = Self::ROWS.iter();
        let row = rows.find(|row| row.name == name);
        row.map(|row| row.figure).ok_or_else(|| UnknownFigure {
            name: name.to_owned(),
        })
    }
}

/// Two digits, as far as they mean something.
pub(super) fn percent(value: f64) -> String {
    match value.abs() {
        size if size >= 9.95 => format!("{value:.0}"),
        size if size >= 0.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_figure_has_its_row() {
        for row in FigureName::ROWS {
            assert_eq!(row.figure.row().name, row.name);
            assert_eq!(row.name.parse(), Ok(row.figure));
            assert_eq!(serde_json::to_value(row.figure).unwrap(), row.name);
        }
        let last = FigureName::ROWS.last().map(|row| row.figure);
        assert_eq!(last, Some(FigureName::Jitter), "a new figure needs a row");
    }

    #[test]
    fn an_unknown_figure_names_those_that_exist() {
        let error = "p98".parse::<FigureName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"p98\" is not a figure (ops, bytes, response, mean, p50, p90, p95, p99, p99.9, spread, cpu, client-cpu, \
             net-bytes, share, jitter)"
        );
    }

    #[test]
    fn each_figure_is_documented() {
        let page = include_str!("../../../../docs/compare.md");
        let table: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        for row in FigureName::ROWS {
            let cell = format!("`{}`", row.name);
            assert!(table.iter().any(|line| line.contains(&cell)), "{cell}");
        }
    }

    #[test]
    fn the_winner_has_the_words() {
        for (figure, advantage, expected) in [
            (FigureName::Ops, 27.2, "is 27 times faster than"),
            (FigureName::Ops, 1.091, "is 9.1 % faster than"),
            (FigureName::Response, 26.6, "answers 27 times sooner than"),
            (FigureName::Response, 1.25, "answers 20 % sooner than"),
            (FigureName::Cpu, 3.0, "costs 3.0 times less CPU than"),
            (FigureName::Spread, 1.25, "is 20 % steadier than"),
            (
                FigureName::NetBytes,
                1.25,
                "costs 20 % less network traffic than",
            ),
            (FigureName::Share, 1.5, "has 33 % fewer than"),
            (FigureName::P99, 2.0, "is done 2.0 times sooner than"),
        ] {
            assert_eq!(figure.phrase(advantage), expected);
        }
        assert_eq!(
            FigureName::Ops.interval(27.0, (24.6, 29.9)),
            "25 to 30 times"
        );
        assert_eq!(FigureName::Ops.interval(1.09, (1.06, 1.126)), "6.0 to 13 %");
        assert_eq!(
            FigureName::Ops.interval(1.02, (0.97, 1.07)),
            "-3.0 to 7.0 %"
        );
    }
}
