//! Presets, `scale`, and the plans of the studies.

use super::{TARGETS, agent, refused};
use crate::*;
use std::path::PathBuf;

fn expanded(phase: &str) -> Vec<PlannedStep> {
    let plan = parse(&format!("{phase}\n"), "p").unwrap();
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    expand(&plan, &agents).unwrap().steps
}

fn with_targets(phase: &str) -> String {
    format!("{TARGETS}[[phase]]\ntargets = [\"a\"]\n{phase}")
}

fn values<'s>(steps: &'s [PlannedStep], key: &str) -> Vec<Option<&'s serde_json::Value>> {
    steps
        .iter()
        .map(|step| step.loads[0].params.get(key))
        .collect()
}

#[test]
fn a_preset_stands_for_its_phases_with_the_keys_of_the_plan_in_them() {
    let steps = expanded(&with_targets(
        "preset = \"fio-4k\"\nname = \"one\"\nsize = \"1m\"\nruntime = \"2s\"",
    ));
    let modes: Vec<&str> = steps.iter().map(|step| step.mode.as_str()).collect();
    assert_eq!(modes, ["write", "read", "randwrite", "randread"]);
    assert!(steps.iter().all(|step| step.phase == "one: 4k"));
    assert!(
        values(&steps, "size")
            .iter()
            .all(|size| *size == Some(&"1m".into()))
    );
    assert!(
        values(&steps, "iodepth")
            .iter()
            .all(|depth| *depth == Some(&32.into()))
    );
}

#[test]
fn a_key_of_the_plan_replaces_the_list_of_a_preset_and_a_list_its_key() {
    let one = expanded(&with_targets(
        "preset = \"iozone-a\"\nbs = \"64k\"\nmatrix = { size = [\"4m\"] }\nstride = \"1m\"",
    ));
    // Nine tests use records, three use stdio.
    assert_eq!(one.len(), 12);
    assert!(
        values(&one, "bs")
            .iter()
            .all(|bs| *bs == Some(&"64k".into()))
    );
    let two = expanded(&with_targets(
        "preset = \"fio-4k\"\nsize = \"1m\"\nmatrix = { bs = [\"4k\", \"8k\"] }",
    ));
    assert_eq!(two.len(), 8);
}

#[test]
fn what_a_preset_does_not_take_is_refused_where_the_plan_says_it() {
    let refused = |phase: &str| refused(&with_targets(phase));
    let unknown = refused("preset = \"bonie-1.97\"");
    assert!(unknown.contains("did you mean `bonnie-1.97`?"), "{unknown}");
    let key = refused("preset = \"fio-4k\"\nsise = \"1m\"");
    assert!(key.contains("phase.1.sise: unknown key `sise`"), "{key}");
    assert!(key.contains("did you mean `size`?"), "{key}");
    let own = refused("preset = \"fio-4k\"\nmodes = [\"read\"]");
    assert!(own.contains("benchmesh plan preset fio-4k"), "{own}");
    let value = refused("preset = \"fio-4k\"\nsize = \"2x\"");
    assert!(value.contains("size = \"2x\"\n"), "{value}");
    let text = refused("preset = 3");
    assert!(
        text.contains("expected text in quotes, found a number"),
        "{text}"
    );
}

#[test]
fn the_same_preset_twice_needs_two_names() {
    let phase = "[[phase]]\npreset = \"fio-4k\"\n";
    assert!(
        refused(&format!("{TARGETS}{phase}{phase}")).contains("two phases are called `fio-4k: 4k`")
    );
}

#[test]
fn a_scale_multiplies_amounts_and_times_and_leaves_blocks() {
    let text = with_targets(
        "workload = \"io\"\nmodes = [\"write\"]\nsize = \"1g\"\nruntime = \"10m\"\nnumjobs = 3",
    );
    let steps = expanded(&set(&text, "p", &[String::from("scale=0.01")]).unwrap());
    assert_eq!(values(&steps, "size"), [Some(&"10m".into())]);
    assert_eq!(values(&steps, "runtime"), [Some(&"6s".into())]);
    assert_eq!(values(&steps, "numjobs"), [Some(&3.into())]);
    let tiny = expanded(&set(&text, "p", &[String::from("scale=0.0001")]).unwrap());
    assert_eq!(values(&tiny, "size"), [Some(&"1m".into())]);
    assert_eq!(values(&tiny, "runtime"), [Some(&"1s".into())]);
    let larger = expanded(&set(&text, "p", &[String::from("scale=2")]).unwrap());
    assert_eq!(values(&larger, "size"), [Some(&"2048m".into())]);
}

#[test]
fn a_scale_leaves_small_files_small_and_makes_equal_cells_one() {
    let text = with_targets(
        "workload = \"files\"\nmodes = [\"create\"]\nsize = \"40k\"\nmatrix = { files = [1000, 5000, 10] }",
    );
    let steps = expanded(&format!("scale = 0.01\n{text}"));
    assert_eq!(
        values(&steps, "files"),
        [Some(&10.into()), Some(&50.into()), Some(&1.into())]
    );
    assert!(
        values(&steps, "size")
            .iter()
            .all(|size| *size == Some(&"40k".into()))
    );
    let equal = expanded(&format!("scale = 0.0002\n{text}"));
    assert_eq!(values(&equal, "files"), [Some(&1.into())]);
}

#[test]
fn a_block_larger_than_the_scaled_file_becomes_the_file() {
    let text = with_targets("workload = \"io\"\nmodes = [\"write\"]\nsize = \"1g\"\nbs = \"1g\"");
    let steps = expanded(&format!("scale = 0.01\n{text}"));
    assert_eq!(values(&steps, "bs"), [Some(&"10m".into())]);
}

#[test]
fn a_scale_leaves_objects_as_large_as_they_are() {
    let pool =
        "[targets.p]\nsystem = \"rados\"\npool = \"bench\"\n[[phase]]\npreset = \"rados-bench\"";
    let plan = parse(&format!("scale = 0.01\n{pool}\n"), "p").unwrap();
    let params = &plan.phases[0].groups[0].cells[0].params;
    assert_eq!(params["size"], "4m");
    assert_eq!(params["runtime"], "1s");
}

#[test]
fn a_scale_out_of_its_range_is_refused() {
    let text = with_targets("workload = \"null\"");
    for bad in ["0", "-1", "1001", "\"half\""] {
        let message = refused(&format!("scale = {bad}\n{text}"));
        assert!(message.contains("a number, 0.0001 to 1000"), "{message}");
    }
}

#[test]
fn every_preset_begins_with_what_it_does_and_stands_in_the_reference() {
    let reference = include_str!("../../../../docs/plan.md");
    for preset in PRESETS {
        assert!(preset.summary().ends_with('.'), "{}", preset.name);
        assert!(
            reference.contains(&format!("| `{}` |", preset.name)),
            "{}",
            preset.name
        );
        let targets = match preset.name {
            "rados-bench" => "[targets.p]\nsystem = \"rados\"\npool = \"bench\"\n",
            _ => TARGETS,
        };
        parse(
            &format!("{targets}[[phase]]\npreset = \"{}\"\n", preset.name),
            "p",
        )
        .unwrap();
    }
}

#[test]
fn every_study_is_a_plan_whole_and_scaled_down() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plans/studies");
    let mut studies = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for scale in ["1", "0.01", "0.001"] {
            let scaled = set(&text, "p", &[format!("scale={scale}")]).unwrap();
            let plan =
                parse(&scaled, "p").unwrap_or_else(|errors| panic!("{path:?} {scale}: {errors}"));
            let agents = assumed_agents(&plan, 48);
            let steps =
                expand(&plan, &agents).unwrap_or_else(|errors| panic!("{path:?}: {errors}"));
            assert!(!steps.steps.is_empty());
        }
        studies += 1;
    }
    assert_eq!(studies, 5);
}
