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
