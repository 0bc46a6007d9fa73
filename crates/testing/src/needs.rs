//! The table of what tests may need from the machine, and skipping if something is missing.
//!
//! A test tries what it needs instead of deriving it from a file or a user id, because an existing feature may not
//! work. `BENCHMESH_REQUIRE` lists the mandatory needs: names of the table, `all`, and `-NAME` to exclude one from
//! `all`. A name missing in the table fails a test at once.

use crate::record::{Event, record};

/// Each need: its name in a skip, in `needs!` and in `BENCHMESH_REQUIRE`, and its meaning.
pub const NEEDS: &[(&str, &str)] = &[
    ("root", "the user is root, and may mount"),
    ("fuse", "the tests' FUSE file system can be mounted"),
    ("loop", "a loop device can be set up"),
    ("tmpfs", "a tmpfs can be mounted"),
    ("ext4", "an ext4 on a loop device can be mounted"),
    ("xfs", "an xfs on a loop device can be mounted"),
    ("btrfs", "a btrfs on a loop device can be mounted"),
    ("ext4-var-tmp", "/var/tmp is on ext4"),
    ("block-device", "the root file system is on a block device"),
    (
        "netns",
        "a network namespace with a shaped link can be made",
    ),
    ("timens", "a time namespace can be made"),
    ("cgroup", "cgroup v1 throttles a disk"),
    ("freezer", "cgroup v2 freezes a process"),
    (
        "taskstats",
        "the kernel tells what a process used at its end",
    ),
    ("proc-connector", "the kernel tells of new processes"),
    ("io_uring", "the kernel lets a thread have an io_uring"),
    ("tsc", "the kernel's clock goes by the TSC"),
    ("gluster", "GlusterFS is installed"),
    ("ceph", "Ceph is installed"),
    ("moosefs", "MooseFS is installed"),
    ("ganesha", "NFS-Ganesha and libnfs are installed"),
    ("fio", "fio runs"),
    ("iperf3", "iperf3 runs"),
    ("iozone", "iozone runs"),
    ("bonnie++", "bonnie++ runs"),
    ("dd", "dd runs"),
    ("pidstat", "pidstat (package sysstat) runs"),
    ("strace", "strace may trace a process"),
    ("sqlite3", "the sqlite3 shell runs"),
    ("python3", "python3 runs"),
    ("chromium", "a Chromium is there"),
    ("prometheus", "prometheus and promtool run"),
    ("postgres", "PostgreSQL 15 or newer is installed"),
    ("axe-core", "npm brings axe-core from the registry"),
    ("pypi", "a Python environment can be made, and pip fills it"),
];

/// Skips the current test because the machine lacks `need`. The caller returns from the test afterwards.
///
/// # Panics
///
/// If `BENCHMESH_REQUIRE` lists the need, or [`NEEDS`] does not contain it.
pub fn skip(need: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(
        is_known(need),
        "{need:?} is not in benchmesh_testing::NEEDS"
    );
    let required = std::env::var("BENCHMESH_REQUIRE").unwrap_or_default();
    assert!(
        !demands(&required, need),
        "{test} needs {need}, which BENCHMESH_REQUIRE demands: {why}"
    );
    crate::say(&format!("SKIPPED {test}: needs {need}: {why}"));
    record(&Event::Skipped { need });
}

fn is_known(need: &str) -> bool {
    NEEDS.iter().any(|(name, _)| *name == need)
}

/// Whether the list contains this need.
///
/// # Panics
///
/// If it contains a name missing in [`NEEDS`]: a misspelt name would otherwise have no effect.
fn demands(list: &str, need: &str) -> bool {
    let mut demanded = false;
    let mut left_out = false;
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let bare = name.strip_prefix('-').unwrap_or(name);
        assert!(
            name == "all" || is_known(bare),
            "BENCHMESH_REQUIRE names {name:?}, which is not in benchmesh_testing::NEEDS"
        );
        match name.starts_with('-') {
            true => left_out |= bare == need,
            false => demanded |= name == "all" || name == need,
        }
    }
    demanded && !left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{quoted, sources};
    use std::collections::BTreeSet;

    #[test]
    fn a_list_demands_what_it_names_and_all_but_what_it_leaves_out() {
        for (list, need, demanded) in [
            ("", "root", false),
            ("root, fuse", "fuse", true),
            ("root,fuse", "tsc", false),
            ("all", "tsc", true),
            ("all,-tsc", "tsc", false),
            ("-tsc,all", "tsc", false),
            ("all,-tsc", "root", true),
        ] {
            assert_eq!(demands(list, need), demanded, "{list:?} {need}");
        }
    }

    #[test]
    #[should_panic(expected = "\"rooot\", which is not in")]
    fn a_misspelt_name_is_refused() {
        demands("rooot", "root");
    }

    /// The needs in the table and the needs named by tests are the same.
    #[test]
    fn the_table_has_what_tests_name() {
        // The import tests run and skip by a program's name.
        let mut named: BTreeSet<String> = ["dd", "iozone"].map(str::to_owned).into();
        for (path, text) in sources() {
            if path.ends_with("testing/src/needs.rs") {
                continue;
            }
            for call in ["skip(", "needs!(", "run("] {
                let of_import = path.to_string_lossy().contains("import/tests");
                if call == "run(" && !of_import {
                    continue;
                }
                for (at, _) in text.match_indices(call) {
                    let arguments = text.get(at + call.len()..).unwrap_or_default();
                    named.extend(quoted(arguments, call == "needs!("));
                }
            }
        }
        let table: BTreeSet<String> = NEEDS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let unknown: Vec<&String> = named.difference(&table).collect();
        assert!(unknown.is_empty(), "not in the table: {unknown:?}");
        let unused: Vec<&String> = table.difference(&named).collect();
        assert!(unused.is_empty(), "needed by no test: {unused:?}");
    }

    /// Where no test may be skipped, everything in the table is mandatory, except what is excluded there with a reason.
    #[test]
    fn continuous_integration_demands_all() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/run");
        let script = std::fs::read_to_string(script).expect("the script of CI");
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix("export BENCHMESH_REQUIRE="));
        let list = line
            .expect("the list of needs")
            .split(" #")
            .next()
            .unwrap_or_default();
        let missing = NEEDS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !demands(list, name));
        assert_eq!(missing.collect::<Vec<_>>(), ["iozone"]);
    }
}
