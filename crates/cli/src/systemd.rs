//! Notifications to systemd: ready, status, watchdog, stopping (`sd_notify(3)`).
//!
//! Without NOTIFY_SOCKET in the environment nothing is sent. A lost message is not sent again: systemd's own timeouts
//! handle that.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The connection to the service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        match connect(name.as_bytes()) {
            Ok(socket) => Self {
                socket: Some(socket),
                watchdog: watchdog(|key| std::env::var(key).ok()),
            },
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be reached by NOTIFY_SOCKET");
                Self::default()
            }
        }
    }

    /// Interval of watchdog messages: half of systemd's timeout.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the service is ready, with its status.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!(%error, "the service manager was not notified");
        }
    }
}

/// A name starting with @ is in the abstract namespace.
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}

fn watchdog(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    let meant = variable("WATCHDOG_PID").and_then(|pid| pid.parse::<u32>().ok());
    let is_for_this = meant.is_none_or(|pid| pid == std::process::id());
    (is_for_this && micros > 1).then(|| Duration::from_micros(micros / 2))
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn received(manager: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message.get(..length).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_by_path_and_by_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("benchmesh-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (manager, name) in [
            (&by_path, path.to_str().unwrap().to_owned()),
            (&by_name, format!("@{name}")),
        ] {
            let notifier = Notifier {
                socket: Some(connect(name.as_bytes()).unwrap()),
                watchdog: None,
            };
            notifier.ready("attached to\nx");
            assert_eq!(received(manager), "READY=1\nSTATUS=attached to x");
            notifier.alive();
            assert_eq!(received(manager), "WATCHDOG=1");
            notifier.stopping();
            assert!(received(manager).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn the_watchdog_is_this_process_or_nobodys() {
        let own = std::process::id().to_string();
        for (micros, pid, expected) in [
            (Some("30000000"), None, Some(Duration::from_secs(15))),
            (
                Some("30000000"),
                Some(own.as_str()),
                Some(Duration::from_secs(15)),
            ),
            (Some("30000000"), Some("1"), None),
            (Some("x"), None, None),
            (Some("0"), None, None),
            (None, None, None),
        ] {
            let variable = |key: &str| match key {
                "WATCHDOG_USEC" => micros.map(str::to_owned),
                _ => pid.map(str::to_owned),
            };
            assert_eq!(watchdog(variable), expected);
        }
    }
}
