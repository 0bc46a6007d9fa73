//! What the agents of a plan cannot do, or have no space for.

use super::*;

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
        let told = expand(&plan, agents).unwrap_err().to_string();
        assert!(told.contains(at) && told.contains(part), "{told}");
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
        "p.toml:1:1: phase.0: clients = 3, but 2 agents are selected: x and y",
        "",
    );
    check(
        &format!("{null}matrix = {{ clients = [1, 3] }}\n"),
        &full,
        "p.toml:3:26: phase.0.matrix.clients: clients = 3",
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
        "p.toml:10:8: phase.0.from: agent `x` does not allow reading /src/tree",
        "--allow-read /src/tree",
    );
    check(null, &[old], "revision 99 of null", "same version");
    check(null, &[bare], "does not have the workload null", "update");
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
    let told = check_space(&plan, &expansion, &agents)
        .unwrap_err()
        .to_string();
    assert!(told.contains("agent `a1` has no --scratch"), "{told}");
    assert!(!told.contains("a2") && !told.contains("are free"), "{told}");
}

#[test]
fn the_clients_of_one_file_system_share_its_space() {
    let text = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"100m\"\nmodes = [\"write\"]\n";
    let plan = parse(text, "p.toml").unwrap();
    let check = |agents: &[AgentFacts], part: &str| {
        let expansion = expand(&plan, agents).unwrap();
        let told = check_space(&plan, &expansion, agents)
            .err()
            .map(|error| error.to_string());
        match part {
            "" => assert_eq!(told, None),
            part => {
                let told = told.unwrap();
                assert!(
                    told.contains("p.toml:4:1: phase.0") && told.contains(part),
                    "{told}"
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
    assert_eq!(shortage(95, 100), None);
    assert!(shortage(96, 100).is_some());
    assert_eq!(floor_bytes(1 << 40), 1 << 30);
}
