//! Chooses operations by weight: `mix = { read = 70, write = 30 }`. Pure.

use crate::measure::random::Random;
use crate::params::{KeyValue, ValueType};
use serde_json::{Value, json};
use std::fmt::Debug;

const MAX_WEIGHT: u64 = 1_000_000;

/// Operations of a workload that may be mixed, because they do not change its data.
pub(crate) trait Mixed: Copy + PartialEq + Debug + Send + Sync + 'static {
    /// Each operation with its name in the key.
    const NAMED: &'static [(&'static str, Self)];
    /// Values of the key, for the reference.
    const WORDS: &'static str;
}

/// Operations with their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weighted<A> {
    /// Each operation with the cumulative weight. Never empty.
    upto: Vec<(A, u64)>,
    total: u64,
}

impl<A: Copy + PartialEq> Weighted<A> {
    pub(crate) fn only(action: A) -> Self {
        Self::of(&[(action, 1)])
    }

    pub(crate) fn of(weights: &[(A, u64)]) -> Self {
        let mut total = 0;
        let upto = weights.iter().filter(|(_, weight)| *weight > 0);
        let upto = upto.map(|(action, weight)| {
            total += weight;
            (*action, total)
        });
        Self {
            upto: upto.collect(),
            total,
        }
    }

    pub(crate) fn has(&self, action: A) -> bool {
        self.upto.iter().any(|(known, _)| *known == action)
    }

    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> A {
        let drawn = match self.upto.as_slice() {
            [(only, _)] => return *only,
            _ => random.below(self.total.max(1)),
        };
        let action = self.upto.iter().find(|(_, upto)| drawn < *upto);
        let (action, _) = action.expect("the draw is below the last of the sums");
        *action
    }
}

impl<A: Mixed> KeyValue for Weighted<A> {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: A::WORDS,
            schema: || {
                let weight = json!({"type": "integer", "minimum": 0, "maximum": MAX_WEIGHT});
                let names = A::NAMED.iter();
                let names = names.map(|(name, _)| ((*name).to_owned(), weight.clone()));
                let names: serde_json::Map<String, Value> = names.collect();
                json!({"type": "object", "properties": names, "additionalProperties": false, "minProperties": 1})
            },
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        let table = value.as_object().ok_or_else(String::new)?;
        let mut weights = Vec::new();
        for (name, weight) in table {
            let known = A::NAMED.iter().find(|(known, _)| known == name);
            let (_, action) =
                known.ok_or_else(|| format!("`{name}` is not one of its operations"))?;
            let weight = weight.as_u64().filter(|weight| *weight <= MAX_WEIGHT);
            let weight = weight.ok_or_else(|| {
                format!("the weight of `{name}` is not a whole number up to {MAX_WEIGHT}")
            })?;
            weights.push((*action, weight));
        }
        let mix = Self::of(&weights);
        match mix.total {
            0 => Err("all of its weights are 0".to_owned()),
            _ => Ok(mix),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum MixAction {
        Read,
        Write,
        Stat,
        Omap,
    }

    impl Mixed for MixAction {
        const NAMED: &'static [(&'static str, Self)] = &[
            ("read", Self::Read),
            ("write", Self::Write),
            ("stat", Self::Stat),
            ("omap", Self::Omap),
        ];
        const WORDS: &'static str = "weights";
    }

    #[test]
    fn operations_come_as_often_as_their_weights_say() {
        let weights = json!({"read": 70, "write": 20, "stat": 10, "omap": 0});
        let mix = Weighted::<MixAction>::read(&weights).unwrap();
        let mut random = Random::new(1);
        let drawn: Vec<MixAction> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
        for (action, share) in [
            (MixAction::Read, 70),
            (MixAction::Write, 20),
            (MixAction::Stat, 10),
            (MixAction::Omap, 0),
        ] {
            let count = drawn.iter().filter(|it| **it == action).count();
            assert!(count.abs_diff(share * 1000) < 700, "{action:?}: {count}");
        }
        assert!(mix.has(MixAction::Stat) && !mix.has(MixAction::Omap));
        let only = Weighted::only(MixAction::Write);
        assert_eq!(only.draw(&mut random), MixAction::Write);
    }

    #[test]
    fn a_mix_of_nothing_or_of_others_is_refused() {
        for (bad, expected) in [
            (json!({"read": 0}), "all of its weights are 0"),
            (json!({}), "all of its weights are 0"),
            (
                json!({"delete": 1}),
                "`delete` is not one of its operations",
            ),
            (
                json!({"read": -1}),
                "the weight of `read` is not a whole number",
            ),
            (json!(5), ""),
        ] {
            let refused = Weighted::<MixAction>::read(&bad).unwrap_err();
            assert!(refused.contains(expected), "{bad}: {refused}");
        }
    }
}
