//! An unsupported operation of a file system is reported once, by the step that needs it, before the measurement.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::plan;
use rustix::io::Errno;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a phase on a file system with this rule; returns the error.
fn refused(rule: Rule, phase: &str) -> String {
    let fs = FuseFs::mount();
    fs.add_rule(rule);
    let mesh = Mesh::of(&["a"], fs.path());
    let mut run = mesh.begin(&plan::phase(fs.path(), phase));
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(!ended.success(), "{ended}: {}", run.log());
    let db = mesh.db();
    assert_eq!(db.column::<String>("SELECT state FROM steps"), ["failed"]);
    let measured: i64 = db.one("SELECT count(*) FROM op_intervals");
    assert_eq!(measured, 0);
    let errors = db.column::<String>("SELECT message FROM events WHERE kind = 'step-failed'");
    let [error] = &errors[..] else {
        panic!("{errors:?}: {}", run.log())
    };
    assert!(error.contains(&*fs.path().to_string_lossy()), "{error}");
    assert!(run.log().contains(error.as_str()), "{error}: {}", run.log());
    error.clone()
}

#[test]
fn no_direct_io() {
    needs!("fuse");
    let rule = Rule {
        path: "direct.probe".to_owned(),
        ..Rule::every(Op::Create, Fault::Fail(Errno::INVAL.raw_os_error()))
    };
    let error = refused(
        rule,
        "workload = \"io\"\nsize = \"64k\"\nbs = \"4k\"\ndirect = true\nmodes = [\"write\"]",
    );
    assert!(
        error.contains("refuses O_DIRECT; leave out `direct`"),
        "{error}"
    );
}

#[test]
fn no_extended_attributes() {
    needs!("fuse");
    let rule = Rule::every(Op::Setxattr, Fault::Fail(Errno::OPNOTSUPP.raw_os_error()));
    let error = refused(
        rule,
        "workload = \"files\"\nfiles = 10\nmodes = [\"setxattr\"]",
    );
    assert!(error.contains("extended attributes"), "{error}");
}
