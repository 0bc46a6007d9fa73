//! Everything that a workload may import from the crate: `use crate::engine::author::*`, and nothing else.
//!
//! Tasks and loads, the tools of the measured loop, targets, and the declaration of keys.

pub(crate) use crate::engine::mix::{Mixed, Weighted};
pub(crate) use crate::engine::others::{self, await_other, data_task, other_task};
pub(crate) use crate::engine::parallel::{Done, in_parallel};
pub(crate) use crate::engine::passes::{self, Pass, Passes, WholePasses};
pub(crate) use crate::engine::task::{
    Cache, CellDir, PeerEnd, Place, PrepareControl, TaskError, TaskSpec,
};
pub(crate) use crate::engine::worker_dirs::WorkerDirs;
pub(crate) use crate::engine::workload::{
    About, Bypass, Data, DataShape, Definition, FillAim, Footprint, Issue, ListenSpec, Load,
    ModeInfo, Needs, Note, Params, RampKeys, Received, Receiver, Rejoins, Threads, Timing, Worker,
    Workload, buffers_of, workload,
};
pub(crate) use crate::measure::clock::{MonoNanos, sleep_until};
pub(crate) use crate::measure::op::Op;
pub(crate) use crate::measure::random::{Random, stamp};
pub(crate) use crate::measure::recorder::{Began, ErrorFacts, Marker, OpError, Recorder, Turn};
pub(crate) use crate::measure::shuffle::Shuffle;
pub(crate) use crate::measure::thread_cpu::CpuTime;
pub(crate) use crate::params::units::{Bytes, Span};
pub(crate) use crate::params::{Cidr, DataSize, KeyValue, Keys, ParamError, PortRange, ValueType};
pub(crate) use crate::target::block_io::{read_at, write_at};
pub(crate) use crate::target::block_size::{BLOCK_BYTES, check_unit, one_mib};
pub(crate) use crate::target::calls::{self, CallError, Durable, HardLinks};
pub(crate) use crate::target::cursor::{self, CurrentPath, Cursor};
pub(crate) use crate::target::data::{
    self, Content, DataKeys, DataSpec, EntropyPool, FoundData, Generations, Mismatch, Mismatches,
    SECTOR_BYTES, VARIETY_BYTES, Written,
};
pub(crate) use crate::target::dataset::{DatasetContent, DatasetRecord, Extras};
pub(crate) use crate::target::fault::{Fault, has_no_inodes};
pub(crate) use crate::target::memory::{AlignedBytes, HUGE_FROM, HUGE_PAGE, Pages};
pub(crate) use crate::target::place::PoolTask;
pub(crate) use crate::target::rados::{
    EndedOp, Image, ImageAccess, ImageCall, ImageQueue, Issuer, Limits, ObjectCall, OmapShape,
    RadosError, Session,
};
pub(crate) use crate::target::read_back::{Blocks, Moved, Original, read_back};
pub(crate) use crate::target::sandbox::{
    Allowed, Device, Dir, Make, RunDirectory, SandboxError, open_canonical,
};
pub(crate) use crate::target::size::{LARGEST_BYTES, Rows, SizeRow, SizeSpec};
pub(crate) use crate::target::write_buffer::WriteBuffer;
pub(crate) use crate::{declare_keys, declare_words, error_chain};
pub(crate) use benchmesh_model::targets;
