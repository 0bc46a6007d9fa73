//! The steps that a plan makes of the agents that are there, and their order.

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
