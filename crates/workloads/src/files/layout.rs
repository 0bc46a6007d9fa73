//! Bringing a task's part of a cell into the state that a mode starts from, unmeasured.
//!
//! Where the state that an earlier mode left is known, nothing is touched. Otherwise every directory is looked at and
//! mended: what is missing or cut short is written, what was renamed gets its first name back, what does not belong is
//! removed. It knows nothing of modes. Invariant: when it fails or is interrupted, the state on disk is `Unsettled`.

use super::calls::{self, Durable};
use super::data::Data;
use super::side_by_side::{Done, side_by_side};
use super::size::SizeSpec;
use super::state::{Content, State};
use super::tree::{Name, Names, Shape, Share, open_directory};
use crate::random::Random;
use crate::sandbox::Dir;
use crate::task::{PrepareControl, TaskError};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, mkdirat};
use rustix::io::Errno;
use std::ffi::CString;
use std::path::Path;

/// What a mode starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All directories, no file.
    Empty,
    /// All files, under either name.
    Files,
}

/// All that decides what the data are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub shape: Shape,
    pub sizes: SizeSpec,
    pub seed: u64,
    /// Which of the step's tasks: no two have the same content.
    pub task_index: u32,
    /// Bytes per write.
    pub unit: usize,
}

impl Layout {
    /// Data of one text are the same data.
    fn describe(&self) -> String {
        let Shape {
            files,
            workers,
            files_per_directory,
        } = self.shape;
        format!(
            "{files} files of {} bytes, seed {}, by {workers} workers, {files_per_directory} per directory",
            self.sizes, self.seed
        )
    }

    pub(super) fn state(&self, content: Content) -> State {
        State {
            shape: self.describe(),
            content,
        }
    }

    /// What to write, a unit at a time.
    pub(super) fn data(&self) -> Data {
        Data::new(
            self.buffer_bytes(),
            Random::of(&[self.seed, u64::from(self.task_index)]).next_u64(),
        )
    }

    /// The most that one call moves.
    pub(super) fn buffer_bytes(&self) -> usize {
        let largest = usize::try_from(self.sizes.largest()).unwrap_or(usize::MAX);
        self.unit.min(largest)
    }

    /// Makes `task` hold what is wanted, and says under which names the files are.
    pub(super) fn bring_about(
        &self,
        task: &Dir,
        wanted: Wanted,
        control: &PrepareControl,
    ) -> Result<Names, TaskError> {
        let found = State::read(task).map_err(TaskError::Sandbox)?;
        let same = found
            .as_ref()
            .is_some_and(|state| state.shape == self.describe());
        match (wanted, found.filter(|_| same).map(|state| state.content)) {
            (Wanted::Empty, Some(Content::Empty)) | (Wanted::Files, Some(Content::Created)) => {
                return Ok(Names::Created);
            }
            (Wanted::Files, Some(Content::Renamed)) => return Ok(Names::Renamed),
            _ => {}
        }
        self.unsettle(task)?;
        if !same {
            self.clear(task, control)?;
        }
        let total = (self.shape.files, "files");
        side_by_side(self.shape.workers, total, control, |worker, done| {
            let root = worker_dir(task, worker)?;
            self.mend(&root, &self.shape.share(worker), wanted, done)
        })?;
        task.sync().map_err(TaskError::Sandbox)?;
        let content = match wanted {
            Wanted::Empty => Content::Empty,
            Wanted::Files => Content::Created,
        };
        self.state(content)
            .write(task)
            .map_err(TaskError::Sandbox)?;
        Ok(Names::Created)
    }

    /// To be called before anything changes the data.
    pub(super) fn unsettle(&self, task: &Dir) -> Result<(), TaskError> {
        State::unsettle(self.describe(), task).map_err(TaskError::Sandbox)
    }

    /// Removes data of other parameters.
    fn clear(&self, task: &Dir, control: &PrepareControl) -> Result<(), TaskError> {
        let mut names = Vec::new();
        list_names(task.fd(), c".", |name| names.push(name.to_owned()))
            .map_err(|errno| failed("list", task.path(), errno))?;
        for name in names {
            control.check()?;
            let name = name.to_string_lossy();
            if name.starts_with('w') {
                task.remove_all(&name, &mut |gone| {
                    control.progress(gone, 0, "files removed")
                })
                .map_err(TaskError::Sandbox)?;
            }
        }
        Ok(())
    }

    fn mend(
        &self,
        root: &Dir,
        share: &Share,
        wanted: Wanted,
        done: &Done,
    ) -> Result<(), TaskError> {
        let mut data = self.data();
        for number in 0..share.directories() {
            let name = Name::directory(number);
            let path = root.path().join(name.to_string());
            let is_new = match mkdirat(root.fd(), name.as_c_str(), Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(failed("make", &path, errno)),
            };
            let dir = open_directory(root, number).map_err(|errno| failed("open", &path, errno))?;
            let found = match is_new {
                true => Found::default(),
                false => Found::look(dir.as_fd(), share.files_of(number))
                    .map_err(|errno| failed("list", &path, errno))?,
            };
            let mending = Mending {
                layout: self,
                share,
                dir: dir.as_fd(),
                path: &path,
            };
            mending.directory(number, &found, wanted, &mut data, done)?;
        }
        Ok(())
    }
}

/// One directory on its way to what is wanted.
struct Mending<'a> {
    layout: &'a Layout,
    share: &'a Share,
    dir: BorrowedFd<'a>,
    path: &'a Path,
}

impl Mending<'_> {
    fn directory(
        &self,
        number: u64,
        found: &Found,
        wanted: Wanted,
        data: &mut Data,
        done: &Done,
    ) -> Result<(), TaskError> {
        for stray in &found.strays {
            self.remove(stray)?;
        }
        for (place, index) in self.share.files_of(number).enumerate() {
            let created = Name::file(Names::Created, index);
            let renamed = Name::file(Names::Renamed, index);
            let under = found.under(place);
            match wanted {
                Wanted::Empty => {
                    for name in [created, renamed] {
                        if under.is(name.letter()) {
                            self.remove(name.as_c_str())?;
                        }
                    }
                }
                Wanted::Files => {
                    if under.is(Names::Renamed.letter()) && under.is(Names::Created.letter()) {
                        self.remove(renamed.as_c_str())?;
                    } else if under.is(Names::Renamed.letter()) {
                        rustix::fs::renameat(
                            self.dir,
                            renamed.as_c_str(),
                            self.dir,
                            created.as_c_str(),
                        )
                        .map_err(|errno| self.failed("rename", &renamed, errno))?;
                    }
                    self.file(&created, index, under.is_somewhere(), data)?;
                }
            }
            done.add(1)?;
        }
        Ok(())
    }

    /// Writes a file unless it is there whole.
    fn file(
        &self,
        name: &Name,
        index: u64,
        is_there: bool,
        data: &mut Data,
    ) -> Result<(), TaskError> {
        let index = self.share.first + index;
        let bytes = self.layout.sizes.of(self.layout.seed, index);
        if is_there {
            let size = calls::stat(self.dir, name.as_c_str())
                .map_err(|errno| self.failed("stat", name, errno))?;
            if size == bytes {
                return Ok(());
            }
            self.remove(name.as_c_str())?;
        }
        calls::create(self.dir, name.as_c_str(), index, bytes, data, Durable::No)
            .map(drop)
            .map_err(|error| self.failed("lay out", name, error.errno))
    }

    fn remove(&self, name: &std::ffi::CStr) -> Result<(), TaskError> {
        rustix::fs::unlinkat(self.dir, name, AtFlags::empty())
            .map_err(|errno| failed("remove", &self.path.join(&*name.to_string_lossy()), errno))
    }

    fn failed(&self, doing: &str, name: &Name, errno: Errno) -> TaskError {
        failed(doing, &self.path.join(name.to_string()), errno)
    }
}

/// Under which of its two names a file was found: one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Under(u8);

impl Under {
    fn bit(letter: u8) -> u8 {
        if letter == Names::Created.letter() {
            1
        } else {
            2
        }
    }

    fn is(self, letter: u8) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    fn is_somewhere(self) -> bool {
        self.0 != 0
    }
}

/// What a directory holds.
#[derive(Debug, Default)]
struct Found {
    files: Vec<Under>,
    strays: Vec<CString>,
}

impl Found {
    fn look(dir: BorrowedFd<'_>, expected: std::ops::Range<u64>) -> Result<Self, Errno> {
        let mut found = Self::default();
        let count = usize::try_from(expected.end - expected.start).unwrap_or(usize::MAX);
        found.files.resize(count, Under::default());
        list_names(dir, c".", |name| {
            let letters = [Names::Created.letter(), Names::Renamed.letter()];
            let known = letters.into_iter().find_map(|letter| {
                let place = Name::number(letter, name)?.checked_sub(expected.start)?;
                let under = found.files.get_mut(usize::try_from(place).ok()?)?;
                under.0 |= Under::bit(letter);
                Some(())
            });
            if known.is_none() {
                found.strays.push(name.to_owned());
            }
        })?;
        Ok(found)
    }

    fn under(&self, place: usize) -> Under {
        self.files.get(place).copied().unwrap_or_default()
    }
}

fn list_names(
    dir: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    each: impl FnMut(&std::ffi::CStr),
) -> Result<(), Errno> {
    calls::list(dir, name, &mut calls::listing_buffer(), each)
}

/// The root of one worker's tree, made if it is not there yet.
pub(super) fn worker_dir(task: &Dir, worker: u32) -> Result<Dir, TaskError> {
    task.make_dir(&Name::worker(worker).to_string())
        .map_err(TaskError::Sandbox)
}

fn failed(doing: &str, path: &Path, errno: Errno) -> TaskError {
    TaskError::io(format!("{doing} `{}`", path.display()), errno)
}
