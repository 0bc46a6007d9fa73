//! A mesh of one agent on a file system with hanging calls.

use crate::support::database::Row;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use crate::support::plan;
use crate::support::process::Process;
use crate::support::wait::{try_until, until_true};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(60);
/// Time after which the ends of earlier stalls are stored, also on a busy machine. Only an early stall is waited for.
const SETTLED: Duration = Duration::from_secs(10);

/// The location of the other side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scratch {
    Apart,
    /// On the same file system, so that the kernel copies within it.
    Beside,
}

/// Cases with common keys.
#[derive(Debug)]
pub struct Group<C: 'static> {
    pub scratch: Scratch,
    pub common: &'static str,
    pub cases: &'static [C],
}

impl<C> Group<C> {
    pub fn is_of(&self, workload: &str) -> bool {
        self.common
            .starts_with(&format!("workload = \"{workload}\"\n"))
    }
}

/// The file system is dropped first: a hanging agent can only be ended once it is gone.
#[derive(Debug)]
pub struct Bed {
    pub fs: FuseFs,
    pub mesh: Mesh,
    pub target: PathBuf,
}

impl Bed {
    pub fn new(scratch: Scratch) -> Self {
        let mut mesh = Mesh::start();
        let fs = FuseFs::mount();
        let (target, scratch) = match scratch {
            Scratch::Apart => (fs.path().to_owned(), mesh.directory().join("scratch")),
            Scratch::Beside => (fs.path().join("target"), fs.path().join("scratch")),
        };
        for directory in [&target, &scratch] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let agent = Agent::named("a").allow(&target).scratch(&scratch);
        mesh.add(agent.most_files(400));
        Self { fs, mesh, target }
    }

    /// From now on, `after` such calls pass, and the next one hangs.
    pub fn hang(&self, op: Op, path: &str, after: u64) {
        self.fs.add_rule(Rule {
            path: path.to_owned(),
            after,
            times: 1,
            ..Rule::every(op, Fault::Hang)
        });
    }

    /// Starts a run of one phase, in which an operation of more than a second is a stall.
    pub fn begin(&self, on_stall: &str, phase: &str) -> Process {
        self.mesh.begin(&plan::on(
            &self.target,
            &format!("on-stall = \"{on_stall}\""),
            &format!("[[phase]]\n{phase}\nstall-after = \"1s\""),
        ))
    }

    pub fn events(&self, kind: &str) -> i64 {
        count(&self.mesh, kind)
    }

    /// Waits until a call hangs, and the database has one more stall than before.
    pub fn until_stalled(&self, before: i64, what: &str) {
        until_true(&format!("a call hangs: {what}"), LIMIT, || {
            self.fs.hanging() == 1
        });
        until_true(&format!("the stall is stored: {what}"), LIMIT, || {
            self.events("stall") == before + 1
        });
    }

    /// Waits until a call hangs, and exactly one unfinished stall, of this operation, is stored. A busy machine delays
    /// other operations for a second too, and these continue: the end of such a stall is stored some moments later.
    pub fn until_told(&self, op: &str, what: &str) -> Row {
        until_true(&format!("a call hangs: {what}"), LIMIT, || {
            self.fs.hanging() == 1
        });
        let (hung, hung_us) = (Instant::now(), wall_us());
        let going_on = "SELECT e.id, e.at_us, e.detail ->> 'op' AS op FROM events e WHERE e.kind = 'stall' AND NOT EXISTS (
                 SELECT 1 FROM events o WHERE o.kind = 'stall-over' AND o.id > e.id
                 AND o.detail ->> 'path' IS e.detail ->> 'path' AND o.detail ->> 'worker' IS e.detail ->> 'worker'
                 AND o.detail ->> 'op' IS e.detail ->> 'op')";
        let told = try_until(LIMIT, || {
            let stalls = self.mesh.db().rows(going_on);
            match stalls.as_slice() {
                [stall] if stall.text("op") == op => {
                    let is_later = stall.integer("at_us") > hung_us;
                    (is_later || hung.elapsed() > SETTLED).then(|| stall.integer("id"))
                }
                _ => None,
            }
        });
        let id = told.unwrap_or_else(|| {
            let all =
                "SELECT id, kind, at_us, message, detail FROM events ORDER BY id DESC LIMIT 12";
            panic!("no stall of {op}: {what}: {:#?}", self.mesh.db().rows(all))
        });
        stall(&self.mesh, &format!("e.id = {id}"))
    }

    /// The newest event of a kind.
    pub fn newest(&self, kind: &str) -> Row {
        newest(&self.mesh, kind)
    }

    /// Checks that the run ended because of a stall while the call still hung.
    pub fn assert_ended_by_stall(&self, run: &mut Process, what: &str) {
        let ended = end(run, what);
        assert!(!ended.success(), "{what}: {ended}: {}", run.log());
        assert_eq!(self.fs.hanging(), 1, "{what}: let go: {}", run.log());
        assert_failed_by_stall(&self.mesh, what);
    }
}

pub fn count(mesh: &Mesh, kind: &str) -> i64 {
    mesh.db().one(&format!(
        "SELECT count(*) FROM events WHERE kind = '{kind}'"
    ))
}

pub fn newest(mesh: &Mesh, kind: &str) -> Row {
    stall(mesh, &format!("e.kind = '{kind}'"))
}

fn stall(mesh: &Mesh, which: &str) -> Row {
    let sql = format!(
        "SELECT e.severity, e.message, a.name AS agent, s.mode, h.name AS host, e.detail ->> 'host' AS on_host,
                e.detail ->> 'worker' AS worker, e.detail ->> 'op' AS op, e.detail ->> 'path' AS path,
                e.detail ->> 'offset' AS offset, e.detail ->> 'lasted_us' AS lasted_us
         FROM events e JOIN agents a ON a.id = e.agent_id JOIN steps s ON s.id = e.step_id
         JOIN hosts h ON h.id = a.host_id WHERE {which} ORDER BY e.id DESC LIMIT 1"
    );
    mesh.db().rows(&sql).pop().unwrap()
}

pub fn end(run: &mut Process, what: &str) -> ExitStatus {
    let ended = run.exit_within(LIMIT);
    ended.unwrap_or_else(|| panic!("{what}: the run hangs:\n{}", run.log()))
}

pub fn assert_failed_by_stall(mesh: &Mesh, what: &str) {
    let db = mesh.db();
    let states = db.column::<String>("SELECT state FROM steps");
    assert_eq!(states, ["failed"], "{what}");
    let reason = db.one::<String>("SELECT reason FROM runs");
    assert!(
        reason.contains("on-stall") && reason.contains("has made no progress for"),
        "{what}: {reason}"
    );
}
