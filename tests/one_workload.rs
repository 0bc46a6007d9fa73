//! A workload without a plan, judged by objectives of the command line, with the verdicts for a CI system.

use crate::support::mesh::{Agent, Mesh};

#[test]
fn a_workload_runs_on_two_targets_and_its_objectives_are_judged() {
    let directory = tempfile::tempdir().unwrap();
    let targets = ["one", "two"].map(|name| directory.path().join(name));
    let mut mesh = Mesh::start();
    let mut agent = Agent::named("c1");
    for target in &targets {
        std::fs::create_dir(target).unwrap();
        agent = agent.allow(target);
    }
    mesh.launch(agent);
    mesh.until_attached(&["c1"]);
    let junit = directory.path().join("junit.xml");
    let mut command = mesh.benchmesh();
    command.args(["run", "io"]);
    for target in &targets {
        command.arg("--target").arg(target);
    }
    command.args(["--set", "bs=8k", "--set", "size=1m", "--set", "modes=read"]);
    command.args(["--set", "rate_iops=200", "--set", "runtime=3s"]);
    command.args(["--objective", "rate > 20 for 10% of seconds"]);
    command.args(["--objective", "rate > 4000 for 99% of seconds"]);
    command.arg("--junit").arg(&junit);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{said}");

    let db = mesh.db();
    let steps: Vec<String> = db.column(
        "SELECT target || ' ' || mode || ' ' || (params ->> 'bs') FROM steps ORDER BY ordinal",
    );
    assert_eq!(steps, ["one read 8k", "two read 8k"]);
    let xml = std::fs::read_to_string(&junit).unwrap();
    let cases: Vec<&str> = xml
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("<testcase") || line.starts_with("<failure"))
        .map(|line| line.split(" message=").next().unwrap_or_default())
        .collect();
    assert_eq!(
        cases,
        [
            "<testcase classname=\"benchmesh.run\" name=\"io completes\">",
            "<testcase classname=\"benchmesh.objective\" name=\"rate &gt; 4000 for 99% of seconds\">",
            "<failure",
            "<testcase classname=\"benchmesh.objective\" name=\"rate &gt; 20 for 10% of seconds\">",
        ]
    );
    let counts = "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\"";
    assert!(xml.contains(counts), "{xml}");
}
