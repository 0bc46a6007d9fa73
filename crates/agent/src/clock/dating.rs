//! Selects the mapping that dates this agent's rows: one at a time, for intervals and samples alike.
//!
//! While tasks run, it is the mapping of the task armed first, as `runner::follow` moves it. Otherwise, and between a
//! gap and the task's next second, it is the newest estimate.

use super::{Estimate, MeshMap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Shared handle, cheap to clone.
#[derive(Clone, Debug)]
pub struct Dating {
    newest: watch::Receiver<Option<Estimate>>,
    tasks: Arc<Mutex<Tasks>>,
}

/// The mappings of running tasks, in the order in which the tasks were armed.
#[derive(Debug, Default)]
struct Tasks {
    armed: u64,
    maps: BTreeMap<u64, MeshMap>,
}

/// Registers the mapping of one task until dropped.
#[derive(Debug)]
pub struct TaskDating {
    dating: Dating,
    number: u64,
}

impl Dating {
    #[must_use]
    pub fn new(newest: watch::Receiver<Option<Estimate>>) -> Self {
        Self {
            newest,
            tasks: Arc::default(),
        }
    }

    /// The newest estimate of mesh time.
    #[must_use]
    pub fn newest(&self) -> Option<Estimate> {
        *self.newest.borrow()
    }

    /// Waits until mesh time is known.
    pub async fn known(&self) {
        let mut newest = self.newest.clone();
        if newest.wait_for(Option::is_some).await.is_err() {
            // The session has ended: no further estimate will arrive.
            std::future::pending().await
        }
    }

    /// The mapping that dates a row now; `None` while mesh time is unknown.
    #[must_use]
    pub fn map(&self) -> Option<MeshMap> {
        let newest = self.newest()?.map;
        let first = self.lock().maps.values().next().copied();
        Some(first.filter(|map| map.is_of_era(newest)).unwrap_or(newest))
    }

    /// Registers a running task. Its mapping may date rows.
    #[must_use]
    pub fn begin_task(&self, map: MeshMap) -> TaskDating {
        let mut tasks = self.lock();
        let number = tasks.armed;
        tasks.armed += 1;
        tasks.maps.insert(number, map);
        drop(tasks);
        TaskDating {
            dating: self.clone(),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Dating {
    /// Mesh time is unknown.
    fn default() -> Self {
        Self::new(watch::channel(None).1)
    }
}

impl TaskDating {
    /// The newest estimate of mesh time.
    #[must_use]
    pub fn newest(&self) -> Option<Estimate> {
        self.dating.newest()
    }

    /// Updates the task's mapping.
    pub fn moved_to(&self, map: MeshMap) {
        self.dating.lock().maps.insert(self.number, map);
    }
}

impl Drop for TaskDating {
    fn drop(&mut self) {
        self.dating.lock().maps.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clock::{Exchange, Filter};

    #[test]
    fn the_task_armed_first_dates_until_it_ends_or_a_gap_comes() {
        let mut filter = Filter::default();
        let first = filter.add(Exchange::without_delay(1, 0)).unwrap();
        let (newest, watched) = watch::channel(Some(first));
        let dating = Dating::new(watched);
        assert_eq!(dating.map(), Some(first.map));
        let task = dating.begin_task(first.map.moved(7_000));
        let other = dating.begin_task(first.map.moved(9_000));
        assert_eq!(dating.map(), Some(first.map.moved(7_000)));
        task.moved_to(first.map.moved(8_000));
        assert_eq!(dating.map(), Some(first.map.moved(8_000)));
        drop(task);
        assert_eq!(dating.map(), Some(first.map.moved(9_000)));
        // After a gap the task's mapping is invalid.
        let after = filter
            .add(Exchange::without_delay(2, 10_000_000_000))
            .unwrap();
        assert!(after.gap.is_some());
        newest.send_replace(Some(after));
        assert_eq!(dating.map(), Some(after.map));
        other.moved_to(after.map.moved(-3_000));
        assert_eq!(dating.map(), Some(after.map.moved(-3_000)));
        drop(other);
        assert_eq!(dating.map(), Some(after.map));
    }

    #[test]
    fn without_mesh_time_nothing_is_dated() {
        assert_eq!(Dating::default().map(), None);
    }
}
