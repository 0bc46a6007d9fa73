//! Handles batches inside the writer's transaction.
//!
//! First a batch is admitted or refused, without a change to any table: its sequence must be the next of its spool.
//! Then rows of tasks, runs and steps that do not belong to its agent are removed, and the others are stored. Samples
//! of daemons, by far the most rows, are collected from the whole group and inserted in the order of their key.
//! Samples of daemons that are not in the table are left out and counted: a missing description need not be the
//! agent's fault, and the batch also has results of loads.
//!
//! A batch may wait for its transaction; live views get its intervals on arrival.

use super::batch::{Batch, DaemonSample};
use super::cache::{Caches, Mark};
use super::feed::{Feed, LiveInterval};
use super::pending::{Admission, PendingBatch};
use super::receipt::IngestError;
use super::reserve::{self, Reserve};
use super::source::BatchSource;
use super::statements::find;
use super::{devices, tables, tasks, unknown_rows};
use crate::database::StoreError;
use benchmesh_model::mesh::{AgentId, DaemonId, MeshMicros, StepId};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum lag of `daemons.last_seen_us` behind the newest sample.
const SEEN_INTERVAL_US: i64 = 60_000_000;

/// The writer's part of ingest.
#[derive(Debug)]
pub(crate) struct Ingest {
    caches: Caches,
    live: Feed,
    reserve: Arc<Reserve>,
    /// Per agent, the last batch that was sent to the live views: its spool and sequence.
    shown: HashMap<AgentId, (String, u64)>,
    /// Whether this transaction stored data of steps that had ended.
    late: bool,
}

impl Ingest {
    pub(crate) fn new(live: Feed, reserve: Arc<Reserve>) -> Self {
        Self {
            caches: Caches::new(),
            live,
            reserve,
            shown: HashMap::new(),
            late: false,
        }
    }

    /// Stores the admitted batches, and sets the result of each. On a database error the caller rolls back, and
    /// neither rows nor cache entries of this call remain.
    pub(crate) fn store(
        &mut self,
        connection: &Connection,
        batches: &mut [PendingBatch],
    ) -> Result<(), StoreError> {
        let mut steps = BTreeMap::new();
        let is_low = !batches.is_empty() && self.reserve.poll();
        for pending in batches.iter_mut() {
            pending.verdict = self.admit(connection, pending)?;
            if pending.is_fresh() {
                if is_low {
                    pending
                        .withheld
                        .extend(reserve::withhold(&mut pending.batch));
                }
                reserve::record(connection, pending.source.agent, &pending.withheld)?;
                self.store_all_but_daemon_samples(connection, pending, &mut steps)?;
                self.caches
                    .positions
                    .set(pending.spool(), pending.batch.sequence);
            }
        }
        self.store_daemon_samples(connection, batches)?;
        self.forget_ended_daemons(batches);
        self.store_positions(connection, batches)?;
        self.late |= tasks::mark_results_stale(connection, &steps)?;
        Ok(())
    }

    pub(crate) fn mark(&self) -> Mark {
        self.caches.mark()
    }

    /// Removes the cache entries since `mark`, because its savepoint was rolled back.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        self.caches.undo_to(mark);
    }

    pub(crate) fn rolled_back(&mut self) {
        self.caches.undo_to(Mark::default());
        self.late = false;
    }

    pub(crate) fn committed(&mut self, batches: &[PendingBatch]) {
        self.caches.commit();
        if batches.is_empty() {
            return;
        }
        for pending in batches.iter().filter(|pending| pending.is_fresh()) {
            let batch = &pending.batch;
            self.live
                .set_position(pending.source.agent, &batch.spool_id, batch.sequence);
        }
        self.live.committed();
        if std::mem::take(&mut self.late) {
            self.live.late();
        }
    }

    /// Whether `show` has something to do for newly arrived batches.
    pub(crate) fn is_to_show(&self, batches: &[PendingBatch]) -> bool {
        if !batches.is_empty() {
            self.live.arrived();
        }
        let has_intervals = |pending: &PendingBatch| !pending.batch.op_intervals.is_empty();
        self.live.is_followed() && batches.iter().any(has_intervals)
    }

    /// Publishes the intervals of newly arrived batches: only those of their agent's own tasks, and only once for a
    /// batch that is sent again.
    pub(crate) fn show(
        &mut self,
        connection: &Connection,
        batches: &[PendingBatch],
    ) -> Result<(), StoreError> {
        let has_viewers = self.live.has_viewers();
        for pending in batches {
            let (agent, batch) = (pending.source.agent, &pending.batch);
            let stored = self.position(connection, pending)?;
            let last = match self.shown.get(&agent) {
                Some((spool, last)) if *spool == batch.spool_id => stored.max(*last),
                _ => stored,
            };
            if batch.first_sequence <= last || batch.op_intervals.is_empty() {
                continue;
            }
            let mut live = Vec::with_capacity(batch.op_intervals.len());
            for interval in &batch.op_intervals {
                if unknown_rows::is_own_interval(&mut self.caches, connection, agent, interval)? {
                    live.push(LiveInterval::of(interval, has_viewers));
                }
            }
            self.live.publish(live.into());
            let shown = (batch.spool_id.clone(), batch.sequence);
            self.shown.insert(agent, shown);
        }
        Ok(())
    }

    fn admit(
        &mut self,
        connection: &Connection,
        pending: &mut PendingBatch,
    ) -> Result<Result<Admission, IngestError>, StoreError> {
        let last = self.position(connection, pending)?;
        match admission(&pending.batch, last) {
            Ok(Admission::Fresh) => {}
            other => return Ok(other),
        }
        pending.unknown.take_out(
            &mut self.caches,
            connection,
            pending.source.agent,
            &mut pending.batch,
        )?;
        Ok(Ok(Admission::Fresh))
    }

    fn position(
        &mut self,
        connection: &Connection,
        pending: &PendingBatch,
    ) -> Result<u64, StoreError> {
        let spool = pending.spool();
        if let Some(&last) = self.caches.positions.get(&spool) {
            return Ok(last);
        }
        let last: Option<i64> = find(
            connection,
            "read the position of a spool",
            "SELECT last_sequence FROM spools WHERE agent_id = ? AND spool_id = ?",
            (spool.0.0, spool.1.as_str()),
            |row| row.get(0),
        )?;
        let last = last.unwrap_or(0).unsigned_abs();
        self.caches.positions.set(spool, last);
        Ok(last)
    }

    fn store_all_but_daemon_samples(
        &mut self,
        connection: &Connection,
        pending: &mut PendingBatch,
        steps: &mut BTreeMap<StepId, tasks::Arrived>,
    ) -> Result<(), StoreError> {
        let PendingBatch {
            source,
            batch,
            unknown,
            daemon_ids,
            ..
        } = pending;
        for daemon in &batch.daemons {
            devices::describe_daemon(
                &mut self.caches,
                connection,
                source,
                daemon,
                batch.stands_in_since,
            )?;
            // The usage of steps that counted the parent has to be computed again.
            self.late |= daemon.is_parent;
        }
        for interval in &batch.op_intervals {
            tasks::store_interval(connection, interval)?;
        }
        for end in &batch.task_ends {
            tasks::store_end(connection, end)?;
        }
        let step_of = |task| Some(self.caches.tasks.get(&task)?.step);
        for interval in &batch.op_intervals {
            if let Some(step) = step_of(interval.task) {
                let so_far = steps.entry(step).or_default();
                *so_far = tasks::arrived(*so_far, interval);
            }
        }
        for step in batch.task_ends.iter().filter_map(|end| step_of(end.task)) {
            steps.entry(step).or_default();
        }
        for end in &batch.task_ends {
            self.caches.tasks.remove(&end.task);
        }
        store_samples(&mut self.caches, connection, source, batch)?;
        for parent in batch.daemons.iter().filter(|daemon| daemon.is_parent) {
            devices::name_child(connection, source, parent)?;
        }
        self.late |= tasks::mark_stale_by_losses(connection, source.agent, &batch.losses)?;
        let mut ids = Vec::with_capacity(batch.daemon_samples.len());
        for sample in &batch.daemon_samples {
            let id = devices::daemon(&mut self.caches, connection, source.host, sample.process)?;
            ids.push(id);
        }
        unknown.set_daemon_samples(ids.iter().filter(|id| id.is_none()).count());
        unknown.record(connection, source, MeshMicros(batch.newest_us))?;
        *daemon_ids = ids;
        Ok(())
    }

    fn store_daemon_samples(
        &mut self,
        connection: &Connection,
        batches: &[PendingBatch],
    ) -> Result<(), StoreError> {
        let mut rows: Vec<(DaemonId, &DaemonSample)> = batches
            .iter()
            .filter(|pending| pending.is_fresh())
            .flat_map(|pending| {
                let samples = &pending.batch.daemon_samples;
                let with_ids = pending.daemon_ids.iter().zip(samples);
                with_ids.filter_map(|(id, sample)| Some(((*id)?, sample)))
            })
            .collect();
        let instants = rows.iter().map(|(_, sample)| sample.at.0);
        let of_devices = batches.iter().filter(|pending| pending.is_fresh());
        let of_devices = of_devices.flat_map(|pending| {
            let disks = pending.batch.disk_samples.iter().map(|sample| sample.at.0);
            let nets = pending.batch.net_samples.iter().map(|sample| sample.at.0);
            disks.chain(nets)
        });
        let ends = instants.chain(of_devices).fold(None, |ends, at| {
            let (oldest, newest) = ends.unwrap_or((at, at));
            Some((at.min(oldest), at.max(newest)))
        });
        if let Some(ends) = ends {
            self.late |= tasks::mark_stale_by_samples(connection, ends)?;
        }
        if rows.is_empty() {
            return Ok(());
        }
        // In the order of the key, so that each page of the table is touched once.
        rows.sort_unstable_by_key(|(daemon, sample)| (*daemon, sample.at));
        tables::DAEMON_SAMPLES.insert(connection, &rows, tables::daemon_sample)?;
        for of_one in rows.chunk_by(|(a, _), (b, _)| a == b) {
            if let Some((daemon, newest)) = of_one.last() {
                let stored = self.caches.last_seen.get(daemon).copied();
                if stored.is_none_or(|seen| newest.at.0 - seen >= SEEN_INTERVAL_US) {
                    devices::daemon_seen(&mut self.caches, connection, *daemon, newest.at)?;
                }
            }
        }
        Ok(())
    }

    /// After the samples of the whole group, which look them up.
    fn forget_ended_daemons(&mut self, batches: &[PendingBatch]) {
        for pending in batches.iter().filter(|pending| pending.is_fresh()) {
            for daemon in pending.batch.daemons.iter().filter(|daemon| daemon.ended) {
                let key = (pending.source.host, daemon.process);
                if let Some(&id) = self.caches.daemons.get(&key) {
                    self.caches.daemons.remove(&key);
                    self.caches.last_seen.remove(&id);
                }
            }
        }
    }

    fn store_positions(
        &mut self,
        connection: &Connection,
        batches: &[PendingBatch],
    ) -> Result<(), StoreError> {
        let mut moved: Vec<(AgentId, &str, u64)> = batches
            .iter()
            .filter(|pending| pending.is_fresh())
            .map(|pending| {
                let batch = &pending.batch;
                (
                    pending.source.agent,
                    batch.spool_id.as_str(),
                    batch.sequence,
                )
            })
            .collect();
        // Sorted in descending order, so that the last position of each spool comes first and is kept.
        moved.sort_unstable_by(|a, b| b.cmp(a));
        moved.dedup_by_key(|(agent, spool, _)| (*agent, *spool));
        tables::SPOOLS
            .insert(connection, &moved, tables::position)
            .map(drop)
    }
}

/// Whether `batch` is the next after `last`, a repeat, or neither.
fn admission(batch: &Batch, last: u64) -> Result<Admission, IngestError> {
    if batch.sequence <= last {
        return Ok(Admission::Repeat);
    }
    let expected = last + 1;
    if batch.first_sequence == expected {
        return Ok(Admission::Fresh);
    }
    if batch.first_sequence > expected {
        return Err(IngestError::Hole {
            spool_id: batch.spool_id.clone(),
            last,
            expected,
            found: batch.first_sequence,
        });
    }
    Err(IngestError::Overlap {
        spool_id: batch.spool_id.clone(),
        first: batch.first_sequence,
        sequence: batch.sequence,
        last,
    })
}

fn store_samples(
    caches: &mut Caches,
    connection: &Connection,
    source: &BatchSource,
    batch: &Batch,
) -> Result<(), StoreError> {
    let (agent, host) = (source.agent, source.host);
    tables::HOST_SAMPLES.insert(connection, &batch.host_samples, |sample, row| {
        tables::host_sample(host, sample, row);
    })?;
    let mut disks = Vec::with_capacity(batch.disk_samples.len());
    for sample in &batch.disk_samples {
        let stacked = sample.stacked;
        let is_own = batch.stands_in_since.is_none();
        let disk = devices::disk(caches, connection, source, &sample.disk, stacked, is_own)?;
        disks.push((disk, sample));
    }
    tables::DISK_SAMPLES.insert(connection, &disks, tables::disk_sample)?;
    let mut interfaces = Vec::with_capacity(batch.net_samples.len());
    for sample in &batch.net_samples {
        let interface = devices::interface(caches, connection, source, &sample.interface)?;
        interfaces.push((interface, sample));
    }
    tables::NET_SAMPLES.insert(connection, &interfaces, tables::net_sample)?;
    let mut targets = Vec::with_capacity(batch.target_samples.len());
    for sample in &batch.target_samples {
        let target = devices::target(connection, agent, sample)?;
        targets.extend(target.map(|target| (target, sample)));
    }
    tables::TARGET_SAMPLES.insert(connection, &targets, tables::target_sample)?;
    tables::CLOCK_OFFSETS.insert(connection, &batch.clock_offsets, |offset, row| {
        tables::clock_offset(agent, offset, row);
    })?;
    tables::EVENTS.insert(connection, &batch.events, |event, row| {
        tables::event(agent, event, row);
    })?;
    let mut facts = Vec::with_capacity(batch.facts.len());
    // The facts of one reading have the same instant.
    for of_one in batch.facts.chunk_by(|a, b| (a.at, a.run) == (b.at, b.run)) {
        let Some(first) = of_one.first() else {
            continue;
        };
        let (run, step) = devices::sampled_run(connection, agent, first.run, first.at)?;
        facts.extend(of_one.iter().map(|fact| (run, step, fact)));
    }
    tables::FACTS.insert(connection, &facts, |fact, row| {
        tables::fact(agent, fact, row)
    })?;
    tables::LOSSES.insert(connection, &batch.losses, |loss, row| {
        tables::loss(agent, loss, row);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Mesh, S, T0, batch, interval, new_step, sample, seen, task_end};
    use benchmesh_model::mesh::{HostId, TaskId};
    use tokio::sync::{Semaphore, oneshot};

    /// Stores a fresh batch in a transaction, and commits it or rolls it back.
    fn store(
        ingest: &mut Ingest,
        connection: &Connection,
        (agent, host): (AgentId, HostId),
        batch: Batch,
        is_committed: bool,
    ) {
        let source = BatchSource {
            agent,
            host,
            net_namespace: String::new(),
            window: 16,
        };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned();
        let permit = permit.expect("a permit");
        let (done, _receipt) = oneshot::channel();
        let mut batches = [PendingBatch::new(Arc::new(source), batch, permit, done)];
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .expect("a transaction");
        ingest.store(connection, &mut batches).expect("rows");
        assert_eq!(batches[0].verdict, Ok(Admission::Fresh));
        if is_committed {
            connection.execute_batch("COMMIT").expect("a commit");
            ingest.committed(&batches);
        } else {
            connection.execute_batch("ROLLBACK").expect("a rollback");
            ingest.rolled_back();
        }
    }

    #[tokio::test]
    async fn tasks_are_cached_until_their_end_is_committed() {
        let mesh = Mesh::new().await;
        let (_, agent, host) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let step = new_step(0, "files", "create");
        let (_, tasks) = mesh.step(run, step, &[agent, agent]).await;
        let [ended, running] = *tasks else {
            panic!("two tasks: {tasks:?}");
        };
        let connection = Connection::open(mesh.path()).expect("the database");
        let reserve = Arc::new(Reserve::of(&mesh.path()));
        let mut ingest = Ingest::new(Feed::new(), reserve);
        let cached = |ingest: &Ingest| -> Vec<TaskId> {
            let cached = |task: &TaskId| ingest.caches.tasks.get(task).is_some();
            [ended, running].into_iter().filter(cached).collect()
        };
        let of = (agent, host);
        let mut first = batch("s", 1);
        let intervals = tasks
            .iter()
            .map(|&task| interval(task, T0, "create", 10, 1000));
        first.op_intervals = intervals.collect();
        store(&mut ingest, &connection, of, first, true);
        assert_eq!(cached(&ingest), [ended, running]);
        let end = || {
            let mut end = batch("s", 2);
            end.task_ends = vec![task_end(ended, 0, T0 + S)];
            end
        };
        store(&mut ingest, &connection, of, end(), false);
        assert_eq!(cached(&ingest), [ended, running]);
        store(&mut ingest, &connection, of, end(), true);
        assert_eq!(cached(&ingest), [running]);
    }
    #[tokio::test]
    async fn daemons_are_cached_until_their_end_is_committed() {
        let mesh = Mesh::new().await;
        let (_, agent, host) = mesh.publisher("a").await;
        let connection = Connection::open(mesh.path()).expect("the database");
        let reserve = Arc::new(Reserve::of(&mesh.path()));
        let mut ingest = Ingest::new(Feed::new(), reserve);
        let of = |sequence, ended| {
            let mut daemon = seen(7, "ceph-osd", T0);
            daemon.ended = ended;
            let mut of_daemon = batch("s", sequence);
            of_daemon.daemons = vec![daemon];
            of_daemon.daemon_samples = vec![sample(7, T0, 0, 1)];
            of_daemon
        };
        let process = seen(7, "ceph-osd", T0).process;
        for (sequence, ended, is_committed, is_cached) in [
            (1, false, true, true),
            (2, true, false, true),
            (2, true, true, false),
        ] {
            let batch = of(sequence, ended);
            store(&mut ingest, &connection, (agent, host), batch, is_committed);
            let cached = ingest.caches.daemons.get(&(host, process));
            assert_eq!(cached.is_some(), is_cached, "{sequence} {ended}");
        }
    }
}
