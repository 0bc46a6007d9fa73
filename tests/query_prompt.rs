//! `benchmesh query` without a statement, on a terminal of its own.

use crate::support::command::benchmesh;
use crate::support::terminal::OnTerminal;
use benchmesh_synthetic::{Shape, generate};
use rustix::process::{Signal, kill_process};
use std::os::unix::fs::PermissionsExt;

const PROMPT: &str = "benchmesh> ";
const UP: &str = "\x1b[A";

#[test]
fn statements_are_asked_completed_stopped_and_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    generate(&path, &Shape::small()).unwrap();
    let state = directory.path().join("state");
    let prompt = || {
        let mut command = benchmesh();
        command.arg("query").arg("--db").arg(&path);
        command.env("XDG_STATE_HOME", &state);
        OnTerminal::spawn(command)
    };
    let mut session = prompt();
    session.until_shows(PROMPT);
    // The tab completes the view and the column.
    session.types("SELECT count(p99_\t) AS found FROM v_cl\t\n");
    session.until_shows("SELECT count(p99_ms) AS found FROM v_client_timeline");
    session.until_shows("...> ");
    session.types("WHERE 0;\n");
    session.until_shows("  0\r\n");
    session.until_shows(PROMPT);
    session.types("SELECT p99 FROM v_results;\n");
    session.until_shows("did you mean p99_ms?");
    session.until_shows(PROMPT);
    session.types(".schema run_tags\n");
    session.until_shows("CREATE TABLE run_tags");
    session.until_shows(PROMPT);
    session.types("1\n");
    session.until_shows("What did each step come to?");
    session.until_shows("ops_per_s");
    session.until_shows(PROMPT);
    session.types(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n;\n",
    );
    session.until_shows("FROM n;");
    // As Ctrl-C does, once the query goes on.
    let pid = session.pid();
    session.until_shows_by("stopped", || kill_process(pid, Signal::INT).unwrap());
    session.until_shows(PROMPT);
    // Several at once, up to the first error.
    session.types("SELECT 7 * 7 AS n; SELECT p98 FROM v_results; SELECT 8 * 8 AS n;\n");
    session.until_shows("  49\r\n");
    session.until_shows("no such column: p98");
    session.until_shows(PROMPT);
    session.types("SELECT 6 * 7 AS product;\n");
    session.until_shows("  42\r\n");
    session.until_shows(PROMPT);
    // A comment may follow, and a line that begins with a blank is not kept.
    session.types(" SELECT 5 * 5 AS square; -- a comment\n");
    session.until_shows("  25\r\n");
    session.until_shows(PROMPT);
    session.types(".quit\n");
    let (code, shown) = session.ends();
    assert_eq!(code, Some(0));
    assert!(!shown.contains("  64\r\n"), "{shown}");

    let history = state.join("benchmesh/query_history");
    let mode = std::fs::metadata(&history).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{}", history.display());
    let mut session = prompt();
    session.until_shows(PROMPT);
    session.types(&format!("{UP}{UP}\n"));
    session.until_shows("SELECT 6 * 7 AS product;");
    session.until_shows("  42\r\n");
    session.until_shows(PROMPT);
    // The end of the input.
    session.types("\x04");
    assert_eq!(session.ends().0, Some(0));
}

#[test]
fn without_a_terminal_a_statement_is_needed() {
    let output = benchmesh().arg("query").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(
        message.trim(),
        "error: give a statement, or - to read it from standard input; without one, query is a prompt, which needs a \
         terminal"
    );
}
