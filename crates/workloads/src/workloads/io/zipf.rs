//! Distribution of random blocks: uniform, or by Zipf's law.

use crate::engine::author::*;
use serde_json::{Value, json};

const THETA: std::ops::RangeInclusive<f64> = 0.01..=10.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Distribution {
    Even,
    /// Exponent.
    Zipf(f64),
}

impl Distribution {
    fn parse(text: &str) -> Result<Distribution, String> {
        if text == "random" {
            return Ok(Distribution::Even);
        }
        let theta = text.strip_prefix("zipf:").ok_or_else(|| {
            format!("`{text}` is not `random` or `zipf:THETA`, such as `zipf:1.1`")
        })?;
        match theta.trim().parse() {
            Ok(theta) if THETA.contains(&theta) => Ok(Distribution::Zipf(theta)),
            _ => Err(format!(
                "THETA must be a number from {} to {}, and `{theta}` is not",
                THETA.start(),
                THETA.end()
            )),
        }
    }
}

impl KeyValue for Distribution {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "\"random\" or \"zipf:THETA\"",
            schema: || json!({"type": "string", "pattern": "^(random|zipf:.+)$"}),
        }
    }

    fn read(value: &Value) -> Result<Distribution, String> {
        Distribution::parse(value.as_str().ok_or_else(String::new)?)
    }
}

/// Draws ranks from 0 on, rank r with a probability proportional to (r + 1)^-theta, in constant time and memory.
///
/// The method is rejection inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", 1996). Another version of `rand_distr` may draw other blocks from the same seed; here a seed
/// always gives the same sequence.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    theta: f64,
    most: f64,
    /// Integral of the density at both ends of the range.
    low: f64,
    high: f64,
    /// Below this distance from the rank, no rejection is possible.
    sure: f64,
}

impl Zipf {
    pub(super) fn new(theta: f64, count: u64) -> Zipf {
        let mut zipf = Zipf {
            theta,
            most: count.max(1) as f64,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.most + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            // 53 bits make a number in [0, 1).
            let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let area = self.high + unit * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.most);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 1 to a count"
                )]
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// (x^(1-theta) - 1) / (1 - theta), which is ln x where theta is 1, without loss near there.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.theta) * log;
        match power.abs() < 1e-8 {
            true => log * (1.0 + power / 2.0),
            false => power.exp_m1() / (1.0 - self.theta),
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.theta)).max(-1.0);
        match power.abs() < 1e-8 {
            true => (area * (1.0 - power / 2.0)).exp(),
            false => (power.ln_1p() / (1.0 - self.theta)).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for theta in [0.01, 0.5, 0.99, 1.0, 1.000_000_001, 1.1, 2.0, 10.0] {
            let count = 50_usize;
            let zipf = Zipf::new(theta, count as u64);
            let mut seen = vec![0.0; count];
            let mut random = Random::new(11);
            let draws = 400_000;
            for _ in 0..draws {
                seen[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1.0;
            }
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-theta);
            let sum: f64 = (0..count).map(weight).sum();
            for (rank, seen) in seen.iter().enumerate() {
                let expected = f64::from(draws) * weight(rank) / sum;
                // Slightly more than five standard deviations.
                let room = 5.0 * expected.sqrt() + 5.0;
                assert!(
                    (seen - expected).abs() < room,
                    "{theta} {rank}: {seen} {expected}"
                );
            }
        }
    }

    #[test]
    fn any_count_has_its_ranks() {
        let mut random = Random::new(1);
        assert_eq!(Zipf::new(1.1, 1).draw(&mut random), 0);
        let zipf = Zipf::new(0.2, 1 << 40);
        assert!((0..1000).all(|_| zipf.draw(&mut random) < 1 << 40));
    }

    #[test]
    fn distributions_are_read() {
        assert_eq!(Distribution::parse("random"), Ok(Distribution::Even));
        assert_eq!(Distribution::parse("zipf:1.1"), Ok(Distribution::Zipf(1.1)));
        for (bad, part) in [
            ("zipf", "`zipf:1.1`"),
            ("pareto:0.2", "not `random` or"),
            ("zipf:0", "0.01 to 10"),
            ("zipf:-1", "0.01 to 10"),
            ("zipf:nan", "0.01 to 10"),
            ("zipf:", "0.01 to 10"),
        ] {
            assert!(
                Distribution::parse(bad).unwrap_err().contains(part),
                "{bad}"
            );
        }
    }
}
