//! The published rows of a simulated agent: of its tasks and of a sampler, kept until they are acked.

use super::{FakeAgent, Inner, now_us};
use benchmesh_model::figures::{DaemonFigures, DiskFigures, Figures, HostFigures, columns};
use benchmesh_proto::{SESSION_KEY, v1};
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, transport::Channel};
use v1::mesh_client::MeshClient;

impl FakeAgent {
    /// Publishes one reading of its host, a daemon and a disk, like a sampler. The counters are cumulative.
    pub fn sample(&self, daemon_cpu_us: i64, disk_busy_us: i64) {
        let at_us = now_us();
        let mut sequence = self.inner.sequence.lock().unwrap();
        *sequence += 1;
        self.inner.spool.lock().unwrap().push(v1::Batch {
            spool_id: format!("spool-{}", self.inner.name),
            first_sequence: *sequence,
            sequence: *sequence,
            daemons: vec![v1::DaemonSeen {
                pid: 7,
                start_ticks: 9,
                name: String::from("ceph-osd"),
                instance: String::from("osd.3"),
                cmdline: String::from("ceph-osd -i 3"),
                at_us,
                ..v1::DaemonSeen::default()
            }],
            daemon_samples: Some(v1::DaemonSamples {
                pid: vec![7],
                start_ticks: vec![9],
                at_us: vec![at_us],
                figures: columns(std::iter::once(DaemonFigures {
                    cpu_user_us: daemon_cpu_us,
                    ..DaemonFigures::from_values(std::iter::repeat(0))
                }))
                .into_iter()
                .map(Into::into)
                .collect(),
            }),
            host_samples: vec![v1::HostSample {
                at_us,
                figures: vec![0; HostFigures::ALL.len()],
                others: None,
            }],
            disk_samples: vec![v1::DiskSample {
                at_us,
                disk: String::from("sda"),
                stacked: false,
                figures: DiskFigures {
                    busy_us: disk_busy_us,
                    ..DiskFigures::from_values(std::iter::repeat(0))
                }
                .values()
                .to_vec(),
            }],
            ..v1::Batch::default()
        });
        drop(sequence);
        self.inner.spooled.send_modify(|count| *count += 1);
    }
}

impl Inner {
    /// Publishes one second of a running task.
    pub(super) fn publish_second(&self, id: i64, at_us: i64) {
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        self.spool.lock().unwrap().push(v1::Batch {
            spool_id: format!("spool-{}", self.name),
            first_sequence: *sequence,
            sequence: *sequence,
            op_intervals: vec![v1::OpInterval {
                at_us,
                task_id: id,
                ..SECOND.clone()
            }],
            ..v1::Batch::default()
        });
        drop(sequence);
        self.spooled.send_modify(|count| *count += 1);
    }

    /// Ends a task: its rows go to the spool first.
    pub(super) fn end(&self, id: i64, state: &str) {
        let mut tasks = self.tasks.lock().unwrap();
        let Some(task) = tasks.get_mut(&id) else {
            return;
        };
        let (Some(start_us), None) = (task.start_us, &task.ended) else {
            return;
        };
        if now_us() < start_us {
            // The task never began, and has no row.
            task.ended = Some(v1::EndReply {
                state: state.to_owned(),
                ..v1::EndReply::default()
            });
            drop(tasks);
            self.changes.send_modify(|count| *count += 1);
            return;
        }
        let script = self.script.lock().unwrap().clone();
        let (intervals, ran_us) = if script.row_per_second {
            (
                Vec::new(),
                i64::try_from(script.runs_for.as_micros()).unwrap(),
            )
        } else {
            let interval = match script.only_errors {
                true => failed(id, task.op, start_us),
                false => interval(id, task.op, start_us),
            };
            (vec![interval], 1_000_000)
        };
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        let spool_id = format!("spool-{}", self.name);
        self.spool.lock().unwrap().push(v1::Batch {
            spool_id: spool_id.clone(),
            first_sequence: *sequence,
            sequence: *sequence,
            op_intervals: intervals,
            task_ends: vec![v1::TaskEnd {
                task_id: id,
                state: state.to_owned(),
                workers: 1,
                start_us,
                skew_us: 10,
                skew_error_us: 5,
                first_done_us: start_us + ran_us - 100_000,
                ended_us: start_us + ran_us,
                last_begun_us: (start_us + ran_us - 100_000).min(now_us()),
                ..v1::TaskEnd::default()
            }],
            ..v1::Batch::default()
        });
        task.ended = Some(v1::EndReply {
            state: state.to_owned(),
            spool_id,
            sequence: *sequence,
            stalled: false,
        });
        drop(tasks);
        self.spooled.send_modify(|count| *count += 1);
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A second of 2000 operations of 20 us to 80 ms, of any task.
static SECOND: LazyLock<v1::OpInterval> = LazyLock::new(|| {
    // Evenly spread in the logarithm.
    let time = |nth: u32| Duration::from_secs_f64(20e-6 * 4000_f64.powf(f64::from(nth) / 2000.0));
    second_of((0..2000).map(|nth| u64::try_from(time(nth).as_nanos()).unwrap_or(u64::MAX)))
});

/// 100 operations of 1 us each.
fn interval(task_id: i64, op: &str, at_us: i64) -> v1::OpInterval {
    v1::OpInterval {
        task_id,
        op: op.to_owned(),
        at_us,
        ..second_of(std::iter::repeat_n(1000, 100))
    }
}

/// A second in which 100 operations failed.
fn failed(task_id: i64, op: &str, at_us: i64) -> v1::OpInterval {
    v1::OpInterval {
        task_id,
        op: op.to_owned(),
        at_us,
        errors: 100,
        ..second_of(std::iter::empty())
    }
}

fn second_of(times_ns: impl Iterator<Item = u64>) -> v1::OpInterval {
    let mut histogram = benchmesh_workloads::histogram::Histogram::new();
    for ns in times_ns {
        histogram.record(ns);
    }
    let blob = histogram.to_blob();
    v1::OpInterval {
        span_us: 1_000_000,
        op: String::from("null"),
        ops: blob.count,
        service: Some(v1::Distribution {
            histogram: blob.v2_deflate,
            count: blob.count,
            sum_ns: blob.sum_ns,
            sum_squares_ns2: blob.sum_squares_ns2,
            min_ns: blob.min_ns,
            max_ns: blob.max_ns,
            saturated: blob.saturated,
        }),
        ..v1::OpInterval::default()
    }
}

pub(super) async fn publish(agent: Arc<Inner>, channel: Channel, session: String) {
    let (batches, receiver) = mpsc::channel(16);
    let mut request = Request::new(ReceiverStream::new(receiver));
    request
        .metadata_mut()
        .insert(SESSION_KEY, session.parse().unwrap());
    let mut acks = MeshClient::new(channel)
        .publish(request)
        .await
        .unwrap()
        .into_inner();
    let acked = {
        let agent = Arc::clone(&agent);
        async move {
            while let Ok(Some(ack)) = acks.message().await {
                agent
                    .spool
                    .lock()
                    .unwrap()
                    .retain(|batch| batch.sequence > ack.sequence);
            }
        }
    };
    let sent = async {
        let mut spooled = agent.spooled.subscribe();
        let mut last = 0;
        loop {
            let waiting: Vec<v1::Batch> = agent.spool.lock().unwrap().clone();
            for batch in waiting {
                if batch.sequence > last {
                    last = batch.sequence;
                    batches.send(batch).await.unwrap();
                }
            }
            spooled.changed().await.unwrap();
        }
    };
    tokio::select! {
        () = acked => {}
        () = sent => {}
    }
}
