//! Plans that cannot run: the error has the line, the mistake and the remedy, and nothing is started.

use super::{directory, refused};
use crate::support::command::benchmesh;
use crate::support::mesh::{Agent, Mesh};
use benchmesh_testing::table;

#[test]
fn plans_that_cannot_be_run() {
    let target = directory();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").label("role=client").allow(target.path()));
    let phase = "[[phase]]\nworkload = \"files\"\nmodes = [\"create\"]\n";
    let here = target.path().display();
    let here = format!("[targets.t]\nsystem = \"x\"\npath = \"{here}\"\n");
    for [what, plan, line, part] in table(
        r#"
        an unknown key                | {here}{phase}fils = 3\n                                   | :7: | files
        a bad size                    | {here}{phase}size = "4 parsecs"\n                         | :7: | 4 parsecs
        a duration that nothing lasts | {here}{phase}stall-after = 9223372036854775807\n          | :7: | 3650d
        an unknown workload           | {here}[[phase]]\nworkload = "fils"\n                      | :5: | files
        an unknown mode               | {here}[[phase]]\nworkload = "files"\nmodes = ["craete"]\n | :6: | create
        no phase                      | {here}                                                    |     | phase
        not TOML                      | phase = [\n                                               | :   | TOML
        an empty target               | [targets.t]\nsystem = "x"\npath = ""\n{phase}             | :3: | empty
        no target                     | {phase}                                                   | :   | target
        no matching agent             | {here}[clients]\nselect = "role=nobody"\n{phase}          | :5: | role=nobody
        a path that no agent allows   | [targets.t]\nsystem = "x"\npath = "/nobody/allows/this"\n{phase} | :
            | /nobody/allows/this
        more bytes than free space    | {here}{phase}files = 1000000\nsize = "1t"\n               | :   | free
        "#,
    ) {
        let plan = plan.replace("{here}", &here).replace("{phase}", phase);
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
        assert!(output.err.contains(&part), "{}", wrong());
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
