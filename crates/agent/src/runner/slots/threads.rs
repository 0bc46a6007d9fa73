//! Threads for blocking work, with a limit on their number, in all and for each target.

use crate::command::{CommandRequest, Refusal};
use benchmesh_model::targets::Locator;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of commands that block on one target, or on none in particular. A mesh sends fewer at once, so
/// reaching the limit means that the target hangs.
const MAX_PER_TARGET: usize = 64;
/// Maximum number of commands that block: a target that hangs leaves room for the others.
const MAX_THREADS: usize = 4 * MAX_PER_TARGET;

/// The threads that execute commands, counted by target; `None`: commands without a target.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandThreads(Arc<Mutex<BTreeMap<Option<Locator>, usize>>>);

impl CommandThreads {
    /// Runs work that may block on a new thread.
    pub(super) fn run(
        &self,
        name: &str,
        target: Option<Locator>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Refusal> {
        let counted = self.count(target)?;
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _counted = counted;
                work();
            })
            .map(drop)
            .map_err(|error| Refusal::failed(format!("no thread for a command: {error}")))
    }

    fn count(&self, target: Option<Locator>) -> Result<CountedThread, Refusal> {
        let mut threads = self.lock();
        let here = threads.get(&target).copied().unwrap_or(0);
        let most = match (here >= MAX_PER_TARGET, &target) {
            (true, Some(target)) => Some(format!(
                "{MAX_PER_TARGET} commands wait for {target} already: does it hang?"
            )),
            (true, None) => Some(format!(
                "{MAX_PER_TARGET} commands wait for file systems already: does one of them hang?"
            )),
            (false, _) if threads.values().sum::<usize>() >= MAX_THREADS => Some(format!(
                "{MAX_THREADS} commands wait for targets already: does one of them hang?"
            )),
            (false, _) => None,
        };
        if let Some(why) = most {
            return Err(Refusal::failed(why));
        }
        threads.insert(target.clone(), here + 1);
        drop(threads);
        Ok(CountedThread {
            threads: self.clone(),
            target,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<Locator>, usize>> {
        // Each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that counts until this is dropped.
struct CountedThread {
    threads: CommandThreads,
    target: Option<Locator>,
}

impl Drop for CountedThread {
    fn drop(&mut self) {
        let mut threads = self.threads.lock();
        match threads.get_mut(&self.target) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(threads.remove(&self.target)),
        }
    }
}

/// The target that a command on files works on, if it is one.
pub(super) fn target_of(request: &CommandRequest) -> Option<Locator> {
    match request {
        CommandRequest::OpenRunDirectory { target, .. }
        | CommandRequest::RemoveRunDirectory { target, .. }
        | CommandRequest::RemoveCell { target, .. } => Some(target.clone()),
        _ => None,
    }
}

/// Turns a panic in a task's preparation into a refusal, so that the agent continues.
pub(super) fn unpanicked<T, E: From<Refusal>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(E::from(Refusal::failed(
            "the agent panicked while it handled this command; its log shows where",
        )))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_target_that_hangs_leaves_threads_for_the_others() {
        let threads = CommandThreads::default();
        let dead = || Some(Locator::path("/dead"));
        let (hang, hangs) = sync_channel::<()>(0);
        let hangs = Arc::new(Mutex::new(hangs));
        let (ended, ends) = sync_channel(MAX_PER_TARGET);
        for _ in 0..MAX_PER_TARGET {
            let (hangs, ended) = (Arc::clone(&hangs), ended.clone());
            let work = move || {
                // Until the sender is dropped.
                let _ = hangs.lock().unwrap().recv();
                ended.send(()).unwrap();
            };
            threads.run("bm-test", dead(), work).unwrap();
        }
        let refusal = threads.run("bm-test", dead(), || ()).unwrap_err();
        assert!(refusal.message.contains("/dead"), "{}", refusal.message);
        for healthy in [Some(Locator::path("/healthy")), None] {
            let (done, over) = sync_channel(1);
            let work = move || done.send(()).unwrap();
            threads.run("bm-test", healthy, work).unwrap();
            over.recv().unwrap();
        }
        drop(hang);
        for _ in 0..MAX_PER_TARGET {
            ends.recv().unwrap();
        }
        // The last thread counts until its work has returned.
        while !threads.lock().is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_targets_together_have_a_limit_and_a_panic_frees_its_thread() {
        let threads = CommandThreads::default();
        let held: Vec<CountedThread> = (0..MAX_THREADS)
            .map(|n| {
                let target = Locator::path(format!("/{}", n % 8));
                threads.count(Some(target)).unwrap()
            })
            .collect();
        let other = || Some(Locator::path("/other"));
        let refusal = threads.count(other()).err().unwrap();
        assert!(
            refusal.message.contains("256 commands"),
            "{}",
            refusal.message
        );
        drop(held);
        let panicking = threads.count(other()).unwrap();
        let died = std::thread::spawn(move || {
            let _panicking = panicking;
            std::panic::resume_unwind(Box::new("a panic that prints nothing"));
        });
        died.join().unwrap_err();
        assert!(threads.lock().is_empty());
    }
}
