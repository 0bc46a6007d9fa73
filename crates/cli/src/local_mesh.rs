//! A mesh on this machine for the time of one command: a collector and agents as child processes on loopback.
//!
//! `quickstart` and `measure` use it. It knows nothing of plans and results. The processes end before the command does,
//! whatever happens: the agents first, then the collector.

mod children;
mod database;
mod work_directory;

pub use children::Children;
pub use database::{NewDatabase, seal};
pub use work_directory::WorkDirectory;

use crate::failure;
use crate::interrupts::Interrupts;
use crate::output;
use anyhow::Context;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for the processes to start, far above what a slow machine needs.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a second Ctrl-C waits for the processes to end.
const HURRY_LIMIT: Duration = Duration::from_secs(2);

/// Interval of checks whether the collector serves.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The files of a local collector.
#[derive(Debug)]
pub struct LocalCollector<'a> {
    pub database: &'a Path,
    /// Its certificates.
    pub tls: &'a Path,
    /// A directory for the files in which it reports its address and the URL of its page.
    pub reports: &'a Path,
}

impl LocalCollector<'_> {
    /// Starts it, and returns its address once it serves.
    pub async fn start(&self, children: &mut Children) -> anyhow::Result<String> {
        let address_file = self.reports.join("address");
        children.start(
            "collector",
            [
                "collector".as_ref(),
                "--listen".as_ref(),
                "127.0.0.1:0".as_ref(),
                "--db".as_ref(),
                self.database.as_os_str(),
                "--address-file".as_ref(),
                address_file.as_os_str(),
                "--http-url-file".as_ref(),
                self.url_file().as_os_str(),
                "--tls-dir".as_ref(),
                self.tls.as_os_str(),
            ],
        )?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Ok(address) = std::fs::read_to_string(&address_file) {
                return Ok(address.trim().to_owned());
            }
            children.check()?;
            if Instant::now() >= deadline {
                anyhow::bail!(
                    "the collector did not start to serve within {} s",
                    START_LIMIT.as_secs()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The URL of the live page, written before the address. `None` if no page is served.
    pub fn page(&self) -> Option<String> {
        let url = std::fs::read_to_string(self.url_file()).ok()?;
        Some(url.trim().to_owned())
    }

    fn url_file(&self) -> PathBuf {
        self.reports.join("url")
    }
}

/// An agent on this machine.
#[derive(Debug)]
pub struct LocalAgent<'a> {
    pub name: &'a str,
    /// The directories in which it may work.
    pub allow: &'a [PathBuf],
    pub state: PathBuf,
    pub scratch: PathBuf,
}

impl LocalAgent<'_> {
    /// Starts it. It attaches on its own.
    pub fn start(&self, collector: &str, children: &mut Children) -> anyhow::Result<()> {
        for directory in [&self.state, &self.scratch] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("make the directory {}", directory.display()))?;
        }
        let mut arguments: Vec<OsString> = [
            "agent",
            "--collector",
            collector,
            "--name",
            self.name,
            "--label",
            "role=client",
            "--allow-network",
            "--allow-drop-caches",
        ]
        .map(OsString::from)
        .into();
        for path in self.allow {
            arguments.extend(["--allow".into(), path.into()]);
        }
        arguments.extend(["--state-dir".into(), (&self.state).into()]);
        arguments.extend(["--scratch".into(), (&self.scratch).into()]);
        children.start(&format!("agent {}", self.name), arguments)
    }
}

/// Whether the directory's file system supports O_DIRECT.
pub fn takes_direct_io(directory: &Path) -> anyhow::Result<bool> {
    let path = directory.join("direct");
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    // The file may exist even if the flag was refused.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(opened.is_ok()),
    }
}

/// Returns at the second signal. From then on the processes are killed, and everything is removed if that succeeds
/// quickly: a hanging disk must not block the exit. `notice` is printed if it does not.
pub async fn exit_on_second(interrupts: &mut Interrupts, notice: &'static str) {
    interrupts.second().await;
    std::thread::spawn(move || exit_soon(notice));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the main thread may wait for a disk that hangs: neither it nor the runtime can be asked to leave"
)]
fn exit_soon(notice: &str) {
    std::thread::sleep(HURRY_LIMIT);
    output::print_notice(notice);
    std::process::exit(i32::from(failure::FAILED));
}
