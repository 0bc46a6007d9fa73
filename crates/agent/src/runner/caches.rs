//! Dropping the kernel's caches of this host, and saying what was dropped.

use crate::command::CacheDrop;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

const CONTROL: &str = "/proc/sys/vm/drop_caches";

/// What is dropped, and what the kernel is told for it.
const CACHES: [(&str, &str); 2] = [("page-cache", "1"), ("dentries-inodes", "2")];

/// The answer of an agent that was not started with `--allow-drop-caches`.
#[must_use]
pub fn not_allowed() -> Vec<CacheDrop> {
    CACHES
        .into_iter()
        .map(|(what, _)| CacheDrop {
            what,
            error: "this agent does not drop caches: start it with --allow-drop-caches to let it"
                .to_owned(),
        })
        .collect()
}

/// Writes back everything, then drops the page cache, then dentries and inodes. Blocks for as long as that takes.
#[must_use]
pub fn drop_caches() -> Vec<CacheDrop> {
    // What is dirty cannot be dropped.
    rustix::fs::sync();
    CACHES
        .into_iter()
        .map(|(what, order)| CacheDrop {
            what,
            error: write(Path::new(CONTROL), order),
        })
        .collect()
}

/// Empty when it worked.
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
