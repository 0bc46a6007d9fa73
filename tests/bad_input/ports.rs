//! Unusable addresses and directories: a port in use, an address without a listener, a state directory on its own
//! target.

use super::{LIMIT, directory, refused};
use crate::support::command::benchmesh;
use crate::support::mesh::{Agent, Mesh};
use std::net::TcpListener;

#[test]
fn a_port_in_use() {
    let directory = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", &address, "--db"])
        .arg(directory.path().join("x.db"));
    let output = refused(command);
    assert_eq!(output.code, 1, "{}", output.all());
    assert!(
        output.err.contains(&address) && output.err.contains("in use"),
        "{}",
        output.all()
    );
}

#[test]
fn a_page_that_is_open_to_others() {
    let directory = directory();
    let mut command = benchmesh();
    command
        .args([
            "collector",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "0.0.0.0:0",
        ])
        .arg("--db")
        .arg(directory.path().join("x.db"));
    let output = refused(command);
    assert!(output.err.contains("--http-insecure"), "{}", output.all());
}

#[test]
fn no_collector_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let directory = directory();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, "[[phase]]\nworkload = \"null\"\n").unwrap();
    let plan = plan.to_str().unwrap();
    for arguments in [
        vec!["run", plan],
        vec!["agents"],
        vec!["runs"],
        vec!["watch"],
        vec!["stop", "1"],
        vec!["report", "1", "--collector", &address],
        vec!["query", "SELECT 1", "--collector", &address],
    ] {
        let mut command = benchmesh();
        command
            .args(&arguments)
            .env("BENCHMESH_COLLECTOR", &address)
            .current_dir(directory.path());
        let output = refused(command);
        assert_eq!(output.code, 1, "{arguments:?}: {}", output.all());
        assert!(
            output.err.contains(&address),
            "{arguments:?}: {}",
            output.all()
        );
        assert!(
            output.err.contains("benchmesh collector"),
            "{arguments:?}: {}",
            output.all()
        );
    }
}

#[test]
fn an_agents_state_on_its_own_target() {
    let mesh = Mesh::start();
    let target = directory();
    let state = target.path().join("state");
    let agent = Agent::named("a").allow(target.path()).state_dir(&state);
    let mut process = mesh.agent_process(&agent);
    let ended = process.exit_within(LIMIT).expect("it refuses to start");
    assert!(!ended.success());
    assert!(process.log().contains("state"), "{}", process.log());
}
