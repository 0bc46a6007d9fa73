//! The versions of running daemons: each that of the installed package which contains the file that the daemon runs.
//!
//! No daemon is executed for it: any user can start a program of root's under a daemon's name. The databases of packages
//! are read once per file, in a thread of their own, because they are large. A file of a container, or one that was
//! replaced since its daemon started, has no version, unless it was known before.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tracing::debug;

use super::arguments::cut;
use super::binary::{Binary, FileId};
use crate::host::version_of_file;

/// Maximum number of files; daemons of further ones have no version.
const MAX_FILES: usize = 256;
/// Capacity of the queue of questions. A question that does not fit is repeated at the daemon's next check.
const MAX_WAITING: usize = 64;
/// Maximum size of a version; the rest is cut off.
const MAX_VERSION_BYTES: usize = 64;

#[derive(Debug, Default)]
struct Answers {
    known: Mutex<HashMap<FileId, String>>,
    /// There are new answers since the last check.
    has_new: AtomicBool,
    stop: AtomicBool,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropping it ends a query that is under way.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    asked: HashSet<FileId>,
    answers: Arc<Answers>,
    /// Started with the first question.
    thread: Option<(SyncSender<Binary>, JoinHandle<()>)>,
}

impl Versions {
    /// The version of a daemon's file, if it is known. Queries it if this was not done yet.
    pub(crate) fn of(&mut self, binary: &Binary) -> Option<String> {
        if self.asked.contains(&binary.file) {
            return self.answers.lock().get(&binary.file).cloned();
        }
        if self.asked.len() < MAX_FILES && self.ask(binary.clone()) {
            self.asked.insert(binary.file);
        }
        None
    }

    /// Whether answers came since the last call.
    pub(crate) fn has_new(&self) -> bool {
        self.answers.has_new.swap(false, Ordering::AcqRel)
    }

    /// Queues the question. Returns whether it will be answered.
    fn ask(&mut self, binary: Binary) -> bool {
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
        sender.is_some_and(|sender| sender.try_send(binary).is_ok())
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

fn answer_all(questions: &Receiver<Binary>, answers: &Answers) {
    for binary in questions {
        if answers.stop.load(Ordering::Relaxed) {
            return;
        }
        if !binary.is_at_its_path() {
            continue;
        }
        let version = version_of_file(Path::new("/"), &binary.path, &answers.stop);
        // An upgrade may have replaced the file meanwhile.
        if let Some(version) = version.filter(|_| binary.is_at_its_path()) {
            let version = cut(version, MAX_VERSION_BYTES);
            answers.lock().insert(binary.file, version);
            answers.has_new.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Running {
        fn binary(&self) -> Binary {
            Binary::of(&PathBuf::from(format!("/proc/{}", self.0.id()))).unwrap()
        }
    }

    /// A copy of `cat` that runs until it is dropped.
    fn run(program: &Path) -> Running {
        std::fs::copy("/bin/cat", program).unwrap();
        let child = Command::new(program).stdin(Stdio::piped()).spawn().unwrap();
        // Spawning returns when the program has started.
        Running(child)
    }

    #[test]
    fn a_replaced_file_is_recognized_and_is_not_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ceph-osd");
        let running = run(&program);
        let before = running.binary();
        assert!(!before.is_replaced && before.is_at_its_path());
        std::fs::remove_file(&program).unwrap();
        std::fs::copy("/bin/false", &program).unwrap();
        let after = running.binary();
        assert!(after.is_replaced && !after.is_at_its_path());
        assert_eq!(after.file, before.file);
        assert!(!before.is_at_its_path());
    }

    /// It runs under a daemon's name, belongs to root, and would print a version.
    #[test]
    fn a_program_of_no_package_has_no_version() {
        let directory = tempfile::tempdir().unwrap();
        let running = run(&directory.path().join("ceph-mon"));
        let binary = running.binary();
        let mut versions = Versions::default();
        assert_eq!(versions.of(&binary), None);
        let answers = Arc::clone(&versions.answers);
        // Dropping it waits for the thread.
        drop(versions);
        assert!(answers.lock().is_empty());
    }
}
