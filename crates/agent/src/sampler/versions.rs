//! The versions of running programs, as each reports its own (`ceph-osd --version`).
//!
//! A file is executed once, in a thread separate from the sampler's, without a shell, without capabilities and
//! variables, within limits of time and output. Only files that root alone can write are executed. A program that
//! hangs, floods or fails only loses its version.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use benchmesh_model::systems::VersionQuery;
use tracing::{debug, info};

use super::binary::{Binary, FileId, NotTrusted};
use crate::execute::{self, ExecuteError, Limits, Output};
use crate::privileges::{self, PrivilegesError};

const LIMITS: Limits = Limits {
    // Enough for a large program that is being linked while all CPUs and disks are busy.
    time: Duration::from_secs(30),
    bytes: 64 << 10,
};
/// Maximum number of executed files; daemons of further ones have no version.
const MAX_FILES: usize = 256;
/// Capacity of the queue of questions. A question that does not fit is repeated at the daemon's next check.
const MAX_WAITING: usize = 64;

/// A program with one kind of query: an interpreter may run several daemons.
type QueriedProgram = (FileId, &'static str);

#[derive(Debug)]
struct Question {
    key: QueriedProgram,
    /// `/proc/PID`
    directory: PathBuf,
    binary: Binary,
    name: String,
    query: VersionQuery,
}

#[derive(Debug, Default)]
struct Answers {
    known: Mutex<HashMap<QueriedProgram, Option<String>>>,
    /// There are new answers since the last check.
    has_new: AtomicBool,
    stop: AtomicBool,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueriedProgram, Option<String>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropping it kills a program that is being run.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    asked: HashSet<QueriedProgram>,
    answers: Arc<Answers>,
    /// Started with the first question.
    thread: Option<(SyncSender<Question>, JoinHandle<()>)>,
}

impl Versions {
    /// The version of the program that the process at `directory` runs, if it is known. Queries it if this was not done
    /// yet.
    pub(crate) fn of(
        &mut self,
        directory: &Path,
        binary: &Binary,
        name: &str,
        query: VersionQuery,
    ) -> Option<String> {
        let key = (binary.file, query.before);
        if self.asked.contains(&key) {
            return self.answers.lock().get(&key).cloned().flatten();
        }
        if self.asked.len() < MAX_FILES {
            let question = Question {
                key,
                directory: directory.to_owned(),
                binary: binary.clone(),
                name: name.to_owned(),
                query,
            };
            if self.ask(question) {
                self.asked.insert(key);
            }
        }
        None
    }

    /// Whether answers came since the last call.
    pub(crate) fn has_new(&self) -> bool {
        self.answers.has_new.swap(false, Ordering::AcqRel)
    }

    /// Queues the question. Returns whether it will be answered.
    fn ask(&mut self, question: Question) -> bool {
        if self.thread.is_none() {
            let (sender, questions) = sync_channel(MAX_WAITING);
            let answers = Arc::clone(&self.answers);
            let thread = std::thread::Builder::new()
                .name("bm-versions".to_owned())
                .spawn(move || answer_all(&questions, &answers));
            match thread {
                Ok(thread) => self.thread = Some((sender, thread)),
                Err(error) => debug!(%error, "the thread that asks for versions cannot be started"),
            }
        }
        let sender = self.thread.as_ref().map(|(sender, _)| sender);
        sender.is_some_and(|sender| sender.try_send(question).is_ok())
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.answers.stop.store(true, Ordering::Relaxed);
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn answer_all(questions: &Receiver<Question>, answers: &Answers) {
    for question in questions {
        if answers.stop.load(Ordering::Relaxed) {
            return;
        }
        let Question { name, query, .. } = &question;
        let opened = question.binary.open_trusted(&question.directory);
        let asked = opened.map_err(AskError::NotTrusted);
        let version = asked.and_then(|file| ask(&file, name, *query, LIMITS, &answers.stop));
        let version = match version {
            Ok(version) => version,
            Err(error) => {
                let problem = benchmesh_workloads::error_chain(&error);
                info!(
                    name,
                    problem, "the version of this running program is not known"
                );
                None
            }
        };
        answers.lock().insert(question.key, version);
        answers.has_new.store(true, Ordering::Release);
    }
}

/// Why the version of a program is unknown.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it is not executed")]
    NotTrusted(#[source] NotTrusted),
    #[error("its privileges cannot be dropped")]
    Privileges(#[source] PrivilegesError),
    #[error("the thread that executes it cannot be started")]
    Thread(#[source] io::Error),
    #[error("it has no output")]
    Execute(#[source] ExecuteError),
}

/// Runs the program in the file and returns its version; `None` if its output names none. Blocks.
fn ask(
    file: &File,
    name: &str,
    query: VersionQuery,
    limits: Limits,
    stop: &AtomicBool,
) -> Result<Option<String>, AskError> {
    let output = || -> Result<Output, AskError> {
        privileges::give_up_all().map_err(AskError::Privileges)?;
        // The exec closes the descriptor only after the kernel has opened the program through it.
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command
            .arg0(name)
            .args(query.arguments)
            .env_clear()
            .current_dir("/");
        execute::output(command, stop, limits).map_err(AskError::Execute)
    };
    // Capabilities belong to a thread: this one keeps those with which it opens files.
    let output = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("bm-version".to_owned());
        let thread = thread
            .spawn_scoped(scope, output)
            .map_err(AskError::Thread)?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let said = query
        .parse(&output.stdout)
        .or_else(|| query.parse(&output.stderr));
    Ok(said.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Stdio};
    use std::time::Instant;

    const SHORT: Limits = Limits {
        time: Duration::from_millis(400),
        bytes: 4096,
    };
    const CAT: VersionQuery = VersionQuery {
        arguments: &["--version"],
        before: "cat (GNU coreutils) ",
    };

    fn say(program: &str, arguments: &'static [&'static str]) -> Result<Option<String>, String> {
        let file = File::open(program).unwrap();
        let query = VersionQuery {
            arguments,
            before: "uid=",
        };
        ask(&file, "daemon", query, SHORT, &AtomicBool::new(false))
            .map_err(|error| benchmesh_workloads::error_chain(&error))
    }

    #[test]
    fn a_program_that_hangs_floods_or_fails_has_no_version() {
        let began = Instant::now();
        let hung = say("/bin/sleep", &["77.75"]).unwrap_err();
        assert!(hung.contains("after its timeout"), "{hung}");
        let flood = say("/usr/bin/yes", &[]).unwrap_err();
        assert!(flood.contains("more than 4096 bytes"), "{flood}");
        let failed = say("/bin/false", &[]).unwrap_err();
        assert!(failed.contains("failed with code 1"), "{failed}");
        assert_eq!(say("/bin/echo", &["uid=none"]), Ok(None));
        assert_eq!(say("/bin/echo", &["uid=3.2"]), Ok(Some("3.2".to_owned())));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_has_no_capabilities_and_no_variables() {
        let query = |file, before| VersionQuery {
            arguments: file,
            before,
        };
        let cat = File::open("/bin/cat").unwrap();
        let ask = |query| ask(&cat, "cat", query, SHORT, &AtomicBool::new(false));
        for set in ["CapEff:\t", "CapPrm:\t", "CapInh:\t", "CapAmb:\t"] {
            let said = ask(query(&["/proc/self/status"], set)).unwrap();
            assert_eq!(said.as_deref(), Some("0000000000000000"), "{set}");
        }
        let said = ask(query(&["/proc/self/status"], "NoNewPrivs:\t")).unwrap();
        assert_eq!(said.as_deref(), Some("1"));
        assert_eq!(ask(query(&["/proc/self/environ"], "")).unwrap(), None);
    }

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Running {
        fn directory(&self) -> PathBuf {
            PathBuf::from(format!("/proc/{}", self.0.id()))
        }
    }

    /// A copy of `cat` that runs until it is dropped.
    fn run(program: &Path) -> Running {
        std::fs::copy("/bin/cat", program).unwrap();
        let child = Command::new(program).stdin(Stdio::piped()).spawn().unwrap();
        let running = Running(child);
        // Spawning returns when the program has started.
        assert!(Binary::of(&running.directory()).is_some());
        running
    }

    fn version(versions: &mut Versions, running: &Running, binary: &Binary) -> Option<String> {
        let directory = running.directory();
        let deadline = Instant::now() + Duration::from_secs(10);
        let known = versions.of(&directory, binary, "cat", CAT);
        while known.is_none() && !versions.has_new() {
            assert!(Instant::now() < deadline, "no answer");
            std::thread::yield_now();
        }
        known.or_else(|| versions.of(&directory, binary, "cat", CAT))
    }

    #[test]
    fn the_running_file_is_asked_once_also_when_it_was_replaced() {
        if !rustix::process::geteuid().is_root() {
            benchmesh_testing::skip("root", "only files of root are asked");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ceph-osd");
        let running = run(&program);
        let before = Binary::of(&running.directory()).unwrap();
        assert!(!before.is_replaced);
        std::fs::remove_file(&program).unwrap();
        std::fs::copy("/bin/false", &program).unwrap();
        let binary = Binary::of(&running.directory()).unwrap();
        assert!(binary.is_replaced);
        assert_eq!(binary.file, before.file);
        let mut versions = Versions::default();
        let said = version(&mut versions, &running, &binary).unwrap();
        assert!(said.starts_with(|c: char| c.is_ascii_digit()), "{said}");
        // Another process with the same file gets the remembered answer.
        let again = versions.of(Path::new("/proc/0"), &binary, "cat", CAT);
        assert_eq!(again, Some(said));
        assert!(!versions.has_new());
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_not_at_its_path_is_not_executed() {
        if !rustix::process::geteuid().is_root() {
            benchmesh_testing::skip("root", "only files of root are asked");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ceph-osd");
        let running = run(&program);
        let binary = Binary::of(&running.directory()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o775)).unwrap();
        let refused = binary.open_trusted(&running.directory());
        assert!(matches!(refused, Err(NotTrusted::Owner)), "{refused:?}");
        assert_eq!(version(&mut Versions::default(), &running, &binary), None);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        let refused = binary.open_trusted(&running.directory());
        assert!(matches!(refused, Err(NotTrusted::Owner)), "{refused:?}");
        std::os::unix::fs::chown(&program, Some(0), None).unwrap();
        assert!(binary.open_trusted(&running.directory()).is_ok());
        let other = run(&directory.path().join("other"));
        let refused = binary.open_trusted(&other.directory());
        assert!(matches!(refused, Err(NotTrusted::Another)), "{refused:?}");
    }
}
