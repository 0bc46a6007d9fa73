//! The measured loop: one pass over the tree in one mode, or repeated walks until the runtime ends.

use super::reading::TreeReader;
use super::source::TreeSource;
use super::tree_walker::TreeWalker;
use super::unpack::Unpacker;
use crate::engine::author::*;

pub(super) enum Work {
    Unpack(Unpacker, Box<dyn TreeSource>),
    Read(TreeReader, Box<dyn TreeSource>),
    Walk(TreeWalker, Passes),
    Remove(TreeWalker),
}

pub(super) struct TreeWorker {
    pub work: Work,
    pub whole: WholePasses,
}

impl Worker for TreeWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut log = recorder;
        let mut once = Passes::ONE;
        match &mut self.work {
            Work::Unpack(unpack, source) => {
                once.repeat(&self.whole, || unpack.all(source.as_mut(), &mut log))
            }
            Work::Read(reading, source) => {
                once.repeat(&self.whole, || reading.all(source.as_mut(), &mut log))
            }
            Work::Remove(walker) => once.repeat(&self.whole, || walker.remove(&mut log)),
            Work::Walk(walker, passes) => passes.repeat(&self.whole, || walker.walk(&mut log)),
        }
    }
}
