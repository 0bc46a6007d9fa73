//! Load curves, searches and staggered starts.

use super::{TARGETS, agent, refused};
use crate::*;
use benchmesh_testing::table;

fn phase(keys: &str) -> String {
    format!(
        "{TARGETS}[[phase]]\ntargets = [\"a\"]\nworkload = \"io\"\nsize = \"1m\"\nruntime = \"4s\"\n{keys}\n"
    )
}

/// Directory, mode and rate of each step.
fn steps(keys: &str) -> Vec<String> {
    let plan = parse(&phase(keys), "p").unwrap();
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let steps = expand(&plan, &agents).unwrap().steps;
    let summary = |step: &PlannedStep| {
        let load = &step.loads[0];
        let rate = load.params.get("rate_iops").or(load.params.get("rate"));
        assert_eq!(step.params, load.params);
        format!("{} {} {}", step.directory(0, 1), step.mode, rate.unwrap())
    };
    steps.iter().map(summary).collect()
}

#[test]
fn a_curve_walks_its_rate_up_on_one_cell_where_the_data_stay() {
    assert_eq!(
        steps(
            "modes = [\"read\", \"randread\"]\nrate_iops = 100\nload-curve = { start = 0.5, steps = 2 }"
        ),
        [
            "r1-p1-c1-t1 read 50",
            "r1-p1-c1-t1 read 100",
            "r1-p1-c1-t1 randread 50",
            "r1-p1-c1-t1 randread 100"
        ]
    );
    assert_eq!(
        steps(
            "modes = [\"write\", \"read\"]\nrate = \"1m\"\nload-curve = { start = 0.25, steps = 2, factor = 2 }"
        ),
        [
            "r1-p1-c1-t1-l1 write 262000",
            "r1-p1-c1-t1-l1 read 262000",
            "r1-p1-c1-t1-l2 write 524000",
            "r1-p1-c1-t1-l2 read 524000"
        ]
    );
    assert_eq!(
        steps("modes = [\"read\"]\nrate_iops = 1000\nload-curve = true").len(),
        10
    );
}

/// The first probe of each search, and further ones at a rate of 70.
fn probes(keys: &str) -> Vec<String> {
    let plan = parse(&phase(keys), "p").unwrap();
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let steps = expand(&plan, &agents).unwrap().steps;
    let rows = |ordinal: u32| (ordinal, "{\"rate_iops\": 70, \"rate-per\": \"step\"}");
    // The second search has no further probe yet.
    let steps = with_probes(&steps, [1, 2, 3, 5].map(rows).into_iter()).unwrap();
    let summary = |step: &PlannedStep| {
        assert_eq!(step.params, step.loads[0].params);
        let rate = step.params.get("rate_iops");
        assert_eq!(step.probe_rate(), rate.and_then(serde_json::Value::as_u64));
        assert_eq!(step.params.get("rate-per").is_some(), rate.is_some());
        format!(
            "{} {} {} {} {}",
            step.ordinal,
            step.cell,
            step.directory(0, 1),
            step.mode,
            rate.map_or_else(String::new, ToString::to_string)
        )
    };
    steps.iter().map(summary).collect()
}

const SEARCH: &str = "search = { rate = \"max\", while = \"p99 < 10ms\", steps = 4 }";

#[test]
fn probes_share_a_cell_where_the_data_stay() {
    assert_eq!(
        probes(&format!("modes = [\"read\", \"randread\"]\n{SEARCH}")),
        [
            "1 0 r1-p1-c1-t1 read ",
            "2 0 r1-p1-c1-t1 read 70",
            "3 0 r1-p1-c1-t1 read 70",
            "5 0 r1-p1-c1-t1 randread ",
        ]
    );
    assert_eq!(
        probes(&format!(
            "modes = [\"write\"]\nmatrix = {{ bs = [\"4k\", \"8k\"] }}\n{SEARCH}"
        )),
        [
            "1 0 r1-p1-c1-t1-s1 write ",
            "2 1 r1-p1-c1-t1-s2 write 70",
            "3 2 r1-p1-c1-t1-s3 write 70",
            "5 4 r1-p1-c2-t1-s1 write ",
        ]
    );
}

/// Each loop reserves one ordinal for each possible probe.
#[test]
fn ordinals_of_possible_probes_stay_free() {
    let text = phase(&format!("modes = [\"read\"]\n{SEARCH}"));
    let plan = parse(&format!("repeat = 2\n{text}"), "p").unwrap();
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let ordinals = |number| -> Vec<u32> {
        let steps = expand_loop(&plan, &agents, number).unwrap().steps;
        steps.iter().map(|step| step.ordinal).collect()
    };
    assert_eq!((ordinals(1), ordinals(2)), (vec![1, 5], vec![9, 13]));
    let steps = expand(&plan, &agents).unwrap().steps;
    let of = |ordinal| step_of_ordinal(&steps, ordinal).map(|step| (step.ordinal, step.repeat));
    assert_eq!(
        [of(1), of(4), of(6), of(9)],
        [Some((1, 1)), Some((4, 1)), Some((6, 2)), None]
    );
}

#[test]
fn what_cannot_be_searched_is_refused_with_its_line() {
    let read = "modes = [\"read\"]\n";
    let check = |text: &str, key: &str, reason: &str| {
        let errors = parse(text, "p.toml").unwrap_err().errors;
        let found = errors.iter().find(|error| error.reason.contains(reason));
        let found = found.unwrap_or_else(|| panic!("{text}: {errors:?}"));
        assert_eq!(found.key, key, "{text}");
        assert!(found.place.is_some(), "{text}");
    };
    for [keys, key, reason] in table(
        r#"
        {read}search = true                                              | phase.1.search        | expected a table
        {read}search = { rate = "max" }                                  | phase.1.search        | there is no `while`
        {read}search = { while = "p99 < 1ms" }                           | phase.1.search        | there is no `rate`
        {read}search = { rate = "max", while = "p99 > 1ms" }             | phase.1.search.while  | upper bound
        {read}search = { rate = 5, while = "p99 < 1ms" }                 | phase.1.search.rate   | max
        {read}search = { rate = "max", while = "p99 < 1ms", steps = 1 }  | phase.1.search.steps  | 2 to 100
        {read}search = { rate = "max", while = "p99 < 1ms", within = 5 } | phase.1.search.within | share
        {read}search = { rate = "max", while = "p99 < 1ms", until = 5 }  | phase.1.search.until  | unknown key
        {read}{SEARCH}\nrate_iops = 5                                    | phase.1.search
            | the phase has a rate (`rate_iops`), which the search chooses
        {read}{SEARCH}\nload-curve = true\nrate_iops = 5                 | phase.1.search
            | it conflicts with `load-curve`
        {read}{SEARCH}\nuntil = "steady"\nss_dur = "3s"\nss = "iops:5%"  | phase.1.search
            | it conflicts with `until`
        modes = ["write", "read"]\n{SEARCH}                              | phase.1.search
            | each probe needs its own data, for a single mode
        modes = ["write"]\nkeep = "k"\n{SEARCH}                          | phase.1.search
            | the phase keeps only one set
        "#,
    ) {
        let keys = keys.replace("{read}", read).replace("{SEARCH}", SEARCH);
        check(&phase(&keys), &key, &reason);
    }
    let endless = phase(&format!("{read}{SEARCH}")).replace("runtime = \"4s\"\n", "");
    check(&endless, "phase.1.search", "there is no `runtime`");
    let groups = format!(
        "{TARGETS}[[phase]]\n{SEARCH}\n[[phase.group]]\nname = \"g\"\nworkload = \"null\"\nruntime = \"1s\"\n\
         [[phase.group]]\nname = \"h\"\nworkload = \"null\"\nruntime = \"1s\"\n"
    );
    let reason = "a phase with groups cannot have a search";
    check(&groups, "phase.1.search", reason);
    // Poisson arrivals need a rate, and the search sets its own.
    let poisson = phase(&format!("{read}{SEARCH}\nrate_process = \"poisson\""));
    assert!(parse(&poisson, "p.toml").is_err());
}

#[test]
fn stagger_prolongs_a_step() {
    let plan = parse(
        &phase("modes = [\"read\"]\ntasks-per-agent = 2\nstagger = \"1500ms\""),
        "p",
    );
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let step = &expand(&plan.unwrap(), &agents).unwrap().steps[0];
    assert_eq!(step.stagger, Duration::from_millis(1500));
    assert_eq!(step.expected, Some(Duration::from_millis(4000 + 4500)));
}

#[test]
fn what_is_no_curve_is_refused_with_its_line() {
    let check = |text: &str, at: &str, part: &str| {
        let message = refused(text);
        assert!(message.contains(at), "{at}\n{text}\n{message}");
        assert!(message.contains(part), "{part}\n{message}");
    };
    for [keys, at, part] in table(
        r#"
        load-curve = true                           | p.toml:13:14: phase.1.load-curve       | needs a rate
        load-curve = 3\nrate_iops = 9               | p.toml:13:14                           | expected true or a table
        load-curve = { begin = 0.1 }\nrate_iops = 9 | p.toml:13:16: phase.1.load-curve.begin | unknown key
        load-curve = { start = 2 }\nrate_iops = 9   | p.toml:13:24                           | between 0 and 1
        load-curve = { factor = 1 }\nrate_iops = 9  | p.toml:13:25                           | above 1
        load-curve = { steps = 1 }\nrate_iops = 9   | p.toml:13:24                           | 2 to 1000
        "#,
    ) {
        let text = phase(&format!("modes = [\"read\"]\n{keys}"));
        check(&text, &at, &part);
    }
    let groups = format!(
        "{TARGETS}[[phase]]\nload-curve = true\n[[phase.group]]\nname = \"g\"\nworkload = \"null\"\n\
         [[phase.group]]\nname = \"h\"\nworkload = \"null\"\n"
    );
    check(&groups, "p.toml:8:14: phase.1.load-curve", "with groups");
    let late = phase("modes = [\"read\"]\nstagger = \"2h\"");
    let plan = parse(&late, "p.toml").unwrap();
    let agents = ["x", "y"].map(|name| agent(name, &[], &["/mnt"]));
    let message = expand(&plan, &agents).unwrap_err().to_string();
    assert!(message.contains("shorter stagger"), "{message}");
}

#[test]
fn cells_that_cannot_be_are_left_out_with_a_warning() {
    let io = |matrix: &str| {
        format!(
            "{TARGETS}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nmatrix = {{ {matrix} }}\n"
        )
    };
    let plan = parse(
        &io("size = [\"16k\", \"1m\"], bs = [\"4k\", \"64k\"]"),
        "p.toml",
    )
    .unwrap();
    assert_eq!(plan.phases[0].cells(), 3);
    let expected = "phase `io` leaves out the cell with size = \"16k\", bs = \"64k\": `size`: 16KiB is less than one block of 64KiB";
    assert_eq!(plan.warnings(), [expected]);
    // No cell is left, or a value fits no cell.
    let message = refused(&io("size = [\"16k\"], bs = [\"32k\", \"64k\"]"));
    assert!(message.contains("less than one block"), "{message}");
    let message = refused(&io("size = [\"1m\"], bs = [\"4k\", \"4q\"]"));
    assert!(message.contains("`4q`: unknown unit"), "{message}");
}

/// As in an iozone run over sizes and records: only cells whose record does not fit are skipped.
#[test]
fn only_the_mode_that_cannot_be_in_a_cell_is_left_out() {
    let io = |modes: &str, matrix: &str| {
        format!(
            "{TARGETS}[[phase]]\ntargets = [\"a\"]\nworkload = \"io\"\nmodes = [{modes}]\nmatrix = {{ {matrix} }}\n"
        )
    };
    let sizes = "size = [\"64k\", \"1m\"], bs = [\"4k\", \"64k\", \"128k\"]";
    let plan = parse(&io("\"write\", \"strideread\", \"read\"", sizes), "p.toml").unwrap();
    let agents = [agent("x", &[], &["/mnt"])];
    let steps = expand(&plan, &agents).unwrap().steps;
    let of_cell = |step: &PlannedStep| {
        let word = |key: &str| step.params[key].as_str().unwrap().to_owned();
        format!("{}/{} {}", word("size"), word("bs"), step.mode)
    };
    let measured: Vec<String> = steps.iter().map(of_cell).collect();
    assert_eq!(
        measured,
        [
            "64k/4k write",
            "64k/4k read",
            "64k/64k write",
            "64k/64k read",
            "1m/4k write",
            "1m/4k strideread",
            "1m/4k read",
            "1m/64k write",
            "1m/64k read",
            "1m/128k write",
            "1m/128k read",
        ]
    );
    let ordinals: Vec<u32> = steps.iter().map(|step| step.ordinal).collect();
    assert!(ordinals.into_iter().eq(1..=11));
    let told = plan.left_out();
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(
        told[0],
        "phase `io` leaves out mode `strideread` of the cell with size = \"64k\", bs = \"4k\": `stride`: its default \
         of 17 blocks of 4KiB is not less than the range of 64KiB; set a shorter one"
    );
    assert!(
        told.iter()
            .any(|it| it.contains("leaves out the cell with size = \"64k\", bs = \"128k\"")),
        "{told:?}"
    );
    // A mode that is possible in no cell is a mistake.
    let message = refused(&io(
        "\"write\", \"strideread\"",
        "size = [\"64k\"], bs = [\"4k\", \"64k\"]",
    ));
    assert!(message.contains("stride"), "{message}");
}
