//! `run` and `watch` on a real terminal: the view comes, follows its size, and gives the terminal back however it ends.

use crate::support::mesh::Mesh;
use crate::support::plan;
use crate::support::terminal::OnTerminal;

/// The alternate screen, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const CTRL_C: &str = "\x03";
/// Of the clients' title: their number changes as they begin, and then it alone is drawn.
const CLIENTS: &str = "slowest first";

/// The exit code, and what is on the terminal after the view.
fn end(command: OnTerminal) -> (Option<i32>, String) {
    let (code, shown) = command.ends();
    assert_eq!(shown.matches(ENTER).count(), 1, "{shown:?}");
    let (_, rest) = shown.split_once(LEAVE).unwrap();
    (code, rest.replace("\r\n", "\n"))
}

#[test]
fn the_view_of_a_run_is_left_and_taken_up_again_and_stops_it() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let plan = mesh.plan(&plan::endless_writes(target.path()));
    let begin = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command.args(arguments);
        OnTerminal::spawn(command)
    };

    let mut run = begin(&["run", "--new-agents", plan.to_str().unwrap()]);
    run.until_shown("q: detach, the run continues    Ctrl-C: stop the run");
    run.until_shown(CLIENTS);
    // Arrows contain letters.
    run.types("\x1b[A\x1bOQ");
    run.types("q");
    let (code, rest) = end(run);
    assert_eq!(code, Some(0));
    assert_eq!(
        rest,
        "detached from run 1, which continues\nfollow it with: benchmesh watch 1\nstop it with: benchmesh stop 1\n"
    );

    let mut watch = begin(&["watch"]);
    watch.until_shown("q or Ctrl-C: stop watching, the run continues");
    watch.resize(30, 8);
    watch.until_shown("q: stop watching");
    watch.types(CTRL_C);
    let (code, rest) = end(watch);
    assert_eq!(code, Some(0));
    assert_eq!(
        rest,
        "stopped watching; the run continues\nwatch it again with: benchmesh watch 1\n"
    );

    // The run ends while it is watched.
    let watch = begin(&["watch", "1"]);
    watch.until_shown(CLIENTS);
    assert_eq!(mesh.command(&["stop", "1"]).code, 0);
    let (code, rest) = end(watch);
    assert_eq!(code, Some(3), "{rest}");
    assert!(rest.starts_with("run 1 "), "{rest}");

    let objective = "rate > 1 for 1% of seconds";
    let mut run = begin(&["run", "--objective", objective, plan.to_str().unwrap()]);
    run.until_shown("q: detach, the run continues    Ctrl-C: stop the run");
    run.types("q");
    let (code, rest) = end(run);
    assert_eq!(code, Some(3), "{rest}");
    assert_eq!(
        rest.lines().last(),
        Some(
            "the objectives were not judged: the run has not ended; judge them later with: benchmesh report 2 --junit FILE"
        ),
        "{rest}"
    );
    assert_eq!(mesh.command(&["stop", "2"]).code, 0);

    let mut run = begin(&["run", plan.to_str().unwrap()]);
    run.until_shown(CLIENTS);
    run.types(CTRL_C);
    let (code, rest) = end(run);
    assert_eq!(code, Some(3), "{rest}");
    assert!(rest.starts_with("run 3 "), "{rest}");
}
