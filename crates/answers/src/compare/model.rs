//! Requests and answers of comparisons as plain data: the document of `--format json`.

use super::figure::FigureName;
use benchmesh_model::mesh::RunId;
use benchmesh_results::Finding;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::str::FromStr;

/// Changes whenever a field of the JSON document changes its meaning or is removed.
pub const COMPARISON_FORMAT: u32 = 3;

/// What to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    #[serde(flatten)]
    pub subject: Subject,
    /// Figures to compare besides those that are always listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureName>,
}

impl From<Subject> for Request {
    fn from(subject: Subject) -> Self {
        Self {
            subject,
            figures: Vec::new(),
        }
    }
}

/// The subject of a comparison. A run is named by its id, uid or name; `last` is the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    /// `a` is the reference for `b`.
    Runs { a: String, b: String },
    /// The targets of one run: each compared with the first of the plan.
    Targets { run: String },
    /// The values of a key of a run's cells, or, by `version` or `tag.NAME`, the groups of a plan's runs; `run` is the
    /// plan's name then. `only` selects cells.
    By {
        run: String,
        key: String,
        #[serde(default)]
        only: Vec<KeyFilter>,
    },
    /// The newest run of a plan against this number of earlier ones. `plan` is a plan's name, `last` for the plan of
    /// the newest run, or the id or uid of a run, which is then compared with earlier ones of its plan.
    Last { plan: String, runs: u32 },
    /// A run against those saved under a name.
    Baseline { name: String, run: String },
    /// The change points of all runs of a plan.
    Trend { plan: String },
}

impl Subject {
    /// The values of a key of a run, by default of the newest; those of `target` without a selection are its targets.
    pub fn by(key: String, run: Option<String>, only: Vec<KeyFilter>) -> Self {
        let run = run.unwrap_or_else(|| String::from("last"));
        match key == "target" && only.is_empty() {
            true => Self::Targets { run },
            false => Self::By { run, key, only },
        }
    }
}

/// Selects the cells with this value of a key: `bs=4k`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFilter {
    pub key: String,
    pub value: String,
}

/// A text that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write KEY=VALUE, such as bs=4k")]
pub struct NotASelection;

impl FromStr for KeyFilter {
    type Err = NotASelection;

    fn from_str(text: &str) -> Result<Self, NotASelection> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Self {
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            }),
            _ => Err(NotASelection),
        }
    }
}

/// The complete answer of `benchmesh compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareAnswer {
    pub format: u32,
    pub comparisons: Vec<Comparison>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trend: Option<Trend>,
}

/// Side B compared with side A.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub a: Side,
    pub b: Side,
    /// Statements about the sides as a whole: differences between their clusters, and the rates that searches found.
    #[serde(default)]
    pub beside: Vec<String>,
    /// Findings of side B whose kind and subject side A does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new_findings: Vec<Finding>,
    pub rows: Vec<ComparisonRow>,
    /// Cells that only one side has, or that have different keys on the other side.
    pub incomparable: Vec<Incomparable>,
    /// Notes on the comparison as a whole.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The name in sentences and tables: a target, a run's name or its id.
    pub label: String,
    pub target: Option<String>,
    pub runs: Vec<RunRef>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRef {
    pub id: RunId,
    pub name: String,
    pub state: String,
    pub created_us: i64,
    /// The tool that wrote the imported output.
    pub imported_from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B has a higher rate or a shorter latency.
    Faster,
    Slower,
    /// B needs less CPU time or network traffic per operation.
    Cheaper,
    Costlier,
    /// B loses less, jitters less, or varies less between seconds.
    Better,
    Worse,
    NoDifferenceShown,
    /// There are too few repeats, or they vary too much, to detect a relevant difference.
    TooFewRepeats,
    NotComparable,
    /// A secondary figure, without a verdict.
    NotJudged,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Cheaper => "cheaper",
            Self::Costlier => "costlier",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooFewRepeats => "too few repeats",
            Self::NotComparable => "not comparable",
            Self::NotJudged => "not judged",
        }
    }

    /// Whether B is worse.
    pub fn is_worse(self) -> bool {
        matches!(self, Self::Slower | Self::Costlier | Self::Worse)
    }

    pub fn is_shown(self) -> bool {
        matches!(
            self,
            Self::Faster
                | Self::Slower
                | Self::Cheaper
                | Self::Costlier
                | Self::Better
                | Self::Worse
        )
    }
}

/// One figure of one cell and operation on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRow {
    pub phase: String,
    pub group: String,
    pub workload: String,
    pub mode: String,
    /// Empty for CPU time and traffic, which cover all operations of a step.
    pub op: String,
    /// The keys that distinguish the cells of a phase.
    pub cell: Map<String, Json>,
    pub figure: FigureName,
    pub unit: String,
    /// The rate is per client, because a side has lost some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_client: bool,
    /// The daemons that used this CPU time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<String>,
    pub a: SideValue,
    pub b: SideValue,
    /// Ratio of B to A.
    pub ratio: f64,
    /// Whether it is the primary figure of its load, which has a verdict.
    pub judged: bool,
    /// 95 % confidence interval of the ratio. For a primary figure it is corrected for the loads of the answer, like
    /// its verdict. `None` if it is unknown, or too wide to be useful.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Probability of such a ratio if there is no real difference.
    pub p: Option<f64>,
    /// The same, corrected for the same figure of all loads of the answer (Holm).
    pub p_corrected: Option<f64>,
    /// The units behind the interval: `runs`, `repeats`, `pairs` of repeats, or `seconds` of single runs.
    pub noise: Option<String>,
    /// Hedges' g over repeats, or over the seconds of single runs.
    pub effect: Option<f64>,
    pub verdict: Verdict,
    /// The reason for a missing verdict, or the way to get one.
    pub why: Option<String>,
    /// Flags that weaken the verdict: `A is tool-bound, noisy`.
    pub caveats: Vec<String>,
}

/// A figure of one side, combined from several repeats (docs/compare.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideValue {
    pub value: f64,
    pub repeats: usize,
    /// Standard deviation of the repeats, in percent of their mean.
    pub spread_percent: Option<f64>,
    /// The smallest and the largest of the repeats.
    pub least: f64,
    pub most: f64,
    /// The ids of its steps.
    #[serde(default)]
    pub steps: Vec<i64>,
}

/// A cell that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomparable {
    pub what: String,
    pub why: String,
}

/// All runs of a plan, and the change points of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    pub plan: String,
    pub runs: Vec<RunRef>,
    pub rows: Vec<TrendRow>,
}

/// The history of one figure of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrendRow {
    /// Phase, mode, operation, target and the keys that distinguish the cell.
    pub what: String,
    pub figure: FigureName,
    pub unit: String,
    /// Index of the run in `runs` and its figure, oldest first.
    pub values: Vec<(usize, f64)>,
    /// Whether there are enough values to detect a change.
    pub is_told: bool,
    pub changes: Vec<TrendChange>,
}

/// The level changed with this run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrendChange {
    pub run: RunRef,
    pub before: f64,
    pub after: f64,
    pub p: f64,
    pub verdict: Verdict,
}
