//! Which key has an effect where: what the refusal of idle keys and the reference both go by.
//!
//! A workload lists an [`Effect`] for each key that does not have one in all of its modes, whatever else is asked for.
//! Invariant: a key is idle only where no mode of a phase has a use for it in any cell; a phase's modes share its keys, and
//! a matrix may make a key matter in some of its cells.

use super::{KeyInfo, ParamError};
use crate::workload::{Params, Workload};
use serde_json::Value;

/// Where a key has an effect.
#[derive(Debug, Clone, Copy)]
pub struct Effect {
    pub key: &'static str,
    /// `None`: in all modes.
    modes: Option<&'static [&'static str]>,
    beside: Option<Beside>,
    /// Why it has none elsewhere, where that does not go without saying.
    because: &'static str,
}

/// What else has to hold.
#[derive(Debug, Clone, Copy)]
struct Beside {
    /// Of a mode, and of a cell's parameters, which have been checked.
    holds: fn(&str, &Params) -> bool,
    /// Completes "has an effect only ...".
    words: &'static str,
}

impl Effect {
    pub const fn in_modes(key: &'static str, modes: &'static [&'static str]) -> Effect {
        Effect {
            key,
            modes: Some(modes),
            beside: None,
            because: "",
        }
    }

    /// In every mode, where `holds`, which is said as "has an effect only `words`".
    pub const fn only(
        key: &'static str,
        words: &'static str,
        holds: fn(&str, &Params) -> bool,
    ) -> Effect {
        let beside = Some(Beside { holds, words });
        Effect {
            key,
            modes: None,
            beside,
            because: "",
        }
    }

    /// In its modes, and only where this holds too.
    #[must_use]
    pub const fn and_only(self, words: &'static str, holds: fn(&str, &Params) -> bool) -> Effect {
        let beside = Some(Beside { holds, words });
        Effect { beside, ..self }
    }

    /// `verify` in a workload whose `modes` check what they read.
    pub const fn verify(modes: &'static [&'static str]) -> Effect {
        Effect {
            because: ": nothing reads what it checks before the cell's data are removed",
            ..Effect::in_modes("verify", modes)
        }
    }

    /// Whether it has one in this mode, if everything else is as it should be.
    pub fn is_in(&self, mode: &str) -> bool {
        self.modes.is_none_or(|modes| modes.contains(&mode))
    }

    /// The modes, where not all, and what else has to hold, for the reference.
    pub fn places(&self) -> (Option<&'static [&'static str]>, Option<&'static str>) {
        (self.modes, self.beside.map(|beside| beside.words))
    }

    fn holds(&self, mode: &str, params: &Params) -> bool {
        let beside = self.beside.as_ref();
        self.is_in(mode) && beside.is_none_or(|beside| (beside.holds)(mode, params))
    }

    fn refusal(&self, asked: &[&str]) -> String {
        if let Some(modes) = self.modes
            && !asked.iter().any(|mode| modes.contains(mode))
        {
            let (which, remedy) = match modes {
                [_] => ("mode", "that mode"),
                _ => ("modes", "one of these modes"),
            };
            return format!(
                "has an effect only in the {which} {}, and the phase has {}{}; add {remedy}, or remove the key",
                listed(modes),
                listed(asked),
                self.because
            );
        }
        let words = self.beside.map_or("", |beside| beside.words);
        format!("has an effect only {words}; see to that, or remove the key")
    }
}

/// `ramp_time`, where no `runtime` is meant unless it is given.
pub(crate) const RAMP: Effect = Effect::only(
    "ramp_time",
    "with `runtime`, or with work that is said to be repeated (`loops`, `io_size`, `ops`, `seeks`): else it may be over \
     before anything counts",
    |_, params| {
        let lasting = ["runtime", "loops", "io_size", "ops", "seeks"];
        lasting.iter().any(|key| params.contains_key(*key))
    },
);

/// A key without an effect, and the first of the cells that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    pub cell: usize,
    pub error: ParamError,
}

/// The keys without an effect in any of a phase's modes and cells. The cells have been checked.
pub fn idle_keys(workload: &dyn Workload, modes: &[&str], cells: &[&Params]) -> Vec<Idle> {
    let idle = |effect: &Effect| {
        let info = workload.keys().iter().find(|key| key.name == effect.key)?;
        let has = |params: &Params| {
            let value = params.get(effect.key);
            value.is_some_and(|value| !is_off(info, value))
        };
        let given = || cells.iter().enumerate().filter(|(_, params)| has(params));
        let (cell, _) = given().next()?;
        let matters = |params: &Params| modes.iter().any(|mode| effect.holds(mode, params));
        if given().any(|(_, params)| matters(params)) {
            return None;
        }
        let error = ParamError::of(effect.key, effect.refusal(modes));
        Some(Idle { cell, error })
    };
    workload.effects().iter().filter_map(idle).collect()
}

/// A switch that stands where it would be without a word.
fn is_off(info: &KeyInfo, value: &Value) -> bool {
    match info.default {
        "false" | "0" => *value == false || *value == 0,
        "none" => *value == false || *value == 0 || value == "none",
        _ => false,
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [] => String::from("none"),
        [only] => format!("`{only}`"),
        [rest @ .., last] => format!("`{}` and `{last}`", rest.join("`, `")),
    }
}

#[cfg(test)]
mod tests;
