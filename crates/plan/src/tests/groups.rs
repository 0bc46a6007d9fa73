//! Groups: which agents carry which group, and which combinations are refused.

use super::{TARGETS, agent, refused};
use crate::*;
use benchmesh_testing::table;

fn fleet(names: &[&str]) -> Vec<AgentFacts> {
    let storage = |name: &&str| name.starts_with('s').then_some(("role", "storage"));
    names
        .iter()
        .map(|name| {
            let labels: Vec<_> = storage(name).into_iter().collect();
            agent(name, &labels, &["/mnt"])
        })
        .collect()
}

/// `group mode agents` of each load of each step; each task's agent comes with its index in the load.
fn loads(text: &str, agents: &[AgentFacts]) -> Vec<Vec<String>> {
    let plan = parse(text, "p.toml").unwrap();
    let steps = expand(&plan, agents).unwrap().steps;
    let of_step = |step: &PlannedStep| {
        let of_load = |(at, load): (usize, &PlannedLoad)| {
            let tasks = step.tasks.iter().filter(|task| task.load == at);
            let tasks: Vec<String> = tasks
                .map(|task| format!("{}{}", task.agent, task.index))
                .collect();
            assert_eq!(load.tasks as usize, tasks.len());
            let directory = step.directory(at, 1);
            format!(
                "{directory} {} {} {}",
                load.group,
                load.mode,
                tasks.join(" ")
            )
        };
        step.loads.iter().enumerate().map(of_load).collect()
    };
    steps.iter().map(of_step).collect()
}

fn group(name: &str, keys: &str) -> String {
    format!("[[phase.group]]\nname = \"{name}\"\nworkload = \"io\"\nsize = \"1m\"\n{keys}\n")
}

fn plan(phase: &str, groups: &[String]) -> String {
    format!(
        "{TARGETS}[[phase]]\ntargets = [\"a\"]\n{phase}\n{}",
        groups.concat()
    )
}

#[test]
fn groups_share_the_agents_in_the_order_of_the_plan() {
    let text = plan(
        "",
        &[
            group(
                "readers",
                "modes = [\"randread\"]\nclients = 2\ntasks-per-agent = 2",
            ),
            group("writers", "modes = [\"write\"]"),
        ],
    );
    assert_eq!(
        loads(&text, &fleet(&["d", "c", "b", "a"])),
        [[
            "r1-p1-c1-t1-g1 readers randread a0 a1 b2 b3",
            "r1-p1-c1-t1-g2 writers write c0 d1"
        ]]
    );
    let step = &expand(&parse(&text, "p").unwrap(), &fleet(&["a", "b", "c"]))
        .unwrap()
        .steps[0];
    assert_eq!(
        (
            step.phase.as_str(),
            step.workload.as_str(),
            step.mode.as_str()
        ),
        ("readers+writers", "io+io", "randread+write")
    );
    assert_eq!(step.params["writers"]["size"], "1m");
    assert_eq!(step.files, 5);
    assert_eq!(step.moved_bytes, 5 << 20);
}

#[test]
fn who_chooses_comes_first() {
    let text = plan(
        "",
        &[
            group("others", "modes = [\"write\"]\nclients = 2"),
            group("chosen", "modes = [\"read\"]\nselect = \"role=storage\""),
        ],
    );
    assert_eq!(
        loads(&text, &fleet(&["s1", "a", "s2", "b", "c"])),
        [[
            "r1-p1-c1-t1-g1 others write a0 b1",
            "r1-p1-c1-t1-g2 chosen read s10 s21"
        ]]
    );
}

#[test]
fn a_group_with_one_mode_goes_on_with_it_and_a_matrix_names_its_group() {
    let text = plan(
        "matrix = { noise = { clients = [1, 2] } }",
        &[
            group("front", "modes = [\"write\", \"read\"]\nclients = 1"),
            group("noise", "modes = [\"randwrite\"]"),
        ],
    );
    assert_eq!(
        loads(&text, &fleet(&["a", "b", "c"])),
        [
            [
                "r1-p1-c1-t1-g1 front write a0",
                "r1-p1-c1-t1-g2 noise randwrite b0"
            ],
            [
                "r1-p1-c1-t1-g1 front read a0",
                "r1-p1-c1-t1-g2 noise randwrite b0"
            ],
            [
                "r1-p1-c2-t1-g1 front write a0",
                "r1-p1-c2-t1-g2 noise randwrite b0 c1"
            ],
            [
                "r1-p1-c2-t1-g1 front read a0",
                "r1-p1-c2-t1-g2 noise randwrite b0 c1"
            ],
        ]
    );
}

#[test]
fn what_is_no_group_is_refused_with_its_line() {
    let (read, write) = (
        group("r", "modes = [\"read\"]"),
        group("w", "modes = [\"write\"]"),
    );
    let check = |text: &str, at: &str, part: &str| {
        let message = refused(text);
        assert!(message.contains(at), "{at}\n{text}\n{message}");
        assert!(message.contains(part), "{part}\n{message}");
    };
    for [phase, at, part] in table(
        r#"
        clients = 3                   | p.toml:9:1: phase.1.clients      | [[phase.group]]
        size = "1m"                   | p.toml:9:1: phase.1.size         | [[phase.group]]
        cahce = "cold"                | p.toml:9:1: phase.1.cahce        | did you mean `cache`?
        matrix = { bs = ["4k"] }      | p.toml:9:12: phase.1.matrix.bs   | no group `bs`
        matrix = { r = { bz = [1] } } | p.toml:9:18: phase.1.matrix.r.bz | known are bs,
        matrix = { r = 4 }            | p.toml:9:12: phase.1.matrix.r    | table of lists
        "#,
    ) {
        let text = plan(&phase, &[read.clone(), write.clone()]);
        check(&text, &at, &part);
    }
    for (text, at, part) in [
        (
            plan("group = 3", &[]),
            "p.toml:9:9: phase.1.group",
            "[[phase.group]]",
        ),
        (
            plan("", &[read.clone(), group("r", "modes = [\"write\"]")]),
            "p.toml:16:8: phase.1.group.2.name",
            "two groups",
        ),
        (
            plan("", &[group("a b", "")]),
            "p.toml:11:8: phase.1.group.1.name",
            "letters",
        ),
        (
            plan("", &[read.replace("name = \"r\"", "")]),
            "p.toml:10:1: phase.1.group.1",
            "no `name`",
        ),
        (
            plan(
                "",
                &[group("r", "modes = [\"read\"]\nmatrix = { bs = [\"4k\"] }")],
            ),
            "p.toml:15:1: phase.1.group.1.matrix",
            "unknown key",
        ),
        (
            plan(
                "",
                &[
                    group("a", "modes = [\"write\", \"read\", \"reread\"]"),
                    group("b", "modes = [\"write\", \"read\"]"),
                ],
            ),
            "p.toml:19:9: phase.1.group.2.modes",
            "one for each step",
        ),
    ] {
        check(&text, at, part);
    }
}

#[test]
fn what_cannot_be_shared_out_is_refused_with_its_line() {
    let all = "modes = [\"write\"]";
    let two = |first: &str, second: &str| {
        let keys = |more: &str| format!("{all}\n{more}");
        plan("", &[group("x", &keys(first)), group("y", &keys(second))])
    };
    for (text, at, part) in [
        (
            two("clients = 2", "clients = 2"),
            "p.toml:16:1",
            "clients = 2, but 1 agent is left: s",
        ),
        (
            two("", ""),
            "p.toml:16:1",
            "no agent is left for group `y`: the others take all 3",
        ),
        (
            two("select = \"role=storage\"", "agents = [\"a\", \"s\"]"),
            "p.toml:21:10",
            "agent `s` is in groups `x` and",
        ),
        (
            two("clients = 9", ""),
            "p.toml:10:1",
            "clients = 9, but 3 agents are selected",
        ),
    ] {
        let plan = parse(&text, "p.toml").unwrap();
        let message = expand(&plan, &fleet(&["a", "b", "s"]))
            .unwrap_err()
            .to_string();
        assert!(message.contains(at), "{at}\n{text}\n{message}");
        assert!(message.contains(part), "{part}\n{message}");
    }
}
