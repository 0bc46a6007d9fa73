//! Keys of a matrix that advance together.

use super::{TARGETS, agent, refused};
use crate::*;
use benchmesh_testing::table;

fn io(keys: &str) -> String {
    format!(
        "{TARGETS}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\ntargets = [\"a\"]\n{keys}\n"
    )
}

/// The given parameters of each cell.
fn cells(text: &str) -> Vec<String> {
    let plan = parse(text, "p.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let groups = &plan.phases[0].groups;
    let cell = |index: usize| {
        let values = groups.iter().flat_map(|group| {
            let cell = &group.cells[index];
            let clients = cell.clients.map(|clients| format!("clients={clients}"));
            let params = cell
                .params
                .iter()
                .map(|(key, value)| format!("{key}={value}"));
            params.chain(clients).collect::<Vec<_>>()
        });
        values.collect::<Vec<_>>().join(" ").replace('"', "")
    };
    (0..plan.phases[0].cells()).map(cell).collect()
}

#[test]
fn zipped_keys_advance_together() {
    for [keys, expected] in table(
        r#"
        size = "1m"\nmatrix = { bs = ["4k", "64k"], iodepth = [32, 8] }\nzip = [["bs", "iodepth"]]
            | bs=4k iodepth=32 size=1m, bs=64k iodepth=8 size=1m
        // The axis takes the position of its first key; a value may appear twice in one of the lists.
        matrix = { bs = ["4k", "4k"], size = ["1m", "2m"], iodepth = [1, 2] }\nzip = [["iodepth", "bs"]]
            | bs=4k iodepth=1 size=1m, bs=4k iodepth=1 size=2m, bs=4k iodepth=2 size=1m, bs=4k iodepth=2 size=2m
        // Several zips are crossed with each other.
        matrix = { bs = ["4k", "64k"], iodepth = [2, 1], size = ["1m", "2m"], clients = [1, 2] }\nzip = [["bs", "iodepth"], ["size", "clients"]]
            | bs=4k iodepth=2 size=1m clients=1, bs=4k iodepth=2 size=2m clients=2, bs=64k iodepth=1 size=1m clients=1, bs=64k iodepth=1 size=2m clients=2
        "#,
    ) {
        assert_eq!(cells(&io(&keys)).join(", "), expected, "{keys}");
    }
    let groups = "[[phase]]\nmatrix = { one = { numjobs = [1, 2] }, two = { numjobs = [4, 3] } }\n\
                  zip = [[\"one.numjobs\", \"two.numjobs\"]]\n\
                  [[phase.group]]\nname = \"one\"\nworkload = \"null\"\nops = 1\n\
                  [[phase.group]]\nname = \"two\"\nworkload = \"null\"\nops = 2\n";
    assert_eq!(
        cells(groups),
        [
            "numjobs=1 ops=1 numjobs=4 ops=2",
            "numjobs=2 ops=1 numjobs=3 ops=2"
        ]
    );
    // Cells that become equal by `scale` are merged.
    let scaled = "matrix = { size = [\"2m\", \"4m\", \"4m\"], iodepth = [1, 1, 2] }\nzip = [[\"size\", \"iodepth\"]]";
    let scaled = format!("scale = 0.0001\n{}", io(scaled));
    assert_eq!(cells(&scaled), ["iodepth=1 size=1m", "iodepth=2 size=1m"]);
}

#[test]
fn zipped_cells_become_steps() {
    let text = io(
        "size = \"1m\"\nmatrix = { bs = [\"4k\", \"64k\"], iodepth = [32, 8] }\nzip = [[\"bs\", \"iodepth\"]]",
    );
    let plan = parse(&text, "p.toml").unwrap();
    let steps = expand(&plan, &[agent("x", &[], &["/mnt"])]).unwrap().steps;
    let params = steps
        .iter()
        .map(|step| format!("{} {}", step.params["bs"], step.params["iodepth"]));
    assert_eq!(params.collect::<Vec<_>>(), ["\"4k\" 32", "\"64k\" 8"]);
}

#[test]
fn what_cannot_be_zipped_is_refused_with_its_line() {
    let matrix = "size = \"1m\"\nmatrix = { bs = [\"4k\", \"64k\"], iodepth = [1, 2, 3], numjobs = [1, 2] }\n";
    for [keys, at, part] in table(
        r#"
        {matrix}zip = [["bs", "iodepth"]]      | p.toml:13:15: phase.1.zip
            | `iodepth` has 3 values in matrix, and `bs` has 2
        {matrix}zip = [["bs", "numjobs"], ["iodepth", "bs"]] | p.toml:13:39: phase.1.zip | `bs` is listed twice in `zip`
        {matrix}zip = [["bs", "size"]]         | p.toml:13:15: phase.1.zip         | matrix has no key `size`
        {matrix}zip = [["bs", "numjob"]]       | p.toml:13:15: phase.1.zip         | did you mean `numjobs`?
        {matrix}zip = [["bs"]]                 | p.toml:13:8: phase.1.zip          | fewer than two keys
        {matrix}zip = [[]]                     | p.toml:13:8: phase.1.zip          | fewer than two keys
        {matrix}zip = []                       | p.toml:13:7: phase.1.zip          | the list is empty
        {matrix}zip = ["bs", "numjobs"]        | p.toml:13:8: phase.1.zip          | expected a list of keys
        {matrix}zip = "bs"                     | p.toml:13:7: phase.1.zip          | expected lists of keys, found text
        {matrix}zip = [["bs", 3]]              | p.toml:13:15: phase.1.zip         | expected text in quotes
        size = "1m"\nzip = [["bs", "iodepth"]] | p.toml:12:9: phase.1.zip          | matrix has no key `bs`
        matrix = { size = ["1m", "1m"], iodepth = [2, 2] }\nzip = [["size", "iodepth"]]
            | p.toml:11:26: phase.1.matrix.size
            | the same combination of values is listed twice
        matrix = { size = ["1m", "1m"] }       | p.toml:11:26: phase.1.matrix.size | the value is listed twice
        "#,
    ) {
        let text = io(&keys.replace("{matrix}", matrix));
        let message = refused(&text);
        assert!(message.contains(&at), "{at}\n{text}\n{message}");
        assert!(message.contains(&part), "{part}\n{message}");
    }
}

/// A preset's phases apply the zips whose keys their matrix has.
#[test]
fn a_preset_takes_a_zip_where_it_fits() {
    let text = |zip: &str| {
        format!(
            "{TARGETS}[[phase]]\npreset = \"untar-rm-fill\"\nmatrix = {{ bs = [\"64k\", \"1m\"], share = [50, 90] }}\n{zip}"
        )
    };
    let count = |zip: &str| {
        let plan = parse(&text(zip), "p.toml").unwrap_or_else(|errors| panic!("{errors}"));
        plan.phases.iter().map(Phase::cells).collect::<Vec<_>>()
    };
    let (crossed, zipped) = (count(""), count("zip = [[\"bs\", \"share\"]]\n"));
    let fewer = crossed
        .iter()
        .zip(&zipped)
        .filter(|pair| pair == &(&4, &2))
        .count();
    assert_eq!(
        (fewer, crossed.len()),
        (1, zipped.len()),
        "{crossed:?} {zipped:?}"
    );
    assert!(
        crossed.iter().zip(&zipped).all(|(a, b)| *a == 4 || a == b),
        "{crossed:?} {zipped:?}"
    );
    let message = refused(&text("zip = [[\"bs\", \"iodepth\"]]\n"));
    assert!(message.contains("matrix has no key `iodepth`"), "{message}");
}
