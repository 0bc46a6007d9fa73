//! Static facts about a mode of a workload.

use crate::measure::op::Op;
use crate::params::ParamError;

/// The data that a mode needs or leaves in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Nothing,
    /// A description for users; [`Load::prepare`](crate::engine::workload::Load::prepare) lays out missing data.
    Laid(&'static str),
}

/// One way to run a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeInfo {
    pub name: &'static str,
    pub meaning: &'static str,
    pub needs: Data,
    pub leaves: Data,
    /// The operations that its workers record, the most frequent first.
    pub ops: &'static [Op],
}

impl ModeInfo {
    /// A mode that needs no data.
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

    /// Whether it only removes data of an earlier mode.
    pub fn only_removes(&self) -> bool {
        let removes = |op: &Op| matches!(op, Op::Delete | Op::Rmdir);
        self.needs != Data::Nothing
            && self.ops.iter().any(removes)
            && self.ops.iter().all(|op| removes(op) || *op == Op::List)
    }

    /// Whether it works on existing data and leaves them, with unchanged space.
    pub fn keeps_its_data(&self) -> bool {
        let adds = |op: &Op| matches!(op, Op::Append | Op::SetXattr | Op::Omap);
        self.needs != Data::Nothing && self.needs == self.leaves && !self.ops.iter().any(adds)
    }

    /// For a mode that is listed but not implemented; no other mode may run instead.
    pub(crate) fn unknown(&self) -> ParamError {
        ParamError::of("modes", format!("no mode `{}`", self.name))
    }
}
