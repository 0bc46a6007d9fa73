//! Usage of daemons in steps of 0.5, 2 and 5 s from `v_daemon_usage` and `v_cost`, compared with the kernel's scheduler
//! statistics of the same processes, which the test reads at the same instants. Tolerance: 3 % or 20 ms of CPU.
//!
//! The daemons are the worst case: one works only at the beginning and at the end of the load; one up to the instant of
//! the start and again from the instant of the end; one starts in the middle of each step. A sample that is slightly
//! early or late is charged to the wrong side of a start or an end. The load runs on another agent than the sampler, as
//! on a real cluster, so only the scheduler knows its end.

use crate::support::gate;
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use crate::support::process::Process;
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TOLERANCE: f64 = 0.03;
const TOLERANCE_S: f64 = 0.020;
const RUNTIMES_MS: [u64; 3] = [500, 2_000, 5_000];
/// Each step's load must appear within this time.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval of checks of the load and of readings of the kernel's counters.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

#[test]
fn what_daemons_used_in_short_steps_is_what_the_kernel_says() {
    measured(|| {
        let directory = tempfile::Builder::new()
            .prefix("bm-usage-")
            .tempdir()
            .unwrap();
        let target = directory.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let mut mesh = Mesh::start();
        // The first agent of a host is its sampler.
        mesh.add(Agent::named("sampler").only_samples());
        mesh.add(Agent::named("load").allow(&target));
        let daemons = Daemons::start(directory.path());
        let plan = plan(&target);
        let stop = AtomicBool::new(false);
        let (run, readings) = std::thread::scope(|scope| {
            let director = scope.spawn(|| daemons.direct(&target, &stop));
            let run = mesh.run(&plan);
            stop.store(true, Ordering::Relaxed);
            (run, director.join().unwrap())
        });

        let db = mesh.db();
        let steps = db.rows(&format!(
            "SELECT id, start_us, last_done_us FROM steps WHERE run_id = {run} ORDER BY ordinal"
        ));
        assert_eq!(steps.len(), RUNTIMES_MS.len());
        // The samples around the last end may arrive after the run's own rows: the usage is then computed again.
        until_true("the samples of the last step are counted", LIMIT, || {
            let missing: i64 = db.one(&format!(
            "SELECT count(*) FROM steps AS s JOIN v_daemon_usage AS u ON u.step_id = s.id AND u.name = 'ceph-osd'
             WHERE s.run_id = {run} AND (s.stale_samples > 0 OR u.sampled_s < (s.last_done_us - s.start_us) / 1e6)"
        ));
            missing == 0
        });
        for (step, runtime_ms) in steps.iter().zip(RUNTIMES_MS) {
            let (id, from, until) = (
                step.integer("id"),
                step.integer("start_us"),
                step.integer("last_done_us"),
            );
            timing!(
                (until - from).abs_diff(runtime_ms as i64 * 1000) < 200_000,
                "{step:?}"
            );
            for (place, name) in NAMES.iter().enumerate() {
                let truth = readings.cpu_s(place, from, until);
                let sum = |view: &str| -> f64 {
                    db.one(&format!(
                    "SELECT coalesce(sum(cpu_s), 0) FROM {view} WHERE step_id = {id} AND name = '{name}'"
                ))
                };
                let (usage, cost) = (sum("v_daemon_usage"), sum("v_cost"));
                let error: f64 = db.one(&format!(
                "SELECT coalesce(sum(cpu_error_s), 0) FROM v_cost WHERE step_id = {id} AND name = '{name}'"
            ));
                gate::say(&format!(
                    "{name} in {runtime_ms} ms: kernel {truth:.3} s, reported {usage:.3} s, stated error {error:.3} s"
                ));
                let tolerance = TOLERANCE_S.max(TOLERANCE * truth);
                // Without the kernel's process events a scan finds the daemon, possibly after the end of the step.
                if place == BORN && !births_are_told() {
                    continue;
                }
                timing!(error <= tolerance, "{name} in {runtime_ms} ms: {error} s");
                for reported in [usage, cost] {
                    timing!(
                        (reported - truth).abs() <= tolerance,
                        "{name} in a step of {runtime_ms} ms: reported {reported} s, the kernel says {truth} s"
                    );
                }
            }
            let instances: Vec<String> = db.column(&format!(
                "SELECT instance FROM v_daemon_usage WHERE step_id = {id} AND name = 'ceph-osd'"
            ));
            assert_eq!(instances, ["osd.0"]);
            let busy = readings.cpu_s(AT_ENDS, from, until);
            timing!(
                busy >= runtime_ms as f64 * 1e-3 * 0.2,
                "it works at both ends: {busy} s"
            );
            let born = readings.cpu_s(BORN, from, until);
            timing!(born >= 0.05, "it is born within the step: {born} s");
        }
        mesh.assert_no_complaints();
        Ok(())
    });
}

fn plan(target: &Path) -> String {
    let phases: String = RUNTIMES_MS
        .iter()
        .map(|ms| {
            format!(
                "[[phase]]\nname = \"{ms}\"\nworkload = \"io\"\nmodes = [\"write\"]\nsize = \"1m\"\nbs = \"4k\"\n\
                 runtime = \"{ms}ms\"\nrate_iops = 100\nsettle = \"1s\"\n"
            )
        })
        .collect();
    format!(
        "[targets.t]\nsystem = \"cephfs\"\npath = \"{}\"\n{phases}",
        target.display()
    )
}

const AT_ENDS: usize = 0;
const BORN: usize = 2;
/// At [`AT_ENDS`], outside of all steps, and at [`BORN`].
const NAMES: [&str; 3] = ["ceph-osd", "ceph-mds", "ceph-mon"];

struct Daemons {
    directory: PathBuf,
    at_ends: Process,
    outside: Process,
}

/// The kernel's figures for each, with the wall clock, from which mesh time starts.
#[derive(Default)]
struct Readings(Vec<(i64, [u64; 3])>);

impl Readings {
    /// Seconds of CPU between two instants, interpolated linearly between readings.
    fn cpu_s(&self, place: usize, from_us: i64, until_us: i64) -> f64 {
        let at = |instant: i64| {
            let after = self.0.partition_point(|reading| reading.0 < instant);
            let ((t0, before), (t1, then)) = (self.0[after - 1], self.0[after]);
            let (before, then) = (before[place] as f64, then[place] as f64);
            before + (then - before) * (instant - t0) as f64 / (t1 - t0) as f64
        };
        (at(until_us) - at(from_us)) / 1e9
    }
}

impl Daemons {
    fn start(directory: &Path) -> Self {
        for name in NAMES {
            // The kernel names a process after the file that was executed.
            std::os::unix::fs::symlink("/bin/bash", directory.join(name)).unwrap();
        }
        let burner = |name: &str, id: &str| {
            let process = start(directory, name, "while :; do :; done", id);
            process.signal(libc::SIGSTOP);
            process
        };
        Self {
            directory: directory.to_owned(),
            at_ends: burner("ceph-osd", "0"),
            outside: burner("ceph-mds", "a"),
        }
    }

    /// Makes each daemon work at its times, and reads their counters, until the run is over.
    fn direct(&self, target: &Path, stop: &AtomicBool) -> Readings {
        let mut readings = Readings::default();
        let mut born = Vec::new();
        self.outside.signal(libc::SIGCONT);
        for runtime in RUNTIMES_MS.map(Duration::from_millis) {
            self.read_until(&mut readings, &born, || bytes(target) > 0);
            let began = Instant::now();
            self.outside.signal(libc::SIGSTOP);
            self.at_ends.signal(libc::SIGCONT);
            let part = runtime / 5;
            self.read_until(&mut readings, &born, || began.elapsed() >= part);
            self.at_ends.signal(libc::SIGSTOP);
            born.push(self.begin_one(born.len()));
            self.read_until(&mut readings, &born, || began.elapsed() >= runtime - part);
            self.at_ends.signal(libc::SIGCONT);
            self.read_until(&mut readings, &born, || began.elapsed() >= runtime);
            self.at_ends.signal(libc::SIGSTOP);
            self.outside.signal(libc::SIGCONT);
            self.read_until(&mut readings, &born, || bytes(target) == 0);
        }
        self.read_until(&mut readings, &born, || stop.load(Ordering::Relaxed));
        readings
    }

    /// A daemon that works for 100 ms after its start, and then waits.
    fn begin_one(&self, place: usize) -> Process {
        const WORK: &str = r#"
            until=$((${EPOCHREALTIME/[.,]/} + 100000))
            while ((${EPOCHREALTIME/[.,]/} < until)); do :; done
            exec 3<> <(:)
            read -u 3"#;
        start(&self.directory, "ceph-mon", WORK, &place.to_string())
    }

    fn read_until(
        &self,
        readings: &mut Readings,
        born: &[Process],
        mut until: impl FnMut() -> bool,
    ) {
        let began = Instant::now();
        while !until() {
            assert!(began.elapsed() < LIMIT, "the load is not as planned");
            let counters = [
                cpu_ns(&self.at_ends),
                cpu_ns(&self.outside),
                born.iter().map(cpu_ns).sum(),
            ];
            readings.0.push((wall_us(), counters));
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }
}

/// Whether the kernel notifies the agent of new processes: root, in the first PID namespace.
fn births_are_told() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    gate::is_root().is_ok() && namespace.as_os_str() == FIRST
}

fn start(directory: &Path, name: &str, script: &str, id: &str) -> Process {
    let mut command = Command::new(directory.join(name));
    command
        .args(["-c", script, name])
        .args(["--cluster", "ceph", "--id", id]);
    Process::start(name, command, &directory.join(format!("{name}.{id}.log")))
}

fn cpu_ns(process: &Process) -> u64 {
    let file = format!("/proc/{}/schedstat", process.pid());
    let text = std::fs::read_to_string(file).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes of the load's files below a directory: at least one block each, unlike the markers of the run's directory. A
/// directory that is removed meanwhile has none.
fn bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let facts = entry.metadata().ok()?;
            Some(match facts.is_dir() {
                true => bytes(&entry.path()),
                false => Some(facts.len()).filter(|bytes| *bytes >= 4096)?,
            })
        })
        .sum()
}
