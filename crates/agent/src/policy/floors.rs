//! Free space that load must leave on a file system: checked before a task begins and while it runs.

use super::Denial;
use super::percent::percent;
use benchmesh_workloads::params::units::Bytes;
use benchmesh_workloads::sandbox::Space;
use std::str::FromStr;
use std::{fmt, io};

/// An amount, or a share of the file system's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    Amount(u64),
    /// Percent, with an upper limit.
    Share {
        percent: u8,
        most: u64,
    },
}

impl Floor {
    /// 5 % of the file system, at most 1 GiB.
    pub const SPACE: Floor = Floor::Share {
        percent: 5,
        most: 1 << 30,
    };
    /// 1 % of the file system's inodes, at most 10000.
    pub const INODES: Floor = Floor::Share {
        percent: 1,
        most: 10_000,
    };

    fn of(self, total: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share { percent, most } => {
                let share = u128::from(total) * u128::from(percent) / 100;
                u64::try_from(share).unwrap_or(u64::MAX).min(most)
            }
        }
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INODES => f.write_str("1%, at most 10000"),
            Self::Share { percent, most } if most < u64::MAX => {
                write!(f, "{percent}%, at most {}", Bytes(most))
            }
            Self::Share { percent, .. } => write!(f, "{percent}%"),
            Self::Amount(amount) => write!(f, "{}", Bytes(amount)),
        }
    }
}

impl FromStr for Floor {
    type Err = String;

    /// A size or a plain number, or a share such as `5%`. 0: no floor.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(percent) = percent(text)? {
            let most = u64::MAX;
            return Ok(Self::Share { percent, most });
        }
        match text.parse::<Bytes>() {
            Ok(Bytes(amount)) => Ok(Self::Amount(amount)),
            Err(error) => Err(format!("{error}, or a share such as 5%")),
        }
    }
}

/// Both floors.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    pub space: Floor,
    pub inodes: Floor,
}

impl Floors {
    /// The floors of a file system of this size and number of inodes; 0 inodes: unknown.
    #[must_use]
    pub fn of(&self, bytes: u64, inodes: u64) -> (u64, u64) {
        let inodes = match inodes {
            0 => 0,
            total => self.inodes.of(total),
        };
        (self.space.of(bytes), inodes)
    }

    /// Refuses load if the free space is below the floor. A target that does not report its free space passes. So does
    /// a target that does not answer; the next operation on it will fail.
    ///
    /// # Errors
    /// If the free space is below the floor.
    pub fn check(&self, space: Option<Space>) -> Result<(), Denial> {
        let Some(space) = space else { return Ok(()) };
        let floor = self.space.of(space.size_bytes);
        if space.size_bytes > 0 && space.free_bytes < floor {
            return Err(Denial::new(
                "free-space",
                Bytes(floor).about(),
                format!(
                    "{} of {} are free",
                    Bytes(space.free_bytes).about(),
                    Bytes(space.size_bytes).about()
                ),
            ));
        }
        let floor = self.inodes.of(space.files);
        if space.files > 0 && space.free_files < floor {
            return Err(Denial::new(
                "free-inodes",
                floor.to_string(),
                format!("{} of {} are free", space.free_files, space.files),
            ));
        }
        Ok(())
    }

    /// These floors, or half of the free space if that is less: for a task that frees space on a full file system while
    /// others write to it.
    #[must_use]
    pub fn at_most_free(&self, space: Option<Space>) -> Floors {
        let Some(free) = space else { return *self };
        let (space, inodes) = self.of(free.size_bytes, free.files);
        Floors {
            space: Floor::Amount(space.min(free.free_bytes / 2)),
            inodes: Floor::Amount(inodes.min(free.free_files / 2)),
        }
    }

    /// The refusal of a task whose target cannot be watched.
    #[must_use]
    pub fn unwatched(&self, error: &io::Error) -> Denial {
        Denial::new(
            "free-space",
            self.space.to_string(),
            format!("cannot start a thread to watch a task's target: {error}"),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn space(mebibytes: u64, free: u64, files: u64, free_files: u64) -> Space {
        Space {
            size_bytes: mebibytes << 20,
            usable_bytes: mebibytes << 20,
            free_bytes: free << 20,
            files,
            free_files,
        }
    }

    #[test]
    fn shares_and_amounts_bound_what_has_to_stay_free() {
        let floors = Floors {
            space: Floor::SPACE,
            inodes: Floor::INODES,
        };
        let check = |space: Space, key: Option<&str>| {
            let denial = floors.check(Some(space)).err();
            assert_eq!(denial.as_ref().map(|it| it.key), key, "{denial:?}");
        };
        check(space(1000, 50, 1000, 10), None);
        check(space(1000, 49, 1000, 10), Some("free-space"));
        check(space(1000, 50, 1000, 9), Some("free-inodes"));
        // At most 1 GiB, and 10000 inodes.
        check(space(1 << 30, 1024, 1 << 40, 10_000), None);
        check(space(1 << 30, 1023, 1 << 40, 10_000), Some("free-space"));
        // A file system that does not report its size.
        check(space(0, 0, 0, 0), None);
    }

    #[test]
    fn what_makes_room_may_begin_with_what_is_free() {
        let home = tempfile::tempdir().unwrap();
        let free = || Some(Space::at(home.path()).unwrap());
        let strict = Floors {
            space: Floor::Amount(u64::MAX),
            inodes: Floor::Amount(0),
        };
        assert_eq!(strict.check(free()).unwrap_err().key, "free-space");
        let Floor::Amount(lowered) = strict.at_most_free(free()).space else {
            panic!("an amount");
        };
        assert!(lowered > 0 && lowered < u64::MAX, "{lowered}");
        // A floor that is met stays as it is.
        let kept = Floors {
            space: Floor::Amount(1),
            ..strict
        };
        assert_eq!(kept.at_most_free(free()).space, Floor::Amount(1));
    }

    #[test]
    fn values_parse() {
        assert_eq!("2g".parse(), Ok(Floor::Amount(2 << 30)));
        assert_eq!("5000".parse(), Ok(Floor::Amount(5000)));
        assert_eq!("10%".parse::<Floor>().unwrap().of(2000), 200);
        assert_eq!("0".parse::<Floor>().unwrap().of(2000), 0);
        assert!("some".parse::<Floor>().unwrap_err().contains("5%"));
    }
}
