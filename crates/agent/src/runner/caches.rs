//! Drops the kernel's caches of this host and reports the result of each.
//!
//! The rate is bounded, so that a collector cannot keep a host's caches cold.

use super::per_minute::PerMinute;
use crate::command::CacheDrop;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

const CONTROL: &str = "/proc/sys/vm/drop_caches";

/// The caches, and the value that the kernel expects for each.
const CACHES: [(&str, &str); 2] = [("page-cache", "1"), ("dentries-inodes", "2")];

/// The shortest steps drop caches at each start; no plan does so more than twice a second.
pub(super) const MAX_DROPS: usize = 120;

/// The answer of an agent that was not started with `--allow-drop-caches`.
#[must_use]
pub fn not_allowed() -> Vec<CacheDrop> {
    not_dropped("this agent does not drop caches: start it with --allow-drop-caches to let it")
}

fn not_dropped(error: &str) -> Vec<CacheDrop> {
    let drop = |(what, _)| CacheDrop {
        what,
        error: error.to_owned(),
    };
    CACHES.into_iter().map(drop).collect()
}

/// Syncs all file systems, then drops the page cache, then dentries and inodes. Blocks meanwhile. Drops nothing once
/// the limit of `recent` is reached.
#[must_use]
pub fn drop_caches(recent: &PerMinute) -> Vec<CacheDrop> {
    if !recent.permit(Instant::now()) {
        return not_dropped(&format!(
            "this agent drops caches at most {} times a minute",
            recent.most()
        ));
    }
    // The kernel does not drop dirty pages.
    rustix::fs::sync();
    CACHES
        .into_iter()
        .map(|(what, order)| CacheDrop {
            what,
            error: write(Path::new(CONTROL), order),
        })
        .collect()
}

/// Returns the error; empty on success.
fn write(control: &Path, order: &str) -> String {
    let written = OpenOptions::new()
        .write(true)
        .open(control)
        .and_then(|mut file| file.write_all(order.as_bytes()));
    match written {
        Ok(()) => String::new(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => format!(
            "the agent may not write {}: run it as root to drop caches",
            control.display()
        ),
        Err(error) => format!("write {}: {error}", control.display()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_cannot_be_dropped_is_said() {
        let home = tempfile::tempdir().unwrap();
        let control = home.path().join("drop_caches");
        assert!(write(&control, "1").contains("No such file"));
        std::fs::write(&control, "").unwrap();
        assert_eq!(write(&control, "2"), "");
        assert_eq!(std::fs::read_to_string(&control).unwrap(), "2");
    }
}
