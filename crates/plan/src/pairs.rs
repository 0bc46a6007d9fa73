//! The shapes of a network load: which of its links one step measures at the same time.

use benchmesh_workloads::declare_words;
use std::collections::BTreeMap;

declare_words! {
    /// Which links of a network phase are measured at the same time.
    #[derive(Default)]
    pub enum Pairs {
        /// A single link: one step per ordered pair.
        #[default]
        Each = "each",
        /// Both directions of a pair: one step per pair.
        BothWays = "both-ways",
        /// All links to one receiver: one step per receiver.
        ManyToOne = "many-to-one",
        /// All links from one sender: one step per sender.
        OneToMany = "one-to-many",
        /// All links: one step.
        AllToAll = "all-to-all" | "all",
    }
}

impl Pairs {
    /// Returns the steps that the pairs make, each with the links that it measures at the same time.
    pub(super) fn steps<'p>(self, pairs: &[Pair<'p>]) -> Vec<Vec<Pair<'p>>> {
        match self {
            Self::Each => pairs.iter().map(|pair| vec![*pair]).collect(),
            Self::BothWays => together(pairs.iter().copied(), |pair| match pair.from < pair.to {
                true => (pair.from, pair.to),
                false => (pair.to, pair.from),
            })
            .into_iter()
            .map(with_way_back)
            .collect(),
            Self::ManyToOne => {
                let mut by_receiver = pairs.to_vec();
                by_receiver.sort_by_key(|pair| (pair.to, pair.from));
                together(by_receiver, |pair| pair.to)
            }
            Self::OneToMany => together(pairs.iter().copied(), |pair| pair.from),
            Self::AllToAll => vec![pairs.to_vec()],
        }
    }
}

/// A link to measure: two agents by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'p> {
    pub from: &'p str,
    pub to: &'p str,
}

/// Groups pairs by key, in the order of each key's first pair.
fn together<'p, K: Ord>(
    pairs: impl IntoIterator<Item = Pair<'p>>,
    key: impl Fn(&Pair<'p>) -> K,
) -> Vec<Vec<Pair<'p>>> {
    let mut steps: Vec<Vec<Pair<'p>>> = Vec::new();
    let mut places: BTreeMap<K, usize> = BTreeMap::new();
    for pair in pairs {
        let place = *places.entry(key(&pair)).or_insert(steps.len());
        match steps.get_mut(place) {
            Some(step) => step.push(pair),
            None => steps.push(vec![pair]),
        }
    }
    steps
}

/// Adds the opposite direction to a pair that was selected in only one direction.
fn with_way_back(mut step: Vec<Pair<'_>>) -> Vec<Pair<'_>> {
    if let [Pair { from, to }] = *step.as_slice() {
        step.push(Pair { from: to, to: from });
    }
    step
}
