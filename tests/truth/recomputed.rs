//! Every figure of seven views of a mixed run, computed again from raw rows by `recomputed/recompute.py`, which shares no
//! code with benchmesh. Tolerance: rounding.
//!
//! The run has every workload that needs no cluster, paced and unpaced loads, groups, a ramp, links, and a client that
//! is lost and rejoins its step.

use crate::needs;
use crate::support::daemons::awake;
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Views, and the least number of compared figures that shows that the comparison took place.
const VIEWS: [(&str, u64); 7] = [
    ("v_client_timeline", 3000),
    ("v_cost", 100),
    ("v_cost_by_daemon", 100),
    ("v_daemon_usage", 500),
    ("v_links", 30),
    ("v_results", 1000),
    ("v_timeline", 1000),
];

const PHASES: &str = r#"
[[phase]]
name = "lost and back"
workload = "io"
modes = ["randrw"]
size = "256k"
bs = "4k"
runtime = "25s"
rate_iops = 50

[[phase]]
name = "small files"
workload = "files"
files = 1000
size = "4k"
numjobs = 2
modes = ["create", "list", "stat", "read", "delete"]

[[phase]]
name = "blocks"
workload = "io"
modes = ["write", "randread"]
size = "8m"
bs = "64k"
numjobs = 2
ramp_time = "1s"
runtime = "3s"

[[phase]]
name = "depth"
workload = "io"
modes = ["randread"]
size = "4m"
iodepth = 4
ioengine = "io_uring"
ioengine-fallback = "psync"
rate = "20m"
runtime = "3s"

[[phase]]
name = "copies"
workload = "copy"
modes = ["in"]
files = 3
size = "16m"
rate = "16m"

[[phase]]
name = "trees"
workload = "tree"
files = 90
directories = 9
symlinks = 8
size = { max = "9k" }
modes = ["unpack", "walk", "remove"]

[[phase]]
name = "filled"
workload = "fill"
amount = "8m"
hold = "2s"
modes = ["fill", "hold"]

[[phase]]
name = "replayed"
workload = "replay"
operations = """
0 open a
0 write a 0 8192
0.5 read a 0 4096
1.2 stat a
2.4 delete a
"""

[[phase]]
name = "nothing"
workload = "null"
ops = 20000

[[phase]]
name = "at random instants"
workload = "files"
modes = ["stat"]
files = 100
rate_iops = 300
rate_process = "poisson"
runtime = "3s"

[[phase]]
name = "groups"
[[phase.group]]
name = "readers"
workload = "io"
modes = ["randread"]
clients = 2
size = "1m"
bs = "4k"
runtime = "4s"
rate_iops = 200
[[phase.group]]
name = "writer"
workload = "io"
modes = ["write"]
clients = 1
size = "1m"
runtime = "4s"
rate_iops = 40

[[phase]]
name = "staggered"
workload = "files"
modes = ["stat"]
files = 100
stagger = "500ms"
runtime = "3s"
rate_iops = 500

[[phase]]
name = "links"
workload = "network"
modes = ["throughput", "ping", "request"]
clients = 2
pairs = "both-ways"
runtime = "1s"

[[phase]]
name = "datagrams"
workload = "network"
modes = ["udp-stream"]
pairs = "many-to-one"
rate = "4m"
runtime = "2s"
"#;

#[test]
fn every_figure_is_what_its_raw_rows_give() {
    needs!("python3");
    let target = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::start();
    let scratch = mesh.directory().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    for name in ["a", "b", "c"] {
        let agent = Agent::named(name).allow(target.path()).scratch(&scratch);
        mesh.launch(agent.label("serves=t"));
    }
    mesh.until_attached(&["a", "b", "c"]);
    let _daemons = awake(mesh.directory(), 2);
    let text = plan::on(target.path(), "loss-after = \"5s\"", PHASES);
    let mut run = mesh.begin(&text.replace("\"fuse\"", "\"custom\""));
    mesh.until_step_is("randrw", "running", LIMIT);
    mesh.until_stored(
        "all have sent some seconds",
        "SELECT count(DISTINCT task_id) = 3 FROM op_intervals WHERE at_us > (SELECT start_us + 2000000 FROM steps)",
    );
    mesh.kill_agent("c");
    mesh.restart_agent("c");
    let ended = run.exit_within(LIMIT);
    let ended = ended.unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());
    // The report waits for the samples of the run's end.
    let report = mesh.command(&["report"]);
    assert_eq!(report.code, 0, "{report:?}");
    let parts = "SELECT max(part) FROM tasks";
    assert_eq!(mesh.db().one::<i64>(parts), 2, "the lost client came back");

    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/truth/recomputed/recompute.py"
    );
    let mut python = Command::new("python3");
    python.arg(program).arg(mesh.db_path()).arg("1");
    let done = python.output().expect("python3 runs");
    let out = String::from_utf8_lossy(&done.stdout);
    let problems = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{problems}");
    let differing: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with("differs"))
        .collect();
    let first = &differing[..differing.len().min(20)];
    assert!(
        differing.is_empty(),
        "{} figures differ:\n{}",
        differing.len(),
        first.join("\n")
    );
    for (view, least) in VIEWS {
        let prefix = format!("compared: {view} ");
        let count = out
            .lines()
            .find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
        assert!(
            count.is_some_and(|count: u64| count >= least),
            "{view}: {count:?}"
        );
    }
}
