//! Plans that exceed the abilities or the free space of their agents.

use super::*;
use benchmesh_model::limits::{Limit, Limits, Setting};

#[test]
fn what_the_agents_cannot_do_is_refused() {
    let files =
        format!("{TARGETS}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n");
    let null = "[[phase]]\nworkload = \"null\"\n";
    let full = [
        agent("x", &[("role", "client")], &["/mnt"]),
        agent("y", &[], &["/mnt"]),
    ];
    let mut old = agent("x", &[], &["/mnt"]);
    old.workloads.insert(String::from("null"), 99);
    let mut bare = agent("x", &[], &["/mnt"]);
    bare.workloads.clear();
    let mut broken = agent("x", &[], &["/mnt"]);
    broken.surveyed.insert(
        String::from("/mnt/a"),
        PathFacts {
            allowed: true,
            problem: String::from("not mounted"),
            ..PathFacts::default()
        },
    );
    let check = |text: &str, agents: &[AgentFacts], at: &str, part: &str| {
        let plan = parse(text, "p.toml").unwrap();
        let message = expand(&plan, agents).unwrap_err().to_string();
        assert!(message.contains(at) && message.contains(part), "{message}");
    };
    check(null, &[], "p.toml: no agent is attached", "--collector");
    check(
        &files,
        &[agent("x", &[], &["/srv"])],
        "p.toml:3:8: targets.a.path: no attached agent allows /mnt/a",
        "x (allows /srv)",
    );
    check(
        &format!("[clients]\nselect = \"role=clint\"\n{null}"),
        &full,
        "p.toml:2:10: clients.select: no attached agent has role=clint",
        "x (role=client)",
    );
    check(
        &format!("[clients]\nagents = [\"z\"]\n{null}"),
        &full,
        "p.toml:2:11: clients.agents: no agent `z`",
        "x and y",
    );
    check(
        &format!("[clients]\nagents = [\"x\", \"w\"]\n{files}"),
        &[agent("x", &[], &["/mnt"]), agent("w", &[], &["/srv"])],
        "targets.a.path: agent `w` does not allow /mnt/a",
        "--allow /mnt/a",
    );
    check(
        &format!("{null}clients = 3\n"),
        &full,
        "p.toml:1:1: phase.1: clients = 3, but 2 agents are selected: x and y",
        "",
    );
    check(
        &format!("{null}matrix = {{ clients = [1, 3] }}\n"),
        &full,
        "p.toml:3:26: phase.1.matrix.clients: clients = 3",
        "",
    );
    let mut blind = agent("x", &[], &["/mnt"]);
    blind
        .sources
        .insert(String::from("/src/tree"), PathFacts::default());
    let copy = format!(
        "{TARGETS}[[phase]]\nworkload = \"copy\"\nmodes = [\"in\"]\nfrom = \"/src/tree\"\n"
    );
    check(
        &copy,
        &[blind],
        "p.toml:10:8: phase.1.from: agent `x` does not allow reading /src/tree",
        "--allow-read /src/tree",
    );
    check(null, &[old], "revision 99 of null", "same version");
    check(
        null,
        &[bare],
        "does not have or does not allow the workload null",
        "update",
    );
    check(
        &files,
        &[broken],
        "targets.a.path: on agent `x`, /mnt/a: not mounted",
        "",
    );
}

fn surveyed(
    mut agent: AgentFacts,
    path: &str,
    file_system: &str,
    device: &str,
    free_mib: u64,
) -> AgentFacts {
    let facts = PathFacts {
        allowed: true,
        free_bytes: free_mib << 20,
        free_files: Some(1000),
        file_system: file_system.to_owned(),
        device: device.to_owned(),
        ..PathFacts::default()
    };
    agent.surveyed.insert(path.to_owned(), facts);
    agent
}

#[test]
fn a_target_where_something_else_is_mounted_is_a_warning() {
    let text = "[targets.a]\nsystem = \"cephfs\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\n\
        modes = [\"write\", \"read\"]\n";
    let plan = parse(text, "p.toml").unwrap();
    let on = |name: &str, mounted: &str| {
        surveyed(agent(name, &[], &["/mnt"]), "/mnt/a", mounted, "0:9", 250)
    };
    let check = |agents: &[AgentFacts], expected: &[&str]| {
        assert_eq!(expand(&plan, agents).unwrap().warnings, expected);
    };
    check(&[on("n1", "ceph"), on("n2", "nfs4"), on("n3", "")], &[]);
    check(
        &[on("n1", "tmpfs"), on("n2", "ceph"), on("n3", "tmpfs")],
        &[
            "target `a` is said to be cephfs, but tmpfs is mounted there on n1, n3: is cephfs mounted?",
        ],
    );
}

#[test]
fn an_agent_without_a_scratch_is_named() {
    let text = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"copy\"\nfiles = 10\nsize = \"1m\"\nmodes = [\"in\"]\n";
    let plan = parse(text, "p.toml").unwrap();
    let on = |name: &str, has_no_scratch: bool| AgentFacts {
        has_no_scratch,
        scratch_free_bytes: (!has_no_scratch).then_some(1 << 40),
        ..surveyed(
            agent(name, &[], &["/mnt"]),
            "/mnt/a",
            "ext4",
            "8:1",
            1 << 20,
        )
    };
    let agents = [on("a1", true), on("a2", false)];
    let expansion = expand(&plan, &agents).unwrap();
    let message = check_limits(&plan, &expansion, &agents)
        .unwrap_err()
        .to_string();
    assert!(message.contains("agent `a1` has no --scratch"), "{message}");
    assert!(
        !message.contains("a2") && !message.contains("are free"),
        "{message}"
    );
}

#[test]
fn the_clients_of_one_file_system_share_its_space() {
    let text = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"100m\"\nmodes = [\"write\"]\n";
    let plan = parse(text, "p.toml").unwrap();
    let check = |agents: &[AgentFacts], part: &str| {
        let expansion = expand(&plan, agents).unwrap();
        let message = check_limits(&plan, &expansion, agents)
            .err()
            .map(|error| error.to_string());
        match part {
            "" => assert_eq!(message, None),
            part => {
                let message = message.unwrap();
                assert!(
                    message.contains("p.toml:4:1: phase.1") && message.contains(part),
                    "{message}"
                );
            }
        }
    };
    let on = |name: &str, host: &str| AgentFacts {
        host: host.to_owned(),
        ..agent(name, &[], &["/mnt"])
    };
    // 5 % of 250 MiB stay free.
    let local = |name, host, device| surveyed(on(name, host), "/mnt/a", "ext4", device, 250);
    check(&[local("x", "h", "8:1"), local("y", "h", "8:1")], "");
    check(
        &[
            local("x", "h", "8:1"),
            local("y", "h", "8:1"),
            local("z", "h", "8:1"),
        ],
        "`write` takes 300 MiB on target `a` (3 tasks together, 100 MiB each), and 250 MiB are free",
    );
    check(
        &[
            local("x", "h", "8:1"),
            local("y", "h", "8:2"),
            local("z", "g", "8:1"),
        ],
        "",
    );
    let shared = |name| surveyed(on(name, name), "/mnt/a", "fuse.glusterfs", name, 250);
    check(&[shared("x"), shared("y"), shared("z")], "3 tasks together");
    // The agents' own limits of free space.
    let floored = |bytes: u64, files: u64| {
        let mut agent = local("x", "h", "8:1");
        for facts in agent.surveyed.values_mut() {
            (facts.floor_bytes, facts.floor_files) = (bytes << 20, files);
        }
        agent
    };
    check(&[floored(150, 990)], "");
    check(
        &[floored(151, 0)],
        "151 MiB must stay free (the agents' `free-space`)",
    );
    check(
        &[floored(0, 1000)],
        "1000 must stay free (the agents' `free-inodes`)",
    );
    assert_eq!(shortage(95, 100), None);
    assert!(shortage(96, 100).is_some());
    assert_eq!(floor_bytes(1 << 40), 1 << 30);
}

#[test]
fn a_fill_that_would_break_a_floor_is_refused() {
    let check = |phase: &str, floor_mib: u64, parts: &[&str]| {
        let text = format!(
            "[targets.a]\nsystem = \"local\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"fill\"\n{phase}\n"
        );
        let plan = parse(&text, "p.toml").unwrap();
        let mut agent = surveyed(agent("x", &[], &["/mnt"]), "/mnt/a", "ext4", "8:1", 900);
        for facts in agent.surveyed.values_mut() {
            (facts.size_bytes, facts.usable_bytes) = (1050 << 20, 1000 << 20);
            facts.floor_bytes = floor_mib << 20;
        }
        let agents = [agent];
        let expansion = expand(&plan, &agents).unwrap();
        let refused = check_limits(&plan, &expansion, &agents).err();
        let count = refused.as_ref().map_or(0, |it| it.errors.len());
        assert_eq!(count, parts.len(), "{phase}: {refused:?}");
        let message = refused.map(|it| it.to_string()).unwrap_or_default();
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    };
    let all = "modes = [\"fill\", \"hold\", \"read\", \"remove\"]";
    // All modes lay out the same data: the shortage is reported once.
    check(
        &format!("{all}\nshare = 96\nfloor = 0"),
        50,
        &[
            "filled to 96 %, target `a` has 40.0 MiB free of 0.98 GiB at /mnt/a, and the policy of agent `x` keeps \
             50.0 MiB free there (its `free-space`): it would stop the fill\n  4 | [[phase]]\n    | ^^^^^^^^^\n  help: \
             set `share` to at most 95, or start the agent with a smaller --free-space",
        ],
    );
    check(&format!("{all}\nshare = 95\nfloor = 0"), 50, &[]);
    check(
        "modes = [\"fill\"]\nshare = 96\nfloor = \"60m\"",
        0,
        &["the phase's `floor` keeps 60.0 MiB free: the fill would end there with an error"],
    );
    check(
        "modes = [\"fill\"]\nshare = 96\nfloor = \"60m\"",
        50,
        &[
            "`free-space`",
            "`share` to at most 94, or set a smaller `floor`",
        ],
    );
    check("modes = [\"fill\"]\nshare = 94\nfloor = \"60m\"", 50, &[]);
    // The file system is already this full.
    check("modes = [\"fill\"]\nshare = 10\nfloor = \"950m\"", 0, &[]);
}

#[test]
fn of_many_agents_the_first_few_are_named() {
    let many: Vec<AgentFacts> = (0..100)
        .map(|nth| agent(&format!("host-{nth:02}"), &[], &["/srv"]))
        .collect();
    let load = "[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
    for text in [
        format!("{TARGETS}{load}"),
        String::from("[clients]\nagents = [\"z\"]\n[[phase]]\nworkload = \"null\"\n"),
    ] {
        let plan = parse(&text, "p.toml").unwrap();
        let message = expand(&plan, &many).unwrap_err().to_string();
        assert!(message.contains("host-04"), "{message}");
        assert!(message.contains("and 95 more"), "{message}");
        assert!(!message.contains("host-05"), "{message}");
    }
}

/// A plan that requests more than an agent's policy allows is refused with the agent, the key and the line.
#[test]
fn policies_of_agents_bound_a_plan() {
    let with = |name: &str, change: &dyn Fn(&mut AgentFacts, &mut AgentPolicy)| {
        let mut agent = agent(name, &[], &["/mnt"]);
        let mut policy = AgentPolicy {
            limits: Limits::default()
                .with(Limit::Memory, Setting::Amount(1 << 30))
                .with(Limit::Threads, Setting::Amount(8)),
            ..AgentPolicy::default()
        };
        change(&mut agent, &mut policy);
        agent.policy = Some(policy);
        agent
    };
    let x = with("x", &|_, _| {});
    let check = |keys: &str, agents: &[AgentFacts], parts: &[&str]| {
        let text = format!("[[phase]]\nworkload = \"null\"\n{keys}");
        let plan = parse(&text, "p.toml").unwrap();
        let checked =
            expand(&plan, agents).and_then(|expansion| check_limits(&plan, &expansion, agents));
        match parts {
            [] => checked.unwrap(),
            parts => {
                let message = checked.unwrap_err().to_string();
                for part in ["p.toml:1:1: phase.1"].iter().chain(parts) {
                    assert!(message.contains(part), "{part}: {message}");
                }
            }
        }
    };
    let alone = std::slice::from_ref(&x);
    check("numjobs = 8\n", alone, &[]);
    check(
        "numjobs = 9\n",
        alone,
        &["agent `x`", "`threads` is 8", "take 9", "--threads"],
    );
    // The tasks of one agent share its budget.
    check(
        "numjobs = 3\ntasks-per-agent = 3\n",
        alone,
        &["`threads` is 8", "take 9"],
    );
    let small = with("small", &|_, policy| {
        policy.limits[Limit::Memory] = Some(Setting::Amount(1 << 20));
    });
    check(
        "",
        &[x.clone(), small],
        &["agent `small`", "`memory` is 1.00 MiB", "--memory"],
    );
    let files_only = with("files-only", &|agent, policy| {
        agent.workloads.remove("null");
        policy.workloads = vec![String::from("files")];
    });
    check(
        "",
        &[files_only],
        &[
            "agent `files-only` does not allow the workload null",
            "`workloads` is files",
        ],
    );
}

#[test]
fn networks_of_a_policy_are_read_as_the_agent_writes_them() {
    let policy = AgentPolicy {
        networks: vec![
            String::from("10.1.0.0/16"),
            String::from("fd00::/8"),
            String::from("?"),
        ],
        ..AgentPolicy::default()
    };
    for (address, allowed) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("10.2.0.1", false),
        ("fd12::1", true),
    ] {
        assert_eq!(
            policy.allows_peer(address.parse().unwrap()),
            allowed,
            "{address}"
        );
    }
}

/// An agent attached with a join token is not included in a plan that selects no agents.
#[test]
fn an_agent_that_was_in_no_run_is_taken_when_it_is_selected() {
    const PLAN: &str = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
    let agent = |name: &str, is_new| AgentFacts {
        is_new,
        ..agent(name, &[], &["/mnt"])
    };
    let taken = |text: &str, agents: &[AgentFacts]| {
        let parsed = parse(text, "p.toml").unwrap();
        let expansion = expand(&parsed, agents).map_err(|error| error.to_string())?;
        let tasks = expansion.steps[0].tasks.iter();
        let names: Vec<String> = tasks.map(|task| task.agent.clone()).collect();
        Ok::<_, String>((names, expansion.warnings))
    };
    let (known, new) = (agent("a", false), agent("x", true));
    for text in [PLAN, "[[phase]]\nworkload = \"null\"\n"] {
        let (names, warnings) = taken(text, &[known.clone(), new.clone()]).unwrap();
        assert_eq!(names, ["a"]);
        assert_eq!(
            warnings,
            [
                "left out: `x`, which has been in no run yet; --new-agents takes it along, or name it in [clients]"
            ]
        );
        let refused = taken(text, std::slice::from_ref(&new)).unwrap_err();
        assert!(
            refused.contains("--new-agents takes them along"),
            "{refused}"
        );
    }
    let named = format!("{PLAN}[clients]\nagents = [\"a\", \"x\"]\n");
    let (names, warnings) = taken(&named, &[known.clone(), new.clone()]).unwrap();
    assert_eq!(
        (names, warnings.len()),
        (vec!["a".to_owned(), "x".to_owned()], 0)
    );
    // An agent that cannot take the load is not reported as left out.
    let samples_only = AgentFacts {
        allowed: Vec::new(),
        ..new
    };
    let (_, warnings) = taken(PLAN, &[known, samples_only]).unwrap();
    assert_eq!(warnings, [] as [String; 0]);
}
