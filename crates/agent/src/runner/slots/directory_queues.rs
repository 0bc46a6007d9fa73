//! Queues commands on one run's directory and executes them one at a time in the order of their arrival.
//!
//! Each command runs on a thread of its own. Without queues, a removal could overtake an earlier command to open the
//! directory (for example, one from a collector that was killed meanwhile) and leave a directory without an owner.

use super::RunPath;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Signals the end of the last command on each directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryQueues(BTreeMap<RunPath, oneshot::Receiver<()>>);

/// A command's turn in a queue; the next command begins when it is dropped.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    before: Option<oneshot::Receiver<()>>,
    _over: oneshot::Sender<()>,
}

impl DirectoryQueues {
    pub fn next(&mut self, path: &RunPath) -> QueuedCommand {
        self.0
            .retain(|_, last| matches!(last.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        let (over, last) = oneshot::channel();
        QueuedCommand {
            before: self.0.insert(path.clone(), last),
            _over: over,
        }
    }
}

impl QueuedCommand {
    /// Blocks until the previous command is over.
    pub fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            // A dropped sender marks the end of the previous command.
            let _ = before.blocking_recv();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::targets::Locator;
    use std::sync::mpsc;

    fn path(path: &str) -> RunPath {
        RunPath {
            mesh: String::from("m"),
            run_uid: String::from("u"),
            target: Locator::path(path),
        }
    }

    #[test]
    fn commands_on_one_directory_wait_for_those_before_them() {
        let mut queues = DirectoryQueues::default();
        let mut opening = queues.next(&path("/a"));
        let mut removal = queues.next(&path("/a"));
        let mut elsewhere = queues.next(&path("/b"));
        opening.wait();
        // That queue is empty.
        elsewhere.wait();
        let (sender, done) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            removal.wait();
            sender.send("removed").unwrap();
        });
        assert_eq!(done.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(opening);
        assert_eq!(done.recv(), Ok("removed"));
        thread.join().unwrap();
        drop(elsewhere);
        drop(queues.next(&path("/c")));
        assert_eq!(queues.0.len(), 1, "commands that are over are forgotten");
    }
}
