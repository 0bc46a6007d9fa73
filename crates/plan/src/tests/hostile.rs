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

fn refused(text: &str) -> String {
    parse(text, "p.toml").unwrap_err().to_string()
}

/// 81 KB that stand for 28,000 phases.
#[test]
fn phases_of_presets_are_counted_before_they_are_made() {
    let one = |at: usize| format!("[[phase]]\npreset = \"iozone-a\"\nname = \"{at}\"\n");
    let text: String = (0..2000).map(one).collect();
    let refused = refused(&format!(
        "[targets.a]\nsystem = \"x\"\npath = \"/mnt\"\n{text}"
    ));
    let of_preset = find_preset("iozone-a").unwrap().phases().len();
    let expected = format!("the plan has {} phases; at most 1000", 2000 * of_preset);
    assert!(refused.contains(&expected), "{refused}");
}

#[test]
fn cells_are_bounded_over_all_phases() {
    let many = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>();
    let phase = |at: usize, numjobs: usize| {
        format!(
            "[[phase]]\nname = \"{at}\"\nworkload = \"null\"\nmodes = [\"run\"]\n\
             matrix = {{ numjobs = [{}], ops = [{}] }}\n",
            many(numjobs).join(", "),
            many(100).join(", ")
        )
    };
    let text: String = (0..12).map(|at| phase(at, 90)).collect();
    let refused = refused(&text);
    assert!(refused.contains("more than 100000 steps"), "{refused}");
    assert!(refused.contains("phase.12"), "{refused}");
}

#[test]
fn mistakes_beyond_a_thousand_are_not_listed() {
    let text: String = (0..999)
        .map(|at| format!("[[phase]]\nname = \"{at}\"\nworkload = \"none\"\nx = 1\ny = 2\n"))
        .collect();
    let errors = parse(&text, "p.toml").unwrap_err().errors;
    assert!(errors.len() <= 1001, "{}", errors.len());
}

#[test]
fn reading_and_expanding_end_when_they_are_cancelled() {
    let text = "[[phase]]\nworkload = \"null\"\nmodes = [\"run\"]\nops = 1\n";
    let cancel = Cancel::default();
    let plan = parse_for(text, "p.toml", &cancel).unwrap();
    let agents = assumed_agents(&plan, 1);
    assert_eq!(expand(&plan, &agents).unwrap().steps.len(), 1);
    cancel.cancel();
    for cancelled in [
        parse_for(text, "p.toml", &cancel).map(drop),
        expand(&plan, &agents).map(drop),
    ] {
        let error = cancelled.unwrap_err().to_string();
        assert!(error.contains("cancelled"), "{error}");
    }
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
