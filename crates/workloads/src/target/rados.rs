//! Ceph's librados and librbd, opened at run time. Building benchmesh, and running it without pools, needs nothing of
//! Ceph; librbd is needed for images only.
//!
//! A [`Session`] is one client of a cluster, with one pool and one of its namespaces. The library's own timeouts, which
//! the session sets, bound blocking calls. Measured operations go through an [`Issuer`], which keeps many in flight and
//! gets completions by a callback of the library; those on an [`Image`] go through an [`ImageQueue`]. This module does
//! not know runs, tasks or recorders.

mod board;
mod image;
mod image_queue;
mod issuer;
mod library;
mod pool_spec;
mod session;
mod threads;

pub use image::image_library_version;
pub(crate) use image::{DIRECTORY, Image, ImageAccess, describes_image, has_image_data, images_of};
pub(crate) use image_queue::{ImageCall, ImageQueue};
pub(crate) use issuer::{EndedOp, Issuer, ObjectCall, OmapShape};
pub use pool_spec::PoolSpec;
pub use session::{Limits, PoolFacts, PoolSpace, Session};

use std::io;

/// Why a pool cannot be used: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RadosError {
    #[error(
        "{file} cannot be opened ({why}): install Ceph's client library on this host (package {package}), and start \
         the agent again"
    )]
    NoLibrary {
        file: &'static str,
        package: String,
        why: String,
    },
    #[error(
        "{file} is not one that benchmesh knows ({why}): it needs that of Ceph 14 (Nautilus) or later"
    )]
    OtherLibrary { file: &'static str, why: String },
    #[error(
        "`{value}` is no name of a pool: {why}; write --allow-pool {}",
        super::rados::FORM
    )]
    BadName { value: String, why: &'static str },
    #[error("cannot read the Ceph configuration {path} ({remedy})")]
    Configuration {
        path: String,
        remedy: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot connect to Ceph as {who} ({why})")]
    Connect {
        who: String,
        why: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the cluster has no pool `{pool}`; it has {there}. Correct the pool's name, or make it: ceph osd pool create {pool}"
    )]
    NoPool { pool: String, there: String },
    #[error("cannot {doing} as {who}{remedy}")]
    Call {
        doing: String,
        who: String,
        remedy: String,
        #[source]
        source: io::Error,
    },
}

/// Syntax of a pool in options and messages.
const FORM: &str = benchmesh_model::targets::POOL.value_name;

impl RadosError {
    fn no_library(file: &'static str, why: &libloading::Error) -> RadosError {
        RadosError::NoLibrary {
            file,
            // Debian and RPM packages are named by library and version: librbd1, librados2.
            package: file.replace(".so.", ""),
            why: crate::error_chain(why),
        }
    }

    fn other_library(file: &'static str, why: &libloading::Error) -> RadosError {
        RadosError::OtherLibrary {
            file,
            why: crate::error_chain(why),
        }
    }

    /// The errno of a failed call; a missing pool is a missing device.
    pub fn errno(&self) -> Option<i32> {
        match self {
            RadosError::NoLibrary { .. } | RadosError::OtherLibrary { .. } => Some(libc::ENOSYS),
            RadosError::BadName { .. } => Some(libc::EINVAL),
            RadosError::NoPool { .. } => Some(libc::ENODEV),
            RadosError::Configuration { source, .. }
            | RadosError::Connect { source, .. }
            | RadosError::Call { source, .. } => source.raw_os_error(),
        }
    }
}
