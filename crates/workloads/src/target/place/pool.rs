//! What one task works on in a RADOS pool: objects in a namespace of its run, with names of its own.
//!
//! A run has the namespace `benchmesh.MESH.RUN`, and a marker in the namespace `benchmesh` that says so. Objects are
//! called `CELL.tTASK.wWORKER.NUMBER`, so that tasks, workers and clients never meet. What a task has left is in its
//! state object `CELL.tTASK.state`.

use crate::target::rados::{
    Issuer, Limits, ObjectCall, OmapShape, PoolFacts, PoolSpace, PoolSpec, RadosError, Session,
};
use crate::target::sandbox::{SandboxError, Space, check_name, nonce};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The namespace of the markers, and the beginning of those of runs.
const MARKERS: &str = "benchmesh";
/// Removals in flight.
const REMOVALS: u16 = 64;
const WAIT: Duration = Duration::from_millis(100);

/// A run's place in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRun {
    pub spec: PoolSpec,
    pub mesh: String,
    pub run: String,
}

/// Whose namespace it is. The nonce is the same for all clients of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMarker {
    pub mesh: String,
    pub run: String,
    pub nonce: String,
}

/// A run of which a pool has data, or a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftRun {
    pub mesh: String,
    pub run: String,
    pub unchanged_for: Duration,
}

impl PoolRun {
    fn marker_name(&self) -> Result<String, SandboxError> {
        check_name("mesh", &self.mesh)?;
        check_name("run", &self.run)?;
        Ok(format!("run.{}.{}", self.mesh, self.run))
    }

    fn namespace(&self) -> String {
        format!("{MARKERS}.{}.{}", self.mesh, self.run)
    }

    fn markers(&self) -> Result<Session, RadosError> {
        Session::open(&self.spec, MARKERS, Limits::default())
    }

    /// A session with the run's objects.
    pub(crate) fn open(&self, limits: Limits) -> Result<Arc<Session>, RadosError> {
        Session::open(&self.spec, &self.namespace(), limits).map(Arc::new)
    }

    /// The run's marker, and whether it was made; `None` where there is none and none may be made.
    pub fn marker(&self, makes: bool) -> Result<Option<(RunMarker, bool)>, SandboxError> {
        let name = self.marker_name()?;
        let markers = self.markers()?;
        if let Some(text) = markers.read(&name)? {
            let marker: RunMarker =
                serde_json::from_slice(&text).map_err(|error| SandboxError::NotOurs {
                    path: format!("{}/{MARKERS}/{name}", self.spec.pool).into(),
                    why: format!("it is not a marker ({error})"),
                })?;
            return Ok(Some((marker, false)));
        }
        if !makes {
            return Ok(None);
        }
        let marker = RunMarker {
            mesh: self.mesh.clone(),
            run: self.run.clone(),
            nonce: nonce()?,
        };
        let text = serde_json::to_vec(&marker).expect("three texts are always JSON");
        markers.write(&name, &text)?;
        Ok(Some((marker, true)))
    }

    /// Removes all objects of the run, and its marker at the end.
    pub fn remove(&self, progress: &mut dyn FnMut(u64)) -> Result<(), SandboxError> {
        let name = self.marker_name()?;
        let markers = self.markers()?;
        if markers.read(&name)?.is_none() {
            return Ok(());
        }
        remove_objects(&self.open(Limits::default())?, "", progress)?;
        Ok(markers.remove(&name)?)
    }

    /// Removes the objects of one task.
    pub fn remove_cell(
        &self,
        cell: &str,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        check_name("cell", cell)?;
        let name = self.marker_name()?;
        if self.markers()?.read(&name)?.is_none() {
            return Ok(());
        }
        let prefix = prefix_of(cell, task_index);
        Ok(remove_objects(
            &self.open(Limits::default())?,
            &prefix,
            progress,
        )?)
    }

    /// The place of one task; `None` where the run has no marker.
    pub fn task(&self, cell: &str, task_index: u32) -> Result<Option<PoolTask>, SandboxError> {
        check_name("cell", cell)?;
        Ok(self.marker(false)?.map(|(marker, _)| PoolTask {
            run: self.clone(),
            nonce: marker.nonce,
            prefix: prefix_of(cell, task_index),
            cell: cell.to_owned(),
            session: Mutex::default(),
        }))
    }
}

/// What is known of a pool before anything runs on it.
pub fn facts(spec: &PoolSpec) -> Result<PoolFacts, RadosError> {
    Ok(Session::open(spec, MARKERS, Limits::default())?.facts())
}

/// As a file system says it.
pub fn space(of: PoolSpace) -> Space {
    let size_bytes = of.used_bytes.saturating_add(of.free_bytes);
    Space {
        size_bytes,
        usable_bytes: size_bytes,
        free_bytes: of.free_bytes,
        files: of.max_objects,
        free_files: of.free_objects,
    }
}

/// The runs that have a marker in a pool.
pub fn runs_in(spec: &PoolSpec) -> Result<Vec<LeftRun>, RadosError> {
    let markers = Session::open(spec, MARKERS, Limits::default())?;
    let mut names = Vec::new();
    markers.list(|name| names.push(name.to_owned()))?;
    names.sort();
    let mut runs = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("run.")) {
        let (Some(text), Some((_, unchanged_for))) = (markers.read(name)?, markers.stat(name)?)
        else {
            continue;
        };
        if let Ok(RunMarker { mesh, run, .. }) = serde_json::from_slice(&text) {
            runs.push(LeftRun {
                mesh,
                run,
                unchanged_for,
            });
        }
    }
    Ok(runs)
}

/// Removes the session's objects whose names begin so, many at once. `progress` is told how many are gone.
fn remove_objects(
    session: &Arc<Session>,
    prefix: &str,
    progress: &mut dyn FnMut(u64),
) -> Result<(), RadosError> {
    let mut names = Vec::new();
    session.list(|name| {
        if name.starts_with(prefix) {
            names.push(name.to_owned());
        }
    })?;
    let issuer = Issuer::open(session, REMOVALS, 0, OmapShape::default());
    let mut issuer = issuer.map_err(|source| RadosError::Call {
        doing: "remove objects".to_owned(),
        who: String::new(),
        remedy: String::new(),
        source,
    })?;
    let mut free: Vec<u16> = (0..REMOVALS).collect();
    let mut left = names.into_iter().peekable();
    let (mut removed, mut first_error) = (0, None);
    while (left.peek().is_some() && first_error.is_none()) || issuer.in_flight() > 0 {
        while first_error.is_none()
            && let Some(slot) = free.pop()
        {
            let Some(name) = left.next() else {
                free.push(slot);
                break;
            };
            let name = CString::new(name).unwrap_or_default();
            if let Err(errno) = issuer.issue(slot, &name, ObjectCall::Remove) {
                first_error = Some(errno);
            }
        }
        let mut has_ended = false;
        while let Some(ended) = issuer.reap() {
            has_ended = true;
            free.push(ended.slot);
            match -ended.result {
                ..=0 | libc::ENOENT => removed += 1,
                errno => first_error = first_error.or(Some(errno)),
            }
        }
        progress(removed);
        if !has_ended && issuer.in_flight() > 0 {
            issuer.wait(WAIT);
        }
    }
    match first_error {
        Some(errno) => Err(issuer.failed("remove objects", errno)),
        None => Ok(()),
    }
}

/// What the names of a task's objects begin with.
fn prefix_of(cell: &str, task_index: u32) -> String {
    format!("{cell}.t{task_index}.")
}

/// What one task works on.
#[derive(Debug)]
pub struct PoolTask {
    pub run: PoolRun,
    nonce: String,
    cell: String,
    /// What the names of its objects begin with.
    prefix: String,
    /// For questions beside the load.
    session: Mutex<Option<Arc<Session>>>,
}

impl PoolTask {
    pub fn name(&self) -> String {
        format!(
            "{}/{}/{}",
            self.run.spec.pool,
            self.run.namespace(),
            self.prefix
        )
    }

    /// The place of another task of the same cell.
    pub fn of_task(&self, task_index: u32) -> PoolTask {
        PoolTask {
            run: self.run.clone(),
            nonce: self.nonce.clone(),
            prefix: prefix_of(&self.cell, task_index),
            cell: self.cell.clone(),
            session: Mutex::default(),
        }
    }

    /// Of the run's marker.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// What the names of a worker's objects begin with.
    pub fn worker_prefix(&self, worker: u32) -> String {
        format!("{}w{worker}.", self.prefix)
    }

    /// The object that says what the task has left.
    pub fn state_name(&self) -> String {
        format!("{}state", self.prefix)
    }

    fn session(&self) -> Result<Arc<Session>, RadosError> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        let opened = self.run.open(Limits::default())?;
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// `None`: the user may not ask, or nobody answers.
    pub fn free(&self) -> Option<Space> {
        self.session().ok()?.space().map(space)
    }

    /// Whether an earlier mode has left objects.
    pub fn has_data(&self) -> bool {
        let session = self.session().ok();
        let state = session.and_then(|session| session.stat(&self.state_name()).ok()?);
        state.is_some()
    }
}
