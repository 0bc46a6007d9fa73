//! `io` on a pool.

use super::*;

const POOL: &str = "[targets.p]\nsystem = \"rbd\"\npool = \"bench\"\n";

fn phase(keys: &str) -> String {
    format!("{POOL}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\n{keys}\n")
}

#[test]
fn what_images_do_not_have_is_refused() {
    for keys in [
        "modes = [\"write\", \"read\"]\niodepth = 16\nfsync = 8",
        "modes = [\"randread\"]\ndirect = true",
        "modes = [\"randread\"]\ncache = \"other-client\"",
    ] {
        parse(&phase(keys), "p.toml").unwrap();
    }
    for (keys, at, why) in [
        ("modes = [\"write\"]\nsync = \"dsync\"", "sync", "O_SYNC"),
        (
            "modes = [\"write\"]\nfile-per = \"task\"",
            "file-per",
            "own RBD image",
        ),
        (
            "modes = [\"read\"]\nioengine = \"io_uring\"",
            "ioengine",
            "librbd",
        ),
        ("modes = [\"write\", \"getc\"]", "phase.1", "stdio"),
    ] {
        let error = refused(&phase(keys));
        assert!(error.contains(at) && error.contains(why), "{error}");
        assert!(error.contains("target `p` is a pool"), "{error}");
        let file = phase(keys).replace("pool = \"bench\"", "path = \"/mnt/a\"");
        parse(&file, "p.toml").unwrap();
    }
}

#[test]
fn clients_without_the_library_are_refused() {
    let with = |options: &str| {
        let mut agent = agent("x", &[], &["pool:bench"]);
        let facts = PathFacts {
            allowed: true,
            free_bytes: 1 << 30,
            mount_options: options.to_owned(),
            ..PathFacts::default()
        };
        agent.surveyed.insert(String::from("pool:bench"), facts);
        [agent]
    };
    let io = parse(&phase("modes = [\"write\"]"), "p.toml").unwrap();
    expand(&io, &with("name=admin,size=3,librbd=1.16.0")).unwrap();
    let error = expand(&io, &with("name=librbd,size=3"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("agent `x` has no librbd.so.1"), "{error}");
    assert!(error.contains("package librbd1"), "{error}");
    let objects = format!(
        "{POOL}[[phase]]\nworkload = \"objects\"\nmodes = [\"write\"]\nsize = \"4k\"\nobjects = 1\n"
    );
    let objects = parse(&objects, "p.toml").unwrap();
    expand(&objects, &with("name=admin,size=3")).unwrap();
}
