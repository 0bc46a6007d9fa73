//! Context switches of a whole process, from the kernel's taskstats over generic netlink.
//!
//! `/proc/PID/status` counts the main thread's only, which says nothing of a daemon with hundreds of threads, and
//! reading every thread's costs 2 us each. One taskstats request sums over the threads within the kernel. It needs
//! CAP_NET_ADMIN. Threads that have ended are not in the sum. The kernel answers within the sending call, so nothing
//! here ever waits.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_TGID: u16 = 2;
const TASKSTATS_TYPE_STATS: u16 = 3;
const TASKSTATS_TYPE_AGGR_TGID: u16 = 5;
/// Places of `nvcsw` and `nivcsw` in `struct taskstats`, which only ever grows at its end.
const VOLUNTARY_AT: usize = 272;
const INVOLUNTARY_AT: usize = 280;

const HEADERS: usize = 16 + 4;

#[derive(Debug)]
pub(crate) struct Switches {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
    reply: Box<[u8]>,
}

/// Voluntary and involuntary switches of the threads that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SwitchCounts {
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

impl Switches {
    /// EPERM without the right to ask, ENOENT on a kernel without taskstats.
    pub(crate) fn connect() -> Result<Switches, Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::GENERIC),
        )?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut switches = Switches {
            socket,
            family: GENL_ID_CTRL,
            sequence: 0,
            reply: vec![0; 8192].into(),
        };
        let family = switches.ask(CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0")?;
        let id = attribute(family, CTRL_ATTR_FAMILY_ID)
            .and_then(|id| id.first_chunk())
            .ok_or(Errno::PROTO)?;
        switches.family = u16::from_ne_bytes(*id);
        let own = i32::try_from(std::process::id()).map_err(|_| Errno::SRCH)?;
        switches.of(own)?;
        Ok(switches)
    }

    /// ESRCH when the process is gone.
    pub(crate) fn of(&mut self, pid: i32) -> Result<SwitchCounts, Errno> {
        let answer = self.ask(
            TASKSTATS_CMD_GET,
            TASKSTATS_CMD_ATTR_TGID,
            &pid.to_ne_bytes(),
        )?;
        let stats = attribute(answer, TASKSTATS_TYPE_AGGR_TGID)
            .and_then(|group| attribute(group, TASKSTATS_TYPE_STATS))
            .ok_or(Errno::PROTO)?;
        let number = |at: usize| {
            let bytes = stats
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .ok_or(Errno::PROTO)?;
            Ok(u64::from_ne_bytes(*bytes))
        };
        Ok(SwitchCounts {
            voluntary: number(VOLUNTARY_AT)?,
            involuntary: number(INVOLUNTARY_AT)?,
        })
    }

    /// One request with one attribute; the attributes of the answer.
    fn ask(&mut self, command: u8, kind: u16, value: &[u8]) -> Result<&[u8], Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0u8; 64];
        let length = write_request(
            &mut request,
            self.family,
            self.sequence,
            command,
            kind,
            value,
        )
        .ok_or(Errno::INVAL)?;
        rustix::net::send(
            &self.socket,
            request.get(..length).unwrap_or_default(),
            SendFlags::empty(),
        )?;
        // Answers to requests that were given up lie before ours; the kernel queues ours before the send returns.
        loop {
            let (length, _) =
                rustix::net::recv(&self.socket, &mut self.reply[..], RecvFlags::DONTWAIT)?;
            let reply = self.reply.get(..length).unwrap_or_default();
            if read_u32(reply, 8) != Some(self.sequence) {
                continue;
            }
            if read_u16(reply, 4) == Some(NLMSG_ERROR) {
                let code = read_u32(reply, 16).unwrap_or(0).cast_signed();
                return Err(Errno::from_raw_os_error(code.saturating_neg()));
            }
            break;
        }
        let length = read_u32(&self.reply, 0)
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0);
        self.reply.get(HEADERS..length).ok_or(Errno::PROTO)
    }
}

/// nlmsghdr, genlmsghdr and one attribute.
fn write_request(
    request: &mut [u8],
    family: u16,
    sequence: u32,
    command: u8,
    kind: u16,
    value: &[u8],
) -> Option<usize> {
    let attribute_length = value.len().checked_add(4)?;
    let length = HEADERS.checked_add(attribute_length.next_multiple_of(4))?;
    let mut put = |at: usize, bytes: &[u8]| {
        request
            .get_mut(at..at.checked_add(bytes.len())?)?
            .copy_from_slice(bytes);
        Some(())
    };
    put(0, &u32::try_from(length).ok()?.to_ne_bytes())?;
    put(4, &family.to_ne_bytes())?;
    put(6, &NLM_F_REQUEST.to_ne_bytes())?;
    put(8, &sequence.to_ne_bytes())?;
    put(16, &[command, 1])?;
    put(20, &u16::try_from(attribute_length).ok()?.to_ne_bytes())?;
    put(22, &kind.to_ne_bytes())?;
    put(24, value)?;
    Some(length)
}

/// The value of the first attribute of that kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(read_u16(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if read_u16(attributes, 2)? == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_ne_bytes(*bytes))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_all_threads_that_live() {
        let mut switches = match Switches::connect() {
            Ok(switches) => switches,
            Err(errno @ (Errno::PERM | Errno::NOENT)) => {
                eprintln!("skipped: taskstats cannot be asked here ({errno})");
                return;
            }
            Err(errno) => panic!("{errno}"),
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let before = switches.of(own).unwrap();
        let (send, receive) = std::sync::mpsc::sync_channel::<()>(0);
        let (back, again) = std::sync::mpsc::sync_channel::<()>(0);
        let other = std::thread::spawn(move || {
            while receive.recv().is_ok() {
                back.send(()).unwrap();
            }
        });
        for _ in 0..200 {
            send.send(()).unwrap();
            again.recv().unwrap();
        }
        let after = switches.of(own).unwrap();
        assert!(
            after.voluntary >= before.voluntary + 200,
            "{before:?} {after:?}"
        );
        drop(send);
        other.join().unwrap();
        assert_eq!(switches.of(0x3fff_ffff), Err(Errno::SRCH));
    }

    proptest! {
        #[test]
        fn hostile_attributes_end(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u16..8) {
            let _ = attribute(&bytes, kind);
        }
    }
}
