//! Order of the objects and of their blocks. Pure.

use crate::engine::author::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectOrder {
    Ascending,
    /// Drawn independently.
    Random(Random),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextObjectOp {
    /// Number of operations before it.
    pub number: u64,
    pub object: u64,
    pub block: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sequence {
    order: ObjectOrder,
    /// `None`: unlimited.
    objects: Option<u64>,
    blocks: u64,
    /// Operations left; `None`: no limit.
    left: Option<u64>,
    number: u64,
}

impl Sequence {
    pub(super) fn new(
        order: ObjectOrder,
        objects: Option<u64>,
        blocks: u64,
        passes: Passes,
    ) -> Sequence {
        let of_pass = objects.map(|objects| objects.saturating_mul(blocks));
        let left = match passes.is_endless() {
            true => None,
            false => of_pass.map(|ops| ops.saturating_mul(passes.count())),
        };
        Sequence {
            left: left.or((of_pass == Some(0)).then_some(0)),
            order,
            objects,
            blocks: blocks.max(1),
            number: 0,
        }
    }

    pub(super) fn objects(&self) -> Option<u64> {
        self.objects
    }

    /// Operations issued so far.
    pub(super) fn issued(&self) -> u64 {
        self.number
    }
}

impl Iterator for Sequence {
    type Item = NextObjectOp;

    #[inline]
    fn next(&mut self) -> Option<NextObjectOp> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let number = self.number;
        self.number += 1;
        let (object, block) = match &mut self.order {
            ObjectOrder::Ascending => (number / self.blocks, number % self.blocks),
            ObjectOrder::Random(random) => (
                random.below(self.objects.unwrap_or(1)),
                random.below(self.blocks),
            ),
        };
        let object = match self.objects {
            Some(objects) => object % objects.max(1),
            None => object,
        };
        Some(NextObjectOp {
            number,
            object,
            block,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(loops: Option<u64>, is_timed: bool) -> Passes {
        Passes::of(
            loops,
            is_timed.then_some(Span(std::time::Duration::from_secs(1))),
        )
    }

    fn places(sequence: Sequence) -> Vec<(u64, u64)> {
        sequence
            .take(7)
            .map(|next| (next.object, next.block))
            .collect()
    }

    #[test]
    fn objects_come_in_order_and_as_often_as_was_asked() {
        let of = |objects, blocks, passes| {
            places(Sequence::new(
                ObjectOrder::Ascending,
                objects,
                blocks,
                passes,
            ))
        };
        assert_eq!(
            of(Some(2), 2, passes(None, false)),
            [(0, 0), (0, 1), (1, 0), (1, 1)]
        );
        assert_eq!(
            of(Some(2), 1, passes(Some(2), true)),
            [(0, 0), (1, 0), (0, 0), (1, 0)]
        );
        let round = [(0, 0), (1, 0), (2, 0), (0, 0), (1, 0), (2, 0), (0, 0)];
        assert_eq!(of(Some(3), 1, passes(None, true)), round);
        let new: Vec<_> = (0..7).map(|object| (object, 0)).collect();
        assert_eq!(of(None, 1, passes(None, true)), new);
        assert_eq!(of(Some(0), 1, passes(None, true)), []);
    }

    #[test]
    fn random_objects_are_among_those_there_are() {
        let sequence = Sequence::new(
            ObjectOrder::Random(Random::new(1)),
            Some(5),
            3,
            passes(None, true),
        );
        let seen: std::collections::BTreeSet<_> = sequence
            .take(1000)
            .map(|next| (next.object, next.block))
            .collect();
        assert_eq!(seen.len(), 15);
        assert!(seen.iter().all(|(object, block)| *object < 5 && *block < 3));
    }
}
