//! All mistakes in a plan are reported at once, each with its line.

use super::*;
use benchmesh_testing::table;

#[test]
fn each_mistake_is_reported_with_its_line() {
    let null = "[[phase]]\nworkload = \"null\"\n";
    let timed = format!("{null}runtime = \"9m\"\nuntil = \"steady\"\n");
    let io = format!("{TARGETS}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\n");
    // The plan, the place of its mistake, and a part of the message.
    for [text, at, part] in table(
        r#"
        reapeat = 2\n{null}                     | p.toml:1:1: reapeat                 | did you mean `repeat`?
        repeat = 0\n{null}                      | p.toml:1:10: repeat                 | 1 to 1000
        loops = 0\n{null}                       | p.toml:1:9: loops                   | 1 to 100000
        loop-for = "500ms"\n{null}              | p.toml:1:12: loop-for               | 1s
        loop-for = "9000h"\n{null}              | p.toml:1:12: loop-for               | 8760h
        loops = 2\nloop-for = "72h"\n{null}     | p.toml:2:12: loop-for               | either `loops` or `loop-for`
        on-loss = "stop"\n{null}                | p.toml:1:11: on-loss                | "abort"
        on-loss = { at-last = 2 }\n{null}       | p.toml:1:13: on-loss.at-last        | did you mean `at-least`?
        loss-after = "3 fortnights"\n{null}     | p.toml:1:14: loss-after             | fortnights
        loss-after = "10ms"\n{null}             | p.toml:1:14: loss-after             | 1s
        lease = "200h"\n{null}                  | p.toml:1:9: lease                   | 168h
        name = ""\n{null}                       | p.toml:1:8: name                    | empty
        name = "x"\n                            | p.toml: the plan has no phase       | [[phase]]
        x = [1\n                                | p.toml:1:                           | not TOML
        [phase]\nworkload = "null"\n            | p.toml:1:1: phase                   | two brackets
        [[phase]]\nmodes = ["run"]\n            | p.toml:1:1: phase.1                 | no `workload`
        [[phase]]\nworkload = "nul"\n           | p.toml:2:12: phase.1.workload       | did you mean `null`?
        {null}nmjobs = 2\n                      | p.toml:3:1: phase.1.nmjobs          | did you mean `numjobs`?
        {null}numjobs = "x"\n                   | p.toml:3:11: phase.1.numjobs        | expected
        {null}modes = ["rum"]\n                 | p.toml:3:10: phase.1.modes          | did you mean `run`?
        {null}modes = []\n                      | p.toml:3:9: phase.1.modes           | empty
        {null}until = "steady"\n                | p.toml:3:9: phase.1.until           | there is no `runtime`
        {null}runtime = "9m"\nuntil = "idle"\n  | p.toml:4:9: phase.1.until           | "steady"
        {null}runtime = "9m"\nss = "iops:5%"\n  | p.toml:4:6: phase.1.ss              | only with `until`
        {timed}ss = "iosp:5%"\n                 | p.toml:5:6: phase.1.ss              | unknown figure `iosp`
        {timed}ss = "5%"\n                      | p.toml:5:6: phase.1.ss              | not a criterion
        {timed}ss = "lat_slope:500"\n           | p.toml:5:6: phase.1.ss              | has no unit
        {timed}ss = "bw:0%"\n                   | p.toml:5:6: phase.1.ss              | above 0%
        {timed}ss = "bw:fast"\n                 | p.toml:5:6: phase.1.ss              | not a limit of `bw`
        {timed}ss_dur = "7s"\n                  | p.toml:5:10: phase.1.ss_dur         | five rounds
        {timed}ss = "iops:5%"\nss_dur = "2s"\n  | p.toml:6:10: phase.1.ss_dur         | 3s
        {timed}ss_dur = "10m"\n                 | p.toml:5:10: phase.1.ss_dur         | cannot be steady before 600 s
        {timed}ss_ramp = "5m"\n                 | p.toml:4:9: phase.1.until           | cannot be steady before 600 s
        {null}cache = "hot"\n                   | p.toml:3:9: phase.1.cache           | warm
        {null}matrix = { numjobs = 3 }\n        | p.toml:3:12: phase.1.matrix.numjobs | expected a list
        {null}matrix = { numjobs = [] }\n       | p.toml:3:12: phase.1.matrix.numjobs | no cell
        {null}matrix = { numjobs = [1, 1] }\n   | p.toml:3:26: phase.1.matrix.numjobs | twice
        {null}matrix = { numjob = [1] }\n       | p.toml:3:12: phase.1.matrix.numjob  | did you mean `numjobs`?
        {null}matrix = { numjobs = [1, "x"] }\n | p.toml:3:26: phase.1.matrix.numjobs | expected
        {null}numjobs = 1\nmatrix = { numjobs = [2] }\n | p.toml:3:1: phase.1.numjobs | is also set in matrix
        {null}clients = 1\nmatrix = { clients = [2] }\n | p.toml:4:23: phase.1.matrix.clients | outside matrix
        {null}clients = 0\n                     | p.toml:3:11: phase.1.clients        | 1 to 100000
        {null}settle = "soon"\n                 | p.toml:3:10: phase.1.settle         | "idle"
        {null}settle = { idle = "0%" }\n        | p.toml:3:19: phase.1.settle.idle    | above 0%
        {null}settle = { idle = "5%", limt = "1m" }\n | phase.1.settle.limt           | did you mean `limit`?
        {null}settle = -1\n                     | p.toml:3:10: phase.1.settle         | duration
        {null}targets = ["a"]\n                 | p.toml:3:11: phase.1.targets        | needs no target
        {null}{null}                            | p.toml:3:1: phase.2                 | two phases are called `null`
        [[phase]]\nworkload = "io"\nmodes = ["write"]\nsize = "1m"\n | p.toml:1:1: phase.1 | needs a target
        {io}size = "4q"\n                       | p.toml:10:8: phase.1.size           | 4q
        {io}size = "1m"\ntargets = ["c"]\n      | p.toml:11:12: phase.1.targets       | no target `c`
        [targets.a]\nsystem = ""\npath = ""\n{null} | p.toml:3:8: targets.a.path      | empty
        [targets.a]\nsystem = "x"\npath = "mnt"\n{null} | p.toml:3:8: targets.a.path  | not absolute
        [targets.a]\nsystem = "x"\npath = "/a/../b"\n{null} | p.toml:3:8: targets.a.path | `..`
        [targets.a]\n{null}                     | p.toml:1:10: targets.a
            | the location of the target is missing
        [targets.a]\nsystem = "x"\npath = "/a"\npth = 1\n{null} | p.toml:4:1: targets.a.pth | did you mean `path`?
        [clients]\nselect = "client"\n{null}    | p.toml:2:10: clients.select         | label=value
        [clients]\nselect = "a=b"\nagents = ["x"]\n{null} | p.toml:3:10: clients.agents | keep one
        [clients]\nagents = []\n{null}          | p.toml:2:10: clients.agents         | empty
        {TARGETS}[[phase]]\nworkload = "files"\nmodes = ["stat"]\nfiles = 1\ncache = "bypass"\n
            | p.toml:11:9: phase.1.cache
            | does not use O_DIRECT
        {io}size = "1m"\nbs = "1000"\ncache = "bypass"\n | p.toml:12:9: phase.1.cache
            | O_DIRECT and `bs`: direct I/O needs a multiple of 512 bytes
        {io}size = "1m"\nclients = [1, 2]\n     | p.toml:11:11: phase.1.clients
            | write several values in matrix: matrix = { clients = [...] }
        {io}size = "1m"\nrandseed = -1\n        | p.toml:11:12: phase.1.randseed
            | expected a whole number, found `-1`
        {io}size = "1m"\nioengine = "libaio"\n  | p.toml:11:12: phase.1.ioengine
            | expected "psync", "io_uring" or "stdio", found the text "libaio"
        {io}size = "1m"\nsettle = "idel"\n      | p.toml:11:10: phase.1.settle: `idel` is not a duration | "idle"
        order = "shuffled"\n{null}              | p.toml:1:9: order                   | "random"
        seed = 3\n{null}                        | p.toml:1:8: seed                    | order = "random"
        order = "random"\nseed = -1\n{null}     | p.toml:2:8: seed                    | a whole number
        clients = 3\n{null}                     | p.toml:1:11: clients                | [clients]
        {io}size = "1m"\nstride = "8k"\n | p.toml:11:10: phase.1.stride: has an effect only in the mode `strideread`
            | the phase has `write`; add that mode, or remove the key
        {io}size = "1m"\niodepth = 4\nioengine = "psync"\n | : phase.1.iodepth: psync has one | more numjobs
        {io}size = "1m"\nrw = "randread"\n      | p.toml:11:1: phase.1.rw: unknown key `rw` | fio's rw is `modes` here
        {io}size = "1m"\ntime_based = true\n    | p.toml:11:1: phase.1.time_based
            | leave it out: a phase with `runtime` repeats passes over its data
        "#,
    ) {
        let text = text
            .replace("{timed}", &timed)
            .replace("{null}", null)
            .replace("{io}", &io)
            .replace("{TARGETS}", TARGETS);
        let message = refused(&text);
        assert!(
            message.contains(&at) && message.contains(&part),
            "for\n{text}\ntold\n{message}\nnot {at} ... {part}"
        );
    }
}

#[test]
fn all_mistakes_come_at_once_with_carets() {
    let text = "repeet = 1\n[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n\
                [[phase]]\nworkload = \"io\"\nmodes = [\"write\", \"raed\"]\nsize = \"1m\"\nbs = [\"4k\", \"8k\"]\n\
                numjobs = \"x\"\n[[phase]]\nworkload = \"dance\"\n";
    insta::assert_snapshot!(refused(text));
}

#[test]
fn a_target_without_a_system_has_its_name() {
    let text = "[targets.t]\npath = \"/mnt/t\"\n[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nsize = \"1m\"\n";
    let plan = parse(text, "p.toml").unwrap();
    let target = plan.targets.first().unwrap();
    assert_eq!((target.name.as_str(), target.system.as_str()), ("t", "t"));
}

/// Readable parts are still checked; mistakes that may only follow from the damage are not reported.
#[test]
fn a_syntax_error_hides_no_mistake_of_another_table() {
    let text = "reapeat = 2\n[targets.t]\npath = \"/mnt/t\"\nsystem = \"x\"\nsistem = \"x\"\n\
        [[phase]]\nworkload = = \"io\"\nfoo = 1\n[[phase]]\nworkload = \"null\"\nrun_time = \"1s\"\n";
    let message = refused(text);
    let mut lines: Vec<&str> = message
        .lines()
        .filter_map(|line| line.strip_prefix("p.toml:")?.split(':').next())
        .collect();
    lines.dedup();
    assert_eq!(lines, ["1", "5", "7", "11"], "{message}");
    // The targets are damaged, so a phase that names a missing target is not reported.
    let message = refused(
        "[targets.t]\npath = \n[[phase]]\nworkload = \"io\"\ntargets = [\"t\"]\nbs = 3\nxx = 1\n",
    );
    assert!(
        message.contains("not TOML") && message.contains(": phase.1.xx"),
        "{message}"
    );
    assert!(!message.contains("phase.1.targets"), "{message}");
    // An open bracket swallows the following lines.
    assert!(refused("x = [1\n[[phase]]\nworkload = \"null\"\n").contains("not TOML"));
}
