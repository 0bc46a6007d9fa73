//! The newest samples of hosts and daemons on arrival, before their commit: for live views, never for results.
//!
//! Bounded: two seconds of each series, and a maximum number of daemons per host.

use super::batch::{Batch, Process};
use benchmesh_model::figures::{
    DaemonFigures, Figures, HostFigures, Kind, ShownIn, UNKNOWN, Unit, shown_in,
};
use benchmesh_model::mesh::HostId;
use benchmesh_results::real;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Minimum time span of a rate, so that a dense sample at a step's start gives no rate.
const MIN_SPAN_US: i64 = 1_500_000;
/// Maximum number of samples of one series within that time: the shortest `--sample-period` with some reserve.
const MAX_KEPT: usize = 32;
/// A daemon without a sample for this long, by the time of its host's samples, is removed.
const EXPIRY_US: i64 = 15_000_000;
/// Per host.
const MAX_DAEMONS: usize = 4096;

/// The newest sample of a series, and one a little earlier, if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Newest<F> {
    pub at_us: i64,
    pub figures: F,
    pub earlier: Option<(i64, F)>,
}

impl<F: Figures> Default for Newest<F> {
    fn default() -> Self {
        Self {
            at_us: 0,
            figures: F::UNREAD,
            earlier: None,
        }
    }
}

impl<F: Figures> Newest<F> {
    /// The newest value of the figure at this position of the table; `None` if unknown.
    pub fn known(&self, place: usize) -> Option<i64> {
        known(&self.figures, place)
    }

    /// The growth per second of the counter at this position.
    pub fn per_second(&self, place: usize) -> Option<f64> {
        let (before_us, before) = &self.earlier?;
        let grown = self.known(place)? - known(before, place)?;
        Some(real(grown) / real(self.at_us - before_us) * 1e6)
    }
}

fn known<F: Figures>(figures: &F, place: usize) -> Option<i64> {
    let value = *figures.values().as_ref().get(place)?;
    Some(value).filter(|value| *value != UNKNOWN)
}

/// Serializes the instant, and the figures that are shown live.
impl<F: Figures> Serialize for Newest<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("at_us", &self.at_us)?;
        for (place, figure) in shown_in::<F>(ShownIn::Live) {
            let key = figure.live_key();
            let known = self.known(place);
            match (figure.kind, figure.unit) {
                (Kind::Counter, _) => map.serialize_entry(&key, &self.per_second(place))?,
                (Kind::Gauge, Unit::Hundredths) => {
                    map.serialize_entry(&key, &known.map(|value| figure.scaled(real(value))))?;
                }
                (Kind::Gauge, _) => map.serialize_entry(&key, &known)?,
            }
        }
        map.end()
    }
}

/// The newest samples of all hosts.
#[derive(Debug, Default)]
pub struct RecentSamples(Mutex<HashMap<HostId, RecentOfHost>>);

#[derive(Debug, Default)]
struct RecentOfHost {
    host: RecentSeries<HostFigures>,
    daemons: HashMap<Process, RecentSeries<DaemonFigures>>,
    tidied_us: i64,
}

/// Ordered by time.
#[derive(Debug)]
struct RecentSeries<F>(VecDeque<(i64, F)>);

impl<F> Default for RecentSeries<F> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<F: Figures> RecentSeries<F> {
    /// Ignores samples older than the newest, for example from a spool that is being drained.
    fn add(&mut self, at_us: i64, figures: F) {
        if self.newest_us().is_some_and(|newest_us| at_us <= newest_us) {
            return;
        }
        let last = self.0.back().map_or(F::UNREAD, |(_, last)| *last);
        self.0.push_back((at_us, as_read_last(figures, last)));
        let is_earlier =
            |(second_us, _): &(i64, F)| at_us.saturating_sub(*second_us) >= MIN_SPAN_US;
        while self.0.get(1).is_some_and(is_earlier) {
            self.0.pop_front();
        }
        if self.0.len() > MAX_KEPT {
            self.0.remove(1);
        }
    }

    fn newest_us(&self) -> Option<i64> {
        self.0.back().map(|(at_us, _)| *at_us)
    }

    fn newest(&self) -> Option<Newest<F>> {
        let &(at_us, figures) = self.0.back()?;
        let first = self.0.front().copied();
        Some(Newest {
            at_us,
            figures,
            earlier: first.filter(|(first_us, _)| at_us.saturating_sub(*first_us) >= MIN_SPAN_US),
        })
    }
}

/// Gauges that were not read this time keep their last value.
fn as_read_last<F: Figures>(figures: F, last: F) -> F {
    let values = F::ALL.iter().zip(figures.values()).zip(last.values());
    F::from_values(values.map(|((figure, value), last)| match figure.kind {
        Kind::Gauge if value == UNKNOWN => last,
        Kind::Gauge | Kind::Counter => value,
    }))
}

impl RecentOfHost {
    fn add(&mut self, batch: &Batch) {
        for sample in &batch.host_samples {
            self.host.add(sample.at.0, sample.figures);
        }
        for sample in &batch.daemon_samples {
            if self.daemons.len() < MAX_DAEMONS || self.daemons.contains_key(&sample.process) {
                let series = self.daemons.entry(sample.process).or_default();
                series.add(sample.at.0, sample.figures);
            }
        }
        if batch.newest_us.saturating_sub(self.tidied_us) >= EXPIRY_US {
            self.tidied_us = batch.newest_us;
            let since_us = batch.newest_us.saturating_sub(EXPIRY_US);
            let is_seen =
                |series: &RecentSeries<DaemonFigures>| series.newest_us() >= Some(since_us);
            self.daemons.retain(|_, series| is_seen(series));
        }
    }
}

impl RecentSamples {
    pub(crate) fn add(&self, host: HostId, batch: &Batch) {
        if !batch.host_samples.is_empty() || !batch.daemon_samples.is_empty() {
            self.lock().entry(host).or_default().add(batch);
        }
    }

    pub fn hosts(&self) -> HashMap<HostId, Newest<HostFigures>> {
        let all = self.lock();
        let newest = all.iter().map(|(id, of_host)| (*id, &of_host.host));
        newest
            .filter_map(|(id, series)| Some((id, series.newest()?)))
            .collect()
    }

    pub fn daemons(&self) -> HashMap<(HostId, Process), Newest<DaemonFigures>> {
        let all = self.lock();
        let series = all.iter().flat_map(|(host, of_host)| {
            let daemons = of_host.daemons.iter();
            daemons.map(|(process, series)| ((*host, *process), series))
        });
        series
            .filter_map(|(key, series)| Some((key, series.newest()?)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, RecentOfHost>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::ingest::batch::DaemonSample;
    use benchmesh_model::figures::Figures;
    use benchmesh_model::mesh::MeshMicros;

    const HOST: HostId = HostId(1);

    fn batch(at_ms: i64, pids: std::ops::Range<i32>) -> Batch {
        let at = MeshMicros(at_ms * 1000);
        let sample = |pid| DaemonSample {
            process: process(pid),
            at,
            figures: DaemonFigures {
                rss_bytes: at_ms,
                ..DaemonFigures::UNREAD
            },
        };
        Batch {
            newest_us: at.0,
            daemon_samples: pids.map(sample).collect(),
            ..Batch::default()
        }
    }

    fn process(pid: i32) -> Process {
        Process {
            pid,
            start_ticks: 7,
        }
    }

    /// The instants in milliseconds of a daemon's newest sample and of the earlier one that it is compared with.
    fn newest(recent: &RecentSamples, pid: i32) -> Option<(i64, Option<i64>)> {
        let newest = recent.daemons().get(&(HOST, process(pid))).copied()?;
        let earlier = newest.earlier.map(|(_, figures)| figures.rss_bytes);
        Some((newest.figures.rss_bytes, earlier))
    }

    #[test]
    fn the_newest_is_held_against_one_that_is_old_enough() {
        let recent = RecentSamples::default();
        let check = |at_ms: i64, expected| {
            recent.add(HOST, &batch(at_ms, 1..2));
            assert_eq!(newest(&recent, 1), Some(expected), "after {at_ms}");
        };
        check(1000, (1000, None));
        check(2000, (2000, None));
        check(3000, (3000, Some(1000)));
        check(3100, (3100, Some(1000)));
        check(4000, (4000, Some(2000)));
        // From a spool that is being drained.
        check(2500, (4000, Some(2000)));
        check(60_000, (60_000, Some(4000)));
        for at_ms in 60_001..62_000 {
            recent.add(HOST, &batch(at_ms, 1..2));
        }
        let kept = recent
            .lock()
            .get(&HOST)
            .unwrap()
            .daemons
            .get(&process(1))
            .unwrap()
            .0
            .len();
        assert!(kept <= MAX_KEPT, "{kept}");
    }

    #[test]
    fn a_gauge_that_is_not_read_every_time_is_as_it_was_read_last() {
        let recent = RecentSamples::default();
        let shown = |at_ms: i64, threads: i64, write_bytes: i64| {
            let mut batch = batch(at_ms, 1..2);
            batch.daemon_samples[0].figures.threads = threads;
            batch.daemon_samples[0].figures.write_bytes = write_bytes;
            recent.add(HOST, &batch);
            serde_json::to_value(recent.daemons()[&(HOST, process(1))]).unwrap()
        };
        assert_eq!(shown(1000, UNKNOWN, 5)["threads"], serde_json::Value::Null);
        assert_eq!(shown(2000, 4, 5)["threads"], 4);
        let third = shown(3000, UNKNOWN, 205);
        assert_eq!(
            (&third["threads"], &third["at_us"]),
            (&4.into(), &3_000_000.into())
        );
        assert_eq!(third["write_bytes_per_s"], 100.0);
        assert_eq!(
            shown(4000, UNKNOWN, UNKNOWN)["write_bytes_per_s"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn daemons_are_bounded_and_forgotten() {
        let recent = RecentSamples::default();
        recent.add(HOST, &batch(1000, 0..10_000));
        assert_eq!(recent.daemons().len(), MAX_DAEMONS);
        recent.add(HOST, &batch(17_000, 0..1));
        assert_eq!(recent.daemons().len(), 1);
        assert_eq!(newest(&recent, 0), Some((17_000, Some(1000))));
    }
}
