//! Plans that cannot run: the error has the line, the mistake and the remedy, and nothing is started.

use super::{directory, refused};
use crate::support::command::benchmesh;
use crate::support::mesh::{Agent, Mesh};

#[test]
fn plans_that_cannot_be_run() {
    let target = directory();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").label("role=client").allow(target.path()));
    let here = target.path().display();
    let phase = "[[phase]]\nworkload = \"files\"\nmodes = [\"create\"]\n";
    let at = |path: &str| format!("[targets.t]\nsystem = \"x\"\npath = \"{path}\"\n");
    let here = at(&here.to_string());
    for (what, plan, line, part) in [
        (
            "an unknown key",
            format!("{here}{phase}fils = 3\n"),
            ":7:",
            "files",
        ),
        (
            "a bad size",
            format!("{here}{phase}size = \"4 parsecs\"\n"),
            ":7:",
            "4 parsecs",
        ),
        (
            "a duration that nothing lasts",
            format!("{here}{phase}stall-after = 9223372036854775807\n"),
            ":7:",
            "3650d",
        ),
        (
            "an unknown workload",
            format!("{here}[[phase]]\nworkload = \"fils\"\n"),
            ":5:",
            "files",
        ),
        (
            "an unknown mode",
            format!("{here}[[phase]]\nworkload = \"files\"\nmodes = [\"craete\"]\n"),
            ":6:",
            "create",
        ),
        ("no phase", here.clone(), "", "phase"),
        ("not TOML", "phase = [\n".to_owned(), ":", "TOML"),
        (
            "an empty target",
            format!("{}{phase}", at("")),
            ":3:",
            "empty",
        ),
        ("no target", phase.to_owned(), ":", "target"),
        (
            "no matching agent",
            format!("{here}[clients]\nselect = \"role=nobody\"\n{phase}"),
            ":5:",
            "role=nobody",
        ),
        (
            "a path that no agent allows",
            format!("{}{phase}", at("/nobody/allows/this")),
            ":",
            "/nobody/allows/this",
        ),
        (
            "more bytes than free space",
            format!("{here}{phase}files = 1000000\nsize = \"1t\"\n"),
            ":",
            "free",
        ),
    ] {
        let path = mesh.plan(&plan);
        let mut command = mesh.benchmesh();
        command.arg("run").arg(&path);
        let output = refused(command);
        let wrong = || format!("{what}: {}\nplan:\n{plan}", output.all());
        assert_eq!(output.code, 2, "{}", wrong());
        assert!(output.err.contains("plan.toml"), "{}", wrong());
        assert!(
            output.err.contains(&format!("plan.toml{line}")),
            "{}",
            wrong()
        );
        assert!(output.err.contains(part), "{}", wrong());
        assert!(output.out.is_empty(), "{}", wrong());
    }
    let db = mesh.db();
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM runs"),
        0,
        "a refused plan is no run"
    );
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    mesh.assert_no_complaints();
}

#[test]
fn all_mistakes_of_a_plan_come_at_once() {
    let directory = directory();
    let plan = directory.path().join("plan.toml");
    std::fs::write(
        &plan,
        "repeet = 2\n[[phase]]\nworkload = \"null\"\nops = \"many\"\n",
    )
    .unwrap();
    let mut command = benchmesh();
    command.args(["plan", "check"]).arg(&plan);
    let output = refused(command);
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("repeat") && output.err.contains("plan.toml:4:"),
        "{}",
        output.all()
    );
    let mut command = benchmesh();
    command
        .args(["plan", "check", "--format", "json"])
        .arg(&plan);
    let output = refused(command);
    let document: serde_json::Value = serde_json::from_str(&output.out).expect("one JSON document");
    assert!(document.is_object(), "{document}");
}

#[test]
fn a_plan_that_is_not_there() {
    let mut command = benchmesh();
    command.args(["run", "/no/such/plan.toml"]);
    let output = refused(command);
    assert_eq!(output.code, 2, "{}", output.all());
    assert!(
        output.err.contains("/no/such/plan.toml"),
        "{}",
        output.all()
    );
}
