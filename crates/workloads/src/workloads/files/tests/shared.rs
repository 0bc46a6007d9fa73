//! Directories shared by several workers or several tasks.

use super::*;

fn shared(per: &str) -> Value {
    json!({"files": 50, "numjobs": 4, "dirs": 30, "size": {"max": 2000}, "directories-per": per})
}

/// Every mode, in an order in which each finds the data it needs.
const MODES: [&str; 12] = [
    "create",
    "list",
    "list-stat",
    "stat",
    "read",
    "append",
    "chmod",
    "rename",
    "symlink",
    "mkdir",
    "rmdir",
    "delete",
];

#[test]
fn workers_of_a_task_share_a_tree() {
    let cell = TestCell::new(NAME);
    for mode in MODES {
        let outcome = cell.run(mode, shared("task"));
        // Each of the four lists both directories.
        let ops = if mode.starts_with("list") { 8 } else { 50 };
        assert_eq!(outcome.sum(|i| i.ops), ops, "{mode}: {:?}", outcome.end);
        assert_eq!(outcome.sum(|i| i.errors), 0, "{mode}: {:?}", outcome.end);
        if mode == "create" {
            let total = SizeSpec::Uniform { min: 0, max: 2000 }.total(1, 50, 1);
            assert_eq!(outcome.sum(|i| i.bytes), total);
            assert_eq!(cell.files().values().sum::<u64>(), total);
        }
    }
    let directories = fs::read_dir(cell.task_dir().join("w000000000")).unwrap();
    assert_eq!(directories.count(), 2);
    assert!(!cell.task_dir().join("w000000001").exists());
}

#[test]
fn tasks_of_a_step_share_a_tree_and_leave_each_other_alone() {
    let cell = TestCell::new(NAME);
    let spec = |mode: &str, task_index| TaskSpec {
        task_index,
        tasks: 3,
        ..cell.spec(mode, shared("step"))
    };
    for mode in MODES {
        for task in 0..3 {
            let outcome = run(&spec(mode, task));
            // A task may have no files in the last directory.
            let ops = if mode.starts_with("list") { 24 } else { 50 };
            assert_eq!(outcome.sum(|i| i.errors), 0, "{mode}: {:?}", outcome.end);
            let got = outcome.sum(|i| i.ops);
            assert!(got == ops || (ops == 24 && got >= 20), "{mode}: {got}");
        }
        if mode == "create" {
            assert_eq!(cell.named("c"), 150);
        }
    }
    let tree = cell.task_dir().join("shared");
    assert_eq!(fs::read_dir(tree).unwrap().count(), 6);
    // A task without its state checks only its own files.
    for task in 0..3 {
        run(&spec("create", task)).expect_sums(50, total(), 0);
    }
    fs::remove_file(cell.task_dir().join("../t1/state")).unwrap();
    run(&spec("delete", 1)).expect_sums(50, 0, 0);
    assert_eq!(cell.named("c"), 100);
    run(&spec("stat", 2)).expect_sums(50, 0, 0);
}

fn total() -> u64 {
    SizeSpec::Uniform { min: 0, max: 2000 }.total(1, 50, 1)
}
