//! The steps that a plan expands to on the attached agents, and their order.

use super::*;

fn steps(text: &str, agents: &[AgentFacts]) -> Vec<String> {
    let plan = parse(text, "p.toml").unwrap();
    expand(&plan, agents)
        .unwrap()
        .steps
        .iter()
        .map(|step| {
            let tasks: Vec<String> = step
                .tasks
                .iter()
                .map(|task| match &task.peer {
                    None => task.agent.clone(),
                    Some(peer) => format!("{}>{peer}", task.agent),
                })
                .collect();
            format!(
                "{} r{} {} {} {} {} {}",
                step.ordinal,
                step.repeat,
                step.cell_name,
                step.target,
                step.mode,
                step.params
                    .get("bs")
                    .and_then(|bs| bs.as_str())
                    .unwrap_or("-"),
                tasks.join(" ")
            )
        })
        .collect()
}

#[test]
fn steps_come_in_the_order_of_things() {
    let text = format!(
        "repeat = 2\n{TARGETS}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\nmatrix = {{ bs = [\"4k\", \"8k\"] }}\n[[phase]]\nworkload = \"null\"\n"
    );
    let agents = [agent("y", &[], &["/mnt"]), agent("x", &[], &["/mnt"])];
    assert_eq!(
        steps(&text, &agents),
        [
            "1 r1 r1-p1-c1-t1 a write 4k x y",
            "2 r1 r1-p1-c1-t1 a read 4k x y",
            "3 r1 r1-p1-c1-t2 b write 4k x y",
            "4 r1 r1-p1-c1-t2 b read 4k x y",
            "5 r1 r1-p1-c2-t1 a write 8k x y",
            "6 r1 r1-p1-c2-t1 a read 8k x y",
            "7 r1 r1-p1-c2-t2 b write 8k x y",
            "8 r1 r1-p1-c2-t2 b read 8k x y",
            "9 r1 r1-p2-c1-t1  run - x y",
            "10 r2 r2-p1-c1-t1 a write 4k x y",
            "11 r2 r2-p1-c1-t1 a read 4k x y",
            "12 r2 r2-p1-c1-t2 b write 4k x y",
            "13 r2 r2-p1-c1-t2 b read 4k x y",
            "14 r2 r2-p1-c2-t1 a write 8k x y",
            "15 r2 r2-p1-c2-t1 a read 8k x y",
            "16 r2 r2-p1-c2-t2 b write 8k x y",
            "17 r2 r2-p1-c2-t2 b read 8k x y",
            "18 r2 r2-p2-c1-t1  run - x y",
        ]
    );
}

#[test]
fn sets_of_clients_are_nested_by_name() {
    let text =
        "[[phase]]\nworkload = \"null\"\ntasks-per-agent = 2\nmatrix = { clients = [1, 3] }\n";
    let agents = [
        agent("c", &[], &[]),
        agent("a", &[], &[]),
        agent("b", &[], &[]),
    ];
    assert_eq!(
        steps(text, &agents),
        [
            "1 r1 r1-p1-c1-t1  run - a a",
            "2 r1 r1-p1-c2-t1  run - a a b b c c"
        ]
    );
}

#[test]
fn a_random_order_is_drawn_from_its_seed_and_keeps_what_belongs_together() {
    let plan = |seed: u32| {
        format!(
            "repeat = 2\norder = \"random\"\nseed = {seed}\n{TARGETS}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\n\
             modes = [\"write\", \"read\"]\nmatrix = {{ bs = [\"4k\", \"8k\", \"16k\", \"32k\", \"64k\"] }}\n\
             [[phase]]\nworkload = \"null\"\n"
        )
    };
    let agents = [agent("c1", &[], &["/mnt"]), agent("c2", &[], &["/mnt"])];
    let drawn = steps(&plan(7), &agents);
    assert_eq!(drawn, steps(&plan(7), &agents));
    assert_ne!(drawn, steps(&plan(8), &agents));
    // The same steps as in the plan's order.
    let bare = |step: &String| step.split_once(' ').unwrap().1.to_owned();
    let plain = steps(
        &plan(7).replace("order = \"random\"\nseed = 7\n", ""),
        &agents,
    );
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = (
        drawn.iter().map(bare).collect(),
        plain.iter().map(bare).collect(),
    );
    assert_ne!(ours, theirs);
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    // Repeats stay separate, ordinals increase, and the modes and targets of a cell stay together.
    let word = |step: &str, at: usize| step.split(' ').nth(at).unwrap().to_owned();
    let repeats: Vec<String> = drawn.iter().map(|step| word(step, 1)).collect();
    assert!(repeats.is_sorted(), "{repeats:?}");
    let cells: Vec<String> = drawn
        .iter()
        .map(|step| word(step, 2).rsplit_once('-').unwrap().0.to_owned())
        .collect();
    let mut runs = cells.clone();
    runs.dedup();
    assert_eq!(runs.len(), 12, "{cells:?}");
    for pair in drawn.chunk_by(|a, b| word(a, 2) == word(b, 2)) {
        let modes: Vec<String> = pair.iter().map(|step| word(step, 4)).collect();
        assert!(modes == ["write", "read"] || pair.len() == 1, "{modes:?}");
    }
}

#[test]
fn a_policy_that_no_step_can_meet_is_refused() {
    let plan = |least: u32, rest: &str| {
        format!("on-loss = {{ at-least = {least} }}\n[[phase]]\nworkload = \"null\"\n{rest}")
    };
    let few = "matrix = { clients = [1, 2] }\n";
    let agents: Vec<AgentFacts> = ["c1", "c2", "c3"]
        .iter()
        .map(|name| agent(name, &[], &["/mnt"]))
        .collect();
    assert_eq!(steps(&plan(2, few), &agents).len(), 2);
    // The text alone shows the maximum ...
    let message = refused(&plan(3, few));
    let never = "at least 3 agents, and no step has more than 2";
    assert!(
        message.starts_with("p.toml:1:") && message.contains(never),
        "{message}"
    );
    let named = "[clients]\nagents = [\"c1\", \"c2\"]\n";
    assert!(refused(&plan(3, named)).contains(never));
    // ... or the mesh does.
    let parsed = parse(&plan(4, ""), "p.toml").unwrap();
    let message = expand(&parsed, &agents).unwrap_err().to_string();
    assert!(message.contains("no step has more than 3"), "{message}");
    assert_eq!(steps(&plan(3, ""), &agents).len(), 1);
}

/// The steps of each loop continue the ordinals, in separate cells; a random order is drawn anew.
#[test]
fn a_loop_is_expanded_by_its_number() {
    let text = "loops = 3\nrepeat = 2\n[[phase]]\nworkload = \"null\"\nmatrix = { numjobs = [1, 2, 3, 4] }\n";
    let agents = [agent("x", &[], &["/mnt"])];
    let of = |text: &str, number| {
        let plan = parse(text, "p.toml").unwrap();
        let steps = expand_loop(&plan, &agents, number).unwrap().steps;
        let facts = steps.iter().map(|step| {
            (
                step.ordinal,
                step.loop_number,
                step.cell_name.clone(),
                step.params.get("numjobs").cloned(),
            )
        });
        facts.collect::<Vec<_>>()
    };
    let (first, third) = (of(text, 1), of(text, 3));
    assert_eq!(first.len(), 8);
    for (first, third) in first.iter().zip(&third) {
        assert_eq!(third.0, first.0 + 16);
        assert_eq!((first.1, third.1), (1, 3));
        assert_eq!(third.2, format!("l3-{}", first.2));
        assert_eq!(third.3, first.3);
    }
    let random = format!("order = \"random\"\nseed = 7\n{text}");
    let order = |number| {
        of(&random, number)
            .into_iter()
            .map(|step| step.3)
            .collect::<Vec<_>>()
    };
    assert_ne!(order(1), order(2));
    assert_eq!(order(2), order(2));
}
