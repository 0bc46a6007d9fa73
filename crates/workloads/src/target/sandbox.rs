//! Where the load may work: beneath the paths that the agent's configuration allows, in a run's own directory.
//!
//! The kernel resolves names beneath an open descriptor (openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS;
//! component by component with O_NOFOLLOW if that call is missing). So no symlink leads out, not even one that appears
//! while the load runs. A directory without our marker is never changed or removed.

mod device;
mod device_identity;
mod device_users;
mod dir;
mod leftovers;
mod lock;
mod marker;
mod remove;
mod run_directory;
mod space;

pub use device::{AllowedDevices, Device};
pub use device_identity::DeviceIdentity;
pub use dir::Dir;
pub(crate) use dir::foreign_kind;
pub use leftovers::{Leftover, Proof, Usage, find_leftovers, remove_leftover};
pub(crate) use marker::nonce;
pub(crate) use run_directory::task_dir_name;
pub use run_directory::{Make, RunDirectory};
pub use space::Space;

use super::rados::RadosError;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("`{}` is not an absolute path", path.display())]
    NotAbsolute { path: PathBuf },
    #[error(
        "`{}` is not beneath a path that this agent allows ({}); start the agent with --allow PATH",
        path.display(), if allowed.is_empty() { "none" } else { allowed }
    )]
    NotAllowed { path: PathBuf, allowed: String },
    #[error("`{target}` is not a target that this agent allows; start the agent with --{option}")]
    TargetNotAllowed {
        target: String,
        option: &'static str,
    },
    #[error(
        "`{name}` cannot be the name of a {what}: use letters, digits, `-`, `_` and `.`, at most 100 of them"
    )]
    BadName { what: &'static str, name: String },
    #[error("`{}` is not a directory of this run: {why}; it was left alone", path.display())]
    NotOurs { path: PathBuf, why: String },
    #[error(
        "`{}` is {what} and not the regular file that belongs there: somebody else who may write to the target put it \
         there; it was left alone",
        path.display()
    )]
    Replaced { path: PathBuf, what: &'static str },
    #[error("`{}` is not a block device", path.display())]
    NoDevice { path: PathBuf },
    #[error(
        "`{}` is another device than the one that this agent was started with: it was the one with {allowed}, and it is now \
         the one with {found}; it was left alone. Start the agent again if it is meant",
        path.display()
    )]
    OtherDevice {
        path: PathBuf,
        allowed: Box<DeviceIdentity>,
        found: Box<DeviceIdentity>,
    },
    #[error(
        "the device `{}` is in use: {}; it was left alone",
        path.display(),
        if by.is_empty() {
            "it, or a part of it, is mounted, swapped on, a part of something else, or another task's"
        } else {
            by
        }
    )]
    InUse {
        path: PathBuf,
        /// The users of the device, as text; empty if unknown.
        by: String,
    },
    #[error(transparent)]
    Pool(#[from] RadosError),
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    fn io(doing: &'static str, path: impl Into<PathBuf>, errno: rustix::io::Errno) -> SandboxError {
        SandboxError::Io {
            doing,
            path: path.into(),
            source: errno.into(),
        }
    }

    /// The errno of a failed system call.
    pub fn errno(&self) -> Option<i32> {
        match self {
            SandboxError::Io { source, .. } => source.raw_os_error(),
            SandboxError::Pool(error) => error.errno(),
            _ => None,
        }
    }
}

/// The paths beneath which an agent may work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Canonical.
    roots: Vec<PathBuf>,
    /// As given; paths beneath them are written with the same prefix.
    names: Vec<PathBuf>,
}

impl Allowed {
    /// Each path has to exist and to be absolute.
    pub fn new(paths: Vec<PathBuf>) -> Result<Allowed, SandboxError> {
        let roots = paths.iter().map(|path| canonical(path));
        Ok(Allowed {
            roots: roots.collect::<Result<_, _>>()?,
            names: paths,
        })
    }

    /// The canonical form of `path`, if it lies at or beneath an allowed path. All others get the same error whether
    /// they exist or not. They are not accessed, unless a symlink beneath an allowed path leads there.
    pub fn permits(&self, path: &Path) -> Result<PathBuf, SandboxError> {
        if !path.is_absolute() {
            return Err(SandboxError::NotAbsolute {
                path: path.to_owned(),
            });
        }
        if !self.names(path) {
            return Err(self.not_allowed(path));
        }
        match canonical(path) {
            Ok(resolved) if self.holds(&resolved) => Ok(resolved),
            Err(error) if !self.leads_out(path) => Err(error),
            Ok(_) | Err(_) => Err(self.not_allowed(path)),
        }
    }

    /// Whether a path lies at or beneath an allowed one by its text alone.
    pub fn names(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let mut allowed = self.roots.iter().chain(&self.names);
        !climbs && allowed.any(|allowed| path.starts_with(allowed))
    }

    fn holds(&self, resolved: &Path) -> bool {
        self.roots.iter().any(|root| resolved.starts_with(root))
    }

    /// Whether a path that cannot be resolved leaves the allowed paths on its way: by a symlink that leads out, or by a
    /// dangling one.
    fn leads_out(&self, path: &Path) -> bool {
        let mut child = path;
        for parent in path.ancestors().skip(1) {
            // If the operator named the link, its target may be a mount that has died.
            let is_named = self.names.iter().any(|name| name == child);
            if child.is_symlink() && !is_named && child.canonicalize().is_err() {
                return true;
            }
            if let Ok(resolved) = parent.canonicalize() {
                return !self.holds(&resolved) && self.names(parent);
            }
            child = parent;
        }
        false
    }

    fn not_allowed(&self, path: &Path) -> SandboxError {
        let allowed: Vec<_> = self
            .roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        SandboxError::NotAllowed {
            path: path.to_owned(),
            allowed: allowed.join(", "),
        }
    }

    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }
}

fn canonical(path: &Path) -> Result<PathBuf, SandboxError> {
    if !path.is_absolute() {
        return Err(SandboxError::NotAbsolute {
            path: path.to_owned(),
        });
    }
    path.canonicalize().map_err(|source| SandboxError::Io {
        doing: "find",
        path: path.to_owned(),
        source,
    })
}

/// Opens a canonical directory. Refuses a symlink that has replaced a component since.
pub(crate) fn open_canonical(path: &Path) -> Result<Dir, SandboxError> {
    let opening = |errno| SandboxError::io("open", path, errno);
    let root = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let root: OwnedFd = root.map_err(opening)?;
    let beneath = path.strip_prefix("/").unwrap_or(path);
    let beneath = match beneath.as_os_str().is_empty() {
        true => Path::new("."),
        false => beneath,
    };
    let fd = dir::open_beneath(&root, beneath, dir::DIRECTORY, Mode::empty()).map_err(opening)?;
    Ok(Dir::new(fd, path.to_owned()))
}

/// Checks the names that we create: they must not leave the directory, be hidden, or need quoting in a shell.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), SandboxError> {
    let fits = (1..=100).contains(&name.len())
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits {
        return Ok(());
    }
    Err(SandboxError::BadName {
        what,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests;
