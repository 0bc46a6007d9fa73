//! The measured loop: one pass over the tree in one mode, or walks until the time is over.

use super::climb::Climb;
use super::log::Passed;
use super::reading::Reading;
use super::source::Source;
use super::unpack::Unpack;
use crate::passes::Passes;
use crate::recorder::{OpError, Recorder};
use crate::workload::Worker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) enum Work {
    Unpack(Unpack, Box<dyn Source>),
    Read(Reading, Box<dyn Source>),
    Walk(Climb, Passes),
    Remove(Climb),
}

pub(super) struct TreeWorker {
    pub work: Work,
    /// Counts the workers whose pass was whole and without error: the task's data are then known.
    pub whole: Arc<AtomicU32>,
}

impl Worker for TreeWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut log = recorder;
        let passed = match &mut self.work {
            Work::Unpack(unpack, source) => unpack.all(source.as_mut(), &mut log)?,
            Work::Read(reading, source) => reading.all(source.as_mut(), &mut log)?,
            Work::Remove(climb) => climb.remove(&mut log)?,
            Work::Walk(climb, passes) => loop {
                let passed = climb.walk(&mut log)?;
                if passed == Passed::Stopped || !passes.go_on() {
                    break passed;
                }
            },
        };
        if passed == Passed::Whole {
            self.whole.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}
