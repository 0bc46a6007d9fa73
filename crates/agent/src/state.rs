//! The state directory, in which the agent's uid and its spools survive a restart.
//!
//! It is private (0700) and locked, so that two agents cannot share it. It must not lie on a target, because the
//! agent's own writes would be measured. A directory that does not belong to an agent is refused. This module does not
//! know the content of a spool.

use benchmesh_workloads::clock::MonoNanos;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const LOCK: &str = "agent.lock";
const UID: &str = "agent-uid";
const SPOOL_PREFIX: &str = "spool-";
const SPOOL_SUFFIX: &str = ".db";

/// The open, locked state directory. Dropping it releases the lock.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    uid: Uuid,
    place: String,
    locked_at: MonoNanos,
    _lock: File,
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "the state directory {path} lies under {target}, which this agent allows as a target: runs would measure \
         the agent's own writes; choose another --state-dir"
    )]
    OnTarget { path: PathBuf, target: PathBuf },
    #[error(
        "another agent{} uses the state directory {path}: stop it, or give this one its own --state-dir",
        pid_text(*pid)
    )]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "{path} is not empty and not the state directory of an agent: give --state-dir a directory of its own"
    )]
    Foreign { path: PathBuf },
    #[error(
        "{path} belongs to user id {user}, and this agent is user id {own}: run the agent as that user, or check \
         its contents and `chown -R {own} {path}`"
    )]
    OfAnother { path: PathBuf, user: u32, own: u32 },
    #[error(
        "others can write to {path}, and may have put files there: check its contents, then `chmod 700 {path}`"
    )]
    OpenToOthers { path: PathBuf },
    #[error("{path} does not hold an agent's uid: restore it, or remove it to be a new agent")]
    BadUid { path: PathBuf },
    #[error("{doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl StateError {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl StateDir {
    /// Creates the directory if necessary, locks it, and reads the agent's uid, creating it at the first start.
    ///
    /// # Errors
    ///
    /// When it lies under one of `targets`, belongs to something else, is used by another agent, or cannot be written.
    pub fn open(path: &Path, targets: &[PathBuf]) -> Result<Self, StateError> {
        // Checked before anything is created, so that a refusal leaves no files on the target.
        off_targets(&resolved(path)?, targets)?;
        make(path)?;
        let path = path.canonicalize().map_err(io_error("resolve", path))?;
        off_targets(&path, targets)?;
        own(&path)?;
        let lock = lock(&path)?;
        let locked_at = MonoNanos::now();
        let uid = uid(&path)?;
        let facts = fs::metadata(&path).map_err(io_error("examine", &path))?;
        Ok(Self {
            path,
            uid,
            place: format!("{:x}:{:x}", facts.dev(), facts.ino()),
            locked_at,
            _lock: lock,
        })
    }

    /// Its device and inode, which differ from those of a copy.
    #[must_use]
    pub fn device_and_inode(&self) -> &str {
        &self.place
    }

    /// The time when this process locked it: of two starts on one host, the later one is alive.
    #[must_use]
    pub fn locked_at(&self) -> MonoNanos {
        self.locked_at
    }

    /// Its path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The agent's uid, the same at every start.
    #[must_use]
    pub fn uid(&self) -> Uuid {
        self.uid
    }

    /// The path of the spool with that id.
    #[must_use]
    pub fn spool_path(&self, id: Uuid) -> PathBuf {
        self.path.join(format!("{SPOOL_PREFIX}{id}{SPOOL_SUFFIX}"))
    }

    /// The existing spools, in no particular order.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn spools(&self) -> Result<Vec<Uuid>, StateError> {
        let entries = fs::read_dir(&self.path).map_err(io_error("read", &self.path))?;
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error("read", &self.path))?;
            let name = entry.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_prefix(SPOOL_PREFIX))
                .and_then(|name| name.strip_suffix(SPOOL_SUFFIX))
                .and_then(|id| Uuid::parse_str(id).ok());
            ids.extend(id);
        }
        Ok(ids)
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io {
        doing,
        path,
        source,
    }
}

/// The path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf, StateError> {
    let absolute = std::path::absolute(path).map_err(io_error("resolve", path))?;
    let mut missing = PathBuf::new();
    let mut base = absolute.as_path();
    loop {
        match base.canonicalize() {
            Ok(real) if missing.as_os_str().is_empty() => return Ok(real),
            Ok(real) => return Ok(real.join(missing)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (base.parent(), base.file_name()) else {
                    return Err(io_error("resolve", path)(error));
                };
                missing = if missing.as_os_str().is_empty() {
                    PathBuf::from(name)
                } else {
                    Path::new(name).join(missing)
                };
                base = parent;
            }
            Err(error) => return Err(io_error("resolve", path)(error)),
        }
    }
}

fn off_targets(path: &Path, targets: &[PathBuf]) -> Result<(), StateError> {
    for target in targets {
        let real = resolved(target)?;
        if path.starts_with(&real) {
            return Err(StateError::OnTarget {
                path: path.to_owned(),
                target: target.clone(),
            });
        }
    }
    Ok(())
}

fn make(path: &Path) -> Result<(), StateError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error("make the state directory", path))
}

/// Checks that the directory belongs to this user and that it is empty or an agent's, then removes other users' access.
/// Other directories keep their permissions. A directory that others could write to may contain their files.
fn own(path: &Path) -> Result<(), StateError> {
    let found = fs::metadata(path).map_err(io_error("examine", path))?;
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own {
        return Err(StateError::OfAnother {
            path: path.to_owned(),
            user: found.uid(),
            own,
        });
    }
    let mode = found.permissions().mode();
    let is_empty = || {
        let mut entries = fs::read_dir(path).map_err(io_error("read the state directory", path))?;
        Ok(entries.next().is_none())
    };
    let was_empty = is_empty()?;
    if !was_empty {
        if !path.join(LOCK).exists() {
            return Err(StateError::Foreign {
                path: path.to_owned(),
            });
        }
        if mode & 0o022 != 0 {
            return Err(StateError::OpenToOthers {
                path: path.to_owned(),
            });
        }
    }
    if mode & 0o077 != 0 {
        let was_open = mode & 0o022 != 0;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(io_error("restrict access to the state directory", path))?;
        if was_open && was_empty && !is_empty()? {
            return Err(StateError::OpenToOthers {
                path: path.to_owned(),
            });
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, StateError> {
    let file_path = path.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&file_path)
        .map_err(io_error("open", &file_path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // The pid only improves the message; it is left out if the file is unreadable.
            let read = file.take(32).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(StateError::InUse {
                path: path.to_owned(),
                pid,
            });
        }
        Err(error) => return Err(io_error("lock", &file_path)(error.into())),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(io_error("write", &file_path))?;
    Ok(file)
}

fn uid(path: &Path) -> Result<Uuid, StateError> {
    let file_path = path.join(UID);
    match fs::read_to_string(&file_path) {
        Ok(text) => {
            Uuid::parse_str(text.trim()).map_err(|_| StateError::BadUid { path: file_path })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let uid = Uuid::new_v4();
            write_whole(path, &file_path, &format!("{uid}\n"))
                .map_err(io_error("write", &file_path))?;
            Ok(uid)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(StateError::BadUid { path: file_path })
        }
        Err(error) => Err(io_error("read", &file_path)(error)),
    }
}

/// Writes the file atomically, even across a power failure.
fn write_whole(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_uid_and_the_spools_survive() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b/state");
        let first = StateDir::open(&path, &[]).unwrap();
        let uid = first.uid();
        let id = Uuid::new_v4();
        File::create(first.spool_path(id)).unwrap();
        File::create(path.join("spool-nonsense.db")).unwrap();
        drop(first);
        let second = StateDir::open(&path, &[]).unwrap();
        assert_eq!(second.uid(), uid);
        assert_eq!(second.spools().unwrap(), [id]);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn two_agents_cannot_share_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let _first = StateDir::open(&path, &[]).unwrap();
        let error = StateDir::open(&path, &[]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("(pid {})", std::process::id())),
            "{error}"
        );
    }

    #[test]
    fn it_never_lies_on_a_target() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("target");
        fs::create_dir(&target).unwrap();
        let link = home.path().join("link");
        symlink(&target, &link).unwrap();
        let targets = [target.clone()];
        for bad in [
            target.clone(),
            target.join("deep/state"),
            link.join("state"),
        ] {
            let error = StateDir::open(&bad, &targets).unwrap_err();
            assert!(matches!(error, StateError::OnTarget { .. }), "{error}");
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        let beside = home.path().join("target-state");
        assert!(StateDir::open(&beside, &targets).is_ok());
        let by_link = [link];
        assert!(StateDir::open(&target.join("x"), &by_link).is_err());
    }

    #[test]
    fn a_foreign_directory_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        File::create(home.path().join("precious")).unwrap();
        let error = StateDir::open(home.path(), &[]).unwrap_err();
        assert!(matches!(error, StateError::Foreign { .. }), "{error}");
        let rights = fs::metadata(home.path()).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, 0o755);
    }

    /// Such a directory may contain another user's spool, uid or credentials.
    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        fs::create_dir(&path).unwrap();
        let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        // A container's volume starts empty with these permissions.
        set_mode(0o777).unwrap();
        drop(StateDir::open(&path, &[]).unwrap());
        for mode in [0o777, 0o770, 0o702] {
            set_mode(mode).unwrap();
            let error = StateDir::open(&path, &[]).unwrap_err();
            assert!(matches!(error, StateError::OpenToOthers { .. }), "{error}");
            assert!(error.to_string().contains("chmod 700"), "{error}");
        }
        set_mode(0o755).unwrap();
        drop(StateDir::open(&path, &[]).unwrap());
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let error = StateDir::open(&path, &[]).unwrap_err();
        assert!(
            matches!(error, StateError::OfAnother { user: 12345, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_bad_uid_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        drop(StateDir::open(&path, &[]).unwrap());
        for bad in [&b"not a uid"[..], b"", b"\xff\xfe"] {
            fs::write(path.join(UID), bad).unwrap();
            let error = StateDir::open(&path, &[]).unwrap_err();
            assert!(matches!(error, StateError::BadUid { .. }), "{error}");
        }
        fs::write(home.path().join("file"), b"").unwrap();
        assert!(StateDir::open(&home.path().join("file/state"), &[]).is_err());
    }
}
