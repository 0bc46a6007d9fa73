//! `keep` and `use`: which data can be kept, and how they are compared with existing data.

use super::{TARGETS, agent, refused};
use crate::*;
use benchmesh_testing::table;

fn plan(phases: &str) -> Plan {
    parse(&text(phases), "p").unwrap()
}

fn text(phases: &str) -> String {
    format!("{TARGETS}{phases}")
}

fn phase(keys: &str) -> String {
    format!(
        "[[phase]]\nname = \"{}\"\ntargets = [\"a\"]\n{keys}\n",
        keys.len()
    )
}

const KEEP: &str = "workload = \"files\"\nfiles = 100\nmodes = [\"create\"]\nkeep = \"small\"";

/// Checks the plan's steps against the existing sets, on this number of agents.
fn checked(phases: &str, agents: usize, there: &[KeptFacts]) -> Result<Expansion, String> {
    let plan = plan(phases);
    let names = ["w", "x", "y", "z"];
    let agents: Vec<AgentFacts> = names
        .iter()
        .take(agents)
        .map(|name| agent(name, &[], &["/mnt"]))
        .collect();
    let mut expansion = expand(&plan, &agents).unwrap();
    match check_kept(&plan, &mut expansion, there) {
        Ok(()) => Ok(expansion),
        Err(errors) => Err(errors.to_string()),
    }
}

/// The set that the first step of a plan would keep.
fn kept_by(phases: &str, agents: usize) -> KeptFacts {
    let step = checked(phases, agents, &[]).unwrap().steps.remove(0);
    let data = step.kept.unwrap();
    KeptFacts {
        name: data.name,
        path: step.path,
        shape: data.shape,
        tasks: u32::try_from(step.tasks.len()).unwrap(),
        is_whole: true,
    }
}

#[test]
fn what_cannot_stay_is_refused() {
    for [keys, expected] in table(
        r#"
        workload = "null"\nops = 1\nkeep = "x"                       | `null` has no data
        workload = "fill"\namount = "1m"\nmodes = ["fill"]\nkeep = "x" | the data of `fill` cannot be kept
        workload = "files"\nmodes = ["create", "delete"]\nkeep = "x" | mode `delete` removes the data, which must remain
        workload = "io"\nsize = "1m"\nmodes = ["write", "read"]\nuse = "x"
            | mode `write` creates the data, and `use` needs existing data
        workload = "io"\nmodes = ["read"]\nkeep = "x"\nmatrix = { size = ["1m", "2m"] }
            | the phase's cells have different data: `size` is 1048576 in one cell and 2097152 in another
        workload = "io"\nsize = "1m"\nmodes = ["read"]\nkeep = "x"\nuse = "x" | it conflicts with `keep`
        workload = "io"\nsize = "1m"\nmodes = ["read"]\nkeep = "a/b"
            | expected a name: letters, digits, `-`, `_` and `.`, at most 64
        "#,
    ) {
        let targets = if keys.contains("null") {
            ""
        } else {
            "targets = [\"a\"]\n"
        };
        let message = refused(&text(&format!("[[phase]]\n{targets}{keys}\n")));
        assert!(message.contains(&expected), "{keys}: {message}");
    }
}

#[test]
fn other_blocks_of_the_same_data_are_the_same_set() {
    let phases = phase(
        "workload = \"io\"\nsize = \"1m\"\nmodes = [\"read\", \"randread\"]\nkeep = \"x\"\nmatrix = { bs = [\"4k\", \"64k\"] }",
    );
    let steps = checked(&phases, 1, &[]).unwrap().steps;
    assert_eq!(steps.len(), 4);
    let shapes: Vec<_> = steps
        .iter()
        .map(|step| step.kept.clone().unwrap().shape)
        .collect();
    assert!(shapes.iter().all(|shape| *shape == shapes[0]), "{shapes:?}");
    assert!(shapes[0].contains_key("layout") && shapes[0]["workload"] == "io");
}

#[test]
fn use_takes_what_an_earlier_phase_or_run_keeps() {
    let uses = phase("workload = \"files\"\nfiles = 100\nmodes = [\"stat\"]\nuse = \"small\"");
    let message = checked(&uses, 2, &[]).unwrap_err();
    assert!(
        message.contains("no data are kept as `small` at /mnt/a; none are"),
        "{message}"
    );
    let both = format!("{}{uses}", phase(KEEP));
    let steps = checked(&both, 2, &[]).unwrap().steps;
    let needed: Vec<u64> = steps
        .iter()
        .map(|step| step.loads[0].footprint.files)
        .collect();
    assert_eq!(needed, [100, 0], "what is there takes no space");
    let mut half = kept_by(&phase(KEEP), 2);
    half.is_whole = false;
    let steps = checked(&phase(KEEP), 2, &[half]).unwrap().steps;
    assert!(steps[0].kept.as_ref().unwrap().is_partly_there);
    assert_eq!(steps[0].loads[0].footprint.files, 100);

    let there = kept_by(&phase(KEEP), 2);
    let by = |agents: usize, change: fn(&mut KeptFacts)| {
        let mut there = there.clone();
        change(&mut there);
        checked(&uses, agents, &[there]).map(drop)
    };
    by(1, |_| ()).unwrap();
    by(2, |_| ()).unwrap();
    for (refused, expected) in [
        (
            by(3, |_| ()),
            "were laid out by 2 tasks, and this step has 3",
        ),
        (by(2, |set| set.is_whole = false), "are not whole"),
        (
            by(2, |set| set.path.push('2')),
            "no data are kept as `small`",
        ),
        (
            by(2, |set| drop(set.shape.insert("seed".into(), "9".into()))),
            "are different: `seed` is 9 there and 1 here",
        ),
        (
            by(2, |set| drop(set.shape.insert("layout".into(), "0".into()))),
            "`layout` is 0 there and",
        ),
    ] {
        let message = refused.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn data_of_a_step_are_of_its_number_of_tasks() {
    let keys = KEEP.replace("keep", "directories-per = \"step\"\nkeep");
    let there = kept_by(&phase(&keys), 2);
    let message = checked(&phase(&keys), 3, &[there]).unwrap_err();
    assert!(
        message.contains("`tasks` is 2 there and 3 here"),
        "{message}"
    );
}
