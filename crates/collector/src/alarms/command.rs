//! The command of the collector's own configuration that is run for each alarm that is raised or over.
//!
//! The plan cannot name a command. No shell is involved: the facts are environment variables and JSON on standard
//! input. One command runs at a time, at most one a second; one that takes longer than 10 s is killed with its process
//! group. Failures, and alarms that found the queue full, are events.

use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_store::Store;
use benchmesh_store::clock::MeshClock;
use benchmesh_store::rows::NewEvent;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of alarms: all alarms of a plan at once. Further ones are left out and counted.
const QUEUE: usize = 64;
/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(10);
/// Minimum time between the starts of two commands.
const PERIOD: Duration = Duration::from_secs(1);
/// How long commands may run after the collector began to close.
const CLOSING_WITHIN: Duration = Duration::from_secs(3);
/// Longer texts are cut off in variables, since the kernel refuses one above 128 KiB. The JSON is complete.
const MAX_VARIABLE_BYTES: usize = 16 << 10;
/// The collector's own variables that a command gets. The others may hold secrets, or belong to its supervisor.
const INHERITED: [&str; 8] = [
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER",
];

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

/// Why a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum AlarmCommandError {
    #[error(
        "`{0}` is not an absolute path: write the program's full path, then its arguments, separated by spaces"
    )]
    NotAbsolute(String),
    #[error("{} cannot be executed", program.display())]
    NotExecutable {
        program: PathBuf,
        source: std::io::Error,
    },
}

impl FromStr for AlarmCommand {
    type Err = AlarmCommandError;

    /// Splits at spaces; there are no quotes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        if !program.starts_with('/') {
            return Err(AlarmCommandError::NotAbsolute(program));
        }
        Ok(Self {
            program: PathBuf::from(program),
            arguments: words.collect(),
        })
    }
}

impl AlarmCommand {
    /// Whether the program exists.
    pub fn check(&self) -> Result<(), AlarmCommandError> {
        let executable = access(&self.program, Access::EXEC_OK)
            .map_err(std::io::Error::from)
            .and_then(|()| match self.program.is_file() {
                true => Ok(()),
                false => Err(std::io::Error::from(std::io::ErrorKind::IsADirectory)),
            });
        executable.map_err(|source| AlarmCommandError::NotExecutable {
            program: self.program.clone(),
            source,
        })
    }
}

/// The command's input. The names of the fields are the keys of the JSON and, in capital letters after
/// `BENCHMESH_ALARM_`, the names of the environment variables.
#[derive(Clone, Debug, Serialize)]
pub struct Notice {
    /// `raised` or `over`; `broken` for an objective.
    pub state: &'static str,
    /// The condition or the objective, as written in the plan.
    pub condition: String,
    /// The message of the event.
    pub message: String,
    pub run_id: RunId,
    pub run_uid: String,
    pub run: String,
    pub step_id: Option<StepId>,
    /// Mesh time.
    pub at_us: i64,
}

impl Notice {
    fn facts(&self) -> serde_json::Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(facts)) => facts,
            // A struct of texts and numbers is always an object.
            _ => serde_json::Map::new(),
        }
    }
}

/// Passes alarms to the command, if one is configured. Never waits.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    queue: Option<mpsc::Sender<Notice>>,
    left_out: Arc<AtomicU64>,
}

impl Notifier {
    pub fn notify(&self, notice: Notice) {
        if let Some(queue) = &self.queue
            && queue.try_send(notice).is_err()
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs the command for one notice after the other.
#[derive(Debug)]
pub struct Runner {
    command: AlarmCommand,
    notices: mpsc::Receiver<Notice>,
    left_out: Arc<AtomicU64>,
}

impl Runner {
    pub fn new(command: AlarmCommand) -> (Notifier, Self) {
        let (queue, notices) = mpsc::channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        let notifier = Notifier {
            queue: Some(queue),
            left_out: Arc::clone(&left_out),
        };
        let runner = Self {
            command,
            notices,
            left_out,
        };
        (notifier, runner)
    }

    /// Runs commands until the last [`Notifier`] is gone. After `closing` the waiting ones run without a pause; what is
    /// not done within [`CLOSING_WITHIN`] is killed or left out.
    pub async fn run(mut self, store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
        let all = self.run_all(&store, &clock, &closing);
        let too_late = async {
            closing.cancelled().await;
            tokio::time::sleep(CLOSING_WITHIN).await;
        };
        tokio::select! {
            () = all => {}
            () = too_late => {}
        }
    }

    async fn run_all(&mut self, store: &Store, clock: &MeshClock, closing: &CancellationToken) {
        while let Some(notice) = self.notices.recv().await {
            let next = Instant::now() + PERIOD;
            let run = notice.run_id;
            let failed = execute(&self.command, &notice, LIMIT).await.err();
            let left_out = match self.left_out.swap(0, Ordering::Relaxed) {
                0 => None,
                count => Some(format!(
                    "{count} alarms were dropped: the command runs at most once a second, and at most {QUEUE} alarms \
                    wait for it"
                )),
            };
            for problem in failed.into_iter().chain(left_out) {
                let program = self.command.program.display();
                let message = format!("the command of --on-alarm, {program}: {problem}");
                tracing::warn!(%run, "{message}");
                let event = NewEvent {
                    run: Some(run),
                    ..NewEvent::new(clock.now(), EventKind::AlarmCommand, message)
                };
                if let Err(error) = store.add_event(event).await {
                    tracing::warn!(%error, "cannot store an event");
                }
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = sleep_until(next) => {}
            }
        }
    }
}

/// Runs the command once. The error is a description of the failure.
async fn execute(command: &AlarmCommand, notice: &Notice, limit: Duration) -> Result<(), String> {
    let facts = notice.facts();
    let variables = facts.iter().map(|(key, value)| {
        let text = match value {
            Value::String(text) => beginning(text).replace('\0', " "),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        (format!("BENCHMESH_ALARM_{}", key.to_uppercase()), text)
    });
    let child = Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| INHERITED.iter().any(|known| name == known)))
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start it: {error}"))?;
    let mut group = ProcessGroup(child);
    let json = format!("{}\n", Value::Object(facts));
    let ended = async {
        if let Some(mut stdin) = group.0.stdin.take() {
            // A command may ignore its input.
            let _ = stdin.write_all(json.as_bytes()).await;
        }
        group.0.wait().await
    };
    match timeout(limit, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(error)) => Err(format!("cannot wait for its end: {error}")),
        Err(_) => Err(format!(
            "it took longer than {} s, and the collector killed it",
            limit.as_secs_f64()
        )),
    }
}

/// The text up to the limit of a variable.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_VARIABLE_BYTES))
        .unwrap_or(text)
}

/// A process that leads a group; dropping it before the process has ended kills the group.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // `None` after the process was awaited: another process may have its id then.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::mesh::MeshMicros;
    use benchmesh_store::rows::Anchor;
    use std::path::Path;

    fn notice(condition: &str) -> Notice {
        Notice {
            state: "raised",
            condition: condition.to_owned(),
            message: String::from("alarm `x`: \"y\"\n"),
            run_id: RunId(7),
            run_uid: String::from("u7"),
            run: String::from("nightly"),
            step_id: None,
            at_us: 5,
        }
    }

    fn script(directory: &Path, text: &str) -> AlarmCommand {
        use std::os::unix::fs::PermissionsExt;
        let program = directory.join("told");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        AlarmCommand {
            program,
            arguments: vec![directory.display().to_string()],
        }
    }

    #[test]
    fn a_command_is_an_absolute_path_and_words() {
        let command: AlarmCommand = "/bin/echo  a $HOME".parse().unwrap();
        assert_eq!(command.arguments, ["a", "$HOME"]);
        for text in ["", "echo a", "./echo"] {
            assert!(text.parse::<AlarmCommand>().is_err(), "{text}");
        }
        let missing: AlarmCommand = "/nonexistent/x".parse().unwrap();
        assert!(missing.check().is_err());
        let directory: AlarmCommand = "/".parse().unwrap();
        assert!(directory.check().is_err());
    }

    #[tokio::test]
    async fn the_facts_are_variables_and_json() {
        let directory = tempfile::tempdir().unwrap();
        let command = script(
            directory.path(),
            "cat > $1/json; echo \"$BENCHMESH_ALARM_STATE $BENCHMESH_ALARM_RUN_ID $BENCHMESH_ALARM_STEP_ID\" > $1/state\n\
             printf %s \"$BENCHMESH_ALARM_CONDITION\" > $1/condition",
        );
        command.check().unwrap();
        let condition = "rate < 5 $(touch /tmp/never) `id` \0 \u{e9}";
        execute(&command, &notice(condition), LIMIT).await.unwrap();
        let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("state"), "raised 7 \n");
        assert_eq!(read("condition"), condition.replace('\0', " "));
        let json: Value = serde_json::from_str(&read("json")).unwrap();
        assert_eq!(json.get("condition").unwrap(), condition);
        assert_eq!(json.get("step_id").unwrap(), &Value::Null);
    }

    #[tokio::test]
    async fn long_facts_are_cut_in_variables_and_others_are_not_inherited() {
        let directory = tempfile::tempdir().unwrap();
        let command = script(
            directory.path(),
            "wc -c > $1/json; printf %s \"$BENCHMESH_ALARM_CONDITION\" > $1/condition; env > $1/env",
        );
        // Two bytes each, beginning at an odd one.
        let condition = format!("x{}", "\u{e9}".repeat(100_000));
        execute(&command, &notice(&condition), LIMIT).await.unwrap();
        let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("condition").len(), MAX_VARIABLE_BYTES - 1);
        assert!(read("json").trim().parse::<usize>().unwrap() > condition.len());
        let expected = |name: &str| {
            // The shell sets the last three itself.
            name.starts_with("BENCHMESH_ALARM_")
                || INHERITED.contains(&name)
                || ["PWD", "SHLVL", "_"].contains(&name)
        };
        let env = read("env");
        let names = env.lines().filter_map(|line| Some(line.split_once('=')?.0));
        let others: Vec<&str> = names.filter(|name| !expected(name)).collect();
        let mut own = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        assert!(own.any(|name| !expected(&name)), "nothing to leave out");
        assert_eq!(others, [""; 0]);
    }

    #[tokio::test]
    async fn what_waits_when_the_collector_closes_is_run() {
        let directory = tempfile::tempdir().unwrap();
        let command = script(directory.path(), "echo >> $1/lines");
        let (notifier, runner) = Runner::new(command);
        for _ in 0..3 {
            notifier.notify(notice("x"));
        }
        drop(notifier);
        let store = Store::open(&directory.path().join("mesh.db"))
            .await
            .unwrap();
        let clock = Arc::new(MeshClock::new(Anchor {
            boot_id: String::from("b"),
            boottime_ns: 0,
            mesh_us: MeshMicros(1_000_000),
        }));
        let closing = CancellationToken::new();
        closing.cancel();
        runner.run(store, clock, closing).await;
        let lines = std::fs::read_to_string(directory.path().join("lines")).unwrap();
        assert_eq!(lines.lines().count(), 3);
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_says_so_and_is_killed_with_its_group() {
        let directory = tempfile::tempdir().unwrap();
        let failing = script(directory.path(), "exit 3");
        let failed = execute(&failing, &notice("x"), LIMIT).await;
        assert!(failed.unwrap_err().contains("exit status: 3"));
        // More than the buffer of a pipe, for a command that does not read.
        let long = "x".repeat(100_000);
        let hanging = script(
            directory.path(),
            "sleep 600 & echo $! > $1/child; sleep 600",
        );
        let killed = execute(&hanging, &notice(&long), Duration::from_secs(5)).await;
        assert!(killed.unwrap_err().contains("killed it"));
        let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // The process that inherits it may take a moment to reap it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while state().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "it runs on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let missing: AlarmCommand = "/nonexistent/x".parse().unwrap();
        let failed = execute(&missing, &notice("x"), LIMIT).await;
        assert!(failed.unwrap_err().contains("cannot start it"));
    }

    #[tokio::test]
    async fn a_full_queue_is_counted() {
        let (notifier, runner) = Runner::new("/bin/true".parse().unwrap());
        for _ in 0..QUEUE + 3 {
            notifier.notify(notice("x"));
        }
        assert_eq!(runner.left_out.load(Ordering::Relaxed), 3);
    }
}
