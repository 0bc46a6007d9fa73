//! Creates the objects that a mode needs, and removes those that `write` finds, before anything is measured.

use super::state::ObjectsState;
use super::worker::Names;
use super::{ModeKind, ObjectsLoad};
use crate::engine::author::*;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Operations in flight per layout thread.
const DEPTH: u16 = 16;
const WAIT: Duration = Duration::from_millis(100);

pub(super) fn prepare(load: &ObjectsLoad, control: &PrepareControl) -> Result<(), TaskError> {
    let job = &load.job;
    let state_name = load.place.state_name();
    let text = load.session.read(&state_name).map_err(TaskError::Pool)?;
    let found = text.and_then(|text| ObjectsState::parse(&text, job.object_bytes));
    let found = |worker| found.as_ref().map_or(0, |state| state.of(worker));
    if job.kind == ModeKind::Write {
        load.session.remove(&state_name).map_err(TaskError::Pool)?;
        let total = (0..job.workers).map(found).sum();
        return in_parallel(job.workers, (total, "objects"), control, |worker, done| {
            each_of(load, worker, 0..found(worker), done, Work::Remove)
        });
    }
    let wanted = |worker| job.objects.unwrap_or_else(|| found(worker));
    if (0..job.workers).all(|worker| wanted(worker) == 0) {
        let message = format!(
            "is missing: mode `{}` needs it, because no `write` of the same phase has created objects",
            load.job.mode
        );
        return Err(TaskError::Params(ParamError::of("objects", message)));
    }
    let bytes = |worker| wanted(worker).saturating_mul(job.object_bytes);
    let total = (0..job.workers).map(bytes).sum();
    let is_missing = (0..job.workers).any(|worker| found(worker) < wanted(worker));
    if is_missing {
        control
            .check_layout_allowed(|| format!("what `objects` needs at {}", load.place.name()))?;
    }
    in_parallel(job.workers, (total, "bytes"), control, |worker, done| {
        let kept = found(worker).min(wanted(worker));
        done.count(kept.saturating_mul(job.object_bytes))?;
        each_of(load, worker, kept..wanted(worker), done, Work::Make)?;
        if let Some(there) = load.there.get(worker as usize) {
            there.store(wanted(worker).max(found(worker)), Ordering::Relaxed);
        }
        Ok(())
    })?;
    match job.kind {
        // The state is written again once all objects are removed.
        ModeKind::Delete => load.session.remove(&state_name),
        _ if is_missing => load.write_state(ObjectsLoad::counts(&load.there)),
        _ => Ok(()),
    }
    .map_err(TaskError::Pool)?;
    match load.data_task == load.task_index {
        true => Ok(()),
        false => find_others(load, control),
    }
}

/// Waits for the objects of the task to read from.
fn find_others(load: &ObjectsLoad, control: &PrepareControl) -> Result<(), TaskError> {
    let job = &load.job;
    let name = load.data_place.state_name();
    let is_whole = |state: &ObjectsState| match job.objects {
        Some(wanted) => (0..job.workers).all(|worker| state.of(worker) >= wanted),
        None => (0..job.workers).any(|worker| state.of(worker) > 0),
    };
    let state = await_other(load.data_task, control, || {
        let text = load.session.read(&name).map_err(TaskError::Pool)?;
        let state = text.and_then(|text| ObjectsState::parse(&text, job.object_bytes));
        Ok(state.filter(is_whole))
    })?;
    for (worker, there) in (0..).zip(load.there.iter()) {
        there.store(state.of(worker), Ordering::Relaxed);
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Make,
    Remove,
}

/// Does the same operation on each of a worker's objects, with many in flight.
fn each_of(
    load: &ObjectsLoad,
    worker: u32,
    objects: std::ops::Range<u64>,
    done: &Done<'_>,
    work: Work,
) -> Result<(), TaskError> {
    if objects.is_empty() {
        return Ok(());
    }
    let job = &load.job;
    let issuer = Issuer::open(&load.session, DEPTH, 0, OmapShape::default());
    let mut issuer = issuer.map_err(|error| TaskError::io("allocate buffers", error))?;
    let mut names = Names::new(&load.place.worker_prefix(worker));
    let bytes = check_unit("size", Bytes(job.object_bytes)).map_err(TaskError::Params)?;
    let mut data = WriteBuffer::of(job.content(), if work == Work::Make { bytes } else { 0 });
    let mut object_data = Vec::new();
    let mut free: Vec<u16> = (0..DEPTH).collect();
    let mut left = objects;
    let amount = match work {
        Work::Make => job.object_bytes,
        Work::Remove => 1,
    };
    let failed = |issuer: &Issuer, object: u64, errno| {
        let what = if work == Work::Make {
            "lay out"
        } else {
            "remove"
        };
        let name = format!("{}{object}", load.place.worker_prefix(worker));
        Err(TaskError::Pool(
            issuer.failed(&format!("{what} `{name}`"), errno),
        ))
    };
    let mut in_slot = [0_u64; DEPTH as usize];
    loop {
        while let Some(slot) = free.last().copied() {
            let Some(object) = left.next() else {
                break;
            };
            done.add(amount)?;
            free.pop();
            if let Some(entry) = in_slot.get_mut(usize::from(slot)) {
                *entry = object;
            }
            let call = match work {
                Work::Remove => ObjectCall::Remove,
                Work::Make => {
                    object_data.clear();
                    for offset in (0..job.object_bytes).step_by(job.block.max(1)) {
                        let id = ObjectsLoad::content_id(load.task_index, worker, object);
                        object_data.extend_from_slice(data.written_as(0, id, offset, job.block));
                    }
                    ObjectCall::WriteFull { data: &object_data }
                }
            };
            if let Err(errno) = issuer.issue(slot, names.of(object), call) {
                return failed(&issuer, object, errno);
            }
        }
        if issuer.in_flight() == 0 {
            return Ok(());
        }
        let mut has_ended = false;
        while let Some(ended) = issuer.reap() {
            has_ended = true;
            free.push(ended.slot);
            let errno = -ended.result;
            if errno > 0 && !(work == Work::Remove && errno == libc::ENOENT) {
                let object = in_slot.get(usize::from(ended.slot)).copied();
                return failed(&issuer, object.unwrap_or(0), errno);
            }
        }
        if !has_ended {
            issuer.wait(WAIT);
            if let Err(stopped) = done.add(0) {
                issuer.cancel();
                return Err(stopped);
            }
        }
    }
}
