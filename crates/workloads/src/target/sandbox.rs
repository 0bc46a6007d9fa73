//! Where the load may work: beneath the paths that the agent's own configuration allows, in a run's own directory.
//!
//! Names are resolved by the kernel beneath a kept descriptor (openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS;
//! component by component with O_NOFOLLOW where that call is missing), so that no symlink leads out, not even one that
//! appears while the load runs. A directory without our marker is never changed, and never removed.

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

/// What stands in the way of working in a directory.
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
        /// By whom, in words; empty where that cannot be known.
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

    /// The system call's error, where it was one.
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
    /// As they were given: what lies beneath them is named so too.
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

    /// The canonical form of `path`, if it lies at or beneath an allowed one. What does not is refused in the same
    /// words whether it exists or not, and is not looked at unless a symlink beneath an allowed path leads there.
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

    /// Whether a path's own words put it at or beneath an allowed one.
    pub fn names(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let mut allowed = self.roots.iter().chain(&self.names);
        !climbs && allowed.any(|allowed| path.starts_with(allowed))
    }

    fn holds(&self, resolved: &Path) -> bool {
        self.roots.iter().any(|root| resolved.starts_with(root))
    }

    /// Whether a path that cannot be resolved leaves what is allowed on its way: by a symlink that leads out, or by one
    /// that leads to nothing.
    fn leads_out(&self, path: &Path) -> bool {
        let mut child = path;
        for parent in path.ancestors().skip(1) {
            // Where the operator named the link, it may lead to a mount that has died.
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

/// Opens a canonical directory. A symlink that has taken a component's place since is refused.
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

/// Names that we make: they cannot climb, hide, or surprise a shell.
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
