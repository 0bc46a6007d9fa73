//! Keys without an effect are refused with their line, judged over all modes and cells of a phase.

use super::*;
use benchmesh_testing::table;

/// The rest of a phase of `workload`; its first line is line 8.
fn phase(workload: &str, rest: &str) -> String {
    format!("{TARGETS}[[phase]]\nworkload = \"{workload}\"\n{rest}")
}

#[test]
fn a_key_without_effect_is_reported_with_its_line() {
    for [workload, rest, message] in table(
        r#"
        io     | modes = ["write", "rewrite"]\nsize = "1m"\nverify = true\n
            | p.toml:11:10: phase.1.verify: has an effect only in the modes `read`,
        files  | modes = ["create", "stat"]\nverify = true\n
            | p.toml:10:10: phase.1.verify: has an effect only in the modes `read` and `mix`, and the phase has `create` and `stat`: no mode reads the data before they are removed with the cell; add one of these modes, or remove the key
        files  | modes = ["read", "stat"]\nfsync = true\n
            | p.toml:10:9: phase.1.fsync: has an effect only in the modes `create`, `append` and `mix`
        io     | modes = ["getc"]\nsize = "1m"\nseeks = 10\n
            | p.toml:11:9: phase.1.seeks: has an effect only in the mode `seek`
        tree   | modes = ["unpack"]\nfiles = 10\nverify = true\n
            | p.toml:11:10: phase.1.verify: has an effect only in the mode `read`
        fill   | modes = ["fill", "remove"]\nhold = "2s"\n
            | p.toml:10:8: phase.1.hold: has an effect only in the mode `hold`
        copy   | modes = ["in"]\nbs = "64k"\nway = "copy-file-range"\n
            | p.toml:10:6: phase.1.bs: has an effect only if read and write may be used
        copy   | modes = ["in"]\nfrom = "/usr/share"\nseed = 7\n
            | p.toml:11:8: phase.1.seed: describes files to create, but `from` names existing ones
        replay | verify = true\noperations = "- mkdir a"\n
            | p.toml:9:10: phase.1.verify: has an effect only if the list reads
        io     | modes = ["randread"]\nsize = "1m"\nnorandommap = true\nrandom_distribution = "zipf:1.1"\n
            | p.toml:11:15: phase.1.norandommap: has an effect only if each block is otherwise used once
        io     | modes = ["read"]\nsize = "1m"\nramp_time = "5s"\n
            | p.toml:11:13: phase.1.ramp_time: has an effect only with `runtime`
        io     | modes = ["read"]\nsize = "1m"\nmatrix = { fsync = [0, 4] }\n
            | p.toml:11:24: phase.1.matrix.fsync: has an effect only in the modes `write`,
        io     | modes = ["read"]\nsize = "1m"\ndirect = true\ncache = "warm"\n
            | p.toml:12:9: phase.1.cache: `direct` bypasses the caches that would be warmed
        io     | modes = ["fwrite"]\nsize = "1k"\nbs = "4k"\n
            | p.toml:11:6: phase.1.bs: is larger than the file
        io     | modes = ["putc"]\nsize = "1k"\nbuffer = "1m"\n
            | p.toml:11:10: phase.1.buffer: is larger than the file
        fill   | modes = ["fill"]\namount = "1k"\nbs = "1m"\n
            | p.toml:11:6: phase.1.bs: is more than each worker writes
        files  | modes = ["create", "delete"]\nloops = 3\n
            | p.toml:10:9: phase.1.loops: has an effect only in the modes `list`,
        io     | modes = ["getc"]\nsize = "1m"\nloops = 0\n
            | p.toml:11:9: phase.1.loops: expected a whole number, 1 or more, found `0`
        copy   | modes = ["in"]\nruntime = 0\n
            | p.toml:10:11: phase.1.runtime: must be longer than 0
        replay | ramp_time = "5s"\noperations = "- mkdir a"\n
            | p.toml:9:13: phase.1.ramp_time: has an effect only with `runtime`
        "#,
    ) {
        let text = phase(&workload, &rest);
        let errors = refused(&text);
        assert!(
            errors.starts_with(&message),
            "for\n{text}\ntold\n{errors}\nnot {message}"
        );
        let lines = errors.lines().filter(|line| line.starts_with("p.toml:"));
        assert_eq!(lines.count(), 1, "{errors}");
    }
}

#[test]
fn a_mode_or_a_cell_with_a_use_for_a_key_is_enough() {
    for [workload, rest] in table(
        r#"
        files | modes = ["create", "read"]\nfsync = true\nverify = true\n
        io    | modes = ["write", "read"]\nsize = "1m"\nverify = true\n
        io    | modes = ["read"]\nsize = "1m"\nioengine-fallback = "psync"\nmatrix = { iodepth = [1, 32] }\n
        io    | modes = ["read"]\nsize = "1m"\ncache = "warm"\nmatrix = { direct = [true, false] }\n
        io    | modes = ["randread"]\nsize = "1m"\nnorandommap = true\nmatrix = { random_distribution = ["random", "zipf:1.1"] }\n
        copy  | modes = ["in"]\nbs = "64k"\nmatrix = { way = ["copy-file-range", "read-write"] }\n
        fill  | modes = ["fill", "hold"]\nramp_time = "1s"\n
        "#,
    ) {
        let text = phase(&workload, &rest);
        parse(&text, "p.toml").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    }
}

#[test]
fn amounts_of_links_are_reported_with_their_line() {
    for [modes, rest, message] in table(
        r#"
        throughput | ops = 5\n
            | p.toml:4:7: phase.1.ops: has an effect only in the modes `ping`, `request` and `udp-request`
        ping       | size = "1g"\n
            | p.toml:4:8: phase.1.size: has an effect only in the modes `throughput` and `udp-stream`
        throughput | size = "64k"\nbs = "1m"\n   | p.toml:4:8: phase.1.size: 64KiB is less than one block of 1MiB
        ping       | ops = 5\nramp_time = "1s"\n | p.toml:5:13: phase.1.ramp_time: has an effect only with a `runtime`
        "#,
    ) {
        let text = format!("[[phase]]\nworkload = \"network\"\nmodes = [\"{modes}\"]\n{rest}");
        let errors = refused(&text);
        assert!(
            errors.starts_with(&message),
            "for\n{text}\ntold\n{errors}\nnot {message}"
        );
    }
}

/// A key that only a misspelled mode would use is not reported as a separate mistake.
#[test]
fn a_mistake_in_the_modes_is_reported_alone() {
    let text = phase("files", "modes = [\"creat\", \"stat\"]\nfsync = true\n");
    let message = refused(&text);
    assert!(
        message.contains("did you mean `create`?") && !message.contains("fsync:"),
        "{message}"
    );
}

#[test]
fn each_group_is_judged_by_its_own_modes() {
    let group = |name: &str, mode: &str| {
        format!(
            "[[phase.group]]\nname = \"{name}\"\nworkload = \"files\"\nmodes = [\"{mode}\"]\nclients = 1\nfsync = true\n"
        )
    };
    let text = format!(
        "{TARGETS}[[phase]]\n{}{}",
        group("w", "create"),
        group("r", "stat")
    );
    let message = refused(&text);
    assert!(
        message.starts_with("p.toml:19:9: phase.1.group.2.fsync: has an effect only in"),
        "{message}"
    );
}
