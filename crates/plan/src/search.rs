//! A search for the highest rate at which a latency bound holds: the plan's request, and the choice of the next rate.
//!
//! Pure. Each probe is a separate step over all clients together. The first has no rate; [`Search::decide`] chooses the
//! rate of each further probe from the results so far. It is evaluated from scratch after each probe, so that a
//! collector that restarts in between makes the same decision from the stored results.

use super::{alarms::StepFigure, curve::three_digits};
use benchmesh_workloads::op::Op;
use std::{fmt, sync::Arc};

/// Minimum achieved share of a probe's rate: windows begin and end within a second.
const MIN_ACHIEVED_SHARE: f64 = 0.95;

/// The search of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub bound: Bound,
    /// Maximum number of probes of a search.
    pub steps: u32,
    /// The lowest rate that fails is at most this share above the result.
    pub within: f64,
}

/// A limit on a latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The limit as written in the plan, with single spaces.
    pub words: String,
    /// One of the latencies.
    pub figure: StepFigure,
    pub limit_ms: f64,
}

/// The position of a step in its search.
#[derive(Clone, Debug)]
pub struct Probe {
    pub search: Arc<Search>,
    /// Counted from 1; number 1 has no rate.
    pub number: u32,
    /// The probe makes its own data, which no other probe finds.
    pub has_own_cell: bool,
}

/// The results of one operation of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeOp {
    pub op: String,
    /// `None` if its tasks did not run at the same time.
    pub ops_per_s: Option<f64>,
    pub errors: u64,
    pub service: Latencies,
    /// Measured from the instants when operations were due; `None` if they had no schedule.
    pub response: Option<Latencies>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// A completed probe, as judged by its search.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// `None` for a probe without a rate.
    pub rate: Option<u64>,
    /// Operations per second.
    pub achieved: f64,
    /// The bound's figure, from the operation where it is largest.
    pub latency_ms: f64,
    pub errors: u64,
    pub verdict: ProbeVerdict,
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    Passed,
    /// The bound does not hold.
    TooSlow,
    /// Fewer operations completed than were due.
    Behind,
    Errors,
    /// The step failed, or there is no overall rate of its tasks.
    Unmeasured,
}

impl fmt::Display for ProbeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::TooSlow => "too slow",
            Self::Behind => "behind its rate",
            Self::Errors => "errors",
            Self::Unmeasured => "not measured",
        })
    }
}

/// The next action after the probes so far.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Run another probe at this rate.
    Probe(u64),
    Found(Found),
    NotFound(NotFound),
}

/// The highest rate at which the bound holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Index of the probe among those so far.
    pub probe: usize,
    /// Operations per second: the probe's rate, or the achieved rate of a probe without one.
    pub per_s: f64,
    /// Index of the probe with the lowest rate that failed; `None` if the load passes without a rate.
    pub above: Option<usize>,
    /// The limit of probes was reached before the search was precise enough.
    pub is_rough: bool,
}

/// Why a search ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// Index of the probe.
    Unmeasured(usize),
    /// No rate met the bound.
    NonePassed,
}

impl Search {
    /// Judges a probe of this rate by its results. An empty `ops` means that its step failed.
    pub fn judge(&self, rate: Option<u64>, ops: &[ProbeOp]) -> Judged {
        let is_paced = ops.iter().any(|op| op.response.is_some());
        // Without a rate: the operations that a rate would pace.
        let counts = |op: &&ProbeOp| match is_paced {
            true => op.response.is_some(),
            false => Op::is_work(&op.op),
        };
        let ops: Vec<&ProbeOp> = ops.iter().filter(counts).collect();
        let together: Option<f64> = ops.iter().map(|op| op.ops_per_s).sum();
        let achieved = together.unwrap_or(0.0);
        let latencies = ops.iter().map(|op| op.response.unwrap_or(op.service));
        let latency_ms = latencies
            .map(|latencies| self.bound.of(&latencies))
            .fold(0.0, f64::max);
        let errors = ops.iter().map(|op| op.errors).sum();
        let verdict = if ops.is_empty() || together.is_none() {
            ProbeVerdict::Unmeasured
        } else if errors > 0 {
            ProbeVerdict::Errors
        } else if rate.is_none() && achieved <= 0.0 {
            ProbeVerdict::Unmeasured
        } else if latency_ms >= self.bound.limit_ms {
            ProbeVerdict::TooSlow
        } else if rate.is_some_and(|rate| achieved < real(rate) * MIN_ACHIEVED_SHARE) {
            ProbeVerdict::Behind
        } else {
            ProbeVerdict::Passed
        };
        Judged {
            rate,
            achieved,
            latency_ms,
            errors,
            verdict,
        }
    }

    /// Decides the next action. If results contradict each other, the lowest failed rate counts: a higher rate that
    /// passed did so by chance.
    pub fn decide(&self, probes: &[Judged]) -> Decision {
        let is = |verdict| move |probe: &Judged| probe.verdict == verdict;
        if let Some(place) = probes.iter().position(is(ProbeVerdict::Unmeasured)) {
            return Decision::NotFound(NotFound::Unmeasured(place));
        }
        let unbounded = |probe: &Judged| probe.rate.is_none() && is(ProbeVerdict::Passed)(probe);
        if let Some(place) = probes.iter().position(unbounded) {
            return Decision::Found(Found {
                probe: place,
                per_s: probes.get(place).map_or(0.0, |probe| probe.achieved),
                above: None,
                is_rough: false,
            });
        }
        let rated = || {
            probes
                .iter()
                .enumerate()
                .map(|(place, it)| (it.bounds(), place, it.verdict))
        };
        let failed = rated().filter(|(_, _, verdict)| *verdict != ProbeVerdict::Passed);
        let Some((above, failed_at, _)) = failed.min_by_key(|(rate, ..)| *rate) else {
            return Decision::NotFound(NotFound::NonePassed);
        };
        let passed =
            rated().filter(|(rate, _, verdict)| *verdict == ProbeVerdict::Passed && *rate < above);
        let passed = passed.max_by_key(|(rate, ..)| *rate);
        let has_more = probes.len() < usize::try_from(self.steps).unwrap_or(usize::MAX);
        let Some((rate, place, _)) = passed else {
            return match has_more && above > 1 {
                true => Decision::Probe(between(0, above, real(above) / 2.0)),
                false => Decision::NotFound(NotFound::NonePassed),
            };
        };
        let gap = above - rate;
        let is_close = gap <= 1 || real(gap) <= real(rate) * self.within;
        if has_more && !is_close {
            return Decision::Probe(between(rate, above, (real(rate) * real(above)).sqrt()));
        }
        Decision::Found(Found {
            probe: place,
            per_s: real(rate),
            above: Some(failed_at),
            is_rough: !is_close,
        })
    }
}

impl Bound {
    fn of(&self, latencies: &Latencies) -> f64 {
        match self.figure {
            StepFigure::P50 => latencies.p50_ms,
            StepFigure::P99 => latencies.p99_ms,
            // Other figures are refused.
            StepFigure::Max | StepFigure::Rate | StepFigure::Throughput => latencies.max_ms,
        }
    }
}

impl Judged {
    /// The probe's rate. Without one, the achieved rate: the storage cannot sustain a higher one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and saturating beyond every rate"
    )]
    fn bounds(&self) -> u64 {
        self.rate.unwrap_or(self.achieved.ceil() as u64)
    }
}

/// A rate strictly between two others, rounded to three digits if possible; at least one integer lies between them.
fn between(low: u64, high: u64, wanted: f64) -> u64 {
    let is_between = |rate: &u64| low < *rate && *rate < high;
    Some(three_digits(wanted))
        .filter(is_between)
        .unwrap_or(low + (high - low) / 2)
}

#[expect(clippy::cast_precision_loss, reason = "rates have far fewer digits")]
fn real(rate: u64) -> f64 {
    rate as f64
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::cast_precision_loss
    )]
    use super::*;

    fn search(steps: u32, within: f64) -> Search {
        Search {
            bound: Bound {
                words: "p99 < 10ms".to_owned(),
                figure: StepFigure::P99,
                limit_ms: 10.0,
            },
            steps,
            within,
        }
    }

    fn op(ops_per_s: Option<f64>, service_ms: f64, response_ms: Option<f64>) -> ProbeOp {
        let latencies = |ms: f64| Latencies {
            p50_ms: ms / 2.0,
            p99_ms: ms,
            max_ms: ms * 2.0,
        };
        ProbeOp {
            op: "read".to_owned(),
            ops_per_s,
            errors: 0,
            service: latencies(service_ms),
            response: response_ms.map(latencies),
        }
    }

    /// The probes of a storage that does `most` operations per second and meets the bound up to `knee`, and the end of
    /// the search.
    fn walked(search: &Search, most: f64, knee: f64) -> (Vec<Option<u64>>, Decision) {
        let mut probes = Vec::new();
        let mut rate = None;
        loop {
            let wanted = rate.map_or(f64::INFINITY, |rate: u64| rate as f64);
            let latency = if wanted <= knee { 2.0 } else { 50.0 };
            let op = op(Some(wanted.min(most)), latency, rate.map(|_| latency));
            probes.push(search.judge(rate, &[op]));
            match search.decide(&probes) {
                Decision::Probe(next) => rate = Some(next),
                end => return (probes.iter().map(|probe| probe.rate).collect(), end),
            }
        }
    }

    fn check(most: f64, knee: f64, rates: &[u64], expected: Option<(f64, bool)>) {
        let (walked, end) = walked(&search(12, 0.05), most, knee);
        let walked: Vec<u64> = walked.into_iter().flatten().collect();
        assert_eq!(walked, rates, "{most} {knee}");
        let found = match end {
            Decision::Found(found) => Some((found.per_s, found.is_rough)),
            _ => None,
        };
        assert_eq!(found, expected, "{most} {knee}");
    }

    #[test]
    fn probes_close_in_on_the_knee() {
        check(
            10_000.0,
            6000.0,
            &[5000, 7070, 5950, 6490, 6210],
            Some((5950.0, false)),
        );
        check(
            10_000.0,
            1.0,
            &[5000, 2500, 1250, 625, 313, 157, 79, 40, 20, 10, 5],
            None,
        );
        check(7.0, 2.0, &[4, 2, 3], Some((2.0, false)));
        // Every rate meets the bound, but the load without a rate does not.
        check(
            1000.0,
            999.0,
            &[500, 707, 841, 917, 958],
            Some((958.0, false)),
        );
        // The load meets the bound without a rate as well.
        check(1000.0, f64::INFINITY, &[], Some((1000.0, false)));
        check(1.0, 0.0, &[], None);
    }

    #[test]
    fn the_steps_bound_a_search() {
        let (probes, end) = walked(&search(3, 0.01), 10_000.0, 6000.0);
        assert_eq!(probes, [None, Some(5000), Some(7070)]);
        let Decision::Found(found) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            (found.per_s, found.probe, found.above, found.is_rough),
            (5000.0, 1, Some(2), true)
        );
    }

    #[test]
    fn any_knee_is_found_within_the_share() {
        for knee in (1..2000).map(|step| f64::from(step) * 5.0) {
            let (probes, end) = walked(&search(40, 0.05), 10_000.0, knee);
            let Decision::Found(found) = end else {
                panic!("{knee}: {end:?}")
            };
            let above = probes[found.above.unwrap()].unwrap_or(10_000) as f64;
            assert!(found.per_s <= knee && knee < above, "{knee}: {found:?}");
            assert!(
                above - found.per_s <= (found.per_s * 0.05).max(1.0),
                "{knee}: {found:?}"
            );
        }
    }

    #[test]
    fn a_probe_passes_that_keeps_up_in_time_and_without_errors() {
        let search = search(12, 0.05);
        let verdict = |rate, ops: &[ProbeOp]| search.judge(rate, ops).verdict;
        let at = |ops_per_s, response| op(Some(ops_per_s), 1.0, Some(response));
        assert_eq!(verdict(Some(100), &[at(99.0, 9.9)]), ProbeVerdict::Passed);
        assert_eq!(verdict(Some(100), &[at(99.0, 10.0)]), ProbeVerdict::TooSlow);
        assert_eq!(verdict(Some(100), &[at(90.0, 2.0)]), ProbeVerdict::Behind);
        // Together they keep up; the slower one counts.
        assert_eq!(
            verdict(Some(100), &[at(50.0, 2.0), at(50.0, 3.0)]),
            ProbeVerdict::Passed
        );
        assert_eq!(
            verdict(Some(100), &[at(50.0, 2.0), at(50.0, 30.0)]),
            ProbeVerdict::TooSlow
        );
        // Operations without a schedule are not part of the rate.
        let counted = op(Some(900.0), 100.0, None);
        assert_eq!(
            verdict(Some(100), &[at(90.0, 2.0), counted]),
            ProbeVerdict::Behind
        );
        let failed = ProbeOp {
            errors: 1,
            ..at(99.0, 1.0)
        };
        assert_eq!(verdict(Some(100), &[failed]), ProbeVerdict::Errors);
        assert_eq!(
            verdict(None, &[op(Some(5.0), 1.0, None)]),
            ProbeVerdict::Passed
        );
        assert_eq!(verdict(None, &[]), ProbeVerdict::Unmeasured);
        assert_eq!(
            verdict(None, &[op(None, 1.0, None)]),
            ProbeVerdict::Unmeasured
        );
        let probes = [
            search.judge(None, &[op(Some(100.0), 50.0, None)]),
            search.judge(Some(50), &[]),
        ];
        assert_eq!(
            search.decide(&probes),
            Decision::NotFound(NotFound::Unmeasured(1))
        );
    }

    #[test]
    fn of_rates_that_contradict_each_other_the_lower_counts() {
        let search = search(12, 0.05);
        let judged =
            |rate, response| search.judge(rate, &[op(Some(1000.0), response, Some(response))]);
        let probes = [
            judged(None, 50.0),
            judged(Some(500), 50.0),
            judged(Some(700), 2.0),
        ];
        assert_eq!(search.decide(&probes), Decision::Probe(250));
    }
}
