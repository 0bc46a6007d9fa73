//! Context switches of a whole process, from the kernel's taskstats over generic netlink.
//!
//! `/proc/PID/status` counts only the main thread's, which is useless for a daemon with hundreds of threads, and
//! reading every thread's costs 2 us each. One taskstats request sums over the threads within the kernel. It needs
//! CAP_NET_ADMIN. Ended threads are not in the sum. The kernel answers within the sending call, so nothing here ever
//! waits.

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
/// Offsets of `nvcsw` and `nivcsw` in `struct taskstats`, which only ever grows at its end.
const VOLUNTARY_AT: usize = 272;
const INVOLUNTARY_AT: usize = 280;

const HEADERS: usize = 16 + 4;
/// Maximum number of processes per call into the kernel. Their answers of about a kilobyte each fit well into the
/// socket's default receive buffer of 208 KiB.
pub(crate) const AT_ONCE: usize = 32;

#[derive(Debug)]
pub(crate) struct Switches {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
    requests: Vec<u8>,
    reply: Box<[u8]>,
}

/// Voluntary and involuntary switches of the live threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SwitchCounts {
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

impl Switches {
    /// Connects. EPERM without the right, ENOENT on a kernel without taskstats.
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
            requests: Vec::new(),
            reply: vec![0; 8192].into(),
        };
        let mut id = None;
        switches.request(CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
        switches.answers(1, |_, attributes| {
            id = Some(attributes.and_then(|attributes| {
                let id = attribute(attributes, CTRL_ATTR_FAMILY_ID).and_then(<[u8]>::first_chunk);
                id.map(|id| u16::from_ne_bytes(*id)).ok_or(Errno::PROTO)
            }));
        })?;
        switches.family = id.unwrap_or(Err(Errno::PROTO))?;

        let mut own = None;
        switches.request(
            TASKSTATS_CMD_GET,
            TASKSTATS_CMD_ATTR_TGID,
            &std::process::id().to_ne_bytes(),
        );
        switches.answers(1, |_, attributes| own = Some(attributes.and_then(counts)))?;
        own.unwrap_or(Err(Errno::PROTO))?;
        Ok(switches)
    }

    /// The switches of each pid, in the order of the pids; `None` if the process does not exist. At most [`AT_ONCE`]
    /// pids.
    pub(crate) fn of(
        &mut self,
        pids: impl IntoIterator<Item = i32>,
        into: &mut Vec<Option<SwitchCounts>>,
    ) {
        into.clear();
        for pid in pids {
            self.request(
                TASKSTATS_CMD_GET,
                TASKSTATS_CMD_ATTR_TGID,
                &pid.to_ne_bytes(),
            );
            into.push(None);
        }
        // Pids without an answer stay unknown.
        let _ = self.answers(into.len(), |place, attributes| {
            if let Some(answer) = into.get_mut(place) {
                *answer = attributes.and_then(counts).ok();
            }
        });
    }

    /// Adds a request with one attribute to those that the next [`Self::answers`] sends.
    fn request(&mut self, command: u8, kind: u16, value: &[u8]) {
        self.sequence = self.sequence.wrapping_add(1);
        let attribute_length = value.len().saturating_add(4);
        let length = HEADERS.saturating_add(attribute_length.next_multiple_of(4));
        let (Ok(attribute_length), Ok(whole)) =
            (u16::try_from(attribute_length), u32::try_from(length))
        else {
            return;
        };
        let end = self.requests.len().saturating_add(length);
        // nlmsghdr: length, type, flags, sequence, port; genlmsghdr: command, version; attribute: length, type, value.
        self.requests.extend_from_slice(&whole.to_ne_bytes());
        self.requests.extend_from_slice(&self.family.to_ne_bytes());
        self.requests
            .extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        self.requests
            .extend_from_slice(&self.sequence.to_ne_bytes());
        self.requests.extend_from_slice(&0u32.to_ne_bytes());
        self.requests.extend_from_slice(&[command, 1, 0, 0]);
        self.requests
            .extend_from_slice(&attribute_length.to_ne_bytes());
        self.requests.extend_from_slice(&kind.to_ne_bytes());
        self.requests.extend_from_slice(value);
        self.requests.resize(end, 0);
    }

    /// Sends the `count` requests and passes on the index and the attributes of each answer.
    fn answers(
        &mut self,
        count: usize,
        mut deliver: impl FnMut(usize, Result<&[u8], Errno>),
    ) -> Result<(), Errno> {
        let sent = rustix::net::send(&self.socket, &self.requests, SendFlags::empty());
        self.requests.clear();
        sent?;
        let before_first = self
            .sequence
            .wrapping_sub(u32::try_from(count).unwrap_or(0));
        let mut answered = 0usize;
        // The kernel has queued all answers before the send returns. Late ones of an earlier round are skipped.
        while answered < count {
            let (length, _) =
                rustix::net::recv(&self.socket, &mut self.reply[..], RecvFlags::DONTWAIT)?;
            let reply = self.reply.get(..length).unwrap_or_default();
            let sequence = read_u32(reply, 8).unwrap_or(0);
            let place = usize::try_from(sequence.wrapping_sub(before_first).wrapping_sub(1))
                .unwrap_or(usize::MAX);
            if place >= count {
                continue;
            }
            answered = answered.saturating_add(1);
            if read_u16(reply, 4) == Some(NLMSG_ERROR) {
                let code = read_u32(reply, 16).unwrap_or(0).cast_signed();
                deliver(place, Err(Errno::from_raw_os_error(code.saturating_neg())));
            } else {
                let length = read_u32(reply, 0)
                    .and_then(|length| usize::try_from(length).ok())
                    .unwrap_or(0);
                deliver(place, reply.get(HEADERS..length).ok_or(Errno::PROTO));
            }
        }
        Ok(())
    }
}

fn counts(attributes: &[u8]) -> Result<SwitchCounts, Errno> {
    let stats = attribute(attributes, TASKSTATS_TYPE_AGGR_TGID)
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
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    fn skip(errno: Errno) {
        benchmesh_testing::skip("taskstats", &errno.to_string());
    }

    #[test]
    fn counts_all_threads_that_live() {
        let mut switches = match Switches::connect() {
            Ok(switches) => switches,
            Err(errno @ (Errno::PERM | Errno::NOENT)) => return skip(errno),
            Err(errno) => panic!("{errno}"),
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let mut of_own = || {
            let mut answers = Vec::new();
            switches.of([0x3fff_ffff, own], &mut answers);
            assert_eq!((answers.len(), answers[0]), (2, None));
            answers[1].unwrap()
        };
        let (send, receive) = std::sync::mpsc::sync_channel::<()>(0);
        let (back, again) = std::sync::mpsc::sync_channel::<()>(0);
        let other = std::thread::spawn(move || {
            while receive.recv().is_ok() {
                back.send(()).unwrap();
            }
        });
        // Threads of other tests that end meanwhile remove their counts from the sum.
        let counted = (0..20).any(|_| {
            let before = of_own();
            for _ in 0..200 {
                send.send(()).unwrap();
                again.recv().unwrap();
            }
            of_own().voluntary >= before.voluntary + 200
        });
        assert!(counted, "200 switches are not among those of all threads");
        drop(send);
        other.join().unwrap();
    }

    proptest! {
        #[test]
        fn hostile_attributes_end(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u16..8) {
            let _ = attribute(&bytes, kind);
        }
    }
}
