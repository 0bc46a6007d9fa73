//! A phase's matrix: its axes, and the values of each cell.

use super::source::ValuePosition;
use serde_json::Value;

/// One key of a matrix and its values, each with its position.
pub(super) struct Dimension {
    /// The group that has the key; empty for the whole phase.
    pub group: String,
    pub key: String,
    pub values: Vec<(Value, ValuePosition)>,
}

impl Dimension {
    /// The name used in `zip`: `GROUP.KEY` with groups.
    pub fn name(&self) -> String {
        match self.group.as_str() {
            "" => self.key.clone(),
            group => format!("{group}.{}", self.key),
        }
    }
}

/// Keys of a matrix that advance together: a single key, or those of a zip. All have the same number of values.
pub(super) struct Axis {
    pub keys: Vec<Dimension>,
}

impl Axis {
    pub fn of(key: Dimension) -> Self {
        Self { keys: vec![key] }
    }

    /// The number of values of each key.
    pub fn len(&self) -> usize {
        self.keys.first().map_or(1, |key| key.values.len())
    }

    /// The value of each key at `index`.
    pub fn values(&self, index: usize) -> impl Iterator<Item = &(Value, ValuePosition)> {
        self.keys
            .iter()
            .filter_map(move |key| key.values.get(index))
    }
}

/// The group's values of cell `index`, in the order of the matrix.
pub(super) fn combination<'m>(
    matrix: &'m [Axis],
    index: usize,
    group: &str,
) -> Vec<(&'m str, &'m Value, &'m ValuePosition)> {
    let mut rest = index;
    let mut places = Vec::new();
    for axis in matrix.iter().rev() {
        let length = axis.len().max(1);
        places.push((axis, rest % length));
        rest /= length;
    }
    let own = |(axis, at): (&'m Axis, usize)| {
        let is_own = move |key: &&Dimension| key.group == group || key.group.is_empty();
        let keys = axis.keys.iter().filter(is_own);
        keys.filter_map(move |key| {
            let (value, position) = key.values.get(at)?;
            Some((key.key.as_str(), value, position))
        })
    };
    places.into_iter().rev().flat_map(own).collect()
}
