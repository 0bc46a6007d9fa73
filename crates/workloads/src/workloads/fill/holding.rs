//! The measured loop of `hold`: idles, and queries the target periodically or at a given rate.

use crate::engine::author::*;
use std::time::Duration;

/// Interval between queries while the target is held.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct HoldWorker {
    pub root: Dir,
}

impl Worker for HoldWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        recorder.set_file(0);
        while let Some(began) = recorder.next(Op::Statfs, 0) {
            match rustix::fs::fstatvfs(self.root.fd()) {
                Ok(_) => recorder.end(Op::Statfs, began, 0),
                Err(errno) => {
                    let path = self.root.path();
                    Fault::from(errno).record(recorder, Op::Statfs, began, path)?;
                }
            }
            // With a rate, the schedule sets the time of the next query.
            if !recorder.is_paced() {
                sleep_until(MonoNanos::now().saturating_add(POLL_INTERVAL));
            }
        }
        Ok(())
    }
}
