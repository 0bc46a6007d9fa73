//! Free space that load must leave on a file system: checked before a task begins and while it runs.

use super::Denial;
use benchmesh_model::limits::{Limit, Limits, Setting};
use benchmesh_workloads::params::units::Bytes;
use benchmesh_workloads::sandbox::Space;
use std::io;

/// Both floors.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    pub space: Setting,
    pub inodes: Setting,
}

impl Floors {
    /// Those of a policy.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let floor = |limit| limits[limit].unwrap_or(Setting::Amount(0));
        Self {
            space: floor(Limit::FreeSpace),
            inodes: floor(Limit::FreeInodes),
        }
    }

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
            return Err(Denial::limit(
                Limit::FreeSpace,
                Setting::Amount(floor),
                format!(
                    "{} of {} are free",
                    Bytes(space.free_bytes).about(),
                    Bytes(space.size_bytes).about()
                ),
            ));
        }
        let floor = self.inodes.of(space.files);
        if space.files > 0 && space.free_files < floor {
            return Err(Denial::limit(
                Limit::FreeInodes,
                Setting::Amount(floor),
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
            space: Setting::Amount(space.min(free.free_bytes / 2)),
            inodes: Setting::Amount(inodes.min(free.free_files / 2)),
        }
    }

    /// The refusal of a task whose target cannot be watched.
    #[must_use]
    pub fn unwatched(&self, error: &io::Error) -> Denial {
        Denial::limit(
            Limit::FreeSpace,
            self.space,
            format!("cannot start a thread to watch a task's target: {error}"),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::PolicyConfig;

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
        let floors = Floors::new(&PolicyConfig::default().resolved_limits());
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
            space: Setting::Amount(u64::MAX),
            inodes: Setting::Amount(0),
        };
        assert_eq!(strict.check(free()).unwrap_err().key, "free-space");
        let Setting::Amount(lowered) = strict.at_most_free(free()).space else {
            panic!("an amount");
        };
        assert!(lowered > 0 && lowered < u64::MAX, "{lowered}");
        // A floor that is met stays as it is.
        let kept = Floors {
            space: Setting::Amount(1),
            ..strict
        };
        assert_eq!(kept.at_most_free(free()).space, Setting::Amount(1));
    }
}
