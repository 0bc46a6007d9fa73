//! Processes that have just executed another program or changed their name, as reported by the kernel's proc connector
//! (netlink), for root in the initial namespaces. Without it, only the scan finds daemons.
//!
//! A filter in the kernel passes only these two events, and name changes only of whole processes: forks, threads and
//! exits, which are most events of a busy host, never wake the listener. The rate is bounded as well: beyond
//! [`PER_SECOND`] the listener reports this and should be dropped for a while. It does not know about daemons.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::clock::NANOS_PER_SECOND;

/// Checking a process costs about 20 us: at most 1 % of a CPU, and for one second only.
pub(crate) const PER_SECOND: u32 = 500;
/// Maximum number of events per call, so that a sample that becomes due is not delayed.
const AT_ONCE: usize = 64;

const NLMSG_DONE: u16 = 3;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_CN_MCAST_IGNORE: u32 = 2;
const PROC_EVENT_NONE: u32 = 0;
const PROC_EVENT_EXEC: u32 = 2;
const PROC_EVENT_COMM: u32 = 0x200;

/// Offsets in a message: a netlink header of 16 bytes, a connector header of 20, and `struct proc_event`, whose data
/// begin after 16 bytes.
const WHAT_AT: usize = 36;
const PID_AT: usize = 52;
const TGID_AT: usize = 56;

#[derive(Debug)]
pub(crate) struct ExecEvents {
    socket: OwnedFd,
    /// The current second, and the number of events in it.
    second: u64,
    events: u32,
}

/// The result of reading events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// All pending events were read, or the maximum per call.
    Some,
    /// Some events were lost; a scan finds their processes.
    Lost,
    /// The rate is too high. Drop the listener and connect again later.
    TooMany,
}

impl ExecEvents {
    /// Starts to listen.
    ///
    /// # Errors
    /// EPERM without the right, ECONNREFUSED and the like in a separate network namespace. In a PID namespace the
    /// kernel reports no error, and no event ever arrives.
    pub(crate) fn connect() -> Result<ExecEvents, Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::CONNECTOR),
        )?;
        attach_filter(socket.as_fd())?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CN_IDX_PROC))?;
        let events = ExecEvents {
            socket,
            second: 0,
            events: 0,
        };
        events.send_to_kernel(PROC_CN_MCAST_LISTEN)?;
        Ok(events)
    }

    /// Adds the pids of pending events. Never waits.
    pub(crate) fn drain(&mut self, pids: &mut Vec<i32>) -> Result<Drained, Errno> {
        let mut space = [MaybeUninit::<u8>::uninit(); 256];
        for _ in 0..AT_ONCE {
            let received = rustix::net::recv(&self.socket, &mut space, RecvFlags::DONTWAIT);
            let message = match received {
                Ok(((message, _), _)) => &*message,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => return Ok(Drained::Lost),
                Err(errno) => return Err(errno),
            };
            match parse(message) {
                Some(Event::Refused(errno)) => return Err(errno),
                Some(Event::Process(pid)) => {
                    pids.push(pid);
                    if self.is_one_too_many() {
                        return Ok(Drained::TooMany);
                    }
                }
                None => {}
            }
        }
        Ok(Drained::Some)
    }

    fn is_one_too_many(&mut self) -> bool {
        let second = MonoNanos::now().0 / NANOS_PER_SECOND;
        if second != self.second {
            (self.second, self.events) = (second, 0);
        }
        self.events = self.events.saturating_add(1);
        self.events > PER_SECOND
    }

    fn send_to_kernel(&self, operation: u32) -> Result<(), Errno> {
        let mut message = Vec::with_capacity(40);
        // nlmsghdr: length, type, flags, sequence, port; cn_msg: index, value, sequence, ack, length, flags; the
        // operation.
        message.extend(40u32.to_ne_bytes());
        message.extend(NLMSG_DONE.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(CN_IDX_PROC.to_ne_bytes());
        message.extend(CN_VAL_PROC.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(4u16.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(operation.to_ne_bytes());
        rustix::net::send(&self.socket, &message, SendFlags::empty()).map(drop)
    }
}

impl AsFd for ExecEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ExecEvents {
    /// Kernels before 6.6 do not notice that a listener has closed its socket, and would keep producing events.
    fn drop(&mut self) {
        let _ = self.send_to_kernel(PROC_CN_MCAST_IGNORE);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Process(i32),
    /// The kernel refuses to send events.
    Refused(Errno),
}

fn parse(message: &[u8]) -> Option<Event> {
    let number = |at: usize| {
        let bytes = message.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    match number(WHAT_AT)? {
        PROC_EVENT_NONE => {
            let errno = i32::try_from(number(PID_AT)?).ok()?;
            (errno != 0).then(|| Event::Refused(Errno::from_raw_os_error(errno)))
        }
        PROC_EVENT_EXEC => pid(number(TGID_AT)?),
        PROC_EVENT_COMM if number(PID_AT)? == number(TGID_AT)? => pid(number(TGID_AT)?),
        _ => None,
    }
}

fn pid(number: u32) -> Option<Event> {
    i32::try_from(number)
        .ok()
        .filter(|pid| *pid > 0)
        .map(Event::Process)
}

/// Passes the events that [`parse`] reads. The filter loads big-endian values, and the message is in host byte order.
fn attach_filter(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const EQUAL_X: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
    const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let at = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    // Jump offsets count from the next line: if equal, if not equal.
    let lines = [
        (LOAD, at(WHAT_AT), 0, 0),
        (EQUAL, PROC_EVENT_EXEC.to_be(), 6, 0),
        (EQUAL, PROC_EVENT_NONE.to_be(), 5, 0),
        (EQUAL, PROC_EVENT_COMM.to_be(), 0, 5),
        (LOAD, at(PID_AT), 0, 0),
        (TO_X, 0, 0, 0),
        (LOAD, at(TGID_AT), 0, 0),
        (EQUAL_X, 0, 0, 1),
        (RETURN, u32::MAX, 0, 0),
        (RETURN, 0, 0, 0),
    ];
    let mut program = lines.map(|(code, k, jt, jf)| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    });
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    let length = libc::socklen_t::try_from(size_of_val(&program)).unwrap_or(0);
    // SAFETY: `program` and the lines it points to are valid for the call, which copies them.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::INVAL, Errno::from_raw_os_error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::process::Command;
    use std::time::Duration;

    use proptest::prelude::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Waits for the next event about `pid`; `None`: none arrived in time.
    fn event_of(events: &mut ExecEvents, pid: i32, limit: Duration) -> Option<()> {
        let deadline = MonoNanos::now().saturating_add(limit);
        let mut pids = Vec::new();
        while MonoNanos::now() < deadline {
            let left = deadline.since(MonoNanos::now());
            let left = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&left)).unwrap();
            let drained = events.drain(&mut pids).unwrap();
            assert_ne!(drained, Drained::TooMany, "this host is too busy to tell");
            if pids.contains(&pid) {
                return Some(());
            }
        }
        None
    }

    #[test]
    fn tells_of_programs_and_names_and_of_nothing_else() {
        let mut events = match ExecEvents::connect() {
            Ok(events) => events,
            Err(errno) => {
                return benchmesh_testing::skip("proc-connector", &errno.to_string());
            }
        };
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let pid = child.id().cast_signed();
        if event_of(&mut events, pid, Duration::from_secs(5)).is_none() {
            child.wait().unwrap();
            let why = "the kernel sends no events of processes into this PID namespace";
            return benchmesh_testing::skip("proc-connector", why);
        }
        child.wait().unwrap();
        // The kernel filters out threads that start, change their name and end.
        let own = std::process::id().cast_signed();
        for _ in 0..20 {
            let thread = std::thread::Builder::new().name("bm-other".to_owned());
            thread.spawn(|| ()).unwrap().join().unwrap();
        }
        assert_eq!(event_of(&mut events, own, Duration::from_millis(50)), None);
    }

    #[test]
    fn a_refusal_and_the_events_are_read() {
        let message = |what: u32, pid: u32, tgid: u32| {
            let mut message = vec![0; 76];
            message[WHAT_AT..WHAT_AT + 4].copy_from_slice(&what.to_ne_bytes());
            message[PID_AT..PID_AT + 4].copy_from_slice(&pid.to_ne_bytes());
            message[TGID_AT..TGID_AT + 4].copy_from_slice(&tgid.to_ne_bytes());
            parse(&message)
        };
        assert_eq!(message(PROC_EVENT_EXEC, 8, 7), Some(Event::Process(7)));
        assert_eq!(message(PROC_EVENT_COMM, 7, 7), Some(Event::Process(7)));
        assert_eq!(message(PROC_EVENT_COMM, 8, 7), None, "a thread's name");
        assert_eq!(message(1, 7, 7), None, "a fork");
        assert_eq!(message(PROC_EVENT_NONE, 0, 0), None);
        assert_eq!(
            message(PROC_EVENT_NONE, 1, 0),
            Some(Event::Refused(Errno::PERM))
        );
    }

    proptest! {
        #[test]
        fn hostile_messages_end(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
