//! The links of a network phase that are measured at the same time.

use super::*;
use benchmesh_testing::table;

const PING: &str = "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\n";

/// The links of each step, in the step's order.
fn links(rest: &str, agents: &[AgentFacts]) -> Vec<String> {
    let plan = parse(&format!("{PING}{rest}"), "p.toml").unwrap();
    let steps = expand(&plan, agents).unwrap().steps;
    steps
        .iter()
        .map(|step| {
            let tasks = step.tasks.iter();
            let links: Vec<String> = tasks
                .clone()
                .map(|task| format!("{}>{}", task.agent, task.peer.as_deref().unwrap()))
                .collect();
            let indices: Vec<u32> = tasks.map(|task| task.index).collect();
            assert!(indices.iter().copied().eq(0..step.loads[0].tasks));
            links.join(" ")
        })
        .collect()
}

fn three() -> [AgentFacts; 3] {
    [
        agent("c", &[("rack", "2")], &[]),
        agent("a", &[("rack", "1")], &[]),
        agent("b", &[("rack", "1")], &[]),
    ]
}

#[test]
fn a_shape_says_which_links_are_measured_at_once() {
    for [rest, expected] in table(
        r#"
        pairs = "each"\nfrom = "rack=1"\nto = ["c"]\n            | a>c, b>c
        pairs = "both-ways"\n                                    | a>b b>a, a>c c>a, b>c c>b
        pairs = "both-ways"\nfrom = "rack=2"\nto = "rack=1"\n    | c>a a>c, c>b b>c
        pairs = "many-to-one"\n                                  | b>a c>a, a>b c>b, a>c b>c
        pairs = "many-to-one"\nto = ["c"]\n                      | a>c b>c
        pairs = "one-to-many"\n                                  | a>b a>c, b>a b>c, c>a c>b
        pairs = "one-to-many"\nfrom = ["c"]\n                    | c>a c>b
        pairs = "all-to-all"\n                                   | a>b a>c b>a b>c c>a c>b
        pairs = "all"\nclients = 2\n                             | a>b b>a
        pairs = "many-to-one"\nto = ["c"]\ntasks-per-agent = 2\n | a>c a>c b>c b>c
        pairs = "all-to-all"\nmatrix = { clients = [2, 3] }\n    | a>b b>a, a>b a>c b>a b>c c>a c>b
        "#,
    ) {
        let links = links(&rest, &three()).join(", ");
        assert_eq!(links, expected, "{rest}");
    }
    let each = ["a>b", "a>c", "b>a", "b>c", "c>a", "c>b"];
    assert_eq!(links("", &three()), each);
}

#[test]
fn links_are_described_in_a_few_words() {
    for (rest, expected) in [
        ("from = [\"a\"]\nto = [\"b\"]\n", "a -> b"),
        (
            "pairs = \"both-ways\"\nfrom = [\"a\"]\nto = [\"b\"]\n",
            "a <-> b",
        ),
        ("pairs = \"many-to-one\"\nto = [\"c\"]\n", "a, b -> c"),
        ("pairs = \"one-to-many\"\nfrom = [\"c\"]\n", "c -> a, b"),
        ("pairs = \"all-to-all\"\n", "a, b, c -> a, b, c"),
    ] {
        let plan = parse(&format!("{PING}{rest}"), "p.toml").unwrap();
        let steps = expand(&plan, &three()).unwrap().steps;
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].link(), expected);
    }
    let many: Vec<String> = (1..=5).map(|number| format!("n{number}")).collect();
    let many: BTreeSet<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(links_in_words(&many, &["x"].into()), "5 agents -> x");
    assert_eq!(links_in_words(&BTreeSet::new(), &BTreeSet::new()), "");
}

#[test]
fn how_both_ends_wait_is_stored_with_the_step() {
    let text = "[[phase]]\nworkload = \"network\"\nmodes = [\"throughput\", \"ping\", \"request\"]\n\
                pairs = \"all-to-all\"\n";
    let waits = |text: &str| -> Vec<Option<String>> {
        let plan = parse(text, "p.toml").unwrap();
        let steps = expand(&plan, &three()).unwrap().steps;
        let wait = |step: &PlannedStep| step.params.get("wait").map(ToString::to_string);
        steps.iter().map(wait).collect()
    };
    let word = |word: &str| Some(format!("\"{word}\""));
    assert_eq!(waits(text), [None, word("blocking"), word("blocking")]);
    let busy = waits(&format!("{text}wait = \"busy\"\n"));
    assert_eq!(busy[1..], [word("busy"), word("busy")]);
}

#[test]
fn a_curve_and_a_rate_of_the_step_go_over_all_links_of_a_shape() {
    let text = "[[phase]]\nworkload = \"network\"\nmodes = [\"request\"]\nruntime = \"1s\"\n\
                pairs = \"many-to-one\"\nto = [\"c\"]\nrate_iops = 1000\nrate-per = \"step\"\n\
                load-curve = { start = 0.1, steps = 3 }\n";
    let plan = parse(text, "p.toml").unwrap();
    let steps = expand(&plan, &three()).unwrap().steps;
    let loads: Vec<(String, u32)> = steps
        .iter()
        .map(|step| (step.params["rate_iops"].to_string(), step.loads[0].tasks))
        .collect();
    let expected = [("100", 2), ("316", 2), ("1000", 2)];
    assert_eq!(
        loads,
        expected.map(|(rate, tasks)| (String::from(rate), tasks))
    );
    // No data are laid out: one cell serves all steps.
    assert!(steps.iter().all(|step| step.cell == 0));
}

#[test]
fn what_no_link_can_do_is_refused_with_its_line() {
    for [rest, at, part] in table(
        r#"
        pairs = "many-to-on"\n     | p.toml:4:9: phase.1.pairs       | did you mean "many-to-one"?
        pairs = 3\n                | p.toml:4:9: phase.1.pairs       | expected
        bs = 0\n                   | p.toml:4:6: phase.1.bs          | 1 to 1g
        streams = 0\n              | p.toml:4:11: phase.1.streams    | 1 to 256
        streams = 2\nnumjobs = 2\n | p.toml:5:11: phase.1.numjobs    | keep one of them
        rate_iops = 0\n            | p.toml:4:13: phase.1.rate_iops  | 1 to 1000000000
        request-size = "4k"\n      | p.toml:4:16: phase.1.request-size
            | has an effect only in the modes `request` and `udp-request`, and the phase has `ping`
        wait = "spinning"\n        | p.toml:4:8: phase.1.wait        | expected "blocking" or "busy"
        load-curve = true\n        | p.toml:4:14: phase.1.load-curve | a load curve needs a rate
        runtime = 0\n              | p.toml:4:11: phase.1.runtime    | longer than 0
        "#,
    ) {
        let message = refused(&format!("{PING}{rest}"));
        assert!(
            message.starts_with(&at) && message.contains(&part),
            "{rest}: {message}"
        );
    }
    for [modes, rest, part] in table(
        r#"
        throughput | wait = "busy"        | has an effect only in the modes `ping`, `request` and `udp-request`
        request    | bs = "4k"            | has an effect only in the modes `throughput`, `ping` and `udp-stream`
        request    | request-size = 0     | 1 to 1g
        request    | response-size = "2g" | 1 to 1g
        "#,
    ) {
        let message = refused(&format!(
            "[[phase]]\nworkload = \"network\"\nmodes = [\"{modes}\"]\n{rest}\n"
        ));
        assert!(
            message.starts_with("p.toml:4:") && message.contains(&part),
            "{rest}: {message}"
        );
    }
}

#[test]
fn a_shape_of_one_agent_is_refused() {
    let alone = [agent("a", &[], &[])];
    for shape in [
        "each",
        "both-ways",
        "many-to-one",
        "one-to-many",
        "all-to-all",
    ] {
        let text = format!("{PING}pairs = \"{shape}\"\n");
        let plan = parse(&text, "p.toml").unwrap();
        let message = expand(&plan, &alone).unwrap_err().to_string();
        assert!(
            message.starts_with("p.toml:1:1: phase.1")
                && message.contains("two different agents, and there is only `a`"),
            "{message}"
        );
    }
    // If the text alone shows the mistake, no agents are needed.
    for [text, at] in table(
        r#"
        {PING}from = ["a"]\nto = ["a"]\n      | p.toml:5:6: phase.1.to
        {PING}clients = 1\n                   | p.toml:1:1: phase.1
        {PING}matrix = { clients = [2, 1] }\n | p.toml:4:26: phase.1.matrix.clients
        [clients]\nagents = ["a"]\n{PING}     | p.toml:2:10: clients.agents
        "#,
    ) {
        let message = refused(&text.replace("{PING}", PING));
        assert!(
            message.starts_with(&at) && message.contains("needs two different agents"),
            "{message}"
        );
    }
    assert!(parse(&format!("{PING}clients = 1\nto = [\"b\"]\n"), "p.toml").is_ok());
}

#[test]
fn more_links_or_steps_than_make_sense_are_refused_before_they_are_made() {
    let agents = |count: usize| -> Vec<AgentFacts> {
        let named = (0..count).map(|number| agent(&format!("n{number:04}"), &[], &[]));
        named.collect()
    };
    assert_eq!(links("pairs = \"both-ways\"\n", &agents(120)).len(), 7140);
    for (repeat, shape, count, part) in [
        (
            "",
            "both-ways",
            500,
            "there are 249500 links; at most 100000 are measured",
        ),
        (
            "",
            "all-to-all",
            20_000,
            "there are 399980000 links; at most 100000 are measured",
        ),
        (
            "repeat = 40\n",
            "each",
            120,
            "the plan expands to more than 100000 steps; at most 100000 are allowed",
        ),
    ] {
        let plan = parse(&format!("{repeat}{PING}pairs = \"{shape}\"\n"), "p.toml").unwrap();
        let refused = expand(&plan, &agents(count)).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
}

/// Readers on a target beside traffic between agents; the latter need not allow the target.
fn beside(of_traffic: &str) -> String {
    format!(
        "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\n[[phase.group]]\nname = \"readers\"\n\
         workload = \"io\"\nmodes = [\"read\"]\nsize = \"1m\"\nclients = 1\n[[phase.group]]\nname = \"traffic\"\n\
         workload = \"network\"\nmodes = [\"request\"]\nselect = \"role=spare\"\n{of_traffic}"
    )
}

fn four() -> [AgentFacts; 4] {
    [
        agent("r", &[], &["/mnt"]),
        agent("x", &[("role", "spare")], &[]),
        agent("y", &[("role", "spare")], &[]),
        agent("z", &[("role", "spare")], &[]),
    ]
}

#[test]
fn links_are_a_group_beside_others() {
    for (of_traffic, expected) in [
        ("pairs = \"all-to-all\"\n", "r x>y x>z y>x y>z z>x z>y"),
        ("pairs = \"many-to-one\"\nto = [\"z\"]\n", "r x>z y>z"),
        ("from = [\"y\"]\nto = [\"x\"]\n", "r y>x"),
        ("pairs = \"both-ways\"\nclients = 2\n", "r x>y y>x"),
    ] {
        let plan = parse(&beside(of_traffic), "p.toml").unwrap();
        let steps = expand(&plan, &four()).unwrap().steps;
        let [step] = steps.as_slice() else {
            panic!("one step: {steps:?}");
        };
        let task = |task: &PlannedTask| match &task.peer {
            Some(peer) => format!("{}>{peer}", task.agent),
            None => task.agent.clone(),
        };
        let tasks: Vec<String> = step.tasks.iter().map(task).collect();
        assert_eq!(tasks.join(" "), expected);
        assert_eq!((step.target.as_str(), step.link()), ("a", String::new()));
        assert_eq!(step.params["traffic"]["wait"], "blocking");
        let on_target: Vec<bool> = step.loads.iter().map(PlannedLoad::needs_target).collect();
        assert_eq!(on_target, [true, false]);
    }
}

#[test]
fn a_group_does_all_its_links_at_once() {
    for (of_traffic, part) in [
        (
            "",
            "pairs = \"each\" needs 6 steps for the links of group `traffic`",
        ),
        ("pairs = \"many-to-one\"\n", "needs 3 steps"),
        (
            "pairs = \"all\"\nfrom = [\"r\"]\n",
            "no agent of group `traffic` is r",
        ),
        (
            "pairs = \"all\"\nfrom = [\"x\"]\nto = [\"x\"]\n",
            "there is only `x`",
        ),
        ("pairs = \"all\"\nclients = 1\n", "clients = 1"),
    ] {
        let plan = parse(&beside(of_traffic), "p.toml");
        let message = plan
            .and_then(|plan| expand(&plan, &four()))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("p.toml:1") && message.contains(part),
            "{message}"
        );
    }
}
