//! Combines seconds to points. Pure.

use super::{OpSeries, short};
use benchmesh_results::seconds::{MIN_SECOND_US, whole_seconds};

/// One second (or less) of one operation. An imported log may not say how many operations or bytes it was; then there
/// is no rate, which is not a rate of 0.
#[derive(Clone, Debug, Default)]
pub struct OpSecond {
    pub at_us: i64,
    pub span_us: i64,
    pub ops: Option<i64>,
    pub bytes: Option<i64>,
    pub errors: i64,
    pub p50_ns: Option<i64>,
    pub p99_ns: Option<i64>,
    pub max_ns: Option<i64>,
}

/// The division of a time span into points.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Origin of the seconds.
    pub origin_us: i64,
    pub from_us: i64,
    pub bucket_us: i64,
}

impl Axis {
    /// At most `points` points, each a whole number of seconds.
    pub fn new(origin_us: i64, from_us: i64, until_us: i64, points: i64) -> Self {
        let seconds = ceiling(until_us.saturating_sub(from_us).max(1), 1_000_000);
        let bucket_us = ceiling(seconds, points.max(1)).max(1) * 1_000_000;
        Self {
            origin_us,
            from_us,
            bucket_us,
        }
    }

    /// The same points, counted from another instant.
    pub fn beginning(&self, from_us: i64) -> Self {
        Self { from_us, ..*self }
    }

    pub fn bucket(&self, at_us: i64) -> i64 {
        at_us
            .saturating_sub(self.from_us)
            .div_euclid(self.bucket_us)
    }

    pub fn bucket_s(&self) -> f64 {
        real(self.bucket_us) / 1e6
    }

    /// The point's start in seconds since the origin, rounded to milliseconds.
    pub fn second(&self, bucket: i64) -> f64 {
        let at_us = self
            .from_us
            .saturating_add(bucket.saturating_mul(self.bucket_us));
        self.seconds_of(at_us)
    }

    pub fn seconds_of(&self, at_us: i64) -> f64 {
        (real(at_us.saturating_sub(self.origin_us)) / 1e3).round() / 1e3
    }
}

fn ceiling(value: i64, by: i64) -> i64 {
    value.saturating_add(by - 1).div_euclid(by)
}

#[expect(clippy::cast_precision_loss, reason = "figures to draw")]
pub fn real(value: i64) -> f64 {
    value as f64
}

/// One series while it is built, in order of time.
#[derive(Debug)]
pub struct Points {
    axis: Axis,
    bucket: Option<i64>,
    open: Point,
    series: OpSeries,
}

#[derive(Debug, Default)]
struct Point {
    span_us: f64,
    ops: Rate,
    bytes: Rate,
    errors: i64,
    /// The rates of its slowest and fastest whole second.
    extremes: Option<(f64, f64)>,
    /// Sums over seconds, weighted by operations, and the weight.
    p50: f64,
    p99: f64,
    weight: f64,
    p99_most: i64,
    max_ns: i64,
}

/// A sum over the seconds in which it is known, and their length.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    sum: f64,
    span_us: f64,
}

impl Rate {
    fn add(&mut self, count: Option<i64>, span_us: f64) {
        if let Some(count) = count {
            self.sum += real(count);
            self.span_us += span_us;
        }
    }

    fn per_s(self) -> Option<f64> {
        (self.span_us > 0.0).then(|| self.sum * 1e6 / self.span_us)
    }
}

impl Points {
    pub fn new(name: String, axis: Axis) -> Self {
        Self {
            axis,
            bucket: None,
            open: Point::default(),
            series: OpSeries {
                name,
                ..OpSeries::default()
            },
        }
    }

    pub fn add(&mut self, second: &OpSecond) {
        let bucket = self.axis.bucket(second.at_us);
        if self.bucket != Some(bucket) {
            self.close();
            self.bucket = Some(bucket);
        }
        let span_us = real(second.span_us.max(1));
        let point = &mut self.open;
        if let Some(ops) = second.ops
            && whole_seconds(second.span_us) > 0
        {
            let rate = real(ops) * 1e6 / span_us;
            let (least, most) = point.extremes.unwrap_or((rate, rate));
            point.extremes = Some((least.min(rate), most.max(rate)));
        }
        point.span_us += span_us;
        point.ops.add(second.ops, span_us);
        point.bytes.add(second.bytes, span_us);
        point.errors = point.errors.saturating_add(second.errors);
        if let (Some(p50), Some(p99)) = (second.p50_ns, second.p99_ns) {
            let weight = real(second.ops.unwrap_or(1).max(1));
            point.p50 += real(p50) * weight;
            point.p99 += real(p99) * weight;
            point.weight += weight;
            point.p99_most = point.p99_most.max(p99);
        }
        point.max_ns = point.max_ns.max(second.max_ns.unwrap_or(0));
    }

    /// A too short point is only drawn if there is no other.
    fn close(&mut self) {
        let Some(bucket) = self.bucket.take() else {
            return;
        };
        let point = std::mem::take(&mut self.open);
        let series = &mut self.series;
        if point.span_us < real(MIN_SECOND_US) && !series.at_s.is_empty() {
            return;
        }
        let mean = point.ops.per_s();
        let ms = |ns: f64| Some(short(ns / 1e6));
        series.at_s.push(self.axis.second(bucket));
        series.ops_per_s.push(mean.map(short));
        let extremes = mean.map(|mean| {
            let (least, most) = point.extremes.unwrap_or((mean, mean));
            (short(least.min(mean)), short(most.max(mean)))
        });
        series.ops_least.push(extremes.map(|(least, _)| least));
        series.ops_most.push(extremes.map(|(_, most)| most));
        let bytes = point.bytes.per_s();
        series
            .mib_per_s
            .push(bytes.map(|bytes| short(bytes / 1_048_576.0)));
        let has_latency = point.weight > 0.0;
        let weighted = |sum: f64| ms(sum / point.weight).filter(|_| has_latency);
        series.p50_ms.push(weighted(point.p50));
        series.p99_ms.push(weighted(point.p99));
        series
            .p99_most_ms
            .push(ms(real(point.p99_most)).filter(|_| has_latency));
        series
            .max_ms
            .push(ms(real(point.max_ns)).filter(|_| has_latency));
        series.errors.push(point.errors);
    }

    /// An operation that moves no bytes, such as a deletion, has no bytes per second.
    pub fn finish(mut self) -> OpSeries {
        self.close();
        let moves_bytes = |rate: &Option<f64>| rate.is_some_and(|rate| rate > 0.0);
        if !self.series.mib_per_s.iter().any(moves_bytes) {
            self.series.mib_per_s.fill(None);
        }
        self.series
    }
}
