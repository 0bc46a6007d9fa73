//! What a task works on in a RADOS pool: objects in the namespace of its run, with names of its own.
//!
//! A run has the namespace `benchmesh.MESH.RUN`, and a marker for it in the namespace `benchmesh`. Objects are called
//! `CELL.tTASK.wWORKER.NUMBER`, and RBD images `CELL.tTASK.wWORKER.image`, so that tasks, workers and clients never
//! collide. A task's state is recorded in the object `CELL.tTASK.state`. Images are objects too: a whole run is removed
//! without opening them, even if a lost client still seems to have them open.

use crate::target::rados::{
    DIRECTORY, Issuer, Limits, ObjectCall, OmapShape, PoolFacts, PoolSpace, PoolSpec, RadosError,
    Session, describes_image, has_image_data, image_library_version, images_of,
};
use crate::target::sandbox::{SandboxError, Space, check_name, nonce};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The namespace of the markers, and the prefix of the namespaces of runs.
const MARKERS: &str = "benchmesh";
/// Removals in flight.
const REMOVALS: u16 = 64;
const WAIT: Duration = Duration::from_millis(100);

/// A run's data in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRun {
    pub spec: PoolSpec,
    pub mesh: String,
    pub run: String,
}

/// The owner of a namespace. The nonce is the same for all clients of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMarker {
    pub mesh: String,
    pub run: String,
    pub nonce: String,
}

/// A run that has data or a marker in a pool.
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

    /// Opens a session in the run's namespace.
    pub(crate) fn open(&self, limits: Limits) -> Result<Arc<Session>, RadosError> {
        Session::open(&self.spec, &self.namespace(), limits).map(Arc::new)
    }

    /// The run's marker, and whether it was created; `None` if there is none and none may be created.
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

    /// Removes all objects of the run, and then its marker.
    pub fn remove(&self, progress: &mut dyn FnMut(u64)) -> Result<(), SandboxError> {
        let name = self.marker_name()?;
        let markers = self.markers()?;
        if markers.read(&name)?.is_none() {
            return Ok(());
        }
        let session = self.open(Limits::default())?;
        let names = names_of(&session)?;
        let has_images = names.iter().any(|name| name == DIRECTORY);
        let names = names.into_iter().filter(|name| name != DIRECTORY);
        remove_objects(&session, names.collect(), progress)?;
        if has_images {
            // Without the library the directory stays, so that the next attempt knows that there were images.
            image_library_version()?;
            session.remove_namespace()?;
        }
        Ok(markers.remove(&name)?)
    }

    /// Removes the objects and images of one task.
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
        let session = self.open(Limits::default())?;
        let names = names_of(&session)?;
        let of_task = |name: &&str| name.starts_with(&prefix);
        let mut removed = 0;
        for image in images_of(&names).filter(of_task) {
            let mut of_all = |of_image| progress(removed + of_image);
            removed += remove_image(&session, image, &names, &mut of_all)?;
        }
        let mine = names.iter().map(String::as_str).filter(of_task);
        let mine = mine.map(str::to_owned).collect();
        let mut of_all = |objects| progress(removed + objects);
        Ok(remove_objects(&session, mine, &mut of_all).map(drop)?)
    }

    /// The data of one task; `None` if the run has no marker.
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

/// Facts about a pool before a load runs on it.
pub fn facts(spec: &PoolSpec) -> Result<PoolFacts, RadosError> {
    Ok(Session::open(spec, MARKERS, Limits::default())?.facts())
}

/// Converts to the form of a file system.
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

/// The objects of the session's namespace.
fn names_of(session: &Session) -> Result<Vec<String>, RadosError> {
    let mut names = Vec::new();
    session.list(|name| names.push(name.to_owned()))?;
    Ok(names)
}

/// Removes an image of the session's namespace, and returns how many objects were removed. Removes data objects first,
/// many at once, and then librbd's own objects of the image.
fn remove_image(
    session: &Arc<Session>,
    image: &str,
    names: &[String],
    progress: &mut dyn FnMut(u64),
) -> Result<u64, RadosError> {
    let Some(id) = session.image_id(image)? else {
        return Ok(0);
    };
    let those = |belongs: fn(&str, &str) -> bool| {
        let those = names.iter().filter(|name| belongs(name, &id));
        those.cloned().collect()
    };
    let removed = remove_objects(session, those(has_image_data), progress)?;
    if session.remove_image(image)? {
        return Ok(removed);
    }
    // After a kill, the client still seems to have the image open for half a minute.
    let described = remove_objects(session, those(describes_image), progress)?;
    session.remove_image(image)?;
    Ok(removed + described)
}

/// Removes objects of the session's namespace, many at once, and returns how many. `progress` gets the count meanwhile.
fn remove_objects(
    session: &Arc<Session>,
    names: Vec<String>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, RadosError> {
    if names.is_empty() {
        return Ok(0);
    }
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
        None => Ok(removed),
    }
}

/// Prefix of the names of a task's objects.
fn prefix_of(cell: &str, task_index: u32) -> String {
    format!("{cell}.t{task_index}.")
}

/// The objects of one task.
#[derive(Debug)]
pub struct PoolTask {
    pub run: PoolRun,
    nonce: String,
    cell: String,
    /// Prefix of the names of its objects.
    prefix: String,
    /// For requests beside the load.
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

    /// The same cell's data of another task.
    pub fn of_task(&self, task_index: u32) -> PoolTask {
        PoolTask {
            run: self.run.clone(),
            nonce: self.nonce.clone(),
            prefix: prefix_of(&self.cell, task_index),
            cell: self.cell.clone(),
            session: Mutex::default(),
        }
    }

    /// The nonce of the run's marker.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Prefix of the names of a worker's objects.
    pub fn worker_prefix(&self, worker: u32) -> String {
        format!("{}w{worker}.", self.prefix)
    }

    /// Name of a worker's image.
    pub fn image_name(&self, worker: u32) -> String {
        format!("{}image", self.worker_prefix(worker))
    }

    /// An image path in the syntax of `rbd`.
    pub fn image_path(&self, worker: u32) -> String {
        let namespace = self.run.namespace();
        format!(
            "{}/{namespace}/{}",
            self.run.spec.pool,
            self.image_name(worker)
        )
    }

    /// Removes a worker's image, if it exists.
    pub(crate) fn remove_image(
        &self,
        session: &Arc<Session>,
        worker: u32,
    ) -> Result<(), RadosError> {
        let name = self.image_name(worker);
        match session.has_image(&name)? {
            true => remove_image(session, &name, &names_of(session)?, &mut |_| ()).map(drop),
            false => Ok(()),
        }
    }

    /// The object that records the task's state.
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

    /// `None`: the user lacks the permission, or the cluster does not answer.
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
