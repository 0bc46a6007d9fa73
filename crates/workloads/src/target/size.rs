//! File sizes: a fixed size, or a distribution that always gives the same file the same size.
//!
//! Does not know directories or workers. The size of file `i` of a task is a pure function of the specification, the
//! seed and `i`. So a later mode, or another process, knows the sizes written earlier without storing them.

use crate::measure::random::Random;
use crate::params::units::Bytes;
use crate::params::{KeyValue, ValueType, from_serde};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Value, json};
use std::fmt;

mod rows;
pub(crate) use rows::{Rows, SizeRow};

/// The `size` key of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SizeSpec {
    /// All files have this size.
    Fixed(u64),
    /// Every size from `min` to `max` is equally likely.
    Uniform { min: u64, max: u64 },
    /// The logarithm of the size is normal. `mean` is the arithmetic mean before clamping to `min` and `max`, `sigma`
    /// the standard deviation of the natural logarithm.
    Lognormal {
        mean: u64,
        sigma: f64,
        min: u64,
        max: u64,
    },
    /// A number of files in each of several ranges.
    Rows(Rows),
}

/// Largest allowed file: offsets are signed 64-bit numbers.
pub(crate) const LARGEST_BYTES: u64 = 1 << 60;

/// Up to this many files, sums are exact. Beyond, they are the mean times the number of files plus a margin, so that
/// checking a plan stays instant.
const EXACT_FILES: u64 = 1 << 20;

impl SizeSpec {
    /// The size of the `index`-th file of a task.
    #[inline]
    pub(crate) fn of(&self, seed: u64, index: u64) -> u64 {
        match *self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { min, max } => {
                let mut random = Random::of(&[seed, index]);
                min + random.below((max - min).saturating_add(1))
            }
            Self::Lognormal {
                mean,
                sigma,
                min,
                max,
            } => lognormal(mean, sigma, seed, index).clamp(min, max),
            Self::Rows(ref rows) => rows.of(seed, index),
        }
    }

    /// The largest size that `of` can return.
    pub(crate) fn largest(&self) -> u64 {
        match *self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { max, .. } | Self::Lognormal { max, .. } => max,
            Self::Rows(ref rows) => rows.largest(),
        }
    }

    /// Bytes in `files` files, each rounded up to a multiple of `unit`. Exact up to a million files; above that a
    /// distribution's sum is estimated from a sample, 1 % on the safe side.
    pub(crate) fn total(&self, seed: u64, files: u64, unit: u64) -> u64 {
        let rounded = |bytes: u64| bytes.div_ceil(unit.max(1)).saturating_mul(unit.max(1));
        if let Self::Fixed(bytes) = *self {
            return rounded(bytes).saturating_mul(files);
        }
        let sampled = files.min(EXACT_FILES);
        let sum = (0..sampled).fold(0_u128, |sum, i| sum + u128::from(rounded(self.of(seed, i))));
        if files <= EXACT_FILES {
            return u64::try_from(sum).unwrap_or(u64::MAX);
        }
        let estimate = sum * u128::from(files) * 101 / (u128::from(sampled) * 100);
        u64::try_from(estimate).unwrap_or(u64::MAX)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random size: rounding is meant, and float to integer saturates"
)]
fn lognormal(mean: u64, sigma: f64, seed: u64, index: u64) -> u64 {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    // Box-Muller: the first number is in (0, 1], so its logarithm is finite.
    let mut random = Random::of(&[seed, index]);
    let first = ((random.next_u64() >> 11) + 1) as f64 * UNIT;
    let second = (random.next_u64() >> 11) as f64 * UNIT;
    let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
    let mu = (mean as f64).ln() - sigma * sigma / 2.0;
    (mu + sigma * normal).exp().round() as u64
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform { min, max } => write!(f, "uniform {min}..{max}"),
            Self::Lognormal {
                mean,
                sigma,
                min,
                max,
            } => write!(f, "lognormal {mean} sigma {sigma} {min}..{max}"),
            Self::Rows(rows) => write!(f, "{rows}"),
        }
    }
}

/// The table form: `{ min, max }` is uniform, `{ mean, sigma, min?, max? }` is lognormal, `{ rows }` gives ranges with
/// their numbers of files.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeTable {
    min: Option<Bytes>,
    max: Option<Bytes>,
    mean: Option<Bytes>,
    sigma: Option<f64>,
    rows: Option<Vec<SizeRow>>,
}

impl SizeTable {
    fn into_spec(self) -> Result<SizeSpec, String> {
        if let Some(rows) = self.rows {
            if self.min.is_some()
                || self.max.is_some()
                || self.mean.is_some()
                || self.sigma.is_some()
            {
                return Err("`rows` defines all sizes: it allows no other key".into());
            }
            return Rows::new(&rows).map(SizeSpec::Rows);
        }
        let min = self.min.map_or(0, |bytes| bytes.0);
        let spec = match (self.mean, self.sigma, self.max) {
            (None, None, Some(max)) => SizeSpec::Uniform { min, max: max.0 },
            (None, None, None) => {
                return Err(
                    "a size table needs `max` (uniform), `mean` (lognormal) or `rows`, as in { min = \"4k\", max = \"64k\" }"
                        .into(),
                );
            }
            (None, Some(_), _) => {
                return Err("`sigma` belongs to a lognormal size: add `mean`".into());
            }
            (Some(mean), sigma, max) => {
                let sigma = sigma.unwrap_or(1.0);
                if !(0.0..=5.0).contains(&sigma) {
                    return Err(format!("`sigma` is {sigma}: it must lie between 0 and 5"));
                }
                if mean.0 == 0 {
                    return Err("`mean` must be at least 1 byte".into());
                }
                // Without a maximum, one file in a million could be thousands of times the mean and fill the target.
                let max = max.map_or_else(|| mean.0.saturating_mul(100), |bytes| bytes.0);
                SizeSpec::Lognormal {
                    mean: mean.0,
                    sigma,
                    min,
                    max,
                }
            }
        };
        if spec.largest() < min {
            return Err(format!(
                "`min` ({min} bytes) is above `max` ({} bytes)",
                spec.largest()
            ));
        }
        Ok(spec)
    }
}

impl<'de> Deserialize<'de> for SizeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = SizeSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size such as \"40k\", or a table such as { min = \"4k\", max = \"64k\" }",
                )
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<SizeSpec, E> {
                Ok(SizeSpec::Fixed(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SizeSpec, E> {
                let bytes: Bytes = text.parse().map_err(E::custom)?;
                Ok(SizeSpec::Fixed(bytes.0))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SizeSpec, A::Error> {
                SizeTable::deserialize(MapAccessDeserializer::new(map))?
                    .into_spec()
                    .map_err(A::Error::custom)
            }
        }

        let spec = deserializer.deserialize_any(Form)?;
        if spec.largest() > LARGEST_BYTES {
            return Err(D::Error::custom("a file may have at most 1 EiB"));
        }
        Ok(spec)
    }
}

impl KeyValue for SizeSpec {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "a size such as \"4k\", or a table such as { min = \"4k\", max = \"64k\" }",
            schema: || {
                let size = Bytes::value_type().schema(None, None);
                let row = json!({
                    "type": "object",
                    "properties": {"files": {"type": "integer", "minimum": 1}, "min": size, "max": size},
                    "additionalProperties": false,
                });
                json!({"anyOf": [
                    size,
                    {
                        "type": "object",
                        "properties": {
                            "min": size,
                            "max": size,
                            "mean": size,
                            "sigma": {"type": "number", "minimum": 0, "maximum": 5},
                            "rows": {"type": "array", "minItems": 1, "maxItems": 16, "items": row},
                        },
                        "additionalProperties": false,
                    },
                ]})
            },
        }
    }

    fn read(value: &Value) -> Result<SizeSpec, String> {
        from_serde(value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_precision_loss)]
    use super::*;
    use benchmesh_testing::table;

    #[test]
    fn sizes_are_read_in_each_form() {
        let check = |input: Value, expected: SizeSpec| {
            assert_eq!(serde_json::from_value::<SizeSpec>(input).unwrap(), expected);
        };
        check(json!("40k"), SizeSpec::Fixed(40 << 10));
        check(json!(4096), SizeSpec::Fixed(4096));
        check(json!("0"), SizeSpec::Fixed(0));
        check(
            json!({"min": "4k", "max": "64k"}),
            SizeSpec::Uniform {
                min: 4096,
                max: 65536,
            },
        );
        check(
            json!({"mean": "8k", "sigma": 0.5, "max": "1m"}),
            SizeSpec::Lognormal {
                mean: 8192,
                sigma: 0.5,
                min: 0,
                max: 1 << 20,
            },
        );
    }

    #[test]
    fn a_bad_size_says_what_is_wrong() {
        let check = |input: Value, part: &str| {
            let message = serde_json::from_value::<SizeSpec>(input)
                .unwrap_err()
                .to_string();
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        };
        for [input, part] in table(
            r#"
            "40 bananas"                                       | bananas
            {"min": "64k", "max": "4k"}                        | above `max`
            {"mean": "4k", "sigma": 9}                         | between 0 and 5
            {"sigma": 1.0, "max": "4k"}                        | `mean`
            {}                                                 | `max`
            {"most": "4k"}                                     | unknown field `most`
            {"rows": []}                                       | at least one
            {"rows": [{"files": 0, "max": "4k"}]}              | at least one
            {"rows": [{"files": 5, "min": "8k", "max": "4k"}]} | above `max`
            {"rows": [{"files": 5, "max": "4k"}], "mean": 5}   | no other key
            true                                               | a size such as
            {"max": 18446744073709551615}                      | 1 EiB
            "#,
        ) {
            check(serde_json::from_str(&input).unwrap(), &part);
        }
        check(
            json!({"rows": vec![json!({"files": 5, "max": "4k"}); 17]}),
            "16 rows",
        );
    }

    #[test]
    fn a_size_depends_on_seed_and_index_only() {
        let spec = SizeSpec::Lognormal {
            mean: 40_960,
            sigma: 1.0,
            min: 1,
            max: 1 << 24,
        };
        for index in 0..1000 {
            assert_eq!(spec.of(7, index), spec.of(7, index));
        }
        assert!((0..1000).any(|i| spec.of(7, i) != spec.of(8, i)));
    }

    #[test]
    fn distributions_have_their_mean_and_bounds() {
        let check = |spec: SizeSpec, mean: f64, tolerance: f64| {
            let n = 200_000_u64;
            let sizes: Vec<u64> = (0..n).map(|i| spec.of(1, i)).collect();
            let got = sizes.iter().sum::<u64>() as f64 / n as f64;
            assert!(
                (got / mean - 1.0).abs() < tolerance,
                "{spec}: mean {got}, expected {mean}"
            );
            assert!(sizes.iter().all(|&s| s <= spec.largest()), "{spec}");
            assert_eq!(spec.total(1, n, 1), sizes.iter().sum::<u64>(), "{spec}");
        };
        check(
            SizeSpec::Uniform {
                min: 1000,
                max: 3000,
            },
            2000.0,
            0.005,
        );
        check(SizeSpec::Uniform { min: 5, max: 5 }, 5.0, 1e-9);
        check(
            SizeSpec::Uniform {
                min: 0,
                max: 1 << 40,
            },
            (1_u64 << 39) as f64,
            0.01,
        );
        let lognormal = |sigma| SizeSpec::Lognormal {
            mean: 40_000,
            sigma,
            min: 0,
            max: 4_000_000,
        };
        let rows = |rows: Value| serde_json::from_value(json!({ "rows": rows })).unwrap();
        // Log-uniform: the mean of a row is (max - min) / ln(max / min).
        check(
            rows(json!([{"files": 7, "min": 1000, "max": 10_000}])),
            3908.7,
            0.01,
        );
        check(
            rows(json!([{"files": 3, "min": 10, "max": 10}, {"files": 1, "min": 50, "max": 50}])),
            20.0,
            0.01,
        );
        check(lognormal(0.0), 40_000.0, 1e-4);
        check(lognormal(0.5), 40_000.0, 0.01);
        check(lognormal(1.0), 40_000.0, 0.02);
    }

    #[test]
    fn the_total_counts_whole_blocks_and_estimates_beyond_a_million() {
        assert_eq!(SizeSpec::Fixed(1).total(0, 10, 4096), 40_960);
        assert_eq!(SizeSpec::Fixed(0).total(0, 10, 4096), 0);
        assert_eq!(SizeSpec::Fixed(u64::MAX).total(0, 10, 1), u64::MAX);
        let spec = SizeSpec::Uniform { min: 0, max: 2000 };
        let estimate = spec.total(3, 100_000_000, 1) as f64;
        assert!(
            (estimate / (100e6 * 1000.0) - 1.01).abs() < 0.005,
            "{estimate}"
        );
    }
}
