//! The names of steps in progress: phase, mode and place, and the parameters that distinguish a step from its
//! neighbours.
//!
//! Pure. These parameters are known if the plan is known; otherwise the usual ones are shown.

use benchmesh_answers::report::figures;
use benchmesh_scheduler::snapshot::StepPlanned;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The parameters that most often distinguish the steps of a phase.
const USUAL: &[&str] = &[
    "bs",
    "size",
    "files",
    "numjobs",
    "iodepth",
    "streams",
    "rate",
    "rate_iops",
];

/// Minimum and maximum width of the column of names.
const MIN_WIDTH: usize = 24;
const MAX_WIDTH: usize = 56;

/// What is known of a run beforehand: the naming of its steps, and how it ends.
#[derive(Clone, Debug)]
pub struct Names {
    /// By phase and mode, the parameters that differ between its steps; `None` if the plan is unknown. A parameter of
    /// only one mode distinguishes no steps, so each mode is treated separately.
    varying: Option<BTreeMap<(String, String), BTreeSet<String>>>,
    /// Width of the column of names.
    pub width: usize,
    /// Whether the run ends before its time once its results are precise.
    pub may_end_early: bool,
}

impl Names {
    /// For known steps.
    pub fn of(steps: &[StepPlanned]) -> Self {
        let mut firsts: BTreeMap<(&str, &str), &StepPlanned> = BTreeMap::new();
        let mut varying: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for step in steps {
            let first = *firsts.entry((&step.phase, &step.mode)).or_insert(step);
            let (own, first) = (flat(&step.params), flat(&first.params));
            let keys = own.keys().chain(first.keys());
            let differing = keys.filter(|key| own.get(*key) != first.get(*key));
            varying
                .entry((step.phase.clone(), step.mode.clone()))
                .or_default()
                .extend(differing.cloned());
        }
        let mut names = Self {
            varying: Some(varying),
            width: 0,
            may_end_early: false,
        };
        let widest = steps.iter().map(|step| {
            names
                .name(&step.phase, &step.mode, &step.place(), &step.params)
                .chars()
                .count()
        });
        names.width = widest.max().unwrap_or(0).clamp(MIN_WIDTH, MAX_WIDTH);
        names
    }

    /// For a run whose plan is not available.
    pub fn unknown() -> Self {
        Self {
            varying: None,
            width: MAX_WIDTH,
            may_end_early: false,
        }
    }

    /// Those of a run that ends before its time once its results are precise.
    pub fn of_precise_run(self) -> Self {
        Self {
            may_end_early: true,
            ..self
        }
    }

    /// `small files: create, cephfs (bs=4k)`.
    pub fn name(
        &self,
        phase: &str,
        mode: &str,
        place: &str,
        params: &Map<String, Value>,
    ) -> String {
        let mut name = format!("{phase}: {mode}");
        if !place.is_empty() {
            name.push_str(&format!(", {place}"));
        }
        let shown = self.shown(phase, mode, params);
        if !shown.is_empty() {
            name.push_str(&format!(" ({shown})"));
        }
        name
    }

    fn shown(&self, phase: &str, mode: &str, params: &Map<String, Value>) -> String {
        let varying = self.varying.as_ref();
        let of_mode = varying.map(|known| known.get(&(phase.to_owned(), mode.to_owned())));
        let telling = |key: &str| match of_mode {
            Some(keys) => keys.is_some_and(|keys| keys.contains(key)),
            None => key
                .rsplit('.')
                .next()
                .is_some_and(|last| USUAL.contains(&last)),
        };
        let shown: Vec<String> = flat(params)
            .iter()
            .filter(|(key, _)| telling(key))
            .map(|(key, value)| format!("{key}={}", figures::parameter(value)))
            .collect();
        shown.join(" ")
    }
}

/// Names the parameters of groups like `readers.bs`. The parameters of a step with groups consist only of tables, one
/// per group; a table among other values (`data = { compress = 50 }`) is a single parameter.
fn flat(params: &Map<String, Value>) -> BTreeMap<String, &Value> {
    let of_groups = params.values().all(Value::is_object);
    let each = params.iter().flat_map(|(key, value)| match value {
        Value::Object(of_group) if of_groups => of_group
            .iter()
            .map(|(inner, value)| (format!("{key}.{inner}"), value))
            .collect(),
        value => vec![(key.clone(), value)],
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn step(phase: &str, params: &str) -> StepPlanned {
        StepPlanned {
            phase: phase.into(),
            mode: "read".into(),
            target: "cephfs".into(),
            params: serde_json::from_str(params).unwrap(),
            ..StepPlanned::default()
        }
    }

    #[test]
    fn a_group_s_parameter_has_the_group_s_name() {
        let steps = [
            step("a", r#"{"writer": {"bs": "64k", "runtime": "4s"}}"#),
            step("a", r#"{"writer": {"bs": "1m", "runtime": "4s"}}"#),
        ];
        let names = Names::of(&steps);
        assert_eq!(
            names.name("a", "read", "cephfs", &steps[1].params),
            "a: read, cephfs (writer.bs=1m)"
        );
    }

    #[test]
    fn a_table_among_values_is_no_group() {
        let steps = [
            step("a", r#"{"bs": "4k", "data": {"compress": 50}}"#),
            step("a", r#"{"bs": "4k", "data": {"compress": 80}}"#),
        ];
        assert_eq!(
            Names::of(&steps).name("a", "read", "cephfs", &steps[0].params),
            "a: read, cephfs (data={\"compress\":50})"
        );
        let of_group = step("a", r#"{"writer": {"bs": "64k", "fsync": 1}}"#);
        assert_eq!(
            Names::unknown().name("a", "write", "cephfs", &of_group.params),
            "a: write, cephfs (writer.bs=64k)"
        );
    }

    #[test]
    fn what_only_one_mode_has_tells_nothing() {
        let mut ping = step("net", r#"{"streams": 1, "wait": "blocking"}"#);
        ping.mode = "ping".into();
        let steps = [step("net", r#"{"streams": 1}"#), ping];
        assert_eq!(
            Names::of(&steps).name("net", "ping", "", &steps[1].params),
            "net: ping"
        );
    }

    #[test]
    fn only_what_differs_is_in_a_name() {
        let steps = [
            step("a", r#"{"bs": "4k", "size": "1g"}"#),
            step("a", r#"{"bs": "64k", "size": "1g"}"#),
            step("b", r#"{"bs": "4k", "runtime": "1s"}"#),
        ];
        let name = |names: &Names, step: &StepPlanned| {
            names.name(&step.phase, &step.mode, &step.target, &step.params)
        };
        let known = Names::of(&steps);
        assert_eq!(
            steps.each_ref().map(|step| name(&known, step)),
            [
                "a: read, cephfs (bs=4k)",
                "a: read, cephfs (bs=64k)",
                "b: read, cephfs"
            ]
        );
        assert_eq!(known.width, 24);
        assert_eq!(
            name(&Names::unknown(), &steps[0]),
            "a: read, cephfs (bs=4k size=1g)"
        );
    }
}
