//! A silent peer: its kernel accepts data while there is space, but the process neither reads nor answers.

use super::bed::{assert_failed_by_stall, count, end, newest};
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Each mode, and the operation reported for it.
const MODES: [(&str, &str, &str); 4] = [
    ("throughput", "", "send"),
    ("ping", "wait = \"blocking\"", "ping"),
    ("ping", "wait = \"busy\"", "ping"),
    ("request", "", "request"),
];

/// Runs traffic from one agent to another, and suspends the other in the middle of it until `before_it_goes_on` is
/// done.
fn silenced(
    on_stall: &str,
    (mode, keys, op): (&str, &str, &str),
    before_it_goes_on: impl FnOnce(&Mesh),
) -> Mesh {
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name));
    }
    // A run that the stall ends may have any duration.
    let runtime = match on_stall {
        "continue" => "5s",
        _ => "300s",
    };
    let mut run = mesh.begin(&format!(
        "on-stall = \"{on_stall}\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"{mode}\"]\n{keys}\n\
         pairs = \"many-to-one\"\nto = [\"b\"]\nruntime = \"{runtime}\"\nstall-after = \"1s\"\n"
    ));
    mesh.until_step_is(mode, "running", LIMIT);
    until_true("there is traffic", LIMIT, || {
        mesh.db().one::<i64>("SELECT count(*) FROM op_intervals") > 0
    });
    mesh.agent("b").signal(libc::SIGSTOP);
    until_true("the stall is stored", LIMIT, || count(&mesh, "stall") == 1);
    let stall = newest(&mesh, "stall");
    assert_eq!((&*stall.text("agent"), &*stall.text("op")), ("a", op));
    // The port on which the other agent receives: the connection still exists.
    let path = stall.text("path");
    let port = path
        .strip_prefix("127.0.0.1:")
        .and_then(|it| it.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("{stall:?}"));
    assert!(is_connected(port), "{stall:?}");
    // The offset of a sender in its block; round trips have none.
    assert_eq!(stall.is_null("offset"), mode != "throughput", "{stall:?}");
    before_it_goes_on(&mesh);
    mesh.agent("b").signal(libc::SIGCONT);
    let ended = end(&mut run, mode);
    assert_eq!(ended.success(), on_stall == "continue", "{}", run.log());
    mesh
}

/// Whether the kernel has a connection on loopback to this port, even a closing one.
fn is_connected(port: u16) -> bool {
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let peer = format!("0100007F:{port:04X}");
    let mut lines = connections.lines().skip(1);
    lines.any(|line| line.split_whitespace().nth(2) == Some(&peer))
}

#[test]
fn a_silent_peer_is_a_stall_that_is_over_when_it_speaks_again() {
    for mode in MODES {
        let mesh = silenced("continue", mode, |mesh| {
            assert_eq!(count(mesh, "stall-over"), 0);
        });
        assert_eq!((count(&mesh, "stall"), count(&mesh, "stall-over")), (1, 1));
        let db = mesh.db();
        assert_eq!(db.column::<String>("SELECT state FROM steps"), ["done"]);
        assert_eq!(db.one::<i64>("SELECT sum(errors) FROM step_results"), 0);
    }
}

#[test]
fn a_plan_may_end_the_run_at_a_silent_peer() {
    for mode in MODES {
        let mesh = silenced("abort", mode, |mesh| {
            until_true("the task has failed", LIMIT, || {
                let states = mesh.db().column::<String>("SELECT state FROM tasks");
                states == ["failed"]
            });
        });
        assert_failed_by_stall(&mesh, mode.0);
    }
}
