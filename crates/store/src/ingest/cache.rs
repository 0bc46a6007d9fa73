//! Write-through caches for the lookups of each batch: spool positions, tasks, daemons, devices.
//!
//! A miss is looked up in the tables. A transaction that is rolled back has no effect on them.

use super::batch::Process;
use benchmesh_model::mesh::{AgentId, DaemonId, HostId, StepId, TaskId};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Maximum number of entries of one kind. A larger cache is emptied at a commit, because daemons and tasks change
/// over months.
const KEPT: usize = 1 << 17;

/// The properties of a task that its rows need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskFacts {
    pub agent: AgentId,
    pub run_uid: Arc<str>,
    pub step: StepId,
    /// The name in the registry; `None` if this version does not have the workload.
    pub workload: Option<&'static str>,
}

/// A map that can be restored to an earlier state.
#[derive(Debug)]
pub(crate) struct WriteThroughCache<K, V> {
    map: HashMap<K, V>,
    before: Vec<(K, Option<V>)>,
}

impl<K: Clone + Eq + Hash, V: Clone> WriteThroughCache<K, V> {
    fn new() -> Self {
        Self {
            map: HashMap::new(),
            before: Vec::new(),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    pub(crate) fn set(&mut self, key: K, value: V) {
        let before = self.map.insert(key.clone(), value);
        self.before.push((key, before));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(value) = self.map.remove(key) {
            self.before.push((key.clone(), Some(value)));
        }
    }

    fn undo_to(&mut self, mark: usize) {
        while self.before.len() > mark
            && let Some((key, before)) = self.before.pop()
        {
            match before {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }

    fn commit(&mut self) {
        self.before.clear();
        if self.map.len() > KEPT {
            self.map.clear();
        }
    }
}

/// The length of each journal at a savepoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark([usize; 6]);

#[derive(Debug)]
pub(crate) struct Caches {
    /// The last sequence of each agent's spools.
    pub positions: WriteThroughCache<(AgentId, String), u64>,
    /// An end removes its task: a run of a month has thousands. A later row of the task adds it again.
    pub tasks: WriteThroughCache<TaskId, TaskFacts>,
    /// The end of a daemon removes it.
    pub daemons: WriteThroughCache<(HostId, Process), DaemonId>,
    /// The stored value of `last_seen_us`; removed with the daemon.
    pub last_seen: WriteThroughCache<DaemonId, i64>,
    /// The row's id, and whether the disk is stored as built on other disks.
    pub disks: WriteThroughCache<(HostId, String), (i64, bool)>,
    pub interfaces: WriteThroughCache<(HostId, String, String), i64>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            positions: WriteThroughCache::new(),
            tasks: WriteThroughCache::new(),
            daemons: WriteThroughCache::new(),
            last_seen: WriteThroughCache::new(),
            disks: WriteThroughCache::new(),
            interfaces: WriteThroughCache::new(),
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark([
            self.positions.before.len(),
            self.tasks.before.len(),
            self.daemons.before.len(),
            self.last_seen.before.len(),
            self.disks.before.len(),
            self.interfaces.before.len(),
        ])
    }

    pub(crate) fn undo_to(
        &mut self,
        Mark([positions, tasks, daemons, last_seen, disks, interfaces]): Mark,
    ) {
        self.positions.undo_to(positions);
        self.tasks.undo_to(tasks);
        self.daemons.undo_to(daemons);
        self.last_seen.undo_to(last_seen);
        self.disks.undo_to(disks);
        self.interfaces.undo_to(interfaces);
    }

    pub(crate) fn commit(&mut self) {
        self.positions.commit();
        self.tasks.commit();
        self.daemons.commit();
        self.last_seen.commit();
        self.disks.commit();
        self.interfaces.commit();
    }
}
