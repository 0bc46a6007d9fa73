//! Tests the JSON Schema of a plan with an independent validator: it accepts every plan here, and refuses broken ones.

#![allow(clippy::unwrap_used)]

use benchmesh_plan as plan;
use jsonschema::Validator;
use serde_json::Value;
use std::{fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator() -> Validator {
    jsonschema::draft7::new(&plan::schema()).unwrap()
}

fn json(text: &str) -> Value {
    let table: toml::Table = toml::from_str(text).unwrap();
    serde_json::to_value(table).unwrap()
}

#[test]
fn every_plan_fits_the_schema() {
    let validator = validator();
    let mut plans = 0;
    for directory in ["plans", "plans/examples"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let document = json(&fs::read_to_string(&path).unwrap());
                let errors: Vec<String> = validator
                    .iter_errors(&document)
                    .map(|error| format!("{}: {error}", error.instance_path()))
                    .collect();
                assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
                plans += 1;
            }
        }
    }
    assert!(plans > 10);
    let reference = fs::read_to_string(root().join("docs/plan.md")).unwrap();
    for block in reference.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        if block.contains("[[phase]]") {
            assert!(validator.is_valid(&json(block)), "{block}");
        }
    }
}

/// Everything that the schema refuses, `plan check` refuses too: an editor never marks a plan that runs.
#[test]
fn broken_plans_do_not_fit_the_schema() {
    let validator = validator();
    let target = "[targets.a]\nsystem = \"x\"\npath = \"/mnt/a\"\n";
    let null = "[[phase]]\nworkload = \"null\"\n";
    let io = format!("{target}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nsize = \"1m\"\n");
    for good in [
        null.to_owned(),
        io.clone(),
        format!(
            "{io}bs = 4096\nsync = true\nsettle = \"idle\"\nload-curve = true\nrate_iops = 100\n"
        ),
        format!("{io}data = {{ compress = 50 }}\nmatrix = {{ iodepth = [1, 2], clients = [1] }}\n"),
        format!(
            "{null}matrix = {{ numjobs = [1, 1], ops = [1, 2] }}\nzip = [[\"numjobs\", \"ops\"]]\n"
        ),
        format!(
            "{null}runtime = \"9s\"\nsearch = {{ rate = \"max\", while = \"p99 < 9ms\", within = \"3%\" }}\n"
        ),
        format!("on-loss = {{ at-least = 1 }}\n{null}settle = {{ limit = \"1m\" }}\n"),
    ] {
        plan::parse(&good, "p.toml").unwrap_or_else(|errors| panic!("{errors}"));
        assert!(validator.is_valid(&json(&good)), "{good}");
    }
    for broken in [
        String::new(),
        format!("repeet = 2\n{null}"),
        format!("repeat = 0\n{null}"),
        format!("repeat = \"two\"\n{null}"),
        format!("order = \"shuffled\"\n{null}"),
        format!("on-loss = {{ at-last = 2 }}\n{null}"),
        format!("lease = \"3 fortnights\"\n{null}"),
        format!("[targets.a]\nsystem = \"x\"\n{null}"),
        String::from("[[phase]]\nworkload = \"nul\"\n"),
        String::from("[[phase]]\nmodes = [\"run\"]\n"),
        format!("{null}nmjobs = 2\n"),
        format!("{null}numjobs = 0\n"),
        format!("{null}numjobs = 5000\n"),
        format!("{null}modes = [\"walk\"]\n"),
        format!("{null}cache = \"hot\"\n"),
        format!("{null}bs = \"4k\"\n"),
        format!("{null}matrix = {{ numjobs = 3 }}\n"),
        format!("{null}matrix = {{ numjob = [3] }}\n"),
        format!("{null}matrix = {{ numjobs = [\"x\"] }}\n"),
        format!("{null}zip = [\"numjobs\", \"ops\"]\n"),
        format!(
            "{null}matrix = {{ numjobs = [1, 2], ops = [1, 2] }}\nzip = [[\"numjobs\", \"bs\"]]\n"
        ),
        format!("{null}matrix = {{ numjobs = [1, 2] }}\nzip = [[\"numjobs\"]]\n"),
        format!("{null}settle = \"soon\"\n"),
        format!("{null}runtime = \"9s\"\nsearch = {{ rate = \"max\" }}\n"),
        format!("{null}from = \"role=client\"\n"),
        format!("{io}bs = \"4q\"\n"),
        format!("{io}ioengine = \"libaio\"\n"),
        format!("{io}data = {{ comprss = 50 }}\n"),
        format!("{io}direct = \"yes\"\n"),
        format!("{io}runtime = \"1 week\"\n"),
        format!("{target}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\n"),
        format!(
            "{target}[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\nsize = {{ min = 1, max = 2 }}\n"
        ),
        format!("{target}[[phase]]\n[[phase.group]]\nworkload = \"null\"\n"),
        format!(
            "{target}[[phase]]\nbs = \"4k\"\n[[phase.group]]\nname = \"a\"\nworkload = \"null\"\n"
        ),
    ] {
        assert!(plan::parse(&broken, "p.toml").is_err(), "{broken}");
        assert!(!validator.is_valid(&json(&broken)), "{broken}");
    }
}
