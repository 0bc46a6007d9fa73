//! Leftovers of crashed runs on this host's targets: found and removed without a collector.

pub use benchmesh_workloads::sandbox::{
    Allowed, Leftover, Proof, SandboxError, Usage, find_leftovers, remove_leftover,
};
pub use benchmesh_workloads::target::place::{LeftRun, PoolRun, runs_in};
pub use benchmesh_workloads::target::rados::PoolSpec;
