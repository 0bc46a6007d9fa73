//! The data of the generators: daemons of one host sampled once a second, with figures typical of storage daemons.

use benchmesh_model::figures::{DaemonFigures, Figures, columns};
use benchmesh_proto::v1 as proto;
use std::time::{SystemTime, UNIX_EPOCH};

/// One session's stream of batches; each batch has some samples of all its daemons.
#[derive(Clone, Debug)]
pub struct Beats {
    spool_id: String,
    daemons: usize,
    beats: usize,
    sequence: u64,
    first_us: i64,
}

impl Beats {
    pub fn new(spool_id: String, daemons: usize, beats: usize) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a load of the past, whenever it runs"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            spool_id,
            daemons,
            beats,
            sequence: 0,
            // Rows count from the session's begin. One sample per millisecond keeps the instants in the past.
            first_us: now.as_micros() as i64,
        }
    }

    /// The sequence of the last batch.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The same stream after this sequence.
    pub fn after(self, sequence: u64) -> Self {
        Self { sequence, ..self }
    }

    pub fn next_batch(&mut self) -> proto::Batch {
        self.sequence += 1;
        let (daemons, beats) = (self.daemons as i64, self.beats as i64);
        let first = (self.sequence as i64 - 1) * beats + 1;
        let first_us = self.first_us;
        let samples = || {
            (first..first + beats)
                .flat_map(move |beat| (0..daemons).map(move |daemon| (beat, daemon)))
        };
        let figures = |(beat, daemon): (i64, i64)| DaemonFigures {
            cpu_user_us: 3_000_000_000 + beat * 83_117 + daemon * 977,
            cpu_system_us: 900_000_000 + beat * 41_011 + daemon * 131,
            rss_bytes: 4_294_967_296 + (beat * 7919 + daemon * 104_729) % 1_000_000 * 4096,
            vsz_bytes: 8_589_934_592 + daemon * 4096,
            threads: 60 + daemon % 40,
            fds: 300 + (beat + daemon) % 50,
            read_bytes: 50_000_000_000 + beat * 1_048_576 + daemon,
            write_bytes: 70_000_000_000 + beat * 2_097_152 + daemon,
            vol_ctx: 40_000_000 + beat * 1200 + daemon,
            invol_ctx: 500_000 + beat * 13 + daemon,
            minor_faults: 9_000_000 + beat * 55 + daemon,
            major_faults: 120 + beat / 100 + daemon,
            ..DaemonFigures::UNREAD
        };
        let rows: Vec<_> = samples().map(figures).collect();
        proto::Batch {
            spool_id: self.spool_id.clone(),
            first_sequence: self.sequence,
            sequence: self.sequence,
            daemons: if first == 1 {
                self.described(first_us)
            } else {
                Vec::new()
            },
            daemon_samples: Some(proto::DaemonSamples {
                pid: samples().map(|(_, daemon)| 1000 + daemon as i32).collect(),
                start_ticks: samples()
                    .map(|(_, daemon)| 123_456 + daemon as u64)
                    .collect(),
                // Readings of different daemons are some microseconds apart.
                at_us: samples()
                    .map(|(beat, daemon)| first_us + beat * 1000 + daemon * 7)
                    .collect(),
                figures: columns(rows.into_iter())
                    .into_iter()
                    .map(Into::into)
                    .collect(),
            }),
            ..proto::Batch::default()
        }
    }

    fn described(&self, at_us: i64) -> Vec<proto::DaemonSeen> {
        (0..self.daemons)
            .map(|daemon| proto::DaemonSeen {
                pid: 1000 + daemon as i32,
                start_ticks: 123_456 + daemon as u64,
                name: "ceph-osd".to_owned(),
                instance: format!("osd.{daemon}"),
                cmdline: format!("/usr/bin/ceph-osd -f --cluster ceph --id {daemon}"),
                at_us,
                ..proto::DaemonSeen::default()
            })
            .collect()
    }
}
