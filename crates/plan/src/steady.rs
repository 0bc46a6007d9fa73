//! `until = "steady"`: when a load is in steady state, by fio's keys or SNIA's rule.

use benchmesh_analysis::steady::{Limit, ROUNDS, Rule};
use benchmesh_workloads::declare_words;
use benchmesh_workloads::params::{
    KeyValue, ValueType,
    units::{Bytes, Span},
};
use serde_json::{Value, json};
use std::time::Duration;

const FORMS: &str = "\"iops:5%\", \"iops_slope:0.1%\", \"bw:10m\", \"bw_slope:1%\", \"lat:500us\" or \"lat_slope:1%\"";

declare_words! {
    /// Ends the steps of a phase before their `runtime`.
    pub enum Until {
        Steady = "steady",
    }
}

declare_words! {
    /// The judged figure, over all tasks of a step together.
    pub enum SteadyFigure {
        /// Operations per second.
        Iops = "iops",
        /// Bytes per second.
        Bw = "bw",
        /// The mean latency of a second's operations, in nanoseconds.
        Lat = "lat",
    }
}

/// The steady-state criterion of a step's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    pub figure: SteadyFigure,
    pub rule: Rule,
    /// Whole seconds; for [`Rule::Rounds`] a multiple of the rounds.
    pub window: Duration,
    /// Earlier seconds are ignored.
    pub ramp: Duration,
}

impl Steady {
    /// Seconds in a window.
    pub fn seconds(&self) -> usize {
        usize::try_from(self.window.as_secs()).unwrap_or(usize::MAX)
    }

    /// Number of seconds that make one value.
    pub fn seconds_of_value(&self) -> usize {
        match self.rule {
            Rule::Rounds => (self.seconds() / ROUNDS).max(1),
            Rule::Deviation(_) | Rule::Slope(_) => 1,
        }
    }
}

/// The value of `ss`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    pub figure: SteadyFigure,
    pub rule: Rule,
}

impl KeyValue for Criterion {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "FIGURE:LIMIT, such as \"iops:5%\"",
            schema: || json!({"type": "string", "pattern": "^(iops|bw|lat)(_slope)?:.+$"}),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(String::new)?;
        let (name, limit) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` is not a criterion: write {FORMS}"))?;
        let (figure, is_slope) = match name.strip_suffix("_slope") {
            Some(figure) => (figure, true),
            None => (name, false),
        };
        let figure = SteadyFigure::parse(figure)
            .ok_or_else(|| format!("unknown figure `{name}`: write {FORMS}"))?;
        let limit = limit_of(figure, limit)?;
        let rule = match is_slope {
            true => Rule::Slope(limit),
            false => Rule::Deviation(limit),
        };
        Ok(Self { figure, rule })
    }
}

fn limit_of(figure: SteadyFigure, text: &str) -> Result<Limit, String> {
    let wrong =
        |reason: String| format!("`{text}` is not a limit of `{}`: {reason}", figure.as_str());
    let positive = |number: f64| Some(number).filter(|number| number.is_finite() && *number > 0.0);
    let number = |text: &str| text.trim().parse::<f64>().ok().and_then(positive);
    if let Some(percent) = text.strip_suffix('%') {
        let percent = number(percent).filter(|percent| *percent <= 100.0);
        let percent = percent.ok_or_else(|| wrong(String::from("above 0% and up to 100%")))?;
        return Ok(Limit::Share(percent / 100.0));
    }
    let amount = match figure {
        SteadyFigure::Iops => {
            number(text).ok_or_else(|| wrong(String::from("expected a number above 0")))?
        }
        SteadyFigure::Bw => {
            let bytes: Result<Bytes, _> = text.parse();
            #[expect(clippy::cast_precision_loss, reason = "a limit to compare with")]
            let bytes = bytes.map(|bytes| bytes.0 as f64);
            bytes.map_err(|error| wrong(error.to_string()))?
        }
        SteadyFigure::Lat if number(text).is_some() => {
            return Err(wrong(format!("it has no unit, write {text}us or {text}ms")));
        }
        SteadyFigure::Lat => {
            let span: Result<Span, _> = text.parse();
            let span = span.map_err(|error| wrong(error.to_string()))?;
            span.0.as_secs_f64() * 1e9
        }
    };
    let amount = positive(amount).ok_or_else(|| wrong(String::from("it is not above 0")))?;
    Ok(Limit::Amount(amount))
}

/// The criterion of a step, delayed by the load's own ramp and by the stagger of its tasks.
pub(super) fn after_ramps(
    steady: Option<Steady>,
    ramps: impl Iterator<Item = Duration>,
    last_start: Duration,
) -> Option<Steady> {
    let steady = steady?;
    let ramp = ramps.fold(steady.ramp, Duration::max);
    Some(Steady {
        ramp: ramp.saturating_add(last_start),
        ..steady
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::parse;
    use super::*;

    fn steady_of(keys: &str) -> Steady {
        let text = format!(
            "[[phase]]\nworkload = \"null\"\nruntime = \"20m\"\nuntil = \"steady\"\n{keys}"
        );
        let plan = parse(&text, "p.toml").unwrap();
        plan.phases.first().and_then(|phase| phase.steady).unwrap()
    }

    #[test]
    fn the_rule_is_snias_unless_the_plan_has_one_of_fios() {
        let default = steady_of("");
        assert_eq!(
            (default.figure, default.rule),
            (SteadyFigure::Iops, Rule::Rounds)
        );
        assert_eq!((default.seconds(), default.seconds_of_value()), (300, 60));
        assert_eq!(default.ramp, Duration::ZERO);
        let share = |percent: f64| Limit::Share(percent / 100.0);
        for (ss, figure, rule) in [
            ("iops:5%", SteadyFigure::Iops, Rule::Deviation(share(5.0))),
            (
                "iops_slope:0.3%",
                SteadyFigure::Iops,
                Rule::Slope(share(0.3)),
            ),
            (
                "iops:500",
                SteadyFigure::Iops,
                Rule::Deviation(Limit::Amount(500.0)),
            ),
            (
                "bw:1m",
                SteadyFigure::Bw,
                Rule::Deviation(Limit::Amount(1_048_576.0)),
            ),
            (
                "lat_slope:2us",
                SteadyFigure::Lat,
                Rule::Slope(Limit::Amount(2000.0)),
            ),
        ] {
            let read = steady_of(&format!(
                "ss = \"{ss}\"\nss_dur = \"30s\"\nss_ramp = \"10s\"\n"
            ));
            assert_eq!((read.figure, read.rule), (figure, rule), "{ss}");
            assert_eq!((read.seconds(), read.seconds_of_value()), (30, 1));
            assert_eq!(read.ramp, Duration::from_secs(10));
        }
    }

    #[test]
    fn ramps_and_late_starts_are_not_judged() {
        let steady = steady_of("ss_ramp = \"10s\"\n");
        let after = |ramp: u64, last: u64| {
            let ramps = [Duration::from_secs(ramp)].into_iter();
            after_ramps(Some(steady), ramps, Duration::from_secs(last))
                .map(|steady| steady.ramp.as_secs())
        };
        assert_eq!(after(0, 0), Some(10));
        assert_eq!(after(30, 4), Some(34));
    }
}
