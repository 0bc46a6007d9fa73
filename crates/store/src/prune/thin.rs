//! Decides which samples of a series are deleted. Pure.
//!
//! No sample is synthesized: the kept ones stay as they were taken. For the samples as a whole, and for each figure
//! that may be missing, the following are kept: the first one of a bucket, the last one before a gap, and those next to
//! the edges of steps. So the growth of a counter between any two of them is exact. For a gauge, the sample with its
//! largest value in a bucket is kept, and for some gauges the one with the smallest.

use benchmesh_model::figures::{Figure, Kind};

/// Gauges whose smallest value matters as much as their largest.
const GAUGES_WITH_MINIMUM: [&str; 4] = [
    "rss_bytes",
    "memory_available_bytes",
    "free_bytes",
    "free_files",
];

/// One sample; its values are in the order of the figures.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub at_us: i64,
    pub values: Vec<Option<f64>>,
    /// It has another value that no other sample has.
    pub must_stay: bool,
}

/// The rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'r> {
    pub figures: &'r [Figure],
    /// `None`: all samples are deleted.
    pub bucket_us: Option<i64>,
    /// Starts and ends of steps, in order.
    pub edges: &'r [i64],
    /// Spans in which every sample is kept.
    pub untouched: &'r [(i64, i64)],
}

/// The instants of the samples to delete, from samples of one series in the order of time.
pub(super) fn superfluous(samples: &[Sample], rule: Rule<'_>) -> Vec<i64> {
    let is_untouched = |at| {
        rule.untouched
            .iter()
            .any(|&(from, until)| from <= at && at <= until)
    };
    let mut keeps: Vec<bool> = samples
        .iter()
        .map(|sample| is_untouched(sample.at_us) || (sample.must_stay && rule.bucket_us.is_some()))
        .collect();
    if let Some(bucket_us) = rule.bucket_us {
        let mut series = ThinnedSeries {
            samples,
            keeps: &mut keeps,
            bucket_us,
        };
        series.keep_ends(rule.edges, |_| true);
        for (place, figure) in rule.figures.iter().enumerate() {
            let value = |sample: &Sample| sample.values.get(place).copied().flatten();
            if figure.is_optional {
                series.keep_ends(rule.edges, |sample| value(sample).is_some());
            }
            if figure.kind == Kind::Counter {
                series.keep_resets(value);
            }
        }
        // Last, so that a sample that is kept anyway serves as the extreme if possible.
        for (place, figure) in rule.figures.iter().enumerate() {
            let value = |sample: &Sample| sample.values.get(place).copied().flatten();
            if figure.kind == Kind::Gauge {
                series.keep_extreme(value);
            }
            if GAUGES_WITH_MINIMUM.contains(&figure.name) {
                series.keep_extreme(|sample| value(sample).map(|value| -value));
            }
        }
    }
    let gone = samples.iter().zip(keeps).filter(|(_, keep)| !keep);
    gone.map(|(sample, _)| sample.at_us).collect()
}

struct ThinnedSeries<'s> {
    samples: &'s [Sample],
    keeps: &'s mut Vec<bool>,
    bucket_us: i64,
}

impl ThinnedSeries<'_> {
    fn keep(&mut self, index: usize) {
        if let Some(keep) = self.keeps.get_mut(index) {
            *keep = true;
        }
    }

    fn bucket(&self, sample: &Sample) -> i64 {
        sample.at_us.div_euclid(self.bucket_us)
    }

    /// Among the samples that have a figure: the first of each bucket, the last before a gap, and those around edges.
    fn keep_ends(&mut self, edges: &[i64], has: impl Fn(&Sample) -> bool) {
        let samples = self.samples;
        let those: Vec<(usize, &Sample)> = samples
            .iter()
            .enumerate()
            .filter(|(_, sample)| has(sample))
            .collect();
        let mut before: Option<(usize, i64)> = None;
        for &(index, sample) in &those {
            let bucket = self.bucket(sample);
            match before {
                Some((_, last)) if last == bucket => {}
                Some((place, last)) => {
                    if last + 1 < bucket {
                        self.keep(place);
                    }
                    self.keep(index);
                }
                None => self.keep(index),
            }
            before = Some((index, bucket));
        }
        if let Some((place, _)) = before {
            self.keep(place);
        }
        for &edge in edges {
            let after = those.partition_point(|(_, sample)| sample.at_us < edge);
            let until = those.partition_point(|(_, sample)| sample.at_us <= edge);
            for place in [until.checked_sub(1), Some(after)].into_iter().flatten() {
                if let Some(&(index, _)) = those.get(place) {
                    self.keep(index);
                }
            }
        }
    }

    /// Both samples around a counter that went backwards.
    fn keep_resets(&mut self, value: impl Fn(&Sample) -> Option<f64>) {
        let mut before: Option<(usize, f64)> = None;
        for (index, sample) in self.samples.iter().enumerate() {
            let Some(value) = value(sample) else { continue };
            if let Some((place, last)) = before
                && value < last
            {
                self.keep(place);
                self.keep(index);
            }
            before = Some((index, value));
        }
    }

    /// A sample with the largest value of each bucket.
    fn keep_extreme(&mut self, value: impl Fn(&Sample) -> Option<f64>) {
        let samples = self.samples;
        let mut best: Option<(i64, usize, f64)> = None;
        for (index, sample) in samples.iter().enumerate() {
            let Some(value) = value(sample) else { continue };
            let bucket = self.bucket(sample);
            let stays = self.keeps.get(index).copied().unwrap_or(false);
            match best {
                Some((of, place, largest)) if of == bucket => {
                    if value > largest || (value >= largest && stays) {
                        best = Some((bucket, index, value));
                    } else {
                        best = Some((of, place, largest));
                    }
                }
                other => {
                    if let Some((_, place, _)) = other {
                        self.keep(place);
                    }
                    best = Some((bucket, index, value));
                }
            }
        }
        if let Some((_, place, _)) = best {
            self.keep(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_model::figures::{DaemonFigures, Figures};

    const S: i64 = 1_000_000;

    /// Samples of each second: CPU time that grows by 10 ms, `rss` as given.
    fn samples(rss: impl Fn(i64) -> i64, seconds: i64) -> Vec<Sample> {
        let sample = |n: i64| {
            let figures = DaemonFigures {
                cpu_user_us: n * 10_000,
                cpu_system_us: 0,
                rss_bytes: rss(n),
                vsz_bytes: 7,
                ..DaemonFigures::UNREAD
            };
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let value = |value: i64| (value >= 0).then_some(value as f64);
            Sample {
                at_us: n * S + 300,
                values: figures.values().into_iter().map(value).collect(),
                must_stay: false,
            }
        };
        (0..seconds).map(sample).collect()
    }

    fn kept(samples: &[Sample], rule: Rule<'_>) -> Vec<i64> {
        let gone = superfluous(samples, rule);
        let stays = samples
            .iter()
            .filter(|sample| !gone.contains(&sample.at_us));
        stays.map(|sample| sample.at_us / S).collect()
    }

    const RULE: Rule<'_> = Rule {
        figures: DaemonFigures::ALL,
        bucket_us: Some(10 * S),
        edges: &[],
        untouched: &[],
    };

    #[test]
    fn the_first_of_each_bucket_stays_and_the_extremes() {
        let calm = samples(|_| 100, 40);
        assert_eq!(kept(&calm, RULE), [0, 10, 20, 30, 39]);
        let peaks = samples(
            |n| {
                if n == 17 {
                    900
                } else {
                    100 - i64::from(n == 25)
                }
            },
            40,
        );
        assert_eq!(kept(&peaks, RULE), [0, 10, 17, 20, 25, 30, 39]);
        let untouched = [(11 * S, 14 * S)];
        let rule = Rule {
            untouched: &untouched,
            ..RULE
        };
        assert_eq!(kept(&calm, rule), [0, 10, 11, 12, 13, 20, 30, 39]);
        let all = Rule {
            bucket_us: None,
            ..rule
        };
        assert_eq!(kept(&calm, all), [11, 12, 13]);
    }

    #[test]
    fn the_samples_around_edges_gaps_and_resets_stay() {
        let edges = [14 * S, 27 * S + 300];
        let rule = Rule {
            edges: &edges,
            ..RULE
        };
        assert_eq!(
            kept(&samples(|_| 1, 40), rule),
            [0, 10, 13, 14, 20, 27, 30, 39]
        );
        let mut gap = samples(|_| 1, 40);
        gap.drain(5..25);
        assert_eq!(kept(&gap, RULE), [0, 4, 25, 30, 39]);
        let mut reset = samples(|_| 1, 20);
        for sample in reset.iter_mut().skip(13) {
            if let Some(Some(value)) = sample.values.first_mut() {
                *value -= 130_000.0;
            }
        }
        assert_eq!(kept(&reset, RULE), [0, 10, 12, 13, 19]);
    }

    #[test]
    fn thinning_again_changes_nothing_and_a_minute_follows_from_ten_seconds() {
        let all = samples(|n| (n * 7919) % 104_729, 600);
        let thinned = |samples: &[Sample], rule| {
            let gone = superfluous(samples, rule);
            let mut left = samples.to_vec();
            left.retain(|sample| !gone.contains(&sample.at_us));
            left
        };
        let tens = thinned(&all, RULE);
        assert!(superfluous(&tens, RULE).is_empty());
        let minute = Rule {
            bucket_us: Some(60 * S),
            ..RULE
        };
        let instants = |samples: Vec<Sample>| samples.iter().map(|s| s.at_us).collect::<Vec<_>>();
        assert_eq!(
            instants(thinned(&tens, minute)),
            instants(thinned(&all, minute))
        );
    }
}
