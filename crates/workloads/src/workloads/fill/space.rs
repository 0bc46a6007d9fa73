//! Computes how much may be written before the free space must be queried again.
//!
//! The workers of a task know about each other, but not about other tasks. Each writer may use half of its share of the
//! free space between two queries, and stops when the space no longer has a block for every writer. Writers of equal
//! speed therefore never overfill the target.

use std::time::Duration;

/// Limit on the bytes between two queries, because others use the target too, and some writers are faster than others.
const MAX_BYTES: u64 = 64 << 20;
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// Percentage of all space to be in use, if that is the aim.
    pub aim: Option<u8>,
    /// Bytes that stay free.
    pub floor: u64,
    /// Number of concurrent writers.
    pub writers: u64,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// All space available to unprivileged users.
    pub total: u64,
    pub free: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Write this number of bytes, then query again.
    Bytes(u64),
    /// The aim is reached.
    Reached,
    /// Only the floor is left, and the aim is not reached.
    AtFloor,
}

impl Space {
    /// Space for one writer that writes `unit` bytes at a time.
    pub(super) fn room(&self, facts: Facts, unit: u64) -> Room {
        let stays_free = match self.aim {
            Some(percent) => {
                let free = u128::from(facts.total) * u128::from(100 - percent.min(100)) / 100;
                u64::try_from(free).unwrap_or(u64::MAX)
            }
            None => 0,
        };
        let until_floor = facts.free.saturating_sub(self.floor);
        let until_aim = match self.aim {
            Some(_) => facts.free.saturating_sub(stays_free),
            None => u64::MAX,
        };
        let for_all = unit.saturating_mul(self.writers.max(1));
        if until_aim < for_all {
            return Room::Reached;
        }
        let least = until_floor.min(until_aim);
        if least < for_all {
            return Room::AtFloor;
        }
        let part = least / (2 * self.writers.max(1));
        Room::Bytes((part - part % unit.max(1)).clamp(unit, MAX_BYTES.max(unit)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn aims_and_floors_are_told_apart() {
        let check = |aim, floor, free, expected| {
            let space = Space {
                aim,
                floor,
                writers: 1,
            };
            let facts = Facts {
                total: 1000 * MIB,
                free,
            };
            assert_eq!(space.room(facts, MIB), expected);
        };
        check(Some(90), 0, 100 * MIB, Room::Reached);
        check(Some(90), 0, 102 * MIB, Room::Bytes(MIB));
        check(Some(90), 200 * MIB, 300 * MIB, Room::Bytes(50 * MIB));
        check(Some(90), 200 * MIB, 200 * MIB, Room::AtFloor);
        check(None, 10 * MIB, 1000 * MIB, Room::Bytes(64 * MIB));
        check(None, 10 * MIB, 10 * MIB, Room::AtFloor);
        check(Some(100), 0, 0, Room::Reached);
    }

    proptest! {
        /// Writers of equal speed leave the floor free, in any order of their starts.
        #[test]
        fn together_they_stop_in_time(
            writers in 1_u64..9,
            free in 0_u64..3000,
            floor in 0_u64..100,
            behind in proptest::collection::vec(0_u64..20, 9),
        ) {
            let space = Space { aim: None, floor: floor * MIB, writers };
            let mut left = free * MIB;
            let mut rooms: Vec<(u64, u64)> = behind
                .into_iter()
                .take(usize::try_from(writers).unwrap())
                .map(|late| (0, late))
                .collect();
            let mut wrote = true;
            while wrote {
                wrote = false;
                for (room, late) in &mut rooms {
                    if *late > 0 {
                        (*late, wrote) = (*late - 1, true);
                        continue;
                    }
                    if *room < MIB {
                        let facts = Facts { total: 3000 * MIB, free: left };
                        *room = match space.room(facts, MIB) {
                            Room::Bytes(bytes) => bytes,
                            _ => continue,
                        };
                    }
                    prop_assert!(left >= MIB);
                    (*room, left, wrote) = (*room - MIB, left - MIB, true);
                }
            }
            prop_assert!(left >= floor.min(free) * MIB, "{left}");
            // The rest is too small for a block of every writer.
            prop_assert!(left < (floor + writers) * MIB || free < floor + writers);
        }
    }
}
