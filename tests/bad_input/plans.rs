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
fn the_mistakes_of_a_plan_are_one_document() {
    let directory = directory();
    let plan = directory.path().join("plan.toml");
    std::fs::write(
        &plan,
        "repeet = 2\n[[phase]]\nworkload = \"null\"\nops = \"many\"\n",
    )
    .unwrap();
    let mut command = benchmesh();
    command
        .args(["plan", "check", "--format", "json"])
        .arg(&plan);
    let output = refused(command);
    assert_eq!(output.code, 2);
    let document: serde_json::Value = serde_json::from_str(&output.out).expect("one JSON document");
    let mistakes = document["mistakes"].as_array().map(Vec::len);
    assert_eq!(mistakes, Some(2), "{document}");
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

#[test]
fn a_workload_without_a_plan_that_cannot_be_run() {
    for [line, part] in table(
        r#"
        ioo --target /mnt/x                        | did you mean `io`?
        fio --target /mnt/x                        | benchmesh run io
        io                                         | --target PATH
        io --target mnt                            | neither an absolute path nor pool=NAME
        io --target /mnt/x --set bss=4k            | did you mean `bs`?
        io --target /mnt/x --set modes=raed        | did you mean `read`?
        io --target /mnt/x --objective p98<5ms     | is not an objective
        null --set ops=5 --target pool=            | neither an absolute path nor pool=NAME
        io --target /mnt/x --detach --junit j.xml  | cannot be used with
        "#,
    ) {
        let mut command = benchmesh();
        command.arg("run").args(line.split_whitespace());
        let output = refused(command);
        assert_eq!(output.code, 2, "{line}: {}", output.all());
        assert!(output.err.contains(&part), "{line}: {}", output.all());
    }
}

#[test]
fn fio_job_files_that_are_no_plan() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    std::fs::write(path("self"), "include self\n").unwrap();
    for [text, line, part] in table(
        r#"
        ; only a comment\n                |     | there is no job
        [a\nsize=1m\n                    | :1: | closing bracket
        [a]\nsize=${BENCHMESH_NOT_SET}\n | :2: | `BENCHMESH_NOT_SET` is not set
        [a]\ninclude pipe\n              | :2: | not a regular file
        [a]\ninclude /dev/zero\n         | :2: | not a regular file
        [a]\ninclude missing\n           | :2: | No such file
        [a]\ninclude self\n              |     | does a file include itself?
        [a]\nioengine=net\n              | :2: | the workload `network` measures links
        [a]\nrw=trim\n                   | :2: | benchmesh has no `trim`
        "#,
    ) {
        std::fs::write(path("job.fio"), &text).unwrap();
        let mut command = benchmesh();
        command.args(["plan", "from-fio"]).arg(path("job.fio"));
        let output = refused(command);
        assert_eq!(output.code, 2, "{text}: {}", output.all());
        let place = format!("job.fio{line}");
        assert!(
            line.is_empty() || output.err.contains(&place),
            "{text}: {}",
            output.all()
        );
        assert!(output.err.contains(&part), "{text}: {}", output.all());
        assert!(output.out.is_empty(), "{}", output.all());
    }
    // A part of it can be measured: the rest is named, and the exit code says so.
    std::fs::write(
        path("job.fio"),
        "[a]\ndirectory=/mnt/x\nsize=1m\nthinktime=1\n",
    )
    .unwrap();
    let mut command = benchmesh();
    command.args(["plan", "from-fio"]).arg(path("job.fio"));
    command.arg("--out").arg(path("plan.toml"));
    let output = refused(command);
    assert_eq!(output.code, 3, "{}", output.all());
    assert!(
        output.err.contains("job.fio:4: left out: thinktime=1"),
        "{}",
        output.all()
    );
    let mut command = benchmesh();
    command.args(["plan", "check"]).arg(path("plan.toml"));
    assert!(command.status().unwrap().success());
}
