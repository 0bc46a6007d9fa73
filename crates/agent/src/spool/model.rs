//! Model test: the spools against a collector in memory, for random sequences of appending, sending, crashing and
//! merging.
//!
//! The model's collector keeps the contract: it accepts exactly the next sequence, acks repeated ones again, and never
//! sees two contents for one sequence. In the end every appended operation has arrived exactly once, and every sample
//! has arrived or was counted as lost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::set::SpoolSet;
use crate::envelope::{Envelope, Sequence, SpoolId};
use crate::sampler::HostSample;
use crate::state::StateDir;
use crate::telemetry::{
    At, Batch, EndState, MeshMicros, OpInterval, RunUid, TaskEnd, TaskId, TelemetryRow,
};
use crate::wire;
use benchmesh_model::figures::{Figures, HostFigures};
use benchmesh_proto::v1;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use proptest::prelude::*;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

const MESH: &str = "mesh-1";

#[derive(Clone, Debug)]
enum Step {
    /// Appends batches with these numbers of intervals and samples.
    Append(Vec<(u8, u8)>),
    /// Numbers of batches that are sent, that arrive, and whose acks come back.
    Send(u8, u8, u8),
    /// The connection breaks and is restored.
    Reattach,
    /// The agent is killed and started again.
    Crash,
    /// The spool is full.
    Merge(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let batches = prop::collection::vec((0..4_u8, 0..3_u8), 1..5);
    let step = prop_oneof![
        5 => batches.prop_map(Step::Append),
        4 => (0..8_u8, 0..8_u8, 0..8_u8).prop_map(|(a, b, c)| Step::Send(a, b, c)),
        2 => Just(Step::Reattach),
        1 => Just(Step::Crash),
        2 => (1..6_u8).prop_map(Step::Merge),
    ];
    prop::collection::vec(step, 1..30)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    ops: u64,
    bytes: u64,
    errors: u64,
    recorded: u64,
    ends: u64,
    samples: u64,
}

#[derive(Default)]
struct Collector {
    stored: HashMap<SpoolId, Sequence>,
    /// Everything that was ever sent, even if it did not arrive.
    seen: HashMap<(SpoolId, Sequence), Envelope>,
    sums: Sums,
}

impl Collector {
    fn sent(&mut self, envelope: &Envelope) {
        let held = self
            .seen
            .entry((envelope.spool, envelope.sequence))
            .or_insert_with(|| envelope.clone());
        assert_eq!(held, envelope, "a batch that was sent has changed");
    }

    fn arrived(&mut self, envelope: &Envelope) {
        let stored = self.stored.entry(envelope.spool).or_default();
        if envelope.sequence <= *stored {
            return;
        }
        assert_eq!(envelope.first, stored.next(), "a hole or an overlap");
        *stored = envelope.sequence;
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        assert!(
            batch.events.is_empty(),
            "a gap where none can be: {:?}",
            batch.events
        );
        for interval in &batch.op_intervals {
            self.sums.ops += interval.ops;
            self.sums.bytes += interval.bytes;
            self.sums.errors += interval.errors;
            self.sums.recorded += interval.service.as_ref().unwrap().count;
            assert!(interval.at_us >= 0 && interval.span_us > 0);
        }
        self.sums.ends += batch.task_ends.len() as u64;
        self.sums.samples += batch.host_samples.len() as u64;
        self.sums.samples += batch.losses.iter().map(|loss| loss.rows).sum::<u64>();
    }
}

/// The agent's side: the set, and its batches in flight.
struct Agent {
    state: Arc<StateDir>,
    set: SpoolSet,
    in_flight: Vec<Envelope>,
    clock: i64,
    sums: Sums,
}

impl Agent {
    async fn append(&mut self, batches: &[(u8, u8)]) {
        let mut bodies = Vec::new();
        for (intervals, samples) in batches {
            let mut batch = Batch::default();
            for nth in 0..*intervals {
                self.clock += 1;
                let row = interval(self.clock, nth);
                self.sums.ops += row.ops;
                self.sums.bytes += row.bytes;
                self.sums.errors += row.errors;
                self.sums.recorded += row.service.count;
                batch.push(TelemetryRow::OpInterval(row));
            }
            for _ in 0..*samples {
                self.clock += 1;
                self.sums.samples += 1;
                batch.push(TelemetryRow::HostSample(sample(self.clock)));
            }
            if self.clock % 5 == 0 {
                self.sums.ends += 1;
                batch.push(TelemetryRow::TaskEnd(end(self.clock)));
            }
            bodies.push(wire::batch::encode(&batch));
        }
        self.set.append(&bodies, None).await.unwrap();
    }

    async fn send(&mut self, collector: &mut Collector, leave: u8, arrive: u8, acks: u8) {
        let mut sent = Vec::new();
        for _ in 0..leave {
            let Some(envelope) = self.set.next(MeshMicros(0)).await.unwrap() else {
                break;
            };
            collector.sent(&envelope);
            sent.push(envelope);
        }
        let lost = sent.len() > usize::from(arrive);
        for envelope in sent.iter().take(usize::from(arrive)) {
            collector.arrived(envelope);
        }
        self.in_flight.extend(sent);
        if lost {
            // A stream that loses a batch is broken: everything after it is sent again.
            return self.attach(collector).await;
        }
        let acked = usize::from(acks).min(self.in_flight.len());
        let last = self.in_flight.drain(..acked).next_back();
        if let Some(last) = last.filter(|last| last.spool == self.set.current()) {
            self.set.append(&[], Some(last.sequence)).await.unwrap();
        }
        if self.in_flight.is_empty() {
            self.set.all_acked(MESH).await;
        }
    }

    async fn attach(&mut self, collector: &Collector) {
        self.in_flight.clear();
        let stored = collector.stored.clone();
        let ours = stored.get(&self.set.current()).copied();
        assert!(self.set.attach(MESH, stored).await.unwrap());
        self.set.append(&[], ours).await.unwrap();
    }

    async fn crash(&mut self, collector: &Collector) {
        self.set = SpoolSet::open(Arc::clone(&self.state), 1 << 30)
            .await
            .unwrap();
        self.attach(collector).await;
    }
}

fn interval(clock: i64, nth: u8) -> OpInterval {
    let ops = 1 + u64::from(nth);
    let mut service = Histogram::new();
    for op in 0..ops {
        service.record(1000 * (op + 1));
    }
    OpInterval {
        run_uid: RunUid::default(),
        task: TaskId(1 + clock % 2),
        at: MeshMicros(clock * 1_000_000),
        span_us: 1_000_000,
        op: if clock % 3 == 0 { Op::Read } else { Op::Write },
        ramp: clock % 7 == 0,
        ops,
        bytes: 4096 * ops,
        undated_bytes: clock.unsigned_abs() % 3,
        errors: clock.unsigned_abs() % 2,
        in_flight: 1,
        response: (clock % 4 == 0).then(|| service.to_blob()),
        service: service.to_blob(),
    }
}

fn end(clock: i64) -> TaskEnd {
    TaskEnd {
        run_uid: RunUid::default(),
        task: TaskId(clock),
        state: EndState::Done,
        workers: 1,
        start: MeshMicros(1),
        skew_us: 0,
        skew_error_us: 0,
        first_done: MeshMicros(2),
        ended: MeshMicros(3),
        last_begun: MeshMicros(2),
        cpu_user_us: Some(0),
        cpu_system_us: Some(0),
        harness_ns_per_op: 0,
        wait_cpu_us: Some(0),
        error: String::new(),
        errors: Vec::new(),
    }
}

fn sample(clock: i64) -> At<HostSample> {
    let at = MonoNanos(1);
    let row = HostSample {
        at,
        figures: HostFigures {
            user_us: clock,
            ..HostFigures::UNREAD
        },
        others: None,
    };
    At {
        at: MeshMicros(clock),
        row,
    }
}

async fn play(steps: Vec<Step>) {
    // In memory if possible: hundreds of small databases are created, and none needs an fsync.
    let home = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let state = Arc::new(StateDir::open(&home.path().join("state"), &[]).unwrap());
    let set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    let mut collector = Collector::default();
    let mut agent = Agent {
        state,
        set,
        in_flight: Vec::new(),
        clock: 0,
        sums: Sums::default(),
    };
    agent.attach(&collector).await;
    for step in steps {
        match step {
            Step::Append(batches) => agent.append(&batches).await,
            Step::Send(leave, arrive, acks) => {
                agent.send(&mut collector, leave, arrive, acks).await
            }
            Step::Reattach => agent.attach(&collector).await,
            Step::Crash => agent.crash(&collector).await,
            Step::Merge(groups) => {
                for _ in 0..groups {
                    agent.set.compact().await.unwrap();
                }
            }
        }
    }
    agent.attach(&collector).await;
    for _ in 0..1000 {
        agent.send(&mut collector, 100, 100, 100).await;
        if agent.set.is_read() && agent.in_flight.is_empty() {
            break;
        }
    }
    assert_eq!(collector.sums, agent.sums);
    assert_eq!(agent.set.ids().len(), 1, "drained spools are gone");
    agent.set.close().await.unwrap();
    assert!(
        agent.state.spools().unwrap().is_empty(),
        "and so is the last"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_arrives_exactly_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
