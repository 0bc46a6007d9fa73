//! What one operation does to an object, and how the operations of a mode are mixed. Pure.

use crate::engine::author::*;
use serde_json::{Value, json};

/// What one operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Stat,
    Omap,
    Delete,
}

impl Action {
    /// Those that may be mixed: they leave the objects as they are.
    const MIXED: [(&'static str, Action); 4] = [
        ("read", Action::Read),
        ("write", Action::Write),
        ("stat", Action::Stat),
        ("omap", Action::Omap),
    ];

    pub(super) fn op(self) -> Op {
        match self {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
            Action::Stat => Op::Stat,
            Action::Omap => Op::Omap,
            Action::Delete => Op::Delete,
        }
    }

    /// Whether it is about a block, and not about the whole object.
    pub(super) fn moves_a_block(self) -> bool {
        matches!(self, Action::Read | Action::Write)
    }
}

/// Actions with their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mix {
    /// Each action with the sum of the weights up to it.
    upto: Vec<(Action, u64)>,
    total: u64,
}

impl Mix {
    pub(super) fn only(action: Action) -> Mix {
        Mix::of(&[(action, 1)])
    }

    /// Where a plan does not say it.
    pub(super) fn ordinary() -> Mix {
        Mix::of(&[(Action::Read, 70), (Action::Write, 30)])
    }

    fn of(weights: &[(Action, u64)]) -> Mix {
        let mut total = 0;
        let upto = weights.iter().filter(|(_, weight)| *weight > 0);
        let upto = upto.map(|(action, weight)| {
            total += weight;
            (*action, total)
        });
        Mix {
            upto: upto.collect(),
            total,
        }
    }

    pub(super) fn has(&self, action: Action) -> bool {
        self.upto.iter().any(|(known, _)| *known == action)
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> Action {
        let drawn = match self.upto.as_slice() {
            [(only, _)] => return *only,
            _ => random.below(self.total.max(1)),
        };
        let action = self.upto.iter().find(|(_, upto)| drawn < *upto);
        action.map_or(Action::Read, |(action, _)| *action)
    }
}

impl KeyValue for Mix {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "weights of `read`, `write`, `stat` and `omap`, such as { read = 70, write = 30 }",
            schema: || {
                let weight = json!({"type": "integer", "minimum": 0, "maximum": 1_000_000});
                let names = Action::MIXED.map(|(name, _)| (name.to_owned(), weight.clone()));
                let names: serde_json::Map<String, Value> = names.into_iter().collect();
                json!({"type": "object", "properties": names, "additionalProperties": false, "minProperties": 1})
            },
        }
    }

    fn read(value: &Value) -> Result<Mix, String> {
        let table = value.as_object().ok_or_else(String::new)?;
        let mut weights = Vec::new();
        for (name, weight) in table {
            let known = Action::MIXED.iter().find(|(known, _)| known == name);
            let (_, action) = known.ok_or_else(|| format!("`{name}` is none of its operations"))?;
            let weight = weight.as_u64().filter(|weight| *weight <= 1_000_000);
            let weight = weight.ok_or_else(|| {
                format!("the weight of `{name}` is no whole number up to 1000000")
            })?;
            weights.push((*action, weight));
        }
        let mix = Mix::of(&weights);
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

    #[test]
    fn operations_come_as_often_as_their_weights_say() {
        let mix = Mix::read(&json!({"read": 70, "write": 20, "stat": 10, "omap": 0})).unwrap();
        let mut random = Random::new(1);
        let drawn: Vec<Action> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
        for (action, share) in [
            (Action::Read, 70),
            (Action::Write, 20),
            (Action::Stat, 10),
            (Action::Omap, 0),
        ] {
            let count = drawn.iter().filter(|it| **it == action).count();
            assert!(count.abs_diff(share * 1000) < 700, "{action:?}: {count}");
        }
        assert!(mix.has(Action::Stat) && !mix.has(Action::Omap));
    }

    #[test]
    fn a_mix_of_nothing_or_of_others_is_refused() {
        for (bad, expected) in [
            (json!({"read": 0}), "all of its weights are 0"),
            (json!({"delete": 1}), "`delete` is none of its operations"),
            (
                json!({"read": -1}),
                "the weight of `read` is no whole number",
            ),
            (json!(5), ""),
        ] {
            let refused = Mix::read(&bad).unwrap_err();
            assert!(refused.contains(expected), "{bad}: {refused}");
        }
    }
}
