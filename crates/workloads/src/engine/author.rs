//! What the file of a small workload imports.

pub(crate) use crate::declare_keys;
pub(crate) use crate::engine::definition::{About, Definition, Load, Threads, Worker};
pub(crate) use crate::engine::mode::ModeInfo;
pub(crate) use crate::engine::task::{TaskError, TaskSpec};
pub(crate) use crate::engine::workload::{Workload, workload};
pub(crate) use crate::measure::op::Op;
pub(crate) use crate::measure::recorder::Recorder;
pub(crate) use crate::measure::timing::RampKeys;
pub(crate) use crate::params::ParamError;
pub(crate) use crate::params::units::Span;
