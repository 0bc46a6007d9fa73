//! The example plans, scaled down, run on a mesh: what users copy works.

use crate::support::mesh::{Agent, Mesh};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An example, the reductions for the test, and its number of steps.
struct Example {
    name: &'static str,
    smaller: &'static [(&'static str, &'static str)],
    steps: i64,
}

/// Each additional agent makes many more links.
const TWO_AGENTS: &str = "workload = \"network\"\nclients = 2";

const EXAMPLES: &[Example] = &[
    Example {
        name: "metadata",
        smaller: &[("files    = 20000", "files    = 120")],
        steps: 44,
    },
    Example {
        name: "tree",
        smaller: &[
            ("files    = 20000 ", "files    = 200 "),
            ("cache    = \"cold\"", ""),
        ],
        steps: 5,
    },
    Example {
        name: "copy",
        smaller: &[
            ("size     = \"1g\"", "size     = \"8m\""),
            ("files    = 5000", "files    = 50"),
            ("size     = \"256m\"", "size     = \"1m\""),
        ],
        steps: 8,
    },
    Example {
        name: "stdio",
        smaller: &[
            ("size     = \"256m\"", "size     = \"256k\""),
            ("cache    = \"cold\"", ""),
        ],
        steps: 13,
    },
    Example {
        name: "fill",
        smaller: &[
            ("share    = 95", "amount   = \"20m\""),
            ("floor    = \"4g\"", "floor    = \"64m\""),
            ("hold     = \"30s\"", "hold     = \"1s\""),
            ("cache    = \"cold\"", ""),
            ("workload = \"tree\"", "workload = \"tree\"\nfiles    = 200"),
        ],
        steps: 6,
    },
    Example {
        name: "network",
        smaller: &[
            ("runtime  = \"5s\"", "runtime  = \"300ms\""),
            ("workload = \"network\"", TWO_AGENTS),
        ],
        steps: 4,
    },
    Example {
        name: "links",
        smaller: &[
            ("runtime  = \"10s\"", "runtime  = \"300ms\""),
            ("runtime  = \"5s\"", "runtime  = \"300ms\""),
            ("runtime       = \"10s\"", "runtime       = \"300ms\""),
            ("rate_iops     = 8000", "rate_iops     = 800"),
            ("workload = \"network\"", TWO_AGENTS),
            ("workload      = \"network\"", TWO_AGENTS),
        ],
        // With two agents: both receivers, the pair, the mesh, two links in two modes, three loads at both receivers.
        steps: 2 + 1 + 1 + 4 + 6,
    },
    Example {
        name: "replay",
        smaller: &[],
        steps: 1,
    },
    Example {
        name: "groups",
        smaller: &[
            ("runtime  = \"4s\"", "runtime  = \"1s\""),
            ("size     = \"16m\"", "size     = \"1m\""),
        ],
        steps: 2,
    },
    Example {
        name: "load-curve",
        smaller: &[
            ("runtime    = \"3s\"", "runtime    = \"1s\""),
            ("size       = \"16m\"", "size       = \"1m\""),
            ("rate_iops  = 2000", "rate_iops  = 400"),
            ("steps = 8", "steps = 4"),
        ],
        steps: 4,
    },
    Example {
        name: "search",
        smaller: &[
            ("runtime  = \"10s\"", "runtime  = \"500ms\""),
            ("size     = \"16m\"", "size     = \"1m\""),
            ("settle   = \"2s\"", ""),
            // The first probe meets it.
            ("p99 < 10ms", "p99 < 30s"),
        ],
        steps: 1,
    },
    Example {
        name: "staggered",
        smaller: &[("runtime         = \"8s\"", "runtime         = \"3s\"")],
        steps: 1,
    },
    Example {
        name: "io",
        smaller: &[("\"128m\", \"1g\"", "\"1m\"")],
        steps: 3 * 6,
    },
    Example {
        name: "depth",
        smaller: &[
            ("\"2s\"", "\"200ms\""),
            ("size              = \"64m\"", "size              = \"4m\""),
            ("size      = \"64m\"", "size      = \"4m\""),
        ],
        steps: 3 * 2 + 1 + 1,
    },
    Example {
        name: "matrix",
        smaller: &[("\"16m\", \"64m\"", "\"16m\"")],
        steps: 3 * 9,
    },
    Example {
        name: "files",
        smaller: &[
            ("files    = 10000", "files    = 60"),
            ("cache    = \"cold\"", ""),
        ],
        steps: 6,
    },
    Example {
        name: "paced",
        smaller: &[
            (
                "files     = 200\nsize      = \"4k\"",
                "files     = 40\nsize      = \"4k\"",
            ),
            ("runtime      = \"2s\"", "runtime      = \"500ms\""),
            ("size     = \"4m\"", "size     = \"1m\""),
        ],
        steps: 2 + 1 + 2,
    },
    Example {
        name: "scaling",
        smaller: &[
            ("repeat = 3", "repeat = 1"),
            ("size     = \"1g\"", "size     = \"4m\""),
            ("cache    = \"cold\"", ""),
        ],
        steps: 3 * 2,
    },
    Example {
        name: "bonnie",
        smaller: &[
            ("size      = \"64m\"", "size      = \"64k\""),
            ("size      = \"1g\"", "size      = \"1m\""),
            ("size     = \"1g\"", "size     = \"1m\""),
            ("cache    = \"cold\"", ""),
            ("cache     = \"cold\"", ""),
        ],
        steps: 6,
    },
    Example {
        name: "shared-file",
        smaller: &[("\"256m\"", "\"2m\""), ("\"64m\"", "\"256k\"")],
        steps: 4,
    },
    Example {
        name: "udp",
        smaller: &[
            ("rate     = \"12500000\"", "rate     = \"1m\""),
            ("runtime  = \"10s\"", "runtime  = \"500ms\""),
            ("runtime  = \"5s\"", "runtime  = \"500ms\""),
            ("rate_iops = 5000", "rate_iops = 500"),
            ("runtime   = \"5s\"", "runtime   = \"500ms\""),
            ("workload = \"network\"", TWO_AGENTS),
            ("workload  = \"network\"", TWO_AGENTS),
        ],
        steps: 8,
    },
    Example {
        name: "null",
        smaller: &[("runtime  = \"5s\"", "runtime  = \"500ms\"")],
        steps: 1,
    },
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/examples")
}

#[test]
fn no_example_is_left_out() {
    let files = std::fs::read_dir(directory()).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let run = EXAMPLES.iter();
    let run: BTreeSet<String> = run
        .map(|example| format!("{}.toml", example.name))
        .collect();
    assert_eq!(run, files);
}

fn text_of(example: &Example, target: &Path) -> String {
    let path = directory().join(format!("{}.toml", example.name));
    let mut text = std::fs::read_to_string(path).unwrap();
    let target = ("/mnt/storage", target.to_str().unwrap());
    let target = [target].into_iter().filter(|(path, _)| text.contains(path));
    let target: Vec<_> = target.collect();
    for (large, small) in example.smaller.iter().chain(&target) {
        assert!(text.contains(large), "{} has no {large}", example.name);
        text = text.replace(large, small);
    }
    text
}

// In three tests, so that they run in parallel.

#[test]
fn every_example_of_a_load_on_a_link_runs_to_its_end() {
    run_examples(|_, plan| is_about_links(plan));
}

#[test]
fn every_first_example_of_a_load_on_a_target_runs_to_its_end() {
    run_examples(|at, plan| at % 2 == 0 && !is_about_links(plan));
}

#[test]
fn every_second_example_of_a_load_on_a_target_runs_to_its_end() {
    run_examples(|at, plan| at % 2 == 1 && !is_about_links(plan));
}

fn is_about_links(plan: &str) -> bool {
    plan.contains("\"network\"")
}

fn run_examples(is_wanted: impl Fn(usize, &str) -> bool) {
    let directory = |prefix| {
        // O_DIRECT and attributes need a disk.
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in("/var/tmp")
            .unwrap()
    };
    let (target, scratch): (TempDir, TempDir) = (directory("bm-target-"), directory("bm-scratch-"));
    let mut mesh = Mesh::start();
    for name in ["a", "b", "c"] {
        mesh.add(
            Agent::named(name)
                .allow(target.path())
                .argument("--scratch")
                .argument(scratch.path().to_str().unwrap()),
        );
    }
    for (at, example) in EXAMPLES.iter().enumerate() {
        let plan = text_of(example, target.path());
        if !is_wanted(at, &plan) {
            continue;
        }
        // On a busy machine a cell may miss its start and be retried; the last attempt counts.
        let run = mesh.run(&plan);
        let db = mesh.db();
        let steps = db.rows(&format!(
            "SELECT s.mode, s.state, s.partial, (SELECT sum(r.errors) FROM step_results r WHERE r.step_id = s.id) AS errors,
             (SELECT sum(r.ops) FROM step_results r WHERE r.step_id = s.id) AS ops FROM steps s WHERE s.run_id = {run}
             AND s.attempt = (SELECT max(again.attempt) FROM steps again WHERE again.run_id = s.run_id AND again.ordinal = s.ordinal)"
        ));
        assert_eq!(
            i64::try_from(steps.len()).unwrap(),
            example.steps,
            "{}",
            example.name
        );
        for step in &steps {
            let was = (
                step.text("state"),
                step.integer("partial"),
                step.integer("errors"),
            );
            assert_eq!(was, ("done".to_owned(), 0, 0), "{}: {step:?}", example.name);
            assert!(step.integer("ops") > 0, "{}: {step:?}", example.name);
        }
        let left = std::fs::read_dir(target.path()).unwrap().count();
        assert_eq!(left, 0, "left on the target by {}", example.name);
    }
    mesh.assert_no_complaints();
}
