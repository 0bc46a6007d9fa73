//! `cache` is refused where it has no effect, and unsupported requests are reported with their line.

use super::*;
use benchmesh_testing::table;

#[test]
fn a_treatment_of_caches_without_an_effect_is_refused() {
    let target = format!("{TARGETS}[[phase]]\n");
    for [text, expected] in table(
        r#"
        [[phase]]\nworkload = "null"\ncache = "warm"\n | p.toml:3:9: phase.1.cache: workload `null`: there is no target
        [[phase]]\nworkload = "network"\nmodes = ["ping"]\ncache = "cold"\n
            | p.toml:4:9: phase.1.cache: workload `network`: there is no target
        {target}workload = "replay"\noperations = "- mkdir a"\ncache = "warm"\n
            | p.toml:10:9: phase.1.cache: workload `replay`: there is no unmeasured pass
        {target}workload = "replay"\noperations = "- mkdir a"\ncache = "bypass"\n
            | p.toml:10:9: phase.1.cache: workload `replay` does not use O_DIRECT
        {target}workload = "copy"\nmodes = ["in"]\nway = "read-write"\ncache = "bypass"\n
            | p.toml:11:9: phase.1.cache: `way`: conflicts with cache = "bypass"
        {target}workload = "copy"\nmodes = ["in"]\nbs = 5000\ncache = "bypass"\n
            | p.toml:11:9: phase.1.cache: O_DIRECT and `bs`: must be a multiple of 4k
        {target}workload = "io"\nmodes = ["read"]\nsize = "1m"\ndirect = false\ncache = "bypass"\n
            | p.toml:12:9: phase.1.cache: `direct`: conflicts with cache = "bypass"
        {target}workload = "io"\nmodes = ["read"]\nsize = "1m"\ndirect = true\ncache = "warm"\n
            | p.toml:12:9: phase.1.cache: `direct` bypasses the caches that would be warmed
        {target}workload = "files"\nmodes = ["create", "chmod"]\ncache = "other-client"\n
            | p.toml:10:9: phase.1.cache: workload `files`: none of its modes here can read the data of another client
        {target}workload = "io"\nmodes = ["write"]\nsize = "1m"\ncache = "other-client"\n
            | p.toml:11:9: phase.1.cache: workload `io`: none of its modes here can read the data of another client
        "#,
    ) {
        let text = text.replace("{target}", &target);
        let errors = refused(&text);
        assert!(
            errors.starts_with(&expected),
            "for\n{text}\nfound\n{errors}\nnot {expected}"
        );
    }
}

#[test]
fn what_goes_past_the_caches_and_what_is_warmed_is_taken() {
    for rest in [
        "workload = \"copy\"\nmodes = [\"in\", \"out\"]\ncache = \"bypass\"\n",
        "workload = \"copy\"\nmodes = [\"in\"]\nway = \"direct\"\ncache = \"bypass\"\n",
        "workload = \"io\"\nmodes = [\"read\"]\nsize = \"1m\"\ncache = \"bypass\"\n",
        "workload = \"replay\"\noperations = \"- mkdir a\"\ncache = \"cold\"\n",
        "workload = \"files\"\nmodes = [\"stat\"]\ncache = \"warm\"\n",
        // The network traffic in the other group uses no cache.
        "cache = \"bypass\"\n[[phase.group]]\nname = \"a\"\nworkload = \"io\"\nmodes = [\"read\"]\nsize = \"1m\"\nclients = 1\n\
         [[phase.group]]\nname = \"b\"\nworkload = \"network\"\nmodes = [\"ping\"]\n",
    ] {
        let text = format!("{TARGETS}[[phase]]\n{rest}");
        parse(&text, "p.toml").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    }
}

#[test]
fn a_client_reads_what_the_next_one_wrote() {
    for load in [
        "workload = \"io\"\nmodes = [\"write\", \"read\"]\nsize = \"1m\"",
        "workload = \"files\"\nmodes = [\"create\", \"read\"]",
        "workload = \"copy\"\nmodes = [\"in\", \"out\"]",
    ] {
        each_reads_the_next(load);
    }
}

fn each_reads_the_next(load: &str) {
    let text = format!(
        "{TARGETS}[[phase]]\n{load}\ntasks-per-agent = 3\ncache = \"other-client\"\ntargets = [\"a\"]\n"
    );
    let plan = parse(&text, "p.toml").unwrap();
    let two = [agent("x", &[], &["/mnt"]), agent("y", &[], &["/mnt"])];
    let steps = expand(&plan, &two).unwrap().steps;
    assert_eq!(steps.len(), 2);
    for step in &steps {
        assert_eq!(step.params.get("reorder-tasks"), Some(&3.into()));
        // Agents do not manage caches.
        assert_eq!(
            (step.cache.as_str(), step.cache.of_tasks().as_str()),
            ("other-client", "asis")
        );
    }
    let alone = expand(&plan, &two[..1]).unwrap_err().to_string();
    assert!(alone.contains("agent `x` is the only client"), "{alone}");
}

#[test]
fn a_matrix_may_have_caches() {
    let hosts = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let steps = |text: &str| -> Vec<String> {
        let plan = parse(text, "p.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let steps = expand(&plan, &hosts).unwrap().steps;
        let own = |step: &PlannedStep| {
            let bs = step
                .params
                .get("bs")
                .map_or_else(String::new, ToString::to_string);
            let others = step.params.contains_key("reorder-tasks");
            format!(
                "{} {} {others} {}",
                step.cache.as_str(),
                bs.trim_matches('"'),
                step.cell
            )
        };
        steps.iter().map(own).collect()
    };
    let io = |rest: &str| {
        format!(
            "{TARGETS}[[phase]]\ntargets = [\"a\"]\nworkload = \"io\"\nmodes = [\"read\"]\nsize = \"1m\"\n{rest}\n"
        )
    };
    assert_eq!(
        steps(&io(
            "matrix = { cache = [\"cold\", \"other-client\"], bs = [\"4k\", \"8k\"] }"
        )),
        [
            "cold 4k false 0",
            "cold 8k false 1",
            "other-client 4k true 2",
            "other-client 8k true 3"
        ]
    );
    assert_eq!(
        steps(&io(
            "matrix = { bs = [\"4k\", \"8k\"], cache = [\"warm\", \"asis\"] }\nzip = [[\"bs\", \"cache\"]]"
        )),
        ["warm 4k false 0", "asis 8k false 1"]
    );
    let group = |name: &str| {
        format!(
            "[[phase.group]]\nname = \"{name}\"\nworkload = \"io\"\nmodes = [\"read\"]\nsize = \"1m\"\nclients = 1\n"
        )
    };
    let groups = format!(
        "{TARGETS}[[phase]]\ntargets = [\"a\"]\nmatrix = {{ cache = [\"cold\", \"warm\"], p = {{ bs = [\"4k\", \"8k\"] }} }}\n\
         zip = [[\"cache\", \"p.bs\"]]\n{}{}",
        group("p"),
        group("q")
    );
    assert_eq!(steps(&groups), ["cold  false 0", "warm  false 1"]);
    for (text, expected) in [
        (
            io("matrix = { cache = [\"cold\", \"hot\"] }"),
            "p.toml:12:29: phase.1.matrix.cache: expected \"asis\"",
        ),
        (
            io("cache = \"cold\"\nmatrix = { cache = [\"warm\"] }"),
            "p.toml:13:21: phase.1.matrix.cache: `cache` is also set outside matrix",
        ),
        (
            io("cache = [\"cold\", \"warm\"]"),
            "write several values in matrix: matrix = { cache = [...] }",
        ),
        (
            io("direct = true\nmatrix = { cache = [\"cold\", \"warm\"] }"),
            "p.toml:13:29: phase.1.matrix.cache: `direct` bypasses the caches that would be warmed",
        ),
        (
            String::from(
                "[[phase]]\nworkload = \"null\"\nmatrix = { cache = [\"asis\", \"cold\"] }\n",
            ),
            "p.toml:3:29: phase.1.matrix.cache: workload `null`: there is no target",
        ),
        (
            format!(
                "{TARGETS}[[phase]]\nmatrix = {{ p = {{ cache = [\"cold\"] }} }}\n{}",
                group("p")
            ),
            "p.toml:8:18: phase.1.matrix.p.cache: unknown key `cache`",
        ),
    ] {
        let message = refused(&text);
        assert!(message.contains(expected), "{expected}\n{text}\n{message}");
    }
}
