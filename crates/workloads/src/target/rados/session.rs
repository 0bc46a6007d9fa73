//! One client of a cluster: connected, with one pool and one namespace.
//!
//! Every call here blocks until the cluster answers, or until one of the timeouts set by the session has passed; none
//! waits forever. Invariant: the namespace is chosen when the session is opened and never changes.

use super::board::Board;
use super::library::{Cluster, IoContext, Library, ListContext, Text};
use super::threads::LibraryThreads;
use super::{PoolSpec, RadosError};
use crate::measure::thread_cpu::CpuTime;
use libc::{c_char, c_int};
use serde::Deserialize;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Longest wait for the monitors: to connect, and for each answer.
const MONITORS_S: u64 = 15;
/// librados returns no longer names.
const TEXT_BYTES: usize = 4096;
/// Maximum length of objects that are read whole.
const CONTENT_BYTES: usize = 64 << 10;

/// Limits of a session's operations.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// An operation without an answer by then fails with ETIMEDOUT.
    pub op_timeout: Duration,
    /// Operations in flight, and their bytes. Beyond them the library would block callers.
    pub ops: u64,
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            op_timeout: Duration::from_secs(30),
            ops: 0,
            bytes: 0,
        }
    }
}

/// The library's default.
const LIBRARY_OPS: u64 = 1024;
const LIBRARY_BYTES: u64 = 100 << 20;

/// Facts about a pool before a load runs on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolFacts {
    pub fsid: String,
    /// Copies of each object; `None`: not replicated, or the user lacks the permission.
    pub replicas: Option<u64>,
    pub space: Option<PoolSpace>,
}

/// How full a pool is, with its quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpace {
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// 0: no limit.
    pub max_objects: u64,
    pub free_objects: u64,
}

#[derive(Debug)]
pub struct Session {
    pub(super) library: &'static Library,
    cluster: Cluster,
    pub(super) io: IoContext,
    spec: PoolSpec,
    namespace: String,
    /// Callbacks may use them until the cluster is shut down.
    boards: Mutex<Vec<Arc<Board>>>,
    pub(super) threads: LibraryThreads,
}

// SAFETY: librados documents that several threads may use its handles at once, whichever thread made them.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.io.is_null() {
            // SAFETY: it was made by `rados_ioctx_create`, and has no other user.
            unsafe { (self.library.rados_ioctx_destroy)(self.io) };
        }
        // SAFETY: it was made by `rados_create`, and has no other user.
        unsafe { (self.library.rados_shutdown)(self.cluster) };
    }
}

impl Session {
    /// Connects, and opens the pool in a namespace.
    pub fn open(spec: &PoolSpec, namespace: &str, limits: Limits) -> Result<Session, RadosError> {
        let threads = LibraryThreads::default();
        let opened = threads.started_by(|| Self::opened(spec, namespace, limits));
        let mut session = opened?;
        session.threads = threads;
        Ok(session)
    }

    fn opened(spec: &PoolSpec, namespace: &str, limits: Limits) -> Result<Session, RadosError> {
        let library = Library::opened()?;
        let user = text(&spec.user);
        let mut cluster = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let code = unsafe { (library.rados_create)(&mut cluster, user.as_ptr()) };
        let mut session = match code {
            0 => Session {
                library,
                cluster,
                io: ptr::null_mut(),
                spec: spec.clone(),
                namespace: namespace.to_owned(),
                boards: Mutex::default(),
                threads: LibraryThreads::default(),
            },
            _ => {
                return Err(RadosError::Connect {
                    who: spec.who(),
                    why: "the library makes no handle".to_owned(),
                    source: error(code),
                });
            }
        };
        session.configure(limits)?;
        session.connect()?;
        session.open_pool()?;
        Ok(session)
    }

    /// CPU time so far of the library's threads for this session; `None`: not known.
    pub(crate) fn library_cpu(&self) -> Option<CpuTime> {
        self.threads.on_cpu()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn configure(&self, limits: Limits) -> Result<(), RadosError> {
        let conf = self.spec.conf.as_deref();
        let path = conf.map(|conf| text(&conf.to_string_lossy()));
        // Gives a better reason than the library's error.
        let opened = conf.map_or(Ok(()), |conf| std::fs::File::open(conf).map(drop));
        let code = match opened {
            Ok(()) => {
                let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
                // SAFETY: the handle is ours; the path is null or ends with a zero byte.
                unsafe { (self.library.rados_conf_read_file)(self.cluster, path) }
            }
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        if code != 0 {
            return Err(RadosError::Configuration {
                path: conf.map_or_else(
                    || "(neither $CEPH_CONF nor /etc/ceph/ceph.conf)".to_owned(),
                    |conf| conf.display().to_string(),
                ),
                remedy: format!(
                    "name one that this agent's user (id {}) can read: --allow-pool {},conf=FILE",
                    rustix::process::geteuid().as_raw(),
                    self.spec.pool
                ),
                source: error(code),
            });
        }
        if let Some(keyring) = &self.spec.keyring {
            self.set("keyring", &keyring.to_string_lossy());
        }
        self.set("client_mount_timeout", &MONITORS_S.to_string());
        self.set("rados_mon_op_timeout", &MONITORS_S.to_string());
        // Whole seconds: the library refuses fractions, and waits forever without a timeout.
        let timeout = limits.op_timeout.as_secs() + u64::from(limits.op_timeout.subsec_nanos() > 0);
        self.set("rados_osd_op_timeout", &timeout.max(1).to_string());
        self.set(
            "objecter_inflight_ops",
            &limits.ops.max(LIBRARY_OPS).to_string(),
        );
        let bytes = limits.bytes.max(LIBRARY_BYTES);
        self.set("objecter_inflight_op_bytes", &bytes.to_string());
        // Results for images must measure the storage, not this process's memory.
        self.set("rbd_cache", "false");
        // It would try out snapshots, for which a user of one pool lacks the permission.
        self.set("rbd_validate_pool", "false");
        Ok(())
    }

    /// Leaves out options that this version does not know.
    fn set(&self, option: &str, value: &str) {
        let (option, value) = (text(option), text(value));
        // SAFETY: the handle is ours, and both texts end with a zero byte.
        unsafe { (self.library.rados_conf_set)(self.cluster, option.as_ptr(), value.as_ptr()) };
    }

    fn get(&self, option: &str) -> String {
        let (option, mut value) = (text(option), vec![0_u8; TEXT_BYTES]);
        // SAFETY: the library writes no more than the length into the buffer.
        let code = unsafe {
            let at = value.as_mut_ptr().cast::<c_char>();
            (self.library.rados_conf_get)(self.cluster, option.as_ptr(), at, value.len())
        };
        match code {
            0 => until_zero(&value),
            _ => String::new(),
        }
    }

    fn connect(&self) -> Result<(), RadosError> {
        // SAFETY: the handle is ours and was configured.
        let code = unsafe { (self.library.rados_connect)(self.cluster) };
        match code {
            0 => Ok(()),
            _ => Err(RadosError::Connect {
                who: self.spec.who(),
                why: self.why_not_connected(code),
                source: error(code),
            }),
        }
    }

    fn why_not_connected(&self, code: c_int) -> String {
        let monitors = self.get("mon_host");
        let user = &self.spec.user;
        if code == -libc::ETIMEDOUT {
            return format!(
                "its monitors ({monitors}) have not answered within {MONITORS_S} s: are they up, and does the network reach \
                 them?"
            );
        }
        match self.unreadable_keyrings() {
            Some(tried) => format!(
                "no keyring can be read ({tried}): put the key of client.{user} where this agent's user (id {}) can read it, \
                 and name it with --allow-pool {},keyring=FILE",
                rustix::process::geteuid().as_raw(),
                self.spec.pool
            ),
            None if [
                -libc::EACCES,
                -libc::EPERM,
                -libc::ENOENT,
                -libc::EINVAL,
                -libc::EOPNOTSUPP,
            ]
            .contains(&code) =>
            {
                format!(
                    "the keyring ({}) has no key of client.{user} that the monitors accept: compare it with \
                     `ceph auth get client.{user}`",
                    self.get("keyring")
                )
            }
            None => format!("its monitors are {monitors}"),
        }
    }

    /// Each keyring of the configuration with the reason; `None` if one can be read, or no keyring is needed.
    fn unreadable_keyrings(&self) -> Option<String> {
        let keyring = self.get("keyring");
        if keyring.is_empty() || !self.get("key").is_empty() || !self.get("keyfile").is_empty() {
            return None;
        }
        let mut tried = Vec::new();
        for path in keyring
            .split([',', ' ', ';'])
            .filter(|path| !path.is_empty())
        {
            match std::fs::File::open(Path::new(path)) {
                Ok(_) => return None,
                Err(error) => tried.push(format!("{path}: {error}")),
            }
        }
        Some(tried.join("; "))
    }

    fn open_pool(&mut self) -> Result<(), RadosError> {
        let pool = text(&self.spec.pool);
        // SAFETY: the handle is connected, and both pointers are valid for the call.
        let code =
            unsafe { (self.library.rados_ioctx_create)(self.cluster, pool.as_ptr(), &mut self.io) };
        match code {
            0 => {}
            _ if code == -libc::ENOENT => {
                return Err(RadosError::NoPool {
                    pool: self.spec.pool.clone(),
                    there: self.pools().join(", "),
                });
            }
            _ => return Err(self.failed("open the pool", code)),
        }
        let namespace = text(&self.namespace);
        // SAFETY: the context was just made; the text ends with a zero byte.
        unsafe {
            (self.library.rados_ioctx_set_namespace)(self.io, namespace.as_ptr());
            // Makes a full pool an error; otherwise operations would wait for room.
            (self.library.rados_set_osdmap_full_try)(self.io);
        }
        Ok(())
    }

    fn pools(&self) -> Vec<String> {
        let mut names = vec![0_u8; 64 << 10];
        // SAFETY: the library writes no more than the length into the buffer.
        let code = unsafe {
            let at = names.as_mut_ptr().cast::<c_char>();
            (self.library.rados_pool_list)(self.cluster, at, names.len())
        };
        let length = usize::try_from(code).unwrap_or(0).min(names.len());
        let names = names
            .get(..length)
            .unwrap_or_default()
            .split(|byte| *byte == 0);
        let names = names.filter(|name| !name.is_empty());
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// The error of a call on the pool, with a remedy.
    pub(super) fn failed(&self, doing: &str, code: c_int) -> RadosError {
        let pool = &self.spec.pool;
        self.failed_for_want_of(
            &format!("mon 'allow r' osd 'allow rw pool={pool}'"),
            doing,
            code,
        )
    }

    /// As [`Session::failed`], for a call on an image.
    pub(crate) fn image_failed(&self, doing: &str, code: c_int) -> RadosError {
        let pool = &self.spec.pool;
        let rights = format!("mon 'profile rbd' osd 'profile rbd pool={pool}'");
        self.failed_for_want_of(&rights, doing, code)
    }

    fn failed_for_want_of(&self, rights: &str, doing: &str, code: c_int) -> RadosError {
        let (pool, user) = (&self.spec.pool, &self.spec.user);
        let remedy = match -code {
            libc::EPERM | libc::EACCES => {
                format!(" (the user lacks rights: ceph auth caps client.{user} {rights})")
            }
            libc::ETIMEDOUT => {
                " (the cluster has not answered in time: see `ceph -s` for OSDs that are down)"
                    .to_owned()
            }
            libc::ENOSPC | libc::EDQUOT => " (the pool is full: see `ceph df detail`)".to_owned(),
            libc::ESHUTDOWN => " (the cluster has blocklisted this client)".to_owned(),
            _ => String::new(),
        };
        RadosError::Call {
            doing: format!("{doing} in pool `{pool}`"),
            who: self.spec.who(),
            remedy,
            source: error(code),
        }
    }

    pub(super) fn keep(&self, board: &Arc<Board>) {
        let mut boards = self.boards.lock().unwrap_or_else(PoisonError::into_inner);
        boards.push(Arc::clone(board));
    }

    /// A whole object of up to 64 KiB; `None` if it does not exist.
    pub fn read(&self, object: &str) -> Result<Option<Vec<u8>>, RadosError> {
        let (name, mut content) = (text(object), vec![0_u8; CONTENT_BYTES]);
        // SAFETY: the library writes no more than the length into the buffer.
        let code = unsafe {
            let at = content.as_mut_ptr().cast::<c_char>();
            (self.library.rados_read)(self.io, name.as_ptr(), at, content.len(), 0)
        };
        match usize::try_from(code) {
            Ok(length) => {
                content.truncate(length);
                Ok(Some(content))
            }
            Err(_) if code == -libc::ENOENT => Ok(None),
            Err(_) => Err(self.failed(&format!("read `{object}`"), code)),
        }
    }

    /// Creates an object, or replaces its content.
    pub fn write(&self, object: &str, content: &[u8]) -> Result<(), RadosError> {
        let name = text(object);
        // SAFETY: the library reads no more than the length of the content.
        let code = unsafe {
            let at = content.as_ptr().cast::<c_char>();
            (self.library.rados_write_full)(self.io, name.as_ptr(), at, content.len())
        };
        self.done(code, &format!("write `{object}`"))
    }

    /// Removes an object; a missing one counts as removed.
    pub fn remove(&self, object: &str) -> Result<(), RadosError> {
        let name = text(object);
        // SAFETY: the name ends with a zero byte.
        let code = unsafe { (self.library.rados_remove)(self.io, name.as_ptr()) };
        match code == -libc::ENOENT {
            true => Ok(()),
            false => self.done(code, &format!("remove `{object}`")),
        }
    }

    /// Its size, and how long ago it was changed; `None` if it does not exist.
    pub fn stat(&self, object: &str) -> Result<Option<(u64, Duration)>, RadosError> {
        let name = text(object);
        let (mut bytes, mut changed) = (0, 0);
        // SAFETY: all pointers are valid for the call.
        let code =
            unsafe { (self.library.rados_stat)(self.io, name.as_ptr(), &mut bytes, &mut changed) };
        if code == -libc::ENOENT {
            return Ok(None);
        }
        self.done(code, &format!("stat `{object}`"))?;
        let changed = Duration::from_secs(u64::try_from(changed).unwrap_or(0));
        #[expect(
            clippy::disallowed_methods,
            reason = "an age for people, by the wall clock that the object has"
        )]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Some((
            bytes,
            now.unwrap_or_default().saturating_sub(changed),
        )))
    }

    /// The names of the namespace's objects, in the cluster's order.
    pub fn list(&self, mut each: impl FnMut(&str)) -> Result<(), RadosError> {
        let mut context: ListContext = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.library.rados_nobjects_list_open)(self.io, &mut context) };
        self.done(code, "list objects")?;
        let code = loop {
            let mut name: Text = ptr::null();
            // SAFETY: the context is open; outputs that are not needed are null.
            let code = unsafe {
                (self.library.rados_nobjects_list_next)(
                    context,
                    &mut name,
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
            if code != 0 || name.is_null() {
                break code;
            }
            // SAFETY: the library has set it to a text that lives until the next call.
            each(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
        };
        // SAFETY: it was opened above and is not used any more.
        unsafe { (self.library.rados_nobjects_list_close)(context) };
        match code == -libc::ENOENT {
            true => Ok(()),
            false => self.done(code, "list objects"),
        }
    }

    fn done(&self, code: c_int, doing: &str) -> Result<(), RadosError> {
        match code {
            0.. => Ok(()),
            _ => Err(self.failed(doing, code)),
        }
    }

    /// The monitors' JSON answer to a command.
    fn ask<T: for<'a> Deserialize<'a>>(&self, command: &str) -> Option<T> {
        let command = text(command);
        let (mut answer, mut length): (*mut c_char, usize) = (ptr::null_mut(), 0);
        // SAFETY: all pointers are valid for the call; the status text is not requested.
        let code = unsafe {
            (self.library.rados_mon_command)(
                self.cluster,
                &command.as_ptr(),
                1,
                ptr::null(),
                0,
                &mut answer,
                &mut length,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if answer.is_null() {
            return None;
        }
        // SAFETY: the library has allocated this many bytes, which are ours until they are freed.
        let parsed = unsafe {
            let bytes = std::slice::from_raw_parts(answer.cast::<u8>(), length);
            let parsed = serde_json::from_slice(bytes).ok();
            (self.library.rados_buffer_free)(answer);
            parsed
        };
        parsed.filter(|_| code == 0)
    }

    pub fn facts(&self) -> PoolFacts {
        let mut fsid = vec![0_u8; 64];
        // SAFETY: the library writes no more than the length into the buffer.
        unsafe {
            let at = fsid.as_mut_ptr().cast::<c_char>();
            (self.library.rados_cluster_fsid)(self.cluster, at, fsid.len());
        }
        #[derive(Deserialize)]
        struct Size {
            size: u64,
        }
        let pool = serde_json::Value::from(self.spec.pool.as_str());
        let command =
            format!(r#"{{"prefix":"osd pool get","pool":{pool},"var":"size","format":"json"}}"#);
        PoolFacts {
            fsid: until_zero(&fsid),
            replicas: self.ask(&command).map(|Size { size }| size),
            space: self.space(),
        }
    }

    /// The pool's contents, and the room left, with its quotas; `None`: the user lacks the permission.
    pub fn space(&self) -> Option<PoolSpace> {
        #[derive(Deserialize)]
        struct Df {
            pools: Vec<Pool>,
        }
        #[derive(Deserialize)]
        struct Pool {
            name: String,
            stats: Stats,
        }
        #[derive(Deserialize)]
        struct Stats {
            stored: u64,
            max_avail: u64,
            #[serde(default)]
            objects: u64,
            #[serde(default)]
            quota_objects: u64,
            #[serde(default)]
            quota_bytes: u64,
        }
        let df: Df = self.ask(r#"{"prefix":"df","detail":"detail","format":"json"}"#)?;
        let mut pools = df.pools.into_iter();
        let stats = pools.find(|pool| pool.name == self.spec.pool)?.stats;
        let left = |quota: u64, used: u64| match quota {
            0 => u64::MAX,
            _ => quota.saturating_sub(used),
        };
        Some(PoolSpace {
            used_bytes: stats.stored,
            free_bytes: stats.max_avail.min(left(stats.quota_bytes, stats.stored)),
            max_objects: stats.quota_objects,
            free_objects: left(stats.quota_objects, stats.objects),
        })
    }
}

/// Input with a zero byte is refused at its source; here the text would end at it.
pub(super) fn text(text: &str) -> CString {
    let bytes = text
        .bytes()
        .take_while(|byte| *byte != 0)
        .collect::<Vec<_>>();
    CString::new(bytes).unwrap_or_default()
}

fn until_zero(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

fn error(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(-code)
}
