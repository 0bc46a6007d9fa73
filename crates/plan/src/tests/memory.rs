//! Sizes that are multiples of the memory of the clients' hosts.

use super::{TARGETS, agent, refused};
use crate::*;
use benchmesh_testing::table;
use benchmesh_workloads::params::{KeyValue, units::Bytes};

const GIB: u64 = 1 << 30;

fn io(keys: &str) -> String {
    format!(
        "{TARGETS}[[phase]]\nworkload = \"io\"\nmodes = [\"write\", \"read\"]\ntargets = [\"a\"]\n{keys}\n"
    )
}

/// Agents with these GiB of memory.
fn hosts(memory_gib: &[u64]) -> Vec<AgentFacts> {
    let hosts = ["u", "v", "w"].iter().zip(memory_gib);
    hosts
        .map(|(name, gib)| AgentFacts {
            memory_bytes: gib * GIB,
            ..agent(name, &[], &["/mnt"])
        })
        .collect()
}

/// The steps of a plan, each with one of its parameters and the bytes that it moves.
fn steps(text: &str, key: &str, hosts: &[AgentFacts]) -> Vec<String> {
    let plan = parse(text, "p.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let expansion = expand(&plan, hosts).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let summary = |step: &PlannedStep| {
        let value = step.params[key].as_str().unwrap();
        format!("{} {value} {}", step.mode, Bytes(step.moved_bytes))
    };
    expansion.steps.iter().map(summary).collect()
}

#[test]
fn a_multiple_is_of_the_largest_memory_of_the_step() {
    for [keys, key, memory_gib, expected] in table(
        r#"
        size = "2 x ram"                 | size    | 4     | write 8GiB 8GiB, read 8GiB 8GiB
        size = "0.5 x ram"               | size    | 4, 16 | write 8GiB 16GiB, read 8GiB 16GiB
        // Agents outside the step do not count.
        size = "1x RAM"\nclients = 1     | size    | 4, 16 | write 4GiB 4GiB, read 4GiB 4GiB
        matrix = { size = ["1 x ram", "64m"], clients = [1, 2] } | size | 1, 2
            | write 1GiB 1GiB, read 1GiB 1GiB, write 2GiB 4GiB, read 2GiB 4GiB, write 64m 64MiB, read 64m 64MiB, write 64m 128MiB, read 64m 128MiB
        size = "1g"\nio_size = "2 x ram" | io_size | 4     | write 8GiB 8GiB, read 8GiB 8GiB
        "#,
    ) {
        let memory_gib = memory_gib.split(", ").map(|gib| gib.parse().unwrap());
        let hosts = hosts(&memory_gib.collect::<Vec<u64>>());
        let steps = steps(&io(&keys), &key, &hosts).join(", ");
        assert_eq!(steps, expected, "{keys}");
    }
    let fill = format!(
        "{TARGETS}[[phase]]\nworkload = \"fill\"\nmodes = [\"fill\"]\ntargets = [\"a\"]\namount = \"1.5 x ram\"\n"
    );
    assert_eq!(steps(&fill, "amount", &hosts(&[2])), ["fill 3GiB 3GiB"]);
    let scaled = format!("scale = 0.25\n{}", io("size = \"2 x ram\""));
    assert_eq!(
        steps(&scaled, "size", &hosts(&[4])),
        ["write 2GiB 2GiB", "read 2GiB 2GiB"]
    );
}

#[test]
fn while_no_memory_is_known_a_multiple_stays_one() {
    let text = io("size = \"2 x ram\"\nbs = \"1g\"");
    let plan = parse(&text, "p.toml").unwrap();
    assert_eq!(plan.sizes_of_memory(), ["phase `io`: size = 2 x ram"]);
    let assumed = assumed_agents(&plan, 2);
    assert_eq!(
        steps(&text, "size", &assumed),
        ["write 2 x ram 0", "read 2 x ram 0"]
    );
    // No real agent reports such a value.
    let mut real = hosts(&[4, 4]);
    real[1].memory_bytes = 0;
    let expansion = expand(&plan, &real).unwrap();
    let message = check_limits(&plan, &expansion, &real)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("agent `v` does not report the memory"),
        "{message}"
    );
}

#[test]
fn the_resolved_size_is_held_against_blocks_and_free_space() {
    let text = io("size = \"0.001 x ram\"\nbs = \"16m\"");
    let plan = parse(&text, "p.toml").unwrap();
    assert!(expand(&plan, &hosts(&[64])).is_ok());
    let message = expand(&plan, &hosts(&[4])).unwrap_err().to_string();
    assert!(message.contains("p.toml:11:8: phase.1.size"), "{message}");
    assert!(
        message.contains("5MiB is less than one block of 16MiB"),
        "{message}"
    );

    let text = io("size = \"2 x ram\"");
    let plan = parse(&text, "p.toml").unwrap();
    let free = |free_gib: u64| {
        let mut hosts = hosts(&[4]);
        let facts = PathFacts {
            allowed: true,
            free_bytes: free_gib * GIB,
            file_system: String::from("ext4"),
            ..PathFacts::default()
        };
        hosts[0].surveyed.insert(String::from("/mnt/a"), facts);
        let expansion = expand(&plan, &hosts).unwrap();
        check_limits(&plan, &expansion, &hosts)
    };
    assert!(free(10).is_ok());
    let message = free(8).unwrap_err().to_string();
    assert!(
        message.contains("`write` and `read` take 8.00 GiB")
            && message.contains("8.00 GiB are free"),
        "{message}"
    );
}

#[test]
fn a_key_that_memory_makes_useful_is_not_unused() {
    let text = io("size = \"1 x ram\"\nramp_time = \"1s\"\nruntime = \"2s\"\nverify = true");
    assert!(parse(&text, "p.toml").is_ok());
}

#[test]
fn what_is_no_multiple_is_refused_with_its_line() {
    for (value, part) in [
        ("0 x ram", "such as 2 x ram"),
        ("x ram", "such as 2 x ram"),
        ("ram", "such as 2 x ram"),
        ("101 x ram", "from 0.000001 to 100"),
        ("2k x ram", "such as 2 x ram"),
        ("2 x rom", "unknown unit `x rom`"),
    ] {
        let message = refused(&io(&format!("size = \"{value}\"")));
        assert!(
            message.contains("p.toml:11:8: phase.1.size"),
            "{value}\n{message}"
        );
        assert!(message.contains(part), "{part}\n{message}");
        let message = refused(&io(&format!("matrix = {{ size = [\"1m\", \"{value}\"] }}")));
        assert!(
            message.contains("p.toml:11:26: phase.1.matrix.size"),
            "{value}\n{message}"
        );
        assert!(message.contains(part), "{part}\n{message}");
    }
    // A multiple of memory is refused where a size is not an amount of data.
    for keys in [
        "size = \"1g\"\nbs = \"1 x ram\"",
        "size = \"1g\"\noffset = \"1 x ram\"",
    ] {
        let message = refused(&io(keys));
        assert!(message.contains("unknown unit `x ram`"), "{message}");
    }
    assert!(Bytes::read(&"2 x ram".into()).is_err());
}
