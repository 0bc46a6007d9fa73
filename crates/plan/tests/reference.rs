//! Compares docs/plan.md with the code, and parses the examples.
//!
//! The tables of the reference are between markers and are generated from the keys. After a change of a key,
//! `BENCHMESH_BLESS=1 cargo test -p benchmesh-plan --test reference` rewrites them.

#![allow(clippy::unwrap_used)]

use benchmesh_plan::{self as plan, keys};
use benchmesh_workloads::common::CommonKeys;
use benchmesh_workloads::op::Op;
use benchmesh_workloads::params::{Key, Keys};
use benchmesh_workloads::registry;
use benchmesh_workloads::workload::{Data, Workload};
use std::{fmt::Write as _, fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn table_of<K: Keys>() -> String {
    table(K::all())
}

fn table(keys: &[&Key]) -> String {
    let has_effects = keys.iter().any(|key| key.effect_words().is_some());
    let mut head = vec!["key", "type", "default", "meaning"];
    if has_effects {
        head.insert(3, "has an effect");
    }
    let mut table = row(&head) + &row(&vec!["---"; head.len()]);
    for key in keys {
        let (name, meaning) = (format!("`{}`", key.name), key.meaning());
        let kind = key.type_words().replace(" such as \"4k\"", "");
        let kind = kind.replace(" such as \"30s\"", "");
        let kind = kind.trim_start_matches("a ").replace("whole number, ", "");
        let effect = key.effect_words();
        let mut cells = vec![&*name, &*kind, key.default_words(), &*meaning];
        let everywhere = effect.as_deref().unwrap_or("in all modes");
        if has_effects {
            cells.insert(3, everywhere);
        }
        table += &row(&cells);
    }
    table
}

fn of_workload(workload: &dyn Workload) -> String {
    let mut text = format!("{}.\n\n", sentence(workload.summary()));
    text += &(row(&["mode", "what it does", "needs", "records"]) + &row(&["---"; 4]));
    for mode in workload.modes() {
        let needs = match mode.needs {
            Data::Nothing => "-",
            Data::Laid(what) => what,
        };
        let ops: Vec<&str> = mode.ops.iter().map(|op| op.as_str()).collect();
        text += &row(&[
            &format!("`{}`", mode.name),
            mode.meaning,
            needs,
            &ops.join(", "),
        ]);
    }
    text + "\n" + &table(workload.keys().list)
}

fn operations() -> String {
    let mut table =
        row(&["operation", "what is timed, and what counts as bytes"]) + &row(&["---"; 2]);
    for op in Op::ALL {
        table += &row(&[&format!("`{op}`"), op.doc()]);
    }
    table
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    first + letters.as_str()
}

/// The text between the markers, by name.
fn blocks() -> Vec<(String, String)> {
    let mut workloads = String::new();
    for workload in registry::all() {
        write!(
            workloads,
            "### `{}`\n\n{}\n",
            workload.name(),
            of_workload(*workload)
        )
        .unwrap();
    }
    vec![
        (String::from("top"), table_of::<keys::TopKeys>()),
        (String::from("targets"), table_of::<keys::TargetKeys>()),
        (String::from("alarms"), table_of::<keys::AlarmKeys>()),
        (
            String::from("objectives"),
            table_of::<keys::ObjectiveKeys>(),
        ),
        (String::from("clients"), table_of::<keys::ClientsKeys>()),
        (
            String::from("phase"),
            table(&[keys::LoadKeys::all(), keys::PhaseKeys::all()].concat()),
        ),
        (
            String::from("groups"),
            table(&[keys::GroupKeys::all(), keys::LoadKeys::all()].concat()),
        ),
        (String::from("curve"), table_of::<keys::CurveKeys>()),
        (String::from("search"), table_of::<keys::SearchKeys>()),
        (String::from("peers"), table_of::<keys::LinkKeys>()),
        (String::from("every"), table_of::<CommonKeys>()),
        (
            String::from("workloads"),
            workloads.trim_end().to_owned() + "\n",
        ),
        (String::from("operations"), operations()),
    ]
}

#[test]
fn the_reference_says_what_the_code_does() {
    let path = root().join("docs/plan.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut expected = text.clone();
    for (name, block) in blocks() {
        let (begin, end) = (
            format!("<!-- begin {name} -->\n"),
            format!("<!-- end {name} -->"),
        );
        let from = expected
            .find(&begin)
            .unwrap_or_else(|| panic!("no marker {begin}"))
            + begin.len();
        let until = expected
            .find(&end)
            .unwrap_or_else(|| panic!("no marker {end}"));
        expected.replace_range(from..until, &format!("\n{block}\n"));
    }
    if std::env::var_os("BENCHMESH_BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "docs/plan.md is behind the code; the head of this test says how to write it anew"
    );
}

#[test]
fn every_example_is_a_plan_and_every_workload_has_one() {
    let (mut seen, mut modes) = (Vec::new(), Vec::new());
    let plans = [("plans/examples", 3), ("plans/studies", 48)];
    let plans = plans.into_iter().flat_map(|(folder, agents)| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(move |entry| (entry.unwrap().path(), agents))
    });
    for (path, agents) in plans {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let plan = plan::parse(&text, &name).unwrap_or_else(|errors| panic!("{errors}"));
        let agents = plan::assumed_agents(&plan, agents);
        let expansion = plan::expand(&plan, &agents).unwrap_or_else(|errors| panic!("{errors}"));
        // A preset has cells that are too small for one of its modes.
        let is_whole = expansion.warnings.is_empty() || path.ends_with("five-systems.toml");
        let warnings = &expansion.warnings;
        assert!(
            !expansion.steps.is_empty() && is_whole,
            "{name}: {warnings:?}"
        );
        let groups = || plan.phases.iter().flat_map(|phase| &phase.groups);
        seen.extend(groups().map(|group| group.workload.0.name()));
        for group in groups() {
            let name = group.workload.0.name();
            modes.extend(group.modes.iter().map(|mode| (name, mode.clone())));
        }
    }
    for workload in registry::all() {
        assert!(
            seen.contains(&workload.name()),
            "no example for {}",
            workload.name()
        );
    }
    for name in ["io", "network"] {
        for mode in registry::find(name).unwrap().modes() {
            let shown = modes.contains(&(name, mode.name.to_owned()));
            assert!(shown, "no example for {name}'s {}", mode.name);
        }
    }
}

#[test]
fn the_plans_of_the_reference_are_plans() {
    let text = fs::read_to_string(root().join("docs/plan.md")).unwrap();
    let mut plans = 0;
    for block in text.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        if block.contains("[[phase]]") {
            plan::parse(block, "docs/plan.md").unwrap_or_else(|errors| panic!("{errors}"));
            plans += 1;
        }
    }
    assert!(plans > 0);
}
