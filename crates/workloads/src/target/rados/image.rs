//! RBD images of a session's pool and namespace, through librbd.
//!
//! librbd keeps a list of the namespaces that may have images; the session's namespace is added before its first image
//! is created. Calls here block; each step of the library for the session's timeout at most. The session disables the
//! library's cache.

use super::library::{ImageHandle, ImageLibrary};
use super::session::text;
use super::{RadosError, Session};
use crate::measure::clock::{MonoNanos, sleep_until};
use libc::{c_int, ssize_t};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The object that lists the images of a namespace.
pub(crate) const DIRECTORY: &str = "rbd_directory";
/// Prefix of the object that contains an image's identifier.
const ID: &str = "rbd_id.";
/// Longest time that another client takes between listing a namespace and creating its directory.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// librbd's version, such as `1.16.0`.
///
/// # Errors
/// If librbd cannot be opened.
pub fn image_library_version() -> Result<String, RadosError> {
    let library = ImageLibrary::opened()?;
    let (mut major, mut minor, mut extra) = (0, 0, 0);
    // SAFETY: all pointers are valid for the call.
    unsafe { (library.rbd_version)(&mut major, &mut minor, &mut extra) };
    Ok(format!("{major}.{minor}.{extra}"))
}

/// The images in a list of a namespace's objects.
pub(crate) fn images_of(objects: &[String]) -> impl Iterator<Item = &str> {
    objects.iter().filter_map(|object| object.strip_prefix(ID))
}

/// Whether an object holds data of the image with this identifier.
pub(crate) fn has_image_data(object: &str, id: &str) -> bool {
    let number = object
        .strip_prefix("rbd_data.")
        .and_then(|rest| rest.strip_prefix(id));
    number.is_some_and(|number| number.starts_with('.'))
}

/// Whether an object holds metadata of the image with this identifier.
pub(crate) fn describes_image(object: &str, id: &str) -> bool {
    let kinds = ["rbd_header.", "rbd_object_map."];
    kinds
        .iter()
        .any(|kind| object.strip_prefix(kind) == Some(id))
}

impl Session {
    /// Creates an image in the session's namespace, with the features and the order of the cluster's configuration.
    pub(crate) fn create_image(&self, name: &str, bytes: u64) -> Result<(), RadosError> {
        let library = ImageLibrary::opened()?;
        self.enter_namespace(library)?;
        let (named, mut order) = (text(name), 0);
        // SAFETY: the context is open, the text ends with a zero byte, and the order is valid for the call.
        let code = unsafe { (library.rbd_create)(self.io, named.as_ptr(), bytes, &mut order) };
        self.image_done(code, &format!("make image `{name}`"))
    }

    /// Adds the session's namespace to the pool's list, unless another client has done so.
    fn enter_namespace(&self, library: &ImageLibrary) -> Result<(), RadosError> {
        let doing = || format!("make the namespace `{}` of images", self.namespace());
        if self.stat(DIRECTORY)?.is_some() {
            return Ok(());
        }
        let namespace = text(self.namespace());
        // SAFETY: the context is open, and the text ends with a zero byte.
        let code = unsafe { (library.rbd_namespace_create)(self.io, namespace.as_ptr()) };
        if code != -libc::EEXIST {
            return self.image_done(code, &doing());
        }
        let until = MonoNanos::now().saturating_add(NAMESPACE_TIMEOUT);
        while self.stat(DIRECTORY)?.is_none() {
            if MonoNanos::now() >= until {
                return Err(self.image_failed(&doing(), code));
            }
            sleep_until(MonoNanos::now().saturating_add(POLL_INTERVAL));
        }
        Ok(())
    }

    /// Removes the session's namespace from the pool's list. Its images must be gone except for their entries.
    pub(crate) fn remove_namespace(&self) -> Result<(), RadosError> {
        let library = ImageLibrary::opened()?;
        self.remove(DIRECTORY)?;
        let namespace = text(self.namespace());
        // SAFETY: the context is open, and the text ends with a zero byte.
        let code = unsafe { (library.rbd_namespace_remove)(self.io, namespace.as_ptr()) };
        match code == -libc::ENOENT {
            true => Ok(()),
            false => self.image_done(code, "remove the namespace of images"),
        }
    }

    pub(crate) fn has_image(&self, name: &str) -> Result<bool, RadosError> {
        Ok(self.stat(&format!("{ID}{name}"))?.is_some())
    }

    /// The identifier in the names of an image's objects; `None`: there is no such image.
    pub(crate) fn image_id(&self, name: &str) -> Result<Option<String>, RadosError> {
        let Some(content) = self.read(&format!("{ID}{name}"))? else {
            return Ok(None);
        };
        // Four bytes of length, then the identifier.
        let id = content.get(4..).unwrap_or_default();
        let id = String::from_utf8_lossy(id).into_owned();
        Ok(Some(id).filter(|id| !id.is_empty()))
    }

    /// A missing image counts as removed; `false`: another client still has it open.
    pub(crate) fn remove_image(&self, name: &str) -> Result<bool, RadosError> {
        let library = ImageLibrary::opened()?;
        let named = text(name);
        // SAFETY: the context is open, and the text ends with a zero byte.
        let code = unsafe { (library.rbd_remove)(self.io, named.as_ptr()) };
        match -code {
            libc::ENOENT => Ok(true),
            libc::EBUSY => Ok(false),
            _ => {
                self.image_done(code, &format!("remove image `{name}`"))?;
                Ok(true)
            }
        }
    }

    fn image_done(&self, code: c_int, doing: &str) -> Result<(), RadosError> {
        match code {
            0.. => Ok(()),
            _ => Err(self.image_failed(doing, code)),
        }
    }
}

/// What an image is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageAccess {
    Read,
    Write,
}

/// An open image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(super) session: Arc<Session>,
    pub(super) library: &'static ImageLibrary,
    pub(super) handle: ImageHandle,
    name: String,
}

// SAFETY: librbd lets any thread use an image, and several at once.
unsafe impl Send for Image {}

impl Image {
    pub(crate) fn open(
        session: &Arc<Session>,
        name: &str,
        access: ImageAccess,
    ) -> Result<Image, RadosError> {
        let library = ImageLibrary::opened()?;
        let (named, mut handle) = (text(name), ptr::null_mut());
        let open = match access {
            ImageAccess::Read => library.rbd_open_read_only,
            ImageAccess::Write => library.rbd_open,
        };
        // SAFETY: the context is open, the text ends with a zero byte, and no snapshot is requested.
        let open = || unsafe { open(session.io, named.as_ptr(), &mut handle, ptr::null()) };
        let code = session.threads.started_by(open);
        session.image_done(code, &format!("open image `{name}`"))?;
        Ok(Image {
            session: Arc::clone(session),
            library,
            handle,
            name: name.to_owned(),
        })
    }

    /// Grows the image to `bytes` if it is shorter.
    pub(crate) fn grow(&self, bytes: u64) -> Result<(), RadosError> {
        let mut there = 0;
        // SAFETY: the image is open, and the pointer valid for the call.
        let code = unsafe { (self.library.rbd_get_size)(self.handle, &mut there) };
        self.done(code, "see the size")?;
        if there >= bytes {
            return Ok(());
        }
        // SAFETY: the image is open.
        let code = unsafe { (self.library.rbd_resize)(self.handle, bytes) };
        self.done(code, "change the size")
    }

    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<(), RadosError> {
        // SAFETY: the image is open, and the library reads no more than the length of the data.
        let moved = unsafe {
            let at = data.as_ptr().cast();
            (self.library.rbd_write)(self.handle, offset, data.len(), at)
        };
        self.done(code_of(moved), &format!("write at {offset}"))
    }

    /// Returns how much was read, which is less at the end of the image.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, RadosError> {
        // SAFETY: the image is open, and the library writes no more than the length into the buffer.
        let moved = unsafe {
            let at = buffer.as_mut_ptr().cast();
            (self.library.rbd_read)(self.handle, offset, buffer.len(), at)
        };
        self.done(code_of(moved), &format!("read at {offset}"))?;
        Ok(usize::try_from(moved).unwrap_or(0))
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The errno.
    pub(crate) fn flush(&self) -> Result<(), i32> {
        // SAFETY: the image is open.
        match unsafe { (self.library.rbd_flush)(self.handle) } {
            0.. => Ok(()),
            code => Err(-code),
        }
    }

    /// Describes the library's error.
    pub(crate) fn failed(&self, doing: &str, errno: i32) -> RadosError {
        let doing = format!("{doing} of image `{}`", self.name);
        self.session.image_failed(&doing, -errno)
    }

    fn done(&self, code: c_int, doing: &str) -> Result<(), RadosError> {
        match code {
            0.. => Ok(()),
            _ => Err(self.failed(doing, -code)),
        }
    }
}

/// The error, or 0.
fn code_of(moved: ssize_t) -> c_int {
    match moved {
        0.. => 0,
        _ => c_int::try_from(moved).unwrap_or(-libc::EIO),
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: it was opened by `rbd_open`, and is not used after this.
        unsafe { (self.library.rbd_close)(self.handle) };
    }
}
