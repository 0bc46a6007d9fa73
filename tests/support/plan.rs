//! Common parts of many tests' plans.

use std::path::Path;

/// Reads of one small file per worker; tests append further keys of the phase.
pub const READS: &str =
    "[[phase]]\nworkload = \"io\"\nmodes = [\"read\"]\nsize = \"256k\"\nbs = \"4k\"\n";

/// A plan with one target, at `path`; `keys` belong to the run.
pub fn on(path: &Path, keys: &str, phases: &str) -> String {
    format!(
        "{keys}\n[targets.t]\nsystem = \"fuse\"\npath = \"{}\"\n{phases}\n",
        path.display()
    )
}

/// The same with a single phase.
pub fn phase(path: &Path, phase: &str) -> String {
    on(path, "", &format!("[[phase]]\n{phase}"))
}

/// Writes at 50 operations per second for days; only `benchmesh stop` ends them, and no silence of an agent.
pub fn endless_writes(path: &Path) -> String {
    format!(
        "lease = \"100h\"\nloss-after = \"100h\"\n[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\n\
         workload = \"io\"\nmodes = [\"randwrite\"]\nsize = \"1m\"\nbs = \"4k\"\nruntime = \"90h\"\nrate_iops = 50\n",
        path.display()
    )
}
