//! A valid batch is converted completely; a batch with one invalid field is refused, and the error names the field.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_sign_loss)]

use super::Batch;
use benchmesh_model::figures::{DaemonFigures, DiskFigures, Figures, HostFigures, NetFigures};
use benchmesh_proto::bounded::{MAX_ENTRIES, holds_at_most};
use benchmesh_proto::v1 as proto;
use benchmesh_testing::hostile::{damaged, withstands};
use benchmesh_workloads::histogram::Histogram;
use proptest::prelude::*;
use prost::Message;

const T0: i64 = 1_750_000_000_000_000;

fn sound() -> proto::Batch {
    let mut service = Histogram::new();
    service.record(5_000);
    service.record(7_000);
    let blob = service.to_blob();
    let distribution = proto::Distribution {
        histogram: blob.v2_deflate,
        count: blob.count,
        sum_ns: blob.sum_ns,
        sum_squares_ns2: blob.sum_squares_ns2,
        min_ns: blob.min_ns,
        max_ns: blob.max_ns,
        saturated: blob.saturated,
    };
    proto::Batch {
        spool_id: "spool".to_owned(),
        first_sequence: 1,
        sequence: 2,
        op_intervals: vec![proto::OpInterval {
            task_id: 1,
            at_us: T0,
            span_us: 1_000_000,
            op: "write".to_owned(),
            ops: 2,
            bytes: 8192,
            undated_bytes: 4096,
            service: Some(distribution),
            ..proto::OpInterval::default()
        }],
        daemons: vec![proto::DaemonSeen {
            pid: 1,
            start_ticks: 5,
            name: "ceph-osd".to_owned(),
            instance: "osd.3".to_owned(),
            cmdline: "ceph-osd\0--id\u{0}3".to_owned(),
            at_us: T0,
            ended: false,
            born_us: 0,
            is_parent: false,
            version: "16.2.15".to_owned(),
            is_replaced: true,
        }],
        daemon_samples: Some(proto::DaemonSamples {
            pid: vec![1],
            start_ticks: vec![5],
            at_us: vec![T0],
            figures: [1, 2, 3, 4, 5, -1, -1, 6, 7, 8, 9, -1, 1 << 20]
                .map(|value| vec![value].into())
                .to_vec(),
        }),
        host_samples: vec![proto::HostSample {
            at_us: T0,
            figures: HostFigures {
                cpu_some_us: -1,
                ..HostFigures::from_values(std::iter::repeat(0))
            }
            .values()
            .to_vec(),
            others: None,
        }],
        disk_samples: vec![proto::DiskSample {
            at_us: T0,
            disk: "sda".to_owned(),
            stacked: false,
            figures: vec![0; DiskFigures::ALL.len()],
        }],
        net_samples: vec![proto::NetSample {
            at_us: T0,
            interface: "eth0".to_owned(),
            figures: vec![0; NetFigures::ALL.len()],
        }],
        target_samples: vec![proto::TargetSample {
            at_us: T0,
            target: "/mnt/t".to_owned(),
            nonce: "n".to_owned(),
            device: String::new(),
            figures: vec![2, 1, -1, -1],
        }],
        clock_offsets: vec![proto::ClockOffset {
            at_us: T0 + 9,
            offset_us: -5,
            ..proto::ClockOffset::default()
        }],
        events: vec![proto::Event {
            at_us: T0,
            severity: "info".to_owned(),
            kind: "note".to_owned(),
            detail_json: "{\"a\":1}".to_owned(),
            ..proto::Event::default()
        }],
        facts: vec![proto::Fact {
            at_us: T0,
            system: "ceph".to_owned(),
            name: "osds".to_owned(),
            number: Some(3.0),
            ..proto::Fact::default()
        }],
        losses: vec![proto::Loss {
            what: "host_samples".to_owned(),
            rows: 3,
            from_us: T0,
            until_us: T0,
        }],
        task_ends: vec![proto::TaskEnd {
            task_id: 1,
            state: "failed".to_owned(),
            ..proto::TaskEnd::default()
        }],
    }
}

#[test]
fn a_valid_batch_is_converted_whole() {
    let batch = Batch::try_from(sound()).unwrap();
    assert_eq!(batch.rows(), 12);
    assert_eq!(batch.newest_us, T0 + 1_000_000);
    let sample = &batch.daemon_samples[0].figures;
    assert_eq!(
        (sample.fds, sample.read_bytes, sample.write_bytes),
        (-1, -1, 6)
    );
    assert_eq!(batch.daemons[0].cmdline, "ceph-osd --id 3");
    assert_eq!(batch.daemons[0].version, "16.2.15");
    assert!(batch.daemons[0].is_replaced);
    assert_eq!(batch.host_samples[0].figures.cpu_some_us, -1);
    let end = &batch.task_ends[0];
    assert_eq!(
        (end.start, end.first_done, end.error.as_ref()),
        (None, None, None)
    );
}

#[test]
fn an_unknown_severity_is_a_warning() {
    let mut wire = sound();
    wire.events[0].severity = "fatal".to_owned();
    let batch = Batch::try_from(wire).unwrap();
    assert_eq!(
        batch.events[0].kind.severity(),
        benchmesh_model::mesh::Severity::Warning
    );
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut wire = sound();
    wire.daemons[0].cmdline = "\u{20ac}".repeat(10_000);
    wire.daemons[0].instance = "\u{20ac}".repeat(10_000);
    let batch = Batch::try_from(wire).unwrap();
    assert_eq!(batch.daemons[0].cmdline.len(), 4095);
    assert_eq!(batch.daemons[0].instance.len(), 255);
}

#[test]
fn a_long_detail_of_an_event_is_left_out_and_the_event_stays() {
    let mut wire = sound();
    wire.events[0].detail_json = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20));
    wire.events[0].message = "m".repeat(3 << 20);
    let batch = Batch::try_from(wire).unwrap();
    let event = &batch.events[0];
    assert_eq!(
        event.detail_json.as_deref(),
        Some("{\"left_out_bytes\":3145736}")
    );
    assert_eq!(event.message.len(), 4 << 10);
}

#[test]
fn one_wrong_field_refuses_the_batch_and_is_named() {
    type Spoil = fn(&mut proto::Batch);
    let cases: [(&str, Spoil); 34] = [
        ("spool_id", |b| b.spool_id.clear()),
        ("spool_id", |b| b.spool_id = "x".repeat(257)),
        ("spool_id", |b| b.spool_id = "a\nb".to_owned()),
        ("first_sequence", |b| b.first_sequence = 0),
        ("first_sequence", |b| b.first_sequence = 3),
        ("sequence", |b| b.sequence = u64::MAX),
        ("op_intervals.op", |b| {
            b.op_intervals[0].op = "'; DROP TABLE runs; --".to_owned();
        }),
        ("losses.what", |b| b.losses[0].what = "runs".to_owned()),
        ("disk_samples.disk", |b| {
            let disk = b.disk_samples[0].clone();
            b.disk_samples = (0..100_000)
                .map(|at| proto::DiskSample {
                    disk: format!("sd{at}"),
                    ..disk.clone()
                })
                .collect();
        }),
        ("net_samples.interface", |b| {
            let sample = b.net_samples[0].clone();
            b.net_samples = (0..5000)
                .map(|at| proto::NetSample {
                    interface: format!("eth{at}"),
                    ..sample.clone()
                })
                .collect();
        }),
        ("target_samples.target", |b| {
            b.target_samples[0].target.clear()
        }),
        ("target_samples.nonce", |b| {
            b.target_samples[0].nonce.clear()
        }),
        ("target_samples.free_bytes", |b| {
            b.target_samples[0].figures[1] = -1
        }),
        ("events", |b| b.events = vec![b.events[0].clone(); 10_001]),
        ("op_intervals.service", |b| b.op_intervals[0].service = None),
        ("op_intervals.task_id", |b| b.op_intervals[0].task_id = 0),
        ("op_intervals.at_us", |b| b.op_intervals[0].at_us = 5),
        ("op_intervals.span_us", |b| b.op_intervals[0].span_us = 0),
        ("op_intervals.ops", |b| b.op_intervals[0].ops = u64::MAX),
        ("op_intervals.service", |b| {
            service(b).histogram = vec![1, 2, 3];
        }),
        ("op_intervals.service", |b| service(b).count = 3),
        ("op_intervals.service", |b| service(b).sum_ns = f64::NAN),
        ("op_intervals.service", |b| service(b).min_ns = 9_000),
        ("op_intervals.service", |b| {
            service(b).histogram = vec![0; 40_000];
        }),
        ("daemons.name", |b| b.daemons[0].name.clear()),
        ("daemons.pid", |b| b.daemons[0].pid = -1),
        ("daemon_samples.major_faults", |b| {
            figure(b, "major_faults").clear()
        }),
        ("daemon_samples.at_us", |b| {
            samples(b).at_us = vec![i64::MAX]
        }),
        ("daemon_samples.rss_bytes", |b| {
            *figure(b, "rss_bytes") = vec![-1]
        }),
        ("daemon_samples.fds", |b| *figure(b, "fds") = vec![-2]),
        ("daemon_samples.minor_faults", |b| {
            *figure(b, "minor_faults") = vec![-2]
        }),
        ("host_samples.load1", |b| {
            b.host_samples[0].figures[15] = i64::MAX
        }),
        ("events.detail_json", |b| {
            b.events[0].detail_json = "{".to_owned()
        }),
        ("task_ends.state", |b| {
            b.task_ends[0].state = "running".to_owned()
        }),
    ];
    for (field, spoil) in cases {
        let mut wire = sound();
        spoil(&mut wire);
        let error = Batch::try_from(wire).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{field} ")), "{field}: {error}");
    }
}

fn service(batch: &mut proto::Batch) -> &mut proto::Distribution {
    batch.op_intervals[0].service.as_mut().unwrap()
}

fn samples(batch: &mut proto::Batch) -> &mut proto::DaemonSamples {
    batch.daemon_samples.as_mut().unwrap()
}

fn figure<'b>(batch: &'b mut proto::Batch, name: &str) -> &'b mut Vec<i64> {
    let place = DaemonFigures::ALL.iter().position(|it| it.name == name);
    &mut samples(batch).figures[place.unwrap()].values
}

/// A blob must not cause an allocation of the size that its header claims.
#[test]
fn a_histogram_that_claims_too_much_is_refused() {
    let honest = Histogram::new().to_v2_deflate();
    for at in 0..honest.len() {
        for byte in [0x00, 0x7f, 0xff] {
            let mut wire = sound();
            let mut lying = service(&mut wire).histogram.clone();
            if let Some(place) = lying.get_mut(at) {
                *place = byte;
            }
            service(&mut wire).histogram = lying;
            // Most are refused; none may panic or take long.
            drop(Batch::try_from(wire));
        }
    }
}

/// Checks the stored rows of an accepted batch.
fn check_stored(batch: &Batch) -> Result<(), TestCaseError> {
    let instants = (batch.op_intervals.iter().map(|interval| interval.at.0))
        .chain(batch.daemon_samples.iter().map(|sample| sample.at.0))
        .chain(batch.host_samples.iter().map(|sample| sample.at.0))
        .chain(batch.events.iter().map(|event| event.at.0));
    for at in instants {
        prop_assert!(
            (946_684_800_000_000..=7_258_118_400_000_000).contains(&at),
            "{at}"
        );
    }
    prop_assert!(batch.first_sequence <= batch.sequence);
    for interval in &batch.op_intervals {
        prop_assert!(interval.ops >= 0 && interval.bytes >= 0 && interval.span_us > 0);
        prop_assert!(Histogram::from_blob(&interval.service.blob).is_ok());
    }
    for event in &batch.events {
        prop_assert!(event.message.len() <= 4 << 10 && !event.message.contains('\0'));
        let detail = event.detail_json.as_deref().unwrap_or("null");
        prop_assert!(serde_json::from_str::<serde_json::Value>(detail).is_ok());
    }
    Ok(())
}

#[test]
fn damaged_batches_are_refused_or_within_their_bounds() {
    let shape = <proto::Batch as benchmesh_proto::bounded::Bounded>::SHAPE.unwrap();
    let whole = sound().encode_to_vec();
    let inputs = damaged(vec![whole], 64 << 10);
    withstands(inputs, 32 << 20, |bytes| {
        if !holds_at_most(MAX_ENTRIES, shape, &bytes) {
            return Ok(());
        }
        let Ok(wire) = proto::Batch::decode(bytes.as_slice()) else {
            return Ok(());
        };
        match Batch::try_from(wire) {
            Ok(batch) => check_stored(&batch),
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                Ok(())
            }
        }
    });
}

/// The fields stay parseable, so that every case reaches the range checks.
#[test]
fn absurd_numbers_in_a_batch_are_refused_or_within_their_bounds() {
    let number = prop_oneof![
        any::<i64>(),
        prop::sample::select(vec![i64::MIN, -1, 0, 1, i64::MAX, 1 << 50, 1 << 62, T0]),
    ];
    let real = prop_oneof![
        any::<f64>(),
        prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0, 1e37])
    ];
    let inputs = (prop::collection::vec(number, 24), real, any::<u32>());
    withstands(inputs, 32 << 20, |(numbers, real, small)| {
        let mut wire = sound();
        let number = |at: usize| numbers[at];
        let counter = |at: usize| numbers[at] as u64;
        let interval = &mut wire.op_intervals[0];
        (interval.at_us, interval.span_us) = (number(0), number(1));
        (interval.ops, interval.bytes, interval.errors) = (counter(2), counter(3), counter(4));
        interval.in_flight = small;
        let service = interval.service.as_mut().unwrap();
        (service.count, service.sum_ns, service.max_ns) = (counter(5), real, counter(6));
        wire.sequence = counter(7);
        if let Some(sample) = wire.host_samples.first_mut() {
            (sample.at_us, sample.figures[0]) = (number(8), number(12));
        }
        if let Some(offset) = wire.clock_offsets.first_mut() {
            (offset.at_us, offset.offset_us, offset.error_us) = (number(9), number(10), number(11));
        }
        if let Some(end) = wire.task_ends.first_mut() {
            (end.start_us, end.first_done_us, end.ended_us) = (number(12), number(13), number(14));
        }
        // Each field alone, and all of them: one invalid field hides the others.
        let mut one = sound();
        one.op_intervals[0].at_us = number(15);
        one.op_intervals[0].span_us = number(16);
        for wire in [wire, one] {
            if let Ok(batch) = Batch::try_from(wire) {
                check_stored(&batch)?;
            }
        }
        Ok(())
    });
}
