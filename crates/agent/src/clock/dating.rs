//! What dates the rows of this agent: one mapping at a time for intervals and samples alike.
//!
//! While tasks run it is the mapping of the one that was armed first, as `runner::follow` moves it; otherwise, and
//! between a gap and the task's next second, the newest estimate.

use super::{Estimate, MeshMap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A handle on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dating {
    newest: watch::Receiver<Option<Estimate>>,
    tasks: Arc<Mutex<Tasks>>,
}

/// The mappings of running tasks, in the order in which they were armed.
#[derive(Debug, Default)]
struct Tasks {
    armed: u64,
    maps: BTreeMap<u64, MeshMap>,
}

/// The mapping of one task, until it is dropped.
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

    /// What is known of mesh time.
    #[must_use]
    pub fn newest(&self) -> Option<Estimate> {
        *self.newest.borrow()
    }

    /// Until mesh time is known.
    pub async fn known(&self) {
        let mut newest = self.newest.clone();
        if newest.wait_for(Option::is_some).await.is_err() {
            // The session has ended: no estimate comes any more.
            std::future::pending().await
        }
    }

    /// What dates a row now; `None`: mesh time is not known yet.
    #[must_use]
    pub fn map(&self) -> Option<MeshMap> {
        let newest = self.newest()?.map;
        let first = self.lock().maps.values().next().copied();
        Some(first.filter(|map| map.is_of_era(newest)).unwrap_or(newest))
    }

    /// A task runs that dates its rows so.
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
    /// Without mesh time.
    fn default() -> Self {
        Self::new(watch::channel(None).1)
    }
}

impl TaskDating {
    /// What is known of mesh time.
    #[must_use]
    pub fn newest(&self) -> Option<Estimate> {
        self.dating.newest()
    }

    /// The task's mapping has moved.
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
        // A gap: the task's mapping holds no more.
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
