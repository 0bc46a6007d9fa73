//! Plans as people write them, right and wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use benchmesh_workloads::workload;
use std::path::PathBuf;

fn agent(name: &str, labels: &[(&str, &str)], allowed: &[&str]) -> AgentFacts {
    AgentFacts {
        name: name.to_owned(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        allowed: allowed.iter().map(PathBuf::from).collect(),
        workloads: workload::registry()
            .iter()
            .map(|workload| (workload.name().to_owned(), workload.revision()))
            .collect(),
        host: format!("host-{name}"),
        ..AgentFacts::default()
    }
}

fn refused(text: &str) -> String {
    parse(text, "p.toml").unwrap_err().to_string()
}

const TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[targets.b]\nsystem = \"sb\"\npath = \"/mnt/b\"\n";

#[test]
fn a_whole_plan_is_read() {
    let text = format!(
        "name = \"n\"\nrepeat = 2\non-loss = {{ at-least = 2 }}\nloss-after = \"10s\"\nlease = \"1h\"\n{TARGETS}\
         [clients]\nselect = \"role=client\"\n\
         [[phase]]\nname = \"records\"\nworkload = \"io\"\nmodes = [\"write\", \"read\"]\ncache = \"warm\"\nsettle = \"2s\"\n\
         matrix = {{ size = [\"1m\", \"2m\"], bs = [\"4k\", \"64k\"] }}\ntargets = [\"b\", \"a\"]\n"
    );
    let plan = parse(&text, "p.toml").unwrap();
    assert_eq!((plan.name.as_str(), plan.repeat), ("n", 2));
    assert_eq!(plan.on_loss, OnLoss::AtLeast(2));
    assert_eq!(
        (plan.loss_after, plan.lease),
        (Duration::from_secs(10), Duration::from_secs(3600))
    );
    let phase = &plan.phases[0];
    assert_eq!(
        (phase.cache, phase.settle),
        (Cache::Warm, Duration::from_secs(2))
    );
    assert_eq!(phase.targets, [1, 0]);
    let cells: Vec<String> = phase
        .cells
        .iter()
        .map(|cell| format!("{}/{}", cell.params["size"], cell.params["bs"]))
        .collect();
    assert_eq!(
        cells,
        [
            "\"1m\"/\"4k\"",
            "\"1m\"/\"64k\"",
            "\"2m\"/\"4k\"",
            "\"2m\"/\"64k\""
        ]
    );
}

/// What is wrong, the line and column, and a part of the message.
#[test]
fn each_mistake_is_told_with_its_line() {
    let null = "[[phase]]\nworkload = \"null\"\n";
    let io = format!("{TARGETS}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\n");
    for (text, at, part) in [
        (
            format!("reapeat = 2\n{null}"),
            "p.toml:1:1: reapeat",
            "did you mean `repeat`?",
        ),
        (
            format!("repeat = 0\n{null}"),
            "p.toml:1:10: repeat",
            "from 1 to 1000",
        ),
        (
            format!("on-loss = \"stop\"\n{null}"),
            "p.toml:1:11: on-loss",
            "\"abort\"",
        ),
        (
            format!("on-loss = {{ at-last = 2 }}\n{null}"),
            "p.toml:1:13: on-loss.at-last",
            "did you mean `at-least`?",
        ),
        (
            format!("loss-after = \"3 fortnights\"\n{null}"),
            "p.toml:1:14: loss-after",
            "fortnights",
        ),
        (
            format!("loss-after = \"10ms\"\n{null}"),
            "p.toml:1:14: loss-after",
            "1s",
        ),
        (format!("name = \"\"\n{null}"), "p.toml:1:8: name", "empty"),
        (
            String::from("name = \"x\"\n"),
            "p.toml: the plan has no phase",
            "[[phase]]",
        ),
        (String::from("x = [1\n"), "p.toml:1:", "not TOML"),
        (
            String::from("[phase]\nworkload = \"null\"\n"),
            "p.toml:1:1: phase",
            "two brackets",
        ),
        (
            String::from("[[phase]]\nmodes = [\"run\"]\n"),
            "p.toml:1:1: phase.0",
            "no `workload`",
        ),
        (
            String::from("[[phase]]\nworkload = \"nul\"\n"),
            "p.toml:2:12: phase.0.workload",
            "did you mean `null`?",
        ),
        (
            format!("{null}nmjobs = 2\n"),
            "p.toml:3:1: phase.0.nmjobs",
            "did you mean `numjobs`?",
        ),
        (
            format!("{null}numjobs = \"x\"\n"),
            "p.toml:3:11: phase.0.numjobs",
            "expected",
        ),
        (
            format!("{null}modes = [\"rum\"]\n"),
            "p.toml:3:10: phase.0.modes",
            "did you mean `run`?",
        ),
        (
            format!("{null}modes = []\n"),
            "p.toml:3:9: phase.0.modes",
            "empty",
        ),
        (
            format!("{null}cache = \"hot\"\n"),
            "p.toml:3:9: phase.0.cache",
            "warm",
        ),
        (
            format!("{null}matrix = {{ numjobs = 3 }}\n"),
            "p.toml:3:12: phase.0.matrix.numjobs",
            "expected a list",
        ),
        (
            format!("{null}matrix = {{ numjobs = [] }}\n"),
            "p.toml:3:12: phase.0.matrix.numjobs",
            "no cell",
        ),
        (
            format!("{null}matrix = {{ numjobs = [1, 1] }}\n"),
            "p.toml:3:26: phase.0.matrix.numjobs",
            "twice",
        ),
        (
            format!("{null}matrix = {{ numjob = [1] }}\n"),
            "p.toml:3:12: phase.0.matrix.numjob",
            "did you mean `numjobs`?",
        ),
        (
            format!("{null}matrix = {{ numjobs = [1, \"x\"] }}\n"),
            "p.toml:3:26: phase.0.matrix.numjobs",
            "expected",
        ),
        (
            format!("{null}numjobs = 1\nmatrix = {{ numjobs = [2] }}\n"),
            "p.toml:3:1: phase.0.numjobs",
            "also stands in matrix",
        ),
        (
            format!("{null}clients = 1\nmatrix = {{ clients = [2] }}\n"),
            "p.toml:4:23: phase.0.matrix.clients",
            "outside matrix",
        ),
        (
            format!("{null}clients = 0\n"),
            "p.toml:3:11: phase.0.clients",
            "from 1",
        ),
        (
            format!("{null}settle = -1\n"),
            "p.toml:3:10: phase.0.settle",
            "duration",
        ),
        (
            format!("{null}targets = [\"a\"]\n"),
            "p.toml:3:11: phase.0.targets",
            "needs no target",
        ),
        (
            format!("{null}{null}"),
            "p.toml:3:1: phase.1",
            "two phases are called `null`",
        ),
        (
            String::from("[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nsize = \"1m\"\n"),
            "p.toml:1:1: phase.0",
            "needs a target",
        ),
        (
            format!("{io}size = \"4q\"\n"),
            "p.toml:10:8: phase.0.size",
            "4q",
        ),
        (
            format!("{io}size = \"1m\"\ntargets = [\"c\"]\n"),
            "p.toml:11:12: phase.0.targets",
            "no target `c`",
        ),
        (
            format!("[targets.a]\nsystem = \"\"\npath = \"\"\n{null}"),
            "p.toml:3:8: targets.a.path",
            "empty",
        ),
        (
            format!("[targets.a]\nsystem = \"x\"\npath = \"mnt\"\n{null}"),
            "p.toml:3:8: targets.a.path",
            "not absolute",
        ),
        (
            format!("[targets.a]\nsystem = \"x\"\npath = \"/a/../b\"\n{null}"),
            "p.toml:3:8: targets.a.path",
            "`..`",
        ),
        (
            format!("[targets.a]\n{null}"),
            "p.toml:1:10: targets.a",
            "no `path`",
        ),
        (
            format!("[targets.a]\nsystem = \"x\"\npath = \"/a\"\npth = 1\n{null}"),
            "p.toml:4:1: targets.a.pth",
            "did you mean `path`?",
        ),
        (
            format!("[clients]\nselect = \"client\"\n{null}"),
            "p.toml:2:10: clients.select",
            "label=value",
        ),
        (
            format!("[clients]\nselect = \"a=b\"\nagents = [\"x\"]\n{null}"),
            "p.toml:3:10: clients.agents",
            "keep one",
        ),
        (
            format!("[clients]\nagents = []\n{null}"),
            "p.toml:2:10: clients.agents",
            "empty",
        ),
        (
            format!(
                "{TARGETS}[[phase]]\nworkload = \"copy\"\nmodes = [\"in\"]\nfiles = 1\nsize = \"1m\"\ntargets = [\"a\"]\ncache = \"bypass\"\n"
            ),
            "p.toml:13:9: phase.0.cache",
            "does not use O_DIRECT",
        ),
        (
            format!(
                "{TARGETS}[[phase]]\nworkload = \"files\"\nmodes = [\"stat\"]\nfiles = 1\ncache = \"bypass\"\n"
            ),
            "p.toml:11:9: phase.0.cache",
            "does not use O_DIRECT",
        ),
        (
            format!("clients = 3\n{null}"),
            "p.toml:1:11: clients",
            "[clients]",
        ),
        (
            format!("{io}size = \"1m\"\nstride = \"8k\"\n"),
            ": phase.0.stride: means something to strideread only",
            "the phase has write",
        ),
        (
            format!("{io}size = \"1m\"\niodepth = 4\nioengine = \"psync\"\n"),
            ": phase.0.iodepth: psync has one",
            "more numjobs",
        ),
    ] {
        let told = refused(&text);
        assert!(
            told.contains(at) && told.contains(part),
            "for\n{text}\ntold\n{told}\nnot {at} ... {part}"
        );
    }
}

#[test]
fn all_mistakes_come_at_once_in_the_order_of_the_lines() {
    let text = "repeet = 1\n[[phase]]\nworkload = \"null\"\nnumjobs = \"x\"\nops = \"y\"\nmodes = [\"walk\"]\n[[phase]]\nworkload = \"dance\"\n";
    let errors = parse(text, "p.toml").unwrap_err().errors;
    let lines: Vec<usize> = errors
        .iter()
        .map(|error| error.place.as_ref().unwrap().line)
        .collect();
    assert_eq!(lines, [1, 4, 5, 6, 8], "{errors:#?}");
}

#[test]
fn the_caret_points_at_the_mistake() {
    let told = refused("[[phase]]\nworkload = \"null\"\nnumjobs = 1\nops = \"many\"\n");
    let expected = "p.toml:4:7: phase.0.ops: ";
    assert!(told.starts_with(expected), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[1], "  4 | ops = \"many\"");
    assert_eq!(lines[2], "    |       ^^^^^^");
}

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
        "`write` takes 300MiB on target `a` (3 tasks together, 100MiB each), and 250MiB are free",
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

#[test]
fn overrides_change_the_text_and_keep_its_lines() {
    let text = "# mine\n[targets.a] # here\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\" # w\nmodes = [\"write\"]\nmatrix = { size = [\n\"1m\", \"2m\"], bs = [\"4k\"] }\n[[phase]]\nname = \"idle\"\nworkload = \"null\"\n";
    let check = |given: &str, part: &str| {
        let changed = set(text, "p.toml", &[given.to_owned()]).unwrap();
        assert!(changed.contains(part), "{given}:\n{changed}");
        parse(&changed, "p.toml").unwrap();
        changed
    };
    check("repeat=3", "repeat = 3 # --set\n# mine\n");
    check("name=week 3", "name = \"week 3\" # --set\n");
    check("targets.a.path=/srv/x", "path = \"/srv/x\"\n");
    check(
        "clients.select=role=client",
        "[clients] # --set\nselect = \"role=client\" # --set\n",
    );
    check("size=1g", "matrix = { size = [\"1g\"]\n, bs = [\"4k\"] }");
    check(
        "phase.0.matrix.bs=[\"8k\", \"16k\"]",
        "bs = [\"8k\", \"16k\"]",
    );
    check("phase.idle.ops=10", "[[phase]]\nops = 10 # --set\nname");
    let numjobs = check(
        "numjobs=2",
        "[[phase]]\nnumjobs = 2 # --set\nworkload = \"io\"",
    );
    assert!(
        numjobs.contains("[[phase]]\nnumjobs = 2 # --set\nname = \"idle\""),
        "{numjobs}"
    );
    // Messages still name the lines of the file.
    let changed = set(
        text,
        "p.toml",
        &[
            String::from("numjobs=x"),
            String::from("phase.idle.workload=nix"),
        ],
    )
    .unwrap();
    let told = refused(&changed);
    assert!(
        told.contains("p.toml with --set: phase.0.numjobs"),
        "{told}"
    );
    assert!(
        told.contains("p.toml:12:12: phase.1.workload: unknown workload `nix`"),
        "{told}"
    );
}

#[test]
fn overrides_that_mean_nothing_are_refused() {
    let text = "[[phase]]\nworkload = \"null\"\n";
    for (given, part) in [
        ("numjobs", "no `=`"),
        ("=3", "no key"),
        ("numjbs=3", "did you mean `numjobs`?"),
        ("phase.7.ops=3", "counted from 0: 0 (null)"),
        ("phase.7=3", "which key"),
        ("targets.x.path=/a", "no target `x`"),
        ("tagets.x.path=/a", "nothing called `tagets`"),
        ("name=a\u{7}b", "control character"),
    ] {
        let told = set(text, "p.toml", &[given.to_owned()])
            .unwrap_err()
            .to_string();
        assert!(told.contains(part) && told.contains("--set"), "{told}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\[\\[phase\\]\\]\n|workload = \"(io|null)\"\n|matrix = \\{ numjobs = \\[1, 2\\] \\}\n|\\PC*\n|[a-z]+ = [0-9a-z\"]+\n){0,8}", given in "\\PC*") {
        let _ = parse(&text, "p.toml").map_err(|errors| errors.to_string());
        if let Ok(text) = set(&text, "p.toml", &[given]) {
            let _ = parse(&text, "p.toml").map_err(|errors| errors.to_string());
        }
    }
}
