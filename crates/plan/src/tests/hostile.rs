//! Damaged plans are parsed or refused with their mistakes, in bounded memory.

use super::*;
use benchmesh_testing::hostile::{damaged_text, withstands};
use proptest::prelude::*;

/// The example plans for new users.
fn examples() -> Vec<String> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let files = ["", "examples"].map(|part| std::fs::read_dir(directory.join(part)).unwrap());
    let files = files
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let plans = files.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    plans
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn damaged_plans_are_understood_or_refused() {
    let plans = examples();
    assert!(plans.len() > 10);
    withstands(damaged_text(plans, 32 << 10), 256 << 20, |text| {
        let plan = match parse(&text, "p.toml") {
            Ok(plan) => plan,
            Err(errors) => {
                prop_assert!(!errors.to_string().is_empty());
                return Ok(());
            }
        };
        let agents = assumed_agents(&plan, 3);
        match expand(&plan, &agents) {
            Ok(expansion) => {
                let _ = check_limits(&plan, &expansion, &agents);
            }
            Err(errors) => prop_assert!(!errors.to_string().is_empty()),
        }
        Ok(())
    });
}

#[test]
fn damaged_overrides_are_applied_or_refused() {
    let overrides = [
        "repeat=3",
        "phase.0.size=4k",
        "targets.a.path=/mnt/x",
        "name=\"a b\"",
        "phase.records.matrix.bs=[\"4k\", \"8k\"]",
    ];
    let overrides: Vec<String> = overrides.map(str::to_owned).to_vec();
    let plan = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/examples/matrix.toml"),
    )
    .unwrap();
    withstands(damaged_text(overrides, 8 << 10), 64 << 20, |one| {
        if let Ok(text) = set(&plan, "p.toml", &[one]) {
            let _ = parse(&text, "p.toml");
        }
        Ok(())
    });
}
