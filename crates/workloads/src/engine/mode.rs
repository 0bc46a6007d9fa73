//! What is known of a mode of a workload before it runs.

use crate::measure::op::Op;
use crate::params::ParamError;

/// The data that a mode finds or leaves in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Nothing,
    /// Described for people; laid out by [`Load::prepare`](crate::engine::workload::Load::prepare) where it is missing.
    Laid(&'static str),
}

/// One way to run a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeInfo {
    pub name: &'static str,
    pub meaning: &'static str,
    pub needs: Data,
    pub leaves: Data,
    /// The operations that its workers record; the usual one first.
    pub ops: &'static [Op],
}

impl ModeInfo {
    /// One that works on no data.
    pub const fn without_data(
        name: &'static str,
        meaning: &'static str,
        ops: &'static [Op],
    ) -> ModeInfo {
        ModeInfo {
            name,
            meaning,
            needs: Data::Nothing,
            leaves: Data::Nothing,
            ops,
        }
    }

    /// Whether it only makes room: it removes what an earlier mode has left.
    pub fn only_removes(&self) -> bool {
        let removes = |op: &Op| matches!(op, Op::Delete | Op::Rmdir);
        self.needs != Data::Nothing
            && self.ops.iter().any(removes)
            && self.ops.iter().all(|op| removes(op) || *op == Op::List)
    }

    /// Whether it works on data that are there before, stay, and take as much space afterwards.
    pub fn keeps_its_data(&self) -> bool {
        let adds = |op: &Op| matches!(op, Op::Append | Op::SetXattr | Op::Omap);
        self.needs != Data::Nothing && self.needs == self.leaves && !self.ops.iter().any(adds)
    }

    /// For a workload that lists a mode and does not know it: never another one in its place.
    pub(crate) fn unknown(&self) -> ParamError {
        ParamError::of("modes", format!("no mode `{}`", self.name))
    }
}
