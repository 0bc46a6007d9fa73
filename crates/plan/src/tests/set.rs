//! `--set`: overrides of single values.

use super::*;

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
        "phase.1.matrix.bs=[\"8k\", \"16k\"]",
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
    let message = refused(&changed);
    assert!(
        message.contains("p.toml with --set: phase.1.numjobs"),
        "{message}"
    );
    assert!(
        message.contains("p.toml:12:12: phase.2.workload: unknown workload `nix`"),
        "{message}"
    );
}

#[test]
fn overrides_that_mean_nothing_are_refused() {
    let text = "[[phase]]\nworkload = \"null\"\n";
    for (given, part) in [
        ("numjobs", "no `=`"),
        ("=3", "no key"),
        ("numjbs=3", "did you mean `numjobs`?"),
        ("phase.8.ops=3", "counted from 1: 1 (null)"),
        ("phase.8=3", "the key of"),
        ("targets.x.path=/a", "no target `x`"),
        ("tagets.x.path=/a", "unknown key `tagets`"),
        ("name=a\u{7}b", "control character"),
    ] {
        let message = set(text, "p.toml", &[given.to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(part) && message.contains("--set"),
            "{message}"
        );
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

#[test]
fn a_workload_that_became_a_part_of_another_says_so() {
    let message = refused("[[phase]]\nworkload = \"bytes\"\n");
    for part in ["unknown workload `bytes`", "workload = \"io\"", "`rmw`"] {
        assert!(message.contains(part), "{message}");
    }
}
