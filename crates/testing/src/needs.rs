//! The one table of what tests may need from the machine, and skipping where something is missing.
//!
//! A test tries what it needs and does not guess it from a file or a user id: what is there may not work.
//! `BENCHMESH_REQUIRE` lists what may not be missing: names of the table, `all`, and `-NAME` for what `all` leaves out.
//! A name that the table does not have fails a test at once.

use crate::record::{Event, record};

/// Each need by the name that a skip, `needs!` and `BENCHMESH_REQUIRE` give it, and what works where it is met.
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
    ("fio", "fio runs"),
    ("iperf3", "iperf3 runs"),
    ("iozone", "iozone runs"),
    ("bonnie++", "bonnie++ runs"),
    ("dd", "dd runs"),
    ("pidstat", "pidstat (package sysstat) runs"),
    ("strace", "strace may trace a process"),
    ("sqlite3", "the sqlite3 shell runs"),
    ("chromium", "a Chromium is there"),
    ("prometheus", "prometheus and promtool run"),
    ("axe-core", "npm brings axe-core from the registry"),
    ("pypi", "a Python environment can be made, and pip fills it"),
];

/// Skips the current test because the machine has no `need`. The caller returns from the test afterwards.
///
/// # Panics
/// If `BENCHMESH_REQUIRE` demands the need, or [`NEEDS`] does not have it.
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

/// Whether the list demands this need.
///
/// # Panics
/// If it names what [`NEEDS`] does not have: a misspelt name would demand nothing.
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

    /// Each need that a test names is in the table, and each of the table is named by a test.
    #[test]
    fn the_table_has_what_tests_name() {
        // The tests of imports run a program by its name, and skip by it.
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

    /// Where no test may be skipped, all of the table is demanded, but for what has its reason there.
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
