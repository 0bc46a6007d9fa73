//! The measured loops: one pass over a worker's files in one mode, or passes until the time is over.
//!
//! [`Walk`] chooses the next file; this module issues a mode's calls on it.

use super::attributes::Calls;
use super::mixed::MixedOp;
use super::modes::FilesMode;
use super::name::Name;
use super::walk::{Clock, PassSpec, Walk};
use crate::engine::author::*;
use rustix::fs::Mode as Permissions;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a mode does to each file or directory, with the buffers it needs.
pub(super) enum FileAction {
    Create(WriteBuffer, Durable),
    Append(WriteBuffer, (Durable, HardLinks), u64),
    Read(AlignedBytes),
    /// Reads and verifies; the last field is the bytes of one append.
    Check(AlignedBytes, Content, u64),
    /// With or without the attributes of each name.
    List(Vec<MaybeUninit<u8>>),
    SetXattr(Calls, Vec<u8>),
    GetXattr(Calls, Vec<u8>),
    Chmod(Calls),
    Mix(MixTools),
    Stat,
    Rename,
    Symlink,
    Mkdir,
    Rmdir,
    Delete,
}

/// Buffers and parameters for the operations of a mix.
pub(super) struct MixTools {
    pub mix: Weighted<MixedOp>,
    pub random: Random,
    pub calls: Calls,
    pub durable: Durable,
    pub data: WriteBuffer,
    pub buffer: AlignedBytes,
    /// Content to verify reads against.
    pub content: Option<Content>,
    pub append: u64,
}

pub(super) struct FilesWorker {
    pub mode: FilesMode,
    pub walk: Walk,
    pub action: FileAction,
    pub whole: WholePasses,
    /// Passes so far.
    pub done: u64,
    /// Files created without a gap by each worker, and this worker's index.
    pub created: (Arc<[AtomicU64]>, usize),
    pub passes: Passes,
}

impl Worker for FilesWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        if self.walk.share.files == 0 {
            return Ok(());
        }
        let (mut passes, whole) = (self.passes, self.whole.clone());
        passes.repeat(&whole, || {
            let pass = self.pass(recorder);
            self.done += 1;
            pass
        })
    }
}

/// Passes alternate between these permissions, so that each pass changes them.
const PERMISSIONS: [Permissions; 2] = [
    Permissions::RUSR.union(Permissions::WUSR),
    Permissions::RUSR
        .union(Permissions::WUSR)
        .union(Permissions::RGRP),
];

/// Counts the files created before the first failure.
#[derive(Default)]
struct Created {
    without_gap: u64,
    has_gap: bool,
}

impl Created {
    #[inline]
    fn add(&mut self, is_made: bool) {
        self.has_gap |= !is_made;
        self.without_gap += u64::from(!self.has_gap);
    }
}

/// Outcome of a write of `data`, without the time spent on generating the data.
#[inline]
fn written(bytes: Result<u64, CallError>, data: &mut WriteBuffer) -> Result<Moved, Fault> {
    let excluded = data.take_excluded_time();
    Ok(Moved {
        bytes: bytes?,
        excluded,
    })
}

impl FilesWorker {
    fn pass(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let mode = self.mode;
        let walk = &mut self.walk;
        let (sizes, seed, appended) = (walk.sizes.clone(), walk.seed, walk.dataset.extras.appended);
        let size_of = |index| sizes.of(seed, index);
        let size_now = |index| sizes.of(seed, index).saturating_add(appended);
        let no_size = |_| 0;
        let names = walk.dataset.names();
        let letter = mode
            .companion()
            .map_or(names.letter(), |kind| kind.letter());
        let moves = match &self.action {
            FileAction::Append(_, _, more) => Some(*more),
            FileAction::SetXattr(_, value) | FileAction::GetXattr(_, value) => {
                u64::try_from(value.len()).ok()
            }
            _ => None,
        };
        let done = self.done;
        let call = match &self.action {
            FileAction::Create(data, _) | FileAction::Append(data, ..) => data.len(),
            FileAction::Read(buffer) | FileAction::Check(buffer, ..) => buffer.len(),
            _ => 0,
        };
        let job = |clock| PassSpec {
            op: mode.op(),
            clock,
            letter,
            pass: done,
            moves,
            call,
        };
        match &mut self.action {
            FileAction::Create(data, durable) => {
                let mut created = Created::default();
                let pass = walk.files(
                    recorder,
                    &job(Clock::Own),
                    size_of,
                    |mut spot, dir, name, index, bytes| {
                        let allow = |at, wanted| spot.next_chunk(at, at, wanted);
                        let name = name.as_c_str();
                        let made = calls::create(dir, name, index, bytes, data, *durable, allow);
                        created.add(made.is_ok());
                        written(made, data)
                    },
                );
                let (counts, worker) = &self.created;
                if let Some(count) = counts.get(*worker) {
                    count.store(created.without_gap, Ordering::Relaxed);
                }
                pass
            }
            FileAction::Append(data, how, more) => walk.files(
                recorder,
                &job(Clock::Own),
                size_now,
                |mut spot, dir, name, index, had| {
                    let allow = |at, wanted| spot.next_chunk(at, at - had, wanted);
                    let (name, place) = (name.as_c_str(), (index, had));
                    let more = calls::append(dir, name, place, *more, data, *how, allow);
                    written(more, data)
                },
            ),
            FileAction::Read(buffer) => walk.files(
                recorder,
                &job(Clock::Own),
                size_now,
                |mut spot, dir, name, _, bytes| {
                    let allow = |at, wanted| spot.next_chunk(at, at, wanted);
                    Ok(calls::read(dir, name.as_c_str(), bytes, buffer, allow)?)
                },
            ),
            FileAction::Check(buffer, content, append) => walk.files(
                recorder,
                &job(Clock::Own),
                size_now,
                |mut spot, dir, name, index, bytes| {
                    let allow = |at, wanted| spot.next_chunk(at, at, wanted);
                    let mut blocks = Blocks::new(content, index, bytes).appended(appended, *append);
                    read_back(dir, name.as_c_str(), buffer, &mut blocks, allow)
                },
            ),
            FileAction::List(buffer) => walk.list(recorder, &job(Clock::Own), buffer),
            FileAction::SetXattr(calls, value) => {
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    Ok(calls.set(dir, name.as_c_str(), value)?)
                })
            }
            FileAction::GetXattr(calls, value) => {
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    Ok(calls.get(dir, name.as_c_str(), value)?)
                })
            }
            FileAction::Chmod(calls) => {
                let [first, second] = PERMISSIONS;
                let even = self.done.is_multiple_of(2);
                let permissions = if even { first } else { second };
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    calls.chmod(dir, name.as_c_str(), permissions)?;
                    Ok(0)
                })
            }
            FileAction::Mix(tools) => {
                let MixTools {
                    mix,
                    random,
                    calls,
                    durable,
                    data,
                    buffer,
                    content,
                    append,
                } = tools;
                let [first, second] = PERMISSIONS;
                let mut permissions = (first, second);
                let size = |drawn, index| match drawn {
                    MixedOp::Read => size_now(index),
                    MixedOp::Write => size_of(index),
                    MixedOp::Stat | MixedOp::Chmod => 0,
                };
                walk.drawn(
                    recorder,
                    letter,
                    (&*mix, random),
                    buffer.len(),
                    size,
                    |drawn, mut spot, dir, name, index, bytes| {
                        let allow = |at, wanted| spot.next_chunk(at, at, wanted);
                        let name = name.as_c_str();
                        match (drawn, content.as_ref()) {
                            (MixedOp::Read, None) => {
                                Ok(calls::read(dir, name, bytes, buffer, allow)?.into())
                            }
                            (MixedOp::Read, Some(content)) => {
                                let blocks = Blocks::new(content, index, bytes);
                                let mut blocks = blocks.appended(appended, *append);
                                read_back(dir, name, buffer, &mut blocks, allow)
                            }
                            (MixedOp::Write, _) => {
                                let how = *durable;
                                let made =
                                    calls::write_over(dir, name, index, bytes, data, how, allow);
                                written(made, data)
                            }
                            (MixedOp::Stat, _) => {
                                calls::stat(dir, name)?;
                                Ok(0.into())
                            }
                            (MixedOp::Chmod, _) => {
                                permissions = (permissions.1, permissions.0);
                                calls.chmod(dir, name, permissions.0)?;
                                Ok(0.into())
                            }
                        }
                    },
                )
            }
            FileAction::Rename => {
                let mut new_name = Name::file(names.other(), 0);
                walk.files(
                    recorder,
                    &job(Clock::Shared),
                    no_size,
                    |_, dir, name, _, _| {
                        new_name.take_number(name);
                        rustix::fs::renameat(dir, name.as_c_str(), dir, new_name.as_c_str())?;
                        Ok(0)
                    },
                )
            }
            FileAction::Delete => walk.files(
                recorder,
                &job(Clock::Shared),
                no_size,
                |_, dir, name, _, _| {
                    calls::delete(dir, name.as_c_str())?;
                    Ok(0)
                },
            ),
            FileAction::Symlink => {
                let mut target = Name::file(names, 0);
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    target.take_number(name);
                    calls::make_symlink(dir, name.as_c_str(), target.as_c_str())?;
                    Ok(0)
                })
            }
            FileAction::Mkdir => {
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    calls::make_directory(dir, name.as_c_str())?;
                    Ok(0)
                })
            }
            FileAction::Rmdir => {
                walk.files(recorder, &job(Clock::Own), no_size, |_, dir, name, _, _| {
                    calls::remove_directory(dir, name.as_c_str())?;
                    Ok(0)
                })
            }
            FileAction::Stat => walk.files(
                recorder,
                &job(Clock::Shared),
                no_size,
                |_, dir, name, _, _| {
                    calls::stat(dir, name.as_c_str())?;
                    Ok(0)
                },
            ),
        }
    }
}
