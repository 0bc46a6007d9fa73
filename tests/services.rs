//! Agent and collector as services: configuration files, SIGHUP, messages to systemd and its journal, SIGTERM.

use crate::support::command::{CommandOutput, benchmesh};
use crate::support::mesh::Mesh;
use crate::support::process::Process;
use crate::support::wait::{until, until_true};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The service manager's end of NOTIFY_SOCKET.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    messages: Vec<String>,
}

impl Manager {
    fn new(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let messages = Vec::new();
        Self {
            socket,
            path,
            messages,
        }
    }

    fn has_been_told(&mut self, part: &str) -> bool {
        let mut message = [0; 4096];
        loop {
            match self.socket.recv(&mut message) {
                Ok(length) => self
                    .messages
                    .push(String::from_utf8(message[..length].to_vec()).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.messages.iter().any(|message| message.contains(part))
    }

    fn until_told(&mut self, part: &str) {
        until_true(
            &format!("the service manager is told {part}"),
            LIMIT,
            || self.has_been_told(part),
        );
    }
}

/// A process under a service manager, with the journal as its standard error.
fn service(name: &str, directory: &Path, manager: &Manager, mut command: Command) -> Process {
    let log = directory.join(format!("{name}.log"));
    let journal = std::fs::File::create(&log).unwrap().metadata().unwrap();
    command
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", "200000")
        .env(
            "JOURNAL_STREAM",
            format!("{}:{}", journal.dev(), journal.ino()),
        );
    Process::start(name, command, &log)
}

fn ended_cleanly(mut process: Process, manager: &mut Manager) {
    // The kernel buffers a few messages for a manager that does not read, and drops the rest.
    manager.has_been_told("");
    process.signal(libc::SIGTERM);
    manager.until_told("STOPPING=1");
    let status = process.exit_within(LIMIT).expect("it ends");
    assert!(status.success(), "{status}: {}", process.log());
}

/// The priorities of `sd-daemon(3)`, without time stamps and colours.
fn assert_is_for_the_journal(log: &str) {
    assert!(!log.is_empty());
    for line in log.lines() {
        // Startup messages go to a terminal too.
        let is_logged = !line.starts_with("live page:");
        assert!(!is_logged || line.starts_with("<6>benchmesh_"), "{line:?}");
    }
}

#[test]
fn an_agent_as_a_service_takes_its_file_over_on_sighup() {
    let mesh = Mesh::start();
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (place.path().join("first"), place.path().join("second"));
    for target in [&first, &second] {
        std::fs::create_dir(target).unwrap();
    }
    let file = place.path().join("agent.toml");
    let write = |allow: &str| {
        let text = format!(
            "name = \"served\"\ncollector = \"{}\"\nstate-dir = \"{}\"\nlabel = [\"a=1\", \"b=2\"]\n{allow}\n",
            mesh.address(),
            place.path().join("state").display()
        );
        std::fs::write(&file, text).unwrap();
    };
    write(&format!("allow = [\"{}\"]", first.display()));
    let mut manager = Manager::new(place.path().join("notify"));
    let mut command = benchmesh();
    command.arg("agent").arg("--config").arg(&file);
    let agent = service("agent", place.path(), &manager, command);
    manager.until_told("READY=1");
    manager.until_told(&format!("STATUS=attached to {}", mesh.address()));
    manager.until_told("WATCHDOG=1");
    let allows = |target: &Path| {
        let listed = mesh.command(&["agents", "--format", "json"]);
        listed.out.contains(target.to_str().unwrap())
    };
    until_true("the file's path is allowed", LIMIT, || allows(&first));
    assert_is_for_the_journal(&agent.log());

    // An invalid file changes nothing.
    write("allow = \"/nowhere/at/all\"");
    agent.signal(libc::SIGHUP);
    until_true("the mistake is logged", LIMIT, || {
        let log = agent.log();
        log.contains("<3>benchmesh_cli") && log.contains("/nowhere/at/all")
    });
    assert!(allows(&first));

    // The agent's own state is there: this is only detected when it restarts.
    write(&format!("allow = [\"{}\"]", place.path().display()));
    agent.signal(libc::SIGHUP);
    until_true("it goes back to what it had", LIMIT, || {
        agent
            .log()
            .contains("cannot start with the new configuration")
    });
    until_true("the first path is allowed again", LIMIT, || allows(&first));

    write(&format!("allow = [\"{}\"]", second.display()));
    agent.signal(libc::SIGHUP);
    until_true("the new path is allowed", LIMIT, || {
        allows(&second) && !allows(&first)
    });
    let log = agent.log();
    assert!(log.contains("keys=\"allow\""), "{log}");
    // The same process still works.
    mesh.run(&format!(
        "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\nworkload = \"files\"\nfiles = 10\nsize = \"1k\"\nmodes = [\"create\"]\n",
        second.display()
    ));
    ended_cleanly(agent, &mut manager);
}

/// A configuration that is read while a task runs takes effect when the task has ended.
#[test]
fn a_reload_waits_for_the_task_that_runs() {
    let mesh = Mesh::start();
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    let file = place.path().join("agent.toml");
    let write = |label: &str| {
        let text = format!(
            "name = \"busy\"\ncollector = \"{}\"\nstate-dir = \"{}\"\nallow = \"{}\"\nlabel = \"{label}\"\n",
            mesh.address(),
            place.path().join("state").display(),
            target.display()
        );
        std::fs::write(&file, text).unwrap();
    };
    std::fs::create_dir(&target).unwrap();
    write("version=old");
    let mut command = benchmesh();
    command.arg("agent").arg("--config").arg(&file);
    let agent = Process::start("agent", command, &place.path().join("log"));
    mesh.until_attached(&["busy"]);
    let mut run = mesh.begin("[[phase]]\nworkload = \"null\"\nrate_iops = 100\nops = 200\n");
    mesh.until_run_is(&["running"], LIMIT);
    let running = "SELECT count(*) FROM steps WHERE state = 'running'";
    until_true("the step runs", LIMIT, || mesh.db().one::<i64>(running) > 0);
    write("version=new");
    agent.signal(libc::SIGHUP);
    until_true("the change is seen", LIMIT, || {
        agent.log().contains("as soon as it holds no task")
    });
    assert!(
        run.exit_within(LIMIT)
            .is_some_and(|status| status.success()),
        "{}",
        run.log()
    );
    let db = mesh.db();
    assert_eq!(db.one::<i64>("SELECT sum(ops) FROM step_results"), 200);
    assert_eq!(db.one::<i64>("SELECT partial FROM runs"), 0);
    until("the new label is there", LIMIT, || {
        let listed = mesh.command(&["agents", "--format", "json"]);
        listed.out.contains("new").then_some(())
    });
}

#[test]
fn a_collector_as_a_service_says_which_keys_need_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("collector.toml");
    let write = |more: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nhttp-url-file = \"{0}/page\"\ndb = \"{0}/mesh.db\"\naddress-file = \"{0}/address\"\n{more}\n",
            place.path().display()
        );
        std::fs::write(&file, text).unwrap();
    };
    write("");
    let mut manager = Manager::new(place.path().join("notify"));
    let mut command = benchmesh();
    command.arg("collector").arg("--config").arg(&file);
    let collector = service("collector", place.path(), &manager, command);
    manager.until_told("READY=1\nSTATUS=serving on 127.0.0.1:");
    manager.until_told("WATCHDOG=1");
    assert_is_for_the_journal(&collector.log());
    // Users other than the page's can read the journal.
    let url = std::fs::read_to_string(place.path().join("page")).unwrap();
    let token = url.trim().split("token=").nth(1).unwrap();
    assert!(
        token.len() > 20 && !collector.log().contains(token),
        "{}",
        collector.log()
    );
    assert!(collector.log().contains("live page: http://127.0.0.1:"));
    write("http-name = [\"bench.example\"]");
    collector.signal(libc::SIGHUP);
    until_true("the change is logged", LIMIT, || {
        let log = collector.log();
        log.contains("keys=\"http-name\"") && log.contains("restart the collector")
    });
    ended_cleanly(collector, &mut manager);

    write("htp = \"off\"");
    let mut command = benchmesh();
    command.arg("collector").arg("--config").arg(&file);
    let output = CommandOutput::of(&command.output().unwrap());
    assert_eq!(output.code, 2, "{}", output.all());
    let line = format!(
        "{}:6: `htp`: unknown key; did you mean `http`?",
        file.display()
    );
    assert!(output.err.contains(&line), "{}", output.all());
}

#[test]
fn doctor_has_a_line_for_everything_and_fails_where_an_agent_would() {
    let mesh = Mesh::start();
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let file = place.path().join("agent.toml");
    let write = |allow: &Path| {
        let text = format!(
            "collector = \"{}\"\nstate-dir = \"{}/state\"\nallow = \"{}\"\n",
            mesh.address(),
            place.path().display(),
            allow.display()
        );
        std::fs::write(&file, text).unwrap();
    };
    let doctor = || {
        let mut command = benchmesh();
        command.args(["doctor", "--format", "json", "--config"]);
        let output = CommandOutput::of(&command.arg(&file).output().unwrap());
        let document: serde_json::Value = serde_json::from_str(&output.out).unwrap();
        (output.code, document)
    };
    let verdict = |document: &serde_json::Value, check: &str| {
        let findings = document["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {document}"))["verdict"].clone()
    };
    write(&target);
    let (code, document) = doctor();
    assert_eq!(code, 0, "{document:#}");
    for check in ["collector", "certificate", "policy", "state"] {
        assert_eq!(verdict(&document, check), "ok", "{document:#}");
    }
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    assert!(!place.path().join("state").exists());
    write(&place.path().join("nowhere"));
    let (code, document) = doctor();
    assert_eq!(code, 1, "{document:#}");
    for check in ["path", "policy"] {
        assert_eq!(verdict(&document, check), "fail", "{document:#}");
    }
}
