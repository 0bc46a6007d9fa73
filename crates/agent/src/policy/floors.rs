//! What has to stay free on a file system that load works on: looked at before a task begins, and as long as it lasts.

use super::Denial;
use super::percent::percent;
use benchmesh_workloads::params::units::Bytes;
use rustix::fd::AsFd;
use rustix::fs::StatVfs;
use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often it is looked at: rarely enough to be no load for a network file system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An amount, or a share of what the file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    Amount(u64),
    /// Percent, and no more than so much.
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

    /// A size or a plain number, or a share such as `5%`. 0: nothing has to stay free.
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
    /// What has to stay free of a file system of so many bytes and inodes; 0 inodes: it does not say.
    #[must_use]
    pub fn of(&self, bytes: u64, inodes: u64) -> (u64, u64) {
        let inodes = match inodes {
            0 => 0,
            total => self.inodes.of(total),
        };
        (self.space.of(bytes), inodes)
    }

    /// Refuses load on a file system that has less free than has to stay free. One that does not say what it has is taken
    /// as it is, and so is one that does not answer: whoever works on it will notice.
    ///
    /// # Errors
    /// When it has less.
    pub fn check(&self, file_system: impl AsFd) -> Result<(), Denial> {
        match rustix::fs::fstatvfs(file_system) {
            Ok(facts) => self.check_facts(&facts),
            Err(_) => Ok(()),
        }
    }

    /// These floors, or half of what is free now where that is less: for what makes room on a file system that is too full,
    /// beside others that write to it.
    #[must_use]
    pub fn at_most_free(&self, file_system: impl AsFd) -> Floors {
        let Ok(facts) = rustix::fs::fstatvfs(file_system) else {
            return *self;
        };
        let (unit, total) = (facts.f_frsize, facts.f_blocks);
        let (space, inodes) = self.of(total.saturating_mul(unit), facts.f_files);
        Floors {
            space: Floor::Amount(space.min(facts.f_bavail.saturating_mul(unit) / 2)),
            inodes: Floor::Amount(inodes.min(facts.f_favail / 2)),
        }
    }

    fn check_facts(&self, facts: &StatVfs) -> Result<(), Denial> {
        let unit = facts.f_frsize;
        let (total, free) = (
            facts.f_blocks.saturating_mul(unit),
            facts.f_bavail.saturating_mul(unit),
        );
        let floor = self.space.of(total);
        if facts.f_blocks > 0 && free < floor {
            return Err(Denial::new(
                "free-space",
                Bytes(floor).about(),
                format!(
                    "{} are free of {}",
                    Bytes(free).about(),
                    Bytes(total).about()
                ),
            ));
        }
        let floor = self.inodes.of(facts.f_files);
        if facts.f_files > 0 && facts.f_favail < floor {
            return Err(Denial::new(
                "free-inodes",
                floor.to_string(),
                format!("{} are free of {}", facts.f_favail, facts.f_files),
            ));
        }
        Ok(())
    }

    /// Looks at a file system until the watch is dropped, and calls `breached` once it has less free than has to stay
    /// free. A file system that hangs holds up only this.
    ///
    /// # Errors
    /// When there is no thread to look with.
    pub fn watch<F: AsFd + Send + 'static>(
        &self,
        file_system: F,
        breached: impl FnOnce(Denial) + Send + 'static,
    ) -> Result<FloorWatch, Denial> {
        let thread = std::thread::Builder::new().name("bm-floor".to_owned());
        self.watch_on(thread, file_system, breached)
    }

    fn watch_on<F: AsFd + Send + 'static>(
        &self,
        thread: std::thread::Builder,
        file_system: F,
        breached: impl FnOnce(Denial) + Send + 'static,
    ) -> Result<FloorWatch, Denial> {
        let floors = *self;
        let (stop, stopped) = sync_channel::<()>(0);
        let work = move || {
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(denial) = floors.check(&file_system) {
                    return breached(denial);
                }
            }
        };
        thread.spawn(work).map_err(|error| {
            Denial::new(
                "free-space",
                self.space.to_string(),
                format!("there is no thread to watch a task's target with: {error}"),
            )
        })?;
        Ok(FloorWatch { _stop: stop })
    }
}

/// Ends the watch when it is dropped.
#[derive(Debug)]
pub struct FloorWatch {
    _stop: SyncSender<()>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;

    fn facts(blocks: u64, available: u64, files: u64, files_free: u64) -> StatVfs {
        let home = tempfile::tempdir().unwrap();
        let mut facts = rustix::fs::statvfs(home.path()).unwrap();
        facts.f_frsize = 1 << 20;
        facts.f_blocks = blocks;
        facts.f_bavail = available;
        facts.f_files = files;
        facts.f_favail = files_free;
        facts
    }

    #[test]
    fn shares_and_amounts_bound_what_has_to_stay_free() {
        let floors = Floors {
            space: Floor::SPACE,
            inodes: Floor::INODES,
        };
        let check = |facts: StatVfs, key: Option<&str>| {
            let denial = floors.check_facts(&facts).err();
            assert_eq!(denial.as_ref().map(|it| it.key), key, "{denial:?}");
        };
        check(facts(1000, 50, 1000, 10), None);
        check(facts(1000, 49, 1000, 10), Some("free-space"));
        check(facts(1000, 50, 1000, 9), Some("free-inodes"));
        // At most 1 GiB, and 10000 inodes.
        check(facts(1 << 30, 1024, 1 << 40, 10_000), None);
        check(facts(1 << 30, 1023, 1 << 40, 10_000), Some("free-space"));
        // A file system that does not say.
        check(facts(0, 0, 0, 0), None);
    }

    #[test]
    fn what_makes_room_may_begin_with_what_is_free() {
        let home = tempfile::tempdir().unwrap();
        let dir = || File::open(home.path()).unwrap();
        let strict = Floors {
            space: Floor::Amount(u64::MAX),
            inodes: Floor::Amount(0),
        };
        assert_eq!(strict.check(dir()).unwrap_err().key, "free-space");
        let Floor::Amount(lowered) = strict.at_most_free(dir()).space else {
            panic!("an amount");
        };
        assert!(lowered > 0 && lowered < u64::MAX, "{lowered}");
        // A floor that is kept stays as it is.
        let kept = Floors {
            space: Floor::Amount(1),
            ..strict
        };
        assert_eq!(kept.at_most_free(dir()).space, Floor::Amount(1));
    }

    #[test]
    fn values_parse() {
        assert_eq!("2g".parse(), Ok(Floor::Amount(2 << 30)));
        assert_eq!("5000".parse(), Ok(Floor::Amount(5000)));
        assert_eq!("10%".parse::<Floor>().unwrap().of(2000), 200);
        assert_eq!("0".parse::<Floor>().unwrap().of(2000), 0);
        assert!("some".parse::<Floor>().unwrap_err().contains("5%"));
    }

    #[test]
    fn without_a_thread_to_watch_with_a_task_is_denied() {
        let home = tempfile::tempdir().unwrap();
        let floors = Floors {
            space: Floor::SPACE,
            inodes: Floor::INODES,
        };
        // No address space holds such a stack.
        let thread = std::thread::Builder::new().stack_size(1 << 60);
        let dir = File::open(home.path()).unwrap();
        let denial = floors.watch_on(thread, dir, |_| ()).unwrap_err();
        assert_eq!(denial.key, "free-space");
        assert!(denial.asked.contains("no thread"), "{denial}");
    }

    #[test]
    fn a_breach_is_reported_while_it_is_watched_for() {
        let home = tempfile::tempdir().unwrap();
        let dir = || File::open(home.path()).unwrap();
        let floors = |space| Floors {
            space: Floor::Amount(space),
            inodes: Floor::Amount(0),
        };
        let (sender, news) = sync_channel(1);
        let watch = floors(u64::MAX)
            .watch(dir(), move |denial| sender.send(denial.key).unwrap())
            .unwrap();
        assert_eq!(news.recv(), Ok("free-space"));
        drop(watch);
        let (sender, news) = sync_channel::<&str>(1);
        let watch = floors(0)
            .watch(dir(), move |denial| sender.send(denial.key).unwrap())
            .unwrap();
        drop(watch);
        // The thread has ended, and told nothing.
        assert!(news.recv().is_err());
    }
}
