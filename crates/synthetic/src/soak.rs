//! Soaks with realistic noise: autocorrelated rates and CPU time, bursts, a daily cycle, occasional slow seconds. Each
//! has its own seed, and disturbances planted at known positions. One database has many such runs, one after the other,
//! on the same hosts; all have one load on one target.

use crate::T0_US;
use anyhow::Context;
use benchmesh_store::Store;
use benchmesh_workloads::random::Random;
use rusqlite::{Connection, params};
use std::f64::consts::TAU;
use std::path::Path;

const S: i64 = 1_000_000;
/// Pause between two runs.
const PAUSE_S: u32 = 600;
/// Usual operations per second, and their p99.
const RATE: f64 = 1200.0;
const P99_NS: f64 = 4e6;
/// CPU time of a daemon under load, as a share of a CPU, and its memory.
const CPU: f64 = 0.25;
const RSS_BYTES: f64 = 1.5e9;

/// A run.
#[derive(Clone, Debug)]
pub struct Soak {
    pub seed: u64,
    pub seconds: u32,
    /// Number of steps of equal length, one per loop.
    pub loops: u32,
    /// Seconds between samples.
    pub sampled_every: u32,
    pub planted: Vec<Planted>,
}

/// A planted disturbance. Times are seconds since the start of the run; daemons are numbered from 0, over all hosts.
#[derive(Clone, Copy, Debug)]
pub enum Planted {
    /// Memory grows by this share an hour.
    Leak { daemon: u32, per_hour: f64 },
    /// The rate falls by this share over the run.
    Decay { by: f64 },
    /// The rate is higher by this share at one time of the day, and lower by it twelve hours later.
    Swing { by: f64 },
    /// The rate is lower by this share from a second on.
    Step { at: u32, by: f64 },
    /// No operation ends for some seconds.
    Stall { at: u32, seconds: u32 },
    /// Periodically the rate is lower by a share, and a daemon busier.
    Periodic {
        every: u32,
        seconds: u32,
        by: f64,
        daemon: u32,
    },
    /// CPU time is multiplied by this from a second on.
    Busy { daemon: u32, from: u32, times: f64 },
    /// No CPU time at all.
    Frozen {
        daemon: u32,
        from: u32,
        seconds: u32,
    },
    /// It ends, and another process replaces it after some seconds.
    Killed {
        daemon: u32,
        at: u32,
        back_after: u32,
    },
    /// Neither it nor its disk is sampled.
    NoSamples { host: u32, from: u32, seconds: u32 },
    /// The share of a host's memory that is left.
    ShortOfMemory { host: u32, from: u32, left: f64 },
    /// Operations at a host's disk take this many times as long.
    SlowDisk { host: u32, from: u32, times: f64 },
}

/// Number of hosts, and of daemons on each, all `glusterfsd`.
pub const HOSTS: u32 = 3;
pub const DAEMONS_PER_HOST: u32 = 2;

/// The first instant of a run; runs are numbered from 1.
pub fn start_us(soaks: &[Soak], run: usize) -> i64 {
    let before = soaks.iter().take(run - 1);
    T0_US
        + before
            .map(|soak| i64::from(soak.seconds + PAUSE_S) * S)
            .sum::<i64>()
}

/// The id of a daemon's row, unless it was killed.
pub fn daemon_id(daemon: u32) -> i64 {
    i64::from(daemon) + 1
}

/// Generates a database at a path that must not exist; run `n` is the `n`th soak.
pub fn soaks(path: &Path, soaks: &[Soak]) -> anyhow::Result<()> {
    anyhow::ensure!(!path.exists(), "{} is there already", path.display());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(async {
        let store = Store::open(path).await.context("make the schema")?;
        store.close().await;
        anyhow::Ok(())
    })?;
    let file = Connection::open(path).context("open the new database")?;
    file.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN",
    )
    .context("prepare for writing")?;
    hosts(&file).context("make hosts")?;
    for (place, soak) in soaks.iter().enumerate() {
        Writer {
            file: &file,
            soak,
            run: place + 1,
            begin_us: start_us(soaks, place + 1),
            random: Random::new(soak.seed),
        }
        .write()
        .with_context(|| format!("make run {}", place + 1))?;
    }
    file.execute_batch("COMMIT").context("commit")?;
    drop(file);
    let file = Connection::open(path).context("open what was made")?;
    file.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")
        .context("finish the file")
}

fn hosts(file: &Connection) -> rusqlite::Result<()> {
    for host in 1..=HOSTS {
        file.execute(
            "INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
             VALUES (?1, 'boot-' || ?1, 'pid', 'node' || ?1, 'Linux 6.18.0', 8, 34359738368)",
            [host],
        )?;
        file.execute(
            "INSERT INTO agents (id, uid, name, host_id, version, first_seen_us, last_seen_us)
             VALUES (?1, 'agent-' || ?1, 'node' || ?1, ?1, '0.1.0', ?2, ?2)",
            params![host, T0_US],
        )?;
        file.execute(
            "INSERT INTO disks (id, host_id, name) VALUES (?1, ?1, 'sda')",
            [host],
        )?;
        for daemon in 0..DAEMONS_PER_HOST {
            let number = (host - 1) * DAEMONS_PER_HOST + daemon;
            new_daemon(file, daemon_id(number), number, T0_US - 86_400 * S)?;
        }
    }
    Ok(())
}

fn new_daemon(file: &Connection, id: i64, number: u32, born_us: i64) -> rusqlite::Result<()> {
    file.execute(
        "INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, born_us, first_seen_us, last_seen_us)
         VALUES (?1, ?2, 'glusterfsd', '/bricks/b' || ?3, 1000 + ?1, ?1, ?4, ?4, ?4)",
        params![id, number / DAEMONS_PER_HOST + 1, number, born_us],
    )
    .map(drop)
}

/// Writes one run.
struct Writer<'w> {
    file: &'w Connection,
    soak: &'w Soak,
    run: usize,
    begin_us: i64,
    random: Random,
}

/// State of a daemon while its rows are written.
struct Daemon {
    id: i64,
    number: u32,
    cpu_us: f64,
    /// Relative deviation of its CPU time; and its memory.
    red: f64,
    rss_red: f64,
    away: bool,
}

impl Writer<'_> {
    fn write(&mut self) -> rusqlite::Result<()> {
        let run = i64::try_from(self.run).unwrap_or(i64::MAX);
        let end_us = self.begin_us + i64::from(self.soak.seconds) * S;
        self.file.execute(
            "INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, ended_us, version)
             VALUES (?1, 'run-' || ?1, 'soak', 'name = \"soak\"', 'done', ?2, ?2, ?3, '0.1.0')",
            params![run, self.begin_us, end_us + S],
        )?;
        self.file.execute(
            "INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, kernel, cpus, memory_bytes)
             SELECT ?1, a.id, h.id, a.name, h.name, a.version, h.kernel, h.cpus, h.memory_bytes
             FROM agents AS a JOIN hosts AS h ON h.id = a.host_id",
            [run],
        )?;
        let length = self.soak.seconds / self.soak.loops;
        let first_step = run * 1000;
        for number in 0..self.soak.loops {
            let from_us = self.begin_us + i64::from(number * length) * S;
            let until_us = from_us + i64::from(length) * S;
            self.step(
                run,
                first_step + i64::from(number),
                number,
                (from_us, until_us),
            )?;
        }
        self.seconds(first_step, length)?;
        self.samples()
    }

    fn step(
        &self,
        run: i64,
        id: i64,
        number: u32,
        (from_us, until_us): (i64, i64),
    ) -> rusqlite::Result<()> {
        self.file.execute(
            "INSERT INTO steps (id, run_id, ordinal, repeat, loop, phase, cell, target, system, workload, mode, params,
                 clients, cache, state, start_us, measured_from_us, all_active_from_us, all_active_until_us, last_done_us,
                 ended_us)
             VALUES (?1, ?2, ?3, 1, ?3, 'soak', 'c', 'vol', 'glusterfs', 'io', 'randwrite', '{}', 1, 'asis', 'done', ?4,
                     ?4, ?4, ?5, ?5, ?5)",
            params![id, run, number + 1, from_us, until_us],
        )?;
        self.file.execute(
            "INSERT INTO tasks (id, step_id, task_index, agent_id, state, start_us, ended_us)
             VALUES (?1, ?1, 0, 1, 'done', ?2, ?3)",
            params![id, from_us, until_us],
        )?;
        self.file.execute(
            "INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, saturated)
             VALUES (?1, 'write', 1, 1, 4096, 0, 'none', ?2, 0)",
            params![id, RATE],
        )?;
        Ok(())
    }

    /// The time line, with the noise of a shared disk.
    fn seconds(&mut self, first_step: i64, length: u32) -> rusqlite::Result<()> {
        let mut insert = self.file.prepare_cached(
            "INSERT INTO step_intervals (step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns, p50_ns,
                 p99_ns, max_ns)
             VALUES (?1, ?2, 1000000, 'write', 0, 1, ?3, ?3 * 4096, 0, 1000000, 900000, ?4, ?5)",
        )?;
        let phase = TAU * uniform(&mut self.random);
        let (mut fast, mut slow, mut burst) = (0.0, 0.0, 0_u32);
        for second in 0..length * self.soak.loops {
            fast = 0.8 * fast + 0.02 * normal(&mut self.random);
            slow = 0.995 * slow + 0.001 * normal(&mut self.random);
            burst = match burst {
                0 if uniform(&mut self.random) < 0.001 => {
                    5 + whole(20.0 * uniform(&mut self.random))
                }
                left => left.saturating_sub(1),
            };
            let day = 0.01 * (TAU * f64::from(second) / 86_400.0 + phase).sin();
            let mut log = fast + slow + day + 0.02 * normal(&mut self.random);
            let mut tail = 0.15 * normal(&mut self.random) - 2.0 * (fast + slow);
            if burst > 0 {
                (log, tail) = (log - 0.15, tail + 0.4);
            }
            // A slow second.
            if uniform(&mut self.random) < 0.001 {
                (log, tail) = (log - 0.9, tail + 2.0);
            }
            let factor = self.planted_rate(second);
            let p99 = (factor > 0.0).then(|| P99_NS * tail.exp() / factor);
            insert.execute((
                first_step + i64::from(second / length),
                self.begin_us + i64::from(second) * S,
                number(RATE * log.exp() * factor),
                p99.map(number),
                p99.map(|p99| number(2.5 * p99)),
            ))?;
        }
        Ok(())
    }

    fn planted_rate(&self, second: u32) -> f64 {
        let of = |planted: &Planted| match *planted {
            Planted::Decay { by } => 1.0 - by * f64::from(second) / f64::from(self.soak.seconds),
            Planted::Swing { by } => 1.0 + by * (TAU * f64::from(second) / 86_400.0).sin(),
            Planted::Step { at, by } if second >= at => 1.0 - by,
            Planted::Stall { at, seconds } if (at..at + seconds).contains(&second) => 0.0,
            Planted::Periodic {
                every, seconds, by, ..
            } if second % every < seconds => 1.0 - by,
            _ => 1.0,
        };
        self.soak.planted.iter().map(of).product()
    }

    fn samples(&mut self) -> rusqlite::Result<()> {
        let mut daemons: Vec<Daemon> = (0..HOSTS * DAEMONS_PER_HOST)
            .map(|number| Daemon {
                id: daemon_id(number),
                number,
                cpu_us: 0.0,
                red: 0.0,
                rss_red: 0.0,
                away: false,
            })
            .collect();
        let phase = TAU * uniform(&mut self.random);
        let (mut operations, mut waited) = ([0.0; HOSTS as usize], [0.0; HOSTS as usize]);
        // Counters of a run begin where those of the run before ended: at its first microsecond.
        let base = self.begin_us - T0_US;
        for second in 0..=self.soak.seconds {
            let at_us = self.begin_us + i64::from(second) * S;
            let day = 0.05 * (TAU * f64::from(second) / 86_400.0 + phase).sin();
            for daemon in &mut daemons {
                self.daemon(daemon, second, at_us, day, base)?;
            }
            for (place, (operations, waited)) in operations.iter_mut().zip(&mut waited).enumerate()
            {
                let host = u32::try_from(place).unwrap_or(0);
                *operations += 400.0 * (0.05 * normal(&mut self.random)).exp();
                *waited += 400.0
                    * 1500.0
                    * (0.2 * normal(&mut self.random)).exp()
                    * self.slow_disk(host, second);
                self.host(host, second, at_us, base, (*operations, *waited))?;
            }
        }
        let last_us = self.begin_us + i64::from(self.soak.seconds) * S;
        self.file.execute(
            "UPDATE daemons SET last_seen_us = max(last_seen_us, ?) WHERE ended_us IS NULL",
            [last_us],
        )?;
        Ok(())
    }

    fn slow_disk(&self, host: u32, second: u32) -> f64 {
        let of = |planted: &Planted| match *planted {
            Planted::SlowDisk {
                host: own,
                from,
                times,
            } if own == host && second >= from => times,
            _ => 1.0,
        };
        self.soak.planted.iter().map(of).product()
    }

    fn is_unsampled(&self, host: u32, second: u32) -> bool {
        let is_between = !second.is_multiple_of(self.soak.sampled_every);
        is_between
            || self.soak.planted.iter().any(|planted| match *planted {
                Planted::NoSamples {
                    host: own,
                    from,
                    seconds,
                } => own == host && (from..from + seconds).contains(&second),
                _ => false,
            })
    }

    fn daemon(
        &mut self,
        daemon: &mut Daemon,
        second: u32,
        at_us: i64,
        day: f64,
        base: i64,
    ) -> rusqlite::Result<()> {
        let random = &mut self.random;
        daemon.red = 0.95 * daemon.red + 0.06 * normal(random);
        daemon.rss_red = 0.999 * daemon.rss_red + 0.0002 * normal(random);
        // Bursts, such as a compaction or a scrub.
        let burst = if uniform(random) < 0.002 { 3.0 } else { 1.0 };
        let mut cpu = CPU * (daemon.red + day).exp() * burst;
        let mut rss = RSS_BYTES * (1.0 + daemon.rss_red + 0.0002 * normal(random));
        for planted in &self.soak.planted {
            match *planted {
                Planted::Leak {
                    daemon: own,
                    per_hour,
                } if own == daemon.number => {
                    rss *= 1.0 + per_hour * f64::from(second) / 3600.0;
                }
                Planted::Busy {
                    daemon: own,
                    from,
                    times,
                } if own == daemon.number && second >= from => cpu *= times,
                Planted::Frozen {
                    daemon: own,
                    from,
                    seconds,
                } if own == daemon.number && (from..from + seconds).contains(&second) => {
                    cpu = 0.0;
                }
                Planted::Periodic {
                    every,
                    seconds,
                    daemon: own,
                    ..
                } if own == daemon.number && second % every < seconds => {
                    cpu += 0.8;
                }
                Planted::Killed {
                    daemon: own,
                    at,
                    back_after,
                } if own == daemon.number => {
                    if second == at {
                        daemon.away = true;
                        self.file.execute(
                            "UPDATE daemons SET ended_us = ?2, last_seen_us = ?2 WHERE id = ?1",
                            params![daemon.id, at_us],
                        )?;
                    }
                    if second == at + back_after {
                        daemon.away = false;
                        daemon.id =
                            100_000 + i64::try_from(self.run).unwrap_or(0) * 100 + i64::from(own);
                        new_daemon(self.file, daemon.id, own, at_us)?;
                    }
                }
                _ => {}
            }
        }
        daemon.cpu_us += 1e6 * cpu;
        let host = daemon.number / DAEMONS_PER_HOST;
        if daemon.away || self.is_unsampled(host, second) {
            return Ok(());
        }
        let mut insert = self.file.prepare_cached(
            "INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, threads, fds)
             VALUES (?1, ?2, ?3, 0, ?4, 3000000000, 40, 200 + ?5)",
        )?;
        let fds = whole(20.0 * uniform(&mut self.random));
        insert.execute((
            daemon.id,
            at_us,
            base + number(daemon.cpu_us),
            number(rss),
            fds,
        ))?;
        Ok(())
    }

    fn host(
        &mut self,
        host: u32,
        second: u32,
        at_us: i64,
        base: i64,
        (operations, waited): (f64, f64),
    ) -> rusqlite::Result<()> {
        if self.is_unsampled(host, second) {
            return Ok(());
        }
        let left = self.soak.planted.iter().find_map(|planted| match *planted {
            Planted::ShortOfMemory {
                host: own,
                from,
                left,
            } if own == host && second >= from => Some(left),
            _ => None,
        });
        let available = 34_359_738_368.0 * left.unwrap_or(0.6);
        let busy = base + i64::from(second) * 2 * S;
        let mut insert = self.file.prepare_cached(
            "INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us, irq_us, softirq_us,
                 steal_us, memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes, dirty_bytes,
                 writeback_bytes, swap_used_bytes, load1, memory_full_us)
             VALUES (?1, ?2, ?3, 0, 0, ?3 * 3, 0, 0, 0, 0, 34359738368, ?4, 0, 0, 0, 0, 0, 1.0, 0)",
        )?;
        insert.execute((host + 1, at_us, busy, number(available)))?;
        let mut insert = self.file.prepare_cached(
            "INSERT INTO disk_samples (disk_id, at_us, reads, read_bytes, read_us, writes, write_bytes, write_us, in_flight,
                 busy_us, queue_us, discards, flushes)
             VALUES (?1, ?2, 0, 0, 0, ?3, ?3 * 4096, ?4, 1, ?5, 0, 0, 0)",
        )?;
        insert.execute((
            host + 1,
            at_us,
            base + number(operations),
            base + number(waited),
            base + i64::from(second) * S / 2,
        ))?;
        Ok(())
    }
}

/// Uniform in 0..1.
fn uniform(random: &mut Random) -> f64 {
    let bits = u32::try_from(random.next_u64() >> 32).unwrap_or(0);
    (f64::from(bits) + 0.5) / 4_294_967_296.0
}

/// Normally distributed, by Box and Muller's method.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * uniform(random).ln()).sqrt();
    radius * (TAU * uniform(random)).cos()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "figures of tests are small"
)]
fn number(value: f64) -> i64 {
    value.round() as i64
}

fn whole(value: f64) -> u32 {
    u32::try_from(number(value)).unwrap_or(0)
}
