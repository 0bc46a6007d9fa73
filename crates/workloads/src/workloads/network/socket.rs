//! Socket options that both ends of a link set, and the kernel's count of unacknowledged bytes.
//!
//! It also finds ports to listen on. It does not depend on tokens, operations or modes. Invariant: no call on a socket
//! set up here blocks longer than `MAX_BLOCKED`, so that a stop is always noticed.

use crate::engine::author::*;
use rustix::net::sockopt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// A blocked send or receive returns this often to check for a stop.
pub(super) const MAX_BLOCKED: Duration = Duration::from_millis(100);

/// Limit on data that the kernel holds and has not sent yet. It bounds the time that the socket needs to drain at the
/// end of a step. Half of it cost a fifth of the throughput on loopback with blocks of 1 MiB; this size costs none.
const UNSENT_BYTES: libc::c_int = 1 << 20;

/// Sets a socket to blocking with timeouts, without Nagle's algorithm. Keepalive detects a vanished peer after 25 s of
/// silence even when nothing is being sent.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(MAX_BLOCKED))?;
    stream.set_write_timeout(Some(MAX_BLOCKED))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    limit_unsent(stream.as_raw_fd())
}

/// Opens `needed` sockets on `address` by `bind`: on the first free ports of the range, or on ports that the kernel
/// chooses.
///
/// # Errors
/// [`TaskError::Ports`] if the range has too few free ports.
pub(super) fn bind<T>(
    address: IpAddr,
    ports: Option<PortRange>,
    (protocol, needed): (&'static str, usize),
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<T>, TaskError> {
    let failed = |port: u16, error| {
        let at = SocketAddr::new(address, port);
        TaskError::io(format!("listen for a peer over {protocol} on {at}"), error)
    };
    let Some(range) = ports else {
        let any = SocketAddr::new(address, 0);
        return (0..needed)
            .map(|_| bind(any).map_err(|error| failed(0, error)))
            .collect();
    };
    let mut bound = Vec::new();
    for port in range.ports() {
        if bound.len() == needed {
            break;
        }
        match bind(SocketAddr::new(address, port)) {
            Ok(socket) => bound.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed(port, error)),
        }
    }
    match bound.len() == needed {
        true => Ok(bound),
        false => Err(TaskError::Ports {
            range,
            protocol,
            free: bound.len(),
            needed,
        }),
    }
}

fn limit_unsent(fd: RawFd) -> io::Result<()> {
    let value = UNSENT_BYTES;
    let size = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: `value` lives through the call and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const value).cast(),
            size,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes written to the socket that the peer's kernel has not acknowledged.
#[inline]
pub(super) fn unacknowledged(stream: &TcpStream) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ on sockets) writes one int, and `value` lives through the call.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut value) };
    if result == 0 {
        Ok(u64::try_from(value).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether an error is only the call's timeout or a signal.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
