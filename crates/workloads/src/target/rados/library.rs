//! The functions of librados and librbd in use, by their names in `rados/librados.h` and `rbd/librbd.h` (Ceph 14 and
//! later). The file names are versioned: unversioned ones come with the development packages only.

use super::RadosError;
use libc::{c_char, c_int, c_void, size_t, ssize_t, time_t};
use std::sync::{Mutex, PoisonError};

pub(super) type Cluster = *mut c_void;
pub(super) type IoContext = *mut c_void;
pub(super) type Completion = *mut c_void;
pub(super) type WriteOp = *mut c_void;
pub(super) type ImageHandle = *mut c_void;
pub(super) type ListContext = *mut c_void;
pub(super) type Callback = unsafe extern "C" fn(Completion, *mut c_void);
pub(super) type Text = *const c_char;

macro_rules! functions {
    ($library:ident = $file:literal; $($name:ident: ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The opened library. It is never closed, because its threads may still run in it.
        #[derive(Debug)]
        pub(super) struct $library {
            _library: libloading::Library,
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $library {
            /// Opens the library once. A failed open is tried again at the next call.
            pub(super) fn opened() -> Result<&'static $library, RadosError> {
                static OPENED: Mutex<Option<&'static $library>> = Mutex::new(None);
                let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(library) = *opened {
                    return Ok(library);
                }
                let library: &'static $library = Box::leak(Box::new($library::open()?));
                *opened = Some(library);
                Ok(library)
            }

            fn open() -> Result<$library, RadosError> {
                let file = $file;
                // SAFETY: Ceph's libraries have no precondition for their initialisers.
                let library = unsafe { libloading::Library::new(file) };
                let library = library.map_err(|error| RadosError::no_library(file, &error))?;
                $(
                    // SAFETY: the type is that of the C declaration, which has been the same since Ceph 14.
                    let found = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(stringify!($name))
                    };
                    let $name = *found.map_err(|error| RadosError::other_library(file, &error))?;
                )*
                Ok($library { _library: library, $($name,)* })
            }
        }
    };
}

functions! {
    Library = "librados.so.2";
    rados_create: (*mut Cluster, Text) -> c_int;
    rados_conf_read_file: (Cluster, Text) -> c_int;
    rados_conf_set: (Cluster, Text, Text) -> c_int;
    rados_conf_get: (Cluster, Text, *mut c_char, size_t) -> c_int;
    rados_connect: (Cluster) -> c_int;
    rados_shutdown: (Cluster);
    rados_cluster_fsid: (Cluster, *mut c_char, size_t) -> c_int;
    rados_pool_list: (Cluster, *mut c_char, size_t) -> c_int;
    rados_mon_command: (
        Cluster, *const Text, size_t, Text, size_t, *mut *mut c_char, *mut size_t, *mut *mut c_char, *mut size_t
    ) -> c_int;
    rados_buffer_free: (*mut c_char);
    rados_ioctx_create: (Cluster, Text, *mut IoContext) -> c_int;
    rados_ioctx_destroy: (IoContext);
    rados_ioctx_set_namespace: (IoContext, Text);
    rados_set_osdmap_full_try: (IoContext);
    rados_read: (IoContext, Text, *mut c_char, size_t, u64) -> c_int;
    rados_write_full: (IoContext, Text, Text, size_t) -> c_int;
    rados_stat: (IoContext, Text, *mut u64, *mut time_t) -> c_int;
    rados_remove: (IoContext, Text) -> c_int;
    rados_nobjects_list_open: (IoContext, *mut ListContext) -> c_int;
    rados_nobjects_list_next: (ListContext, *mut Text, *mut Text, *mut Text) -> c_int;
    rados_nobjects_list_close: (ListContext);
    rados_aio_create_completion2: (*mut c_void, Callback, *mut Completion) -> c_int;
    rados_aio_get_return_value: (Completion) -> c_int;
    rados_aio_wait_for_complete_and_cb: (Completion) -> c_int;
    rados_aio_release: (Completion);
    rados_aio_cancel: (IoContext, Completion) -> c_int;
    rados_aio_write: (IoContext, Text, Completion, Text, size_t, u64) -> c_int;
    rados_aio_write_full: (IoContext, Text, Completion, Text, size_t) -> c_int;
    rados_aio_read: (IoContext, Text, Completion, *mut c_char, size_t, u64) -> c_int;
    rados_aio_stat: (IoContext, Text, Completion, *mut u64, *mut time_t) -> c_int;
    rados_aio_remove: (IoContext, Text, Completion) -> c_int;
    rados_create_write_op: () -> WriteOp;
    rados_release_write_op: (WriteOp);
    rados_write_op_omap_set: (WriteOp, *const Text, *const Text, *const size_t, size_t);
    rados_aio_write_op_operate: (WriteOp, IoContext, Completion, Text, *mut time_t, c_int) -> c_int;
}

functions! {
    ImageLibrary = "librbd.so.1";
    rbd_version: (*mut c_int, *mut c_int, *mut c_int);
    rbd_namespace_create: (IoContext, Text) -> c_int;
    rbd_namespace_remove: (IoContext, Text) -> c_int;
    rbd_create: (IoContext, Text, u64, *mut c_int) -> c_int;
    rbd_remove: (IoContext, Text) -> c_int;
    rbd_open: (IoContext, Text, *mut ImageHandle, Text) -> c_int;
    rbd_open_read_only: (IoContext, Text, *mut ImageHandle, Text) -> c_int;
    rbd_close: (ImageHandle) -> c_int;
    rbd_get_size: (ImageHandle, *mut u64) -> c_int;
    rbd_resize: (ImageHandle, u64) -> c_int;
    rbd_read: (ImageHandle, u64, size_t, *mut c_char) -> ssize_t;
    rbd_write: (ImageHandle, u64, size_t, Text) -> ssize_t;
    rbd_flush: (ImageHandle) -> c_int;
    rbd_aio_create_completion: (*mut c_void, Callback, *mut Completion) -> c_int;
    rbd_aio_get_return_value: (Completion) -> ssize_t;
    rbd_aio_wait_for_complete: (Completion) -> c_int;
    rbd_aio_release: (Completion);
    rbd_aio_read: (ImageHandle, u64, size_t, *mut c_char, Completion) -> c_int;
    rbd_aio_write: (ImageHandle, u64, size_t, Text, Completion) -> c_int;
    rbd_aio_flush: (ImageHandle, Completion) -> c_int;
}
