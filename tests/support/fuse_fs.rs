//! A FUSE file system for tests: it is in memory, logs every call, and becomes slow, broken or stuck by rules.
//!
//! The kernel caches nothing: names and attributes expire at once and files are opened for direct I/O, so that every
//! system call reaches it. Truth tests compare benchmesh's figures with its log. Several threads answer calls, so a
//! hanging call does not block the others. Dropping the value releases hanging calls and unmounts.

mod calls;
mod nodes;

use super::meter::wall_us;
use calls::Logging;
use fuser::{BackgroundSession, Config, Errno, MountOption};
use nodes::Nodes;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Number of threads that answer calls. At most one less may hang at the same time.
const THREADS: usize = 8;

/// The logged calls, with FUSE's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Lookup,
    Getattr,
    Setattr,
    Mkdir,
    Create,
    Open,
    Read,
    Write,
    Fsync,
    /// Sent at each close of a descriptor, which waits for it.
    Flush,
    Release,
    Opendir,
    Readdir,
    Rename,
    Symlink,
    /// Logged under the name of the new link.
    Link,
    /// For attributes set by users; those of the system are answered but not logged.
    Setxattr,
    Getxattr,
    Unlink,
    Rmdir,
    /// Logged at the offset in the copy, under the name of the copy.
    CopyFileRange,
    Statfs,
}

/// One call received by the file system.
#[derive(Debug, Clone)]
pub struct Call {
    pub op: Op,
    /// Relative to the root of the mount, without a leading slash. For a rename: the old name.
    pub path: String,
    pub offset: u64,
    /// Bytes actually read or written; for a readdir, the number of returned entries; otherwise 0.
    pub amount: u64,
    /// Wall clock, microseconds since the Unix epoch.
    pub began_us: i64,
    pub ended_us: i64,
    /// [`Fault::Hang`] affected it.
    pub hung: bool,
    pub errno: Option<i32>,
}

/// The effect of a rule on a call.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Delay(Duration),
    Fail(i32),
    /// Until [`FuseFs::release`].
    Hang,
    /// All calls with this fault share one server with this total rate; each takes at least the latency.
    Capacity {
        per_second: u32,
        latency: Duration,
    },
}

/// Assigns a fault to calls.
#[derive(Debug, Clone)]
pub struct Rule {
    pub op: Op,
    /// A part of the path; empty for every path.
    pub path: String,
    /// Number of matching calls that pass first.
    pub after: u64,
    /// It applies to the last of every `one_in` remaining calls.
    pub one_in: u64,
    /// Maximum number of affected calls.
    pub times: u64,
    pub fault: Fault,
    /// Number of calls passed since the last affected one.
    pub passed: u64,
}

impl Rule {
    /// Affects every call of this kind, from now on.
    pub fn every(op: Op, fault: Fault) -> Self {
        Self {
            op,
            path: String::new(),
            after: 0,
            one_in: 1,
            times: u64::MAX,
            fault,
            passed: 0,
        }
    }
}

/// The mounted file system.
#[derive(Debug)]
pub struct FuseFs {
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    directory: TempDir,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when `State::gates` grows or the mount ends.
    released: Condvar,
}

#[derive(Debug)]
struct State {
    nodes: Nodes,
    log: Vec<Call>,
    rules: Vec<Rule>,
    /// Maximum size of a read or write.
    most: u32,
    /// Reads that return a flipped bit: the path suffix of the files, and the offsets.
    rotten: (String, Vec<u64>),
    /// Number of hanging calls.
    hanging: u64,
    /// When the server of [`Fault::Capacity`] becomes free.
    busy_until: Instant,
    /// Number of calls of `release`.
    gates: u64,
    /// Unmounting: nothing waits any longer.
    ending: bool,
}

impl FuseFs {
    /// Mounts it in a temporary directory.
    pub fn mount() -> Self {
        Self::try_mount().unwrap_or_else(|error| panic!("mount FUSE: {error}"))
    }

    pub fn try_mount() -> std::io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("bm-fuse-")
            .tempdir()
            .unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                nodes: Nodes::new(),
                log: Vec::new(),
                rules: Vec::new(),
                most: u32::MAX,
                rotten: (String::new(), Vec::new()),
                hanging: 0,
                busy_until: Instant::now(),
                gates: 0,
                ending: false,
            }),
            released: Condvar::new(),
        });
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("benchmesh-test".to_owned()),
            MountOption::RW,
            MountOption::NoAtime,
        ];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = fuser::spawn_mount(Logging(Arc::clone(&shared)), directory.path(), &config)?;
        Ok(Self {
            shared,
            session: Some(session),
            directory,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// All completed calls, in the order in which they ended.
    pub fn log(&self) -> Vec<Call> {
        self.shared.lock().log.clone()
    }

    pub fn add_rule(&self, rule: Rule) {
        self.shared.lock().rules.push(rule);
    }

    /// Adds a rule that takes precedence over the existing ones.
    pub fn add_rule_first(&self, rule: Rule) {
        self.shared.lock().rules.insert(0, rule);
    }

    /// Removes all rules and releases hanging calls.
    pub fn release(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.gates += 1;
        self.shared.released.notify_all();
    }

    /// Number of currently hanging calls.
    pub fn hanging(&self) -> u64 {
        self.shared.lock().hanging
    }

    /// From now on listings still include unlinked files.
    pub fn list_unlinked(&self) {
        self.shared.lock().nodes.list_unlinked();
    }

    /// Limits the bytes of a single read or write from now on, as the kernel may at any time.
    pub fn move_at_most(&self, bytes: u32) {
        self.shared.lock().most = bytes;
    }

    /// From now on, exactly these bytes of the files with this path suffix are read with a flipped bit.
    pub fn rot(&self, path: &str, offsets: &[u64]) {
        self.shared.lock().rotten = (path.to_owned(), offsets.to_vec());
    }

    /// Breaks the connection with the kernel: calls in progress fail, and all later ones, as when the server of a
    /// network file system is gone for good.
    pub fn break_off(&self) {
        // It reports that the mount is in use, but has detached it.
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::FORCE);
    }

    /// Remaining names below the root.
    pub fn names(&self) -> Vec<PathBuf> {
        self.shared.lock().nodes.names()
    }
}

impl Drop for FuseFs {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.ending = true;
            self.shared.released.notify_all();
        }
        if let Some(session) = self.session.take() {
            // A process that still uses the mount is killed soon, when its own value is dropped; the mount ends then.
            let _ =
                rustix::mount::unmount(self.directory.path(), rustix::mount::UnmountFlags::DETACH);
            drop(session);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Executes and logs one call: `at` names it, rules apply to it, and `body` executes it and returns the number of
    /// bytes moved.
    fn call<T>(
        &self,
        op: Op,
        offset: u64,
        at: impl FnOnce(&Nodes) -> PathBuf,
        body: impl FnOnce(&mut State) -> Result<(T, u64), Errno>,
    ) -> Result<T, Errno> {
        let began_us = wall_us();
        let mut state = self.lock();
        let path = at(&state.nodes).to_string_lossy().into_owned();
        let mut result = Ok(());
        let fault = state.strike(op, &path);
        let hung = matches!(fault, Some(Fault::Hang));
        if let Some(fault) = fault {
            (state, result) = self.suffer(state, fault);
        }
        let result = result.and_then(|()| body(&mut state));
        let (amount, errno) = match &result {
            Ok((_, amount)) => (*amount, None),
            Err(errno) => (0, Some(errno.code())),
        };
        state.log.push(Call {
            op,
            path,
            offset,
            amount,
            began_us,
            ended_us: wall_us(),
            hung,
            errno,
        });
        result.map(|(value, _)| value)
    }

    /// Only the end of the mount notifies the condition, so the wait takes the full time.
    fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Instant,
    ) -> MutexGuard<'a, State> {
        while !state.ending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.released.wait_timeout(state, left);
            state = woken.map(|(state, _)| state).unwrap();
        }
        state
    }

    fn suffer<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        fault: Fault,
    ) -> (MutexGuard<'a, State>, Result<(), Errno>) {
        match fault {
            Fault::Fail(errno) => (state, Err(Errno::from_i32(errno))),
            Fault::Delay(delay) => (self.wait_until(state, Instant::now() + delay), Ok(())),
            Fault::Capacity {
                per_second,
                latency,
            } => {
                let now = Instant::now();
                state.busy_until = state.busy_until.max(now) + Duration::from_secs(1) / per_second;
                let until = state.busy_until.max(now + latency);
                (self.wait_until(state, until), Ok(()))
            }
            Fault::Hang => {
                let gate = state.gates;
                state.hanging += 1;
                while state.gates == gate && !state.ending {
                    state = self.released.wait(state).unwrap();
                }
                state.hanging -= 1;
                (state, Ok(()))
            }
        }
    }
}

impl State {
    fn flip(&self, ino: u64, offset: u64, data: &mut [u8]) {
        let (path, offsets) = &self.rotten;
        if offsets.is_empty() || !self.nodes.path(ino).ends_with(path) {
            return;
        }
        for at in offsets.iter().filter_map(|at| at.checked_sub(offset)) {
            if let Some(byte) = usize::try_from(at).ok().and_then(|at| data.get_mut(at)) {
                *byte ^= 4;
            }
        }
    }

    fn strike(&mut self, op: Op, path: &str) -> Option<Fault> {
        for rule in &mut self.rules {
            if rule.op != op || !path.contains(&rule.path) {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
            } else if rule.passed + 1 < rule.one_in {
                rule.passed += 1;
            } else if rule.times > 0 {
                (rule.times, rule.passed) = (rule.times - 1, 0);
                return Some(rule.fault);
            }
        }
        None
    }
}
