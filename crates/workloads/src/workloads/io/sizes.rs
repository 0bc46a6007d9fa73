//! Block sizes: one size, or a mix with percentages like fio's `bssplit`.

use crate::engine::author::*;
use serde_json::{Value, json};

/// At least one size. Each is a multiple of the smallest, so blocks stay aligned in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Each size with its cumulative share of draws, out of [`Sizes::WHOLE`].
    upto: Vec<(u64, u64)>,
}

impl Sizes {
    /// Shares are kept in thousandths of a percent.
    const WHOLE: u64 = 100_000;
    /// A longer list is a mistake.
    const MAX_COUNT: usize = 64;

    pub(super) fn one(bytes: u64) -> Sizes {
        Sizes {
            upto: vec![(bytes, Sizes::WHOLE)],
        }
    }

    pub(super) fn is_mix(&self) -> bool {
        self.upto.len() > 1
    }

    /// The size that all others are multiples of.
    pub(super) fn smallest(&self) -> u64 {
        self.each().min().unwrap_or(1)
    }

    pub(super) fn largest(&self) -> u64 {
        self.each().max().unwrap_or(1)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = u64> + '_ {
        self.upto.iter().map(|(bytes, _)| *bytes)
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let draw = random.below(Sizes::WHOLE);
        let mut sizes = self.upto.iter();
        let drawn = sizes.find(|(_, upto)| draw < *upto);
        drawn.map_or(1, |(bytes, _)| *bytes)
    }

    fn parse(text: &str) -> Result<Sizes, String> {
        if text.contains(',') {
            return Err("reads and writes have one mix; leave out the comma".to_owned());
        }
        let mut shares: Vec<(u64, Option<u64>)> = Vec::new();
        for entry in text.split(':') {
            let (size, percent) = entry.split_once('/').unwrap_or((entry, ""));
            let size: Bytes = size.trim().parse().map_err(|error| format!("{error}"))?;
            shares.push((size.0, share(percent.trim(), entry)?));
        }
        if shares.len() > Sizes::MAX_COUNT {
            return Err(format!("more than {} sizes", Sizes::MAX_COUNT));
        }
        let given: u64 = shares.iter().filter_map(|(_, share)| *share).sum();
        let blank = shares.iter().filter(|(_, share)| share.is_none()).count();
        if given > Sizes::WHOLE || (blank == 0 && given != Sizes::WHOLE) {
            let sum = given as f64 / 1000.0;
            return Err(format!("the percentages add up to {sum}, not 100"));
        }
        let left = (Sizes::WHOLE - given) / u64::try_from(blank.max(1)).unwrap_or(1);
        let mut upto = Vec::new();
        let mut sum = 0;
        for (bytes, share) in shares {
            sum += share.unwrap_or(left);
            upto.push((bytes, sum));
        }
        if let Some(last) = upto.last_mut() {
            // Assign the rounding error to the last size.
            last.1 = Sizes::WHOLE;
        }
        let sizes = Sizes { upto };
        let smallest = sizes.smallest();
        if smallest == 0 {
            return Err("a block has at least 1 byte".to_owned());
        }
        let odd = sizes.each().find(|bytes| !bytes.is_multiple_of(smallest));
        match odd {
            Some(odd) => Err(format!(
                "{} is not a multiple of the smallest size, {}",
                Bytes(odd),
                Bytes(smallest)
            )),
            None => Ok(sizes),
        }
    }
}

fn share(percent: &str, entry: &str) -> Result<Option<u64>, String> {
    if percent.is_empty() {
        return Ok(None);
    }
    let number: f64 = percent
        .parse()
        .map_err(|_| format!("`{entry}`: `{percent}` is not a percentage"))?;
    if !(0.0..=100.0).contains(&number) {
        return Err(format!("`{entry}`: {percent} is not between 0 and 100"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 100000 after the check above"
    )]
    let thousandths = (number * 1000.0).round() as u64;
    Ok(Some(thousandths))
}

impl KeyValue for Sizes {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "sizes with percentages, such as \"4k/60:64k/40\"",
            schema: || json!({"type": "string"}),
        }
    }

    fn read(value: &Value) -> Result<Sizes, String> {
        let text = value.as_str().ok_or_else(String::new)?;
        Sizes::parse(text).map_err(|problem| format!("{problem}; write it as `4k/60:64k/40`"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_mix_is_drawn_as_its_percentages_say() {
        let check = |text: &str, expected: &[(u64, f64)]| {
            let sizes = Sizes::parse(text).unwrap();
            let mut random = Random::new(3);
            let mut seen: HashMap<u64, f64> = HashMap::new();
            for _ in 0..100_000 {
                *seen.entry(sizes.draw(&mut random)).or_default() += 0.001;
            }
            assert_eq!(seen.len(), expected.len(), "{text}: {seen:?}");
            for (bytes, percent) in expected {
                assert!((seen[bytes] - percent).abs() < 0.6, "{text}: {seen:?}");
            }
        };
        check("4k/60:64k/40", &[(4096, 60.0), (65_536, 40.0)]);
        check(
            "4k/50:8k/:16k/",
            &[(4096, 50.0), (8192, 25.0), (16_384, 25.0)],
        );
        check("4k:8k:12k", &[(4096, 33.3), (8192, 33.3), (12_288, 33.3)]);
        check("1m/100", &[(1 << 20, 100.0)]);
        check("4k/0.5:8k/99.5", &[(4096, 0.5), (8192, 99.5)]);
        check("4k/0:8k/100", &[(8192, 100.0)]);
    }

    #[test]
    fn what_is_no_mix_is_refused() {
        let check = |text: &str, part: &str| {
            let error = Sizes::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("4k/60:64k/30", "add up to 90, not 100");
        check("4k/60:64k/50", "add up to 110, not 100");
        check("4k/60:64k/101", "101 is not between");
        check("4k/sixty", "not a percentage");
        check("4k/60:10k/40", "10KiB is not a multiple");
        check("0/60:4k/40", "at least 1 byte");
        check("4k/50,8k/50", "one mix");
        check("4k/50:x", "");
        check("", "");
        check(&["4k"; 65].join(":"), "more than 64");
    }
}
