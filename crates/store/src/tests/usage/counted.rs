//! What counts as used in a step: the CPU time between its edges or since a birth in it, and the peak of memory.

use super::{check, finished, seconds};
use crate::ingest::batch::DaemonSeen;
use crate::tests::{S, T0, sample, seen};
use benchmesh_model::mesh::MeshMicros;
use sqlx::Row;

#[tokio::test]
async fn a_sample_at_the_edge_is_exact_and_any_other_is_bounded() {
    let daemons = [1, 2].map(|pid| seen(pid, "ceph-osd", T0 - 9 * S));
    // 500 ms of CPU each second. The first daemon is also sampled at the edges, the second 0.3 s away from them.
    let mut samples = Vec::new();
    for beat in -3..8 {
        let at = T0 + beat * S + 300_000;
        let cpu = 10 * S + (at - T0) / 2;
        samples.extend([1, 2].map(|pid| sample(pid, at, cpu, 1)));
    }
    // Within the second before the start, and the second before the end, all CPU time was used at once.
    for (at, cpu) in [(T0, 9_900_000), (T0 + 4 * S, 12_100_000)] {
        samples.push(sample(1, at, cpu, 1));
    }
    let done = finished(daemons.into(), samples).await;
    let expected: [&[_]; 2] = [
        &[("cpu_s", Some(2.2)), ("cpu_error_s", Some(0.0))],
        // The bound is the CPU time used between the two samples around each edge.
        &[
            ("cpu_s", Some(2.0)),
            ("cpu_error_s", Some(0.7)),
            ("sampled_s", Some(4.0)),
        ],
    ];
    let rows = check(&done.mesh, &expected).await;
    assert!(seconds(&rows[1], "vsz_mib").is_some());
}

#[tokio::test]
async fn a_daemon_that_is_born_in_the_step_counts_from_zero() {
    let born = [(1, T0 + S), (2, T0 - 900 * S)].map(|(pid, born)| DaemonSeen {
        born: Some(MeshMicros(born)),
        ..seen(pid, "ceph-osd", T0 + 3 * S)
    });
    let mut samples = Vec::new();
    for (at, cpu) in [(T0 + 3 * S, 800_000), (T0 + 4 * S, 900_000)] {
        samples.extend([1, 2].map(|pid| sample(pid, at, cpu, 1)));
    }
    let done = finished(born.into(), samples).await;
    let expected: [&[_]; 2] = [
        &[("cpu_s", Some(0.9)), ("sampled_s", Some(3.0))],
        // For a daemon that started long before, only the sampled usage.
        &[("cpu_s", Some(0.1))],
    ];
    let rows = check(&done.mesh, &expected).await;
    let born: Vec<Option<bool>> = rows.iter().map(|row| row.get("born_in_step")).collect();
    assert_eq!(born, [Some(true), Some(false)]);
}

/// The kernel's high-water mark shows peaks between samples; a peak from before the step does not count.
#[tokio::test]
async fn the_peak_of_memory_counts_where_it_rose_in_the_step() {
    const MIB: i64 = 1 << 20;
    // At both edges, in MiB.
    let marks = [Some([345, 345]), Some([120, 345]), None];
    let mut samples = Vec::new();
    for (pid, marks) in (1..).zip(marks) {
        for second in 0..5 {
            let mut one = sample(pid, T0 + second * S, second, 100 * MIB);
            match (second, marks) {
                (0, Some([first, _])) => one.figures.rss_peak_bytes = first * MIB,
                (4, Some([_, last])) => one.figures.rss_peak_bytes = last * MIB,
                _ => {}
            }
            samples.push(one);
        }
    }
    let daemons = [1, 2, 3].map(|pid| seen(pid, "ceph-osd", T0 - S));
    let done = finished(daemons.into(), samples).await;
    let peak = |mib| [("rss_peak_mib", mib), ("rss_max_mib", Some(100.0))];
    let expected: [&[_]; 3] = [&peak(Some(100.0)), &peak(Some(345.0)), &peak(None)];
    check(&done.mesh, &expected).await;
}
