//! The names of loads. Steps with the same name measure the same load: again, or on another target or link.

use super::{StepReport, params, varying};
use std::collections::{BTreeMap, BTreeSet};

/// The name of each step's load: `records: write (bs=4k clients=3)`, with the parameters, clients and cache that differ
/// between the steps of its phase and mode.
pub fn load_names(steps: &[StepReport]) -> Vec<String> {
    let varying = varying(steps);
    let mut seen: BTreeMap<(&str, &str), [BTreeSet<String>; 2]> = BTreeMap::new();
    for step in steps {
        let of_mode = seen.entry(phase_and_mode(step)).or_default();
        for (seen, word) in of_mode.iter_mut().zip(clients_and_cache(step)) {
            seen.insert(word);
        }
    }
    let name = |step: &StepReport| {
        let differing = clients_and_cache(step)
            .into_iter()
            .zip(seen.get(&phase_and_mode(step)).into_iter().flatten())
            .filter(|(_, seen)| seen.len() > 1)
            .map(|(word, _)| word);
        let words: Vec<String> = [params(step, &varying)]
            .into_iter()
            .chain(differing)
            .filter(|word| !word.is_empty())
            .collect();
        let words = match words.is_empty() {
            true => String::new(),
            false => format!(" ({})", words.join(" ")),
        };
        format!("{}: {}{words}", step.phase, step.mode)
    };
    steps.iter().map(name).collect()
}

fn phase_and_mode(step: &StepReport) -> (&str, &str) {
    (&step.phase, &step.mode)
}

/// `clients=3`, with groups `readers.clients=2 writers.clients=1`; `cache=cold`.
fn clients_and_cache(step: &StepReport) -> [String; 2] {
    let clients = match step.groups.as_slice() {
        [] => format!("clients={}", step.clients),
        groups => groups
            .iter()
            .map(|group| format!("{}.clients={}", group.name, group.clients))
            .collect::<Vec<_>>()
            .join(" "),
    };
    [clients, format!("cache={}", step.cache)]
}

#[cfg(test)]
mod tests {
    use super::super::GroupReport;
    use super::*;
    use crate::report::tests::step;
    use serde_json::Map;

    /// A step of phase `records` with these keys: `phase`, `mode`, `target`, `repeat`, `loop`, `clients`, `cache`,
    /// `GROUP.clients`, or a parameter.
    fn planned(ordinal: i64, keys: &str) -> StepReport {
        let mut one = step(ordinal, "records", "write");
        for (key, value) in keys.split(' ').filter_map(|word| word.split_once('=')) {
            let number = value.parse().unwrap_or(1);
            match key {
                "phase" => one.phase = value.to_owned(),
                "mode" => one.mode = value.to_owned(),
                "target" => one.target = value.to_owned(),
                "repeat" => one.repeat = number,
                "loop" => one.loop_number = number,
                "clients" => one.clients = number,
                "cache" => one.cache = value.to_owned(),
                key => match key.strip_suffix(".clients") {
                    Some(name) => one.groups.push(GroupReport {
                        name: name.to_owned(),
                        workload: one.workload.clone(),
                        mode: one.mode.clone(),
                        params: Map::new(),
                        clients: number,
                        tasks: number,
                        beside: Map::new(),
                    }),
                    None => drop(one.params.insert(key.to_owned(), value.into())),
                },
            }
        }
        one
    }

    #[test]
    fn steps_share_a_name_only_if_they_measure_the_same_load() {
        let cases: [(&str, &[&str], &[&str]); 8] = [
            (
                "repeats, loops and targets are the same load",
                &["target=a", "target=b", "target=a repeat=2", "loop=2"],
                &["records: write"; 4],
            ),
            (
                "clients",
                &["clients=1", "clients=4", "clients=4 repeat=2"],
                &[
                    "records: write (clients=1)",
                    "records: write (clients=4)",
                    "records: write (clients=4)",
                ],
            ),
            (
                "any parameter",
                &["tasks-per-agent=1", "tasks-per-agent=2"],
                &[
                    "records: write (tasks-per-agent=1)",
                    "records: write (tasks-per-agent=2)",
                ],
            ),
            (
                "a parameter that only some steps have",
                &["rwmixread=70", ""],
                &["records: write (rwmixread=70)", "records: write"],
            ),
            (
                "several keys",
                &["bs=4k fsync=1 cache=cold", "bs=64k fsync=1 clients=2"],
                &[
                    "records: write (bs=4k clients=3 cache=cold)",
                    "records: write (bs=64k clients=2 cache=asis)",
                ],
            ),
            (
                "modes are compared with themselves",
                &["bs=4k", "bs=4k", "mode=read bs=64k", "mode=read bs=64k"],
                &[
                    "records: write",
                    "records: write",
                    "records: read",
                    "records: read",
                ],
            ),
            (
                "and so are phases",
                &["cache=cold", "phase=files cache=warm"],
                &["records: write", "files: write"],
            ),
            (
                "groups",
                &[
                    "readers.clients=1 writers.clients=2",
                    "readers.clients=2 writers.clients=1",
                ],
                &[
                    "records: write (readers.clients=1 writers.clients=2)",
                    "records: write (readers.clients=2 writers.clients=1)",
                ],
            ),
        ];
        for (name, keys, expected) in cases {
            let steps: Vec<StepReport> = (1..)
                .zip(keys)
                .map(|(ordinal, keys)| planned(ordinal, keys))
                .collect();
            assert_eq!(load_names(&steps), expected, "{name}");
        }
    }
}
