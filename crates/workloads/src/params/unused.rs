//! Keys without an effect: given, but unused in all modes and cells of a phase.
//!
//! The modes of a phase share its keys, and a matrix may enable a key in some cells only. So a key is unused only if it
//! has no effect in any of them.

use super::{Absent, ConditionInput, Key, KeySet, ParamError, Params, listed, literal};
use serde_json::{Value, json};

/// A key without an effect, and the first cell that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedKey {
    pub cell: usize,
    pub error: ParamError,
}

/// The keys without an effect in any of a phase's modes and cells. The cells have to be checked before.
pub fn unused_keys(sets: &[KeySet], modes: &[&str], cells: &[&Params]) -> Vec<UnusedKey> {
    let conditional = sets.iter().flat_map(|set| {
        set.list
            .iter()
            .filter(|key| key.modes.is_some() || key.only.is_some())
            .map(move |key| (set, *key))
    });
    let unused = |(set, key): (&KeySet, &'static Key)| {
        let is_given = |params: &Params| {
            params
                .get(key.name)
                .is_some_and(|value| !is_off(key, value))
        };
        let given = || {
            cells
                .iter()
                .enumerate()
                .filter(|(_, params)| is_given(params))
        };
        let (cell, _) = given().next()?;
        let matters = |params: &Params| {
            modes
                .iter()
                .any(|mode| set.has_effect(key, &ConditionInput { mode, params }))
        };
        if given().any(|(_, params)| matters(params)) {
            return None;
        }
        let error = ParamError::of(key.name, refusal(key, modes));
        Some(UnusedKey { cell, error })
    };
    conditional.filter_map(unused).collect()
}

/// A switch set to its default.
fn is_off(key: &Key, value: &Value) -> bool {
    let Absent::Default(text) = key.absent else {
        return false;
    };
    let off = [json!(false), json!(0), json!("none")];
    off.contains(&literal(text)) && off.contains(value)
}

fn refusal(key: &Key, asked: &[&str]) -> String {
    if let Some(modes) = key.modes
        && !asked.iter().any(|mode| modes.contains(mode))
    {
        let (which, remedy) = match modes {
            [_] => ("mode", "that mode"),
            _ => ("modes", "one of these modes"),
        };
        let because = key
            .because
            .map_or_else(String::new, |why| format!(": {why}"));
        return format!(
            "has an effect only in the {which} {}, and the phase has {}{because}; add {remedy}, or remove the key",
            listed(modes.iter().copied(), "and"),
            listed(asked.iter().copied(), "and"),
        );
    }
    let words = key.only.unwrap_or_default();
    format!("has an effect only {words}; change that, or remove the key")
}
