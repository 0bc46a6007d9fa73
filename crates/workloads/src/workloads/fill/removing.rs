//! The measured loop of `remove`: deletes every existing file in the order of their numbers.

use crate::engine::author::*;
use std::ffi::{CStr, CString};

pub(super) struct RemoveWorker {
    pub root: Dir,
    /// Names with their numbers.
    pub names: Vec<(u64, CString)>,
    pub whole: WholePasses,
}

impl Worker for RemoveWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut is_whole = true;
        for (number, name) in &self.names {
            let name: &CStr = name;
            recorder.set_file(*number);
            let Some(began) = recorder.next(Op::Delete, 0) else {
                return Ok(());
            };
            match calls::delete(self.root.fd(), name) {
                Ok(()) => recorder.end(Op::Delete, began, 0),
                Err(errno) => {
                    is_whole = false;
                    let path = self.root.path().join(&*name.to_string_lossy());
                    Fault::from(errno).record(recorder, Op::Delete, began, &path)?;
                }
            }
        }
        if is_whole {
            self.whole.add();
        }
        Ok(())
    }
}
