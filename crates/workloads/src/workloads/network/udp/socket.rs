//! UDP sockets with large buffers, and the system calls that move several datagrams at once.
//!
//! Sending: sendmmsg, with messages that the kernel segments into datagrams (UDP_SEGMENT) where it can. Receiving:
//! recvmmsg, with datagrams that the kernel has coalesced (UDP_GRO) and timestamped. It does not depend on the content
//! of a datagram. Invariant: no call blocks longer than `MAX_BLOCKED`.

use super::super::socket::MAX_BLOCKED;
use crate::engine::author::*;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

/// Messages per recvmmsg or sendmmsg.
const MESSAGES: usize = 32;
/// Maximum size of a coalesced message.
const MESSAGE_BYTES: usize = 65_535;
/// Distance between the buffers of two messages, which are aligned like the first one.
const SLOT_BYTES: usize = 64 << 10;
/// Enough for the control messages that are requested.
const CONTROL_BYTES: usize = 128;
/// Size of UDP_SEGMENT's control message, which holds the size of a datagram: a u16.
const SIZE_BYTES: libc::c_uint = 2;
/// Maximum number of datagrams that the kernel segments a buffer into.
const SEGMENTS: usize = 64;

/// Opens a socket on a port that the kernel chooses, and sets it up by [`set_up`].
pub(super) fn open(
    address: SocketAddr,
    buffer_bytes: u64,
    wait: Duration,
) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?;
    set_up(&socket, buffer_bytes, wait)?;
    Ok(socket)
}

/// Sets the timeout of a socket to `wait`, and both buffers to `buffer_bytes` if the host allows it.
pub(super) fn set_up(socket: &UdpSocket, buffer_bytes: u64, wait: Duration) -> io::Result<()> {
    let wait = wait.clamp(Duration::from_micros(1), MAX_BLOCKED);
    socket.set_read_timeout(Some(wait))?;
    socket.set_write_timeout(Some(MAX_BLOCKED))?;
    let bytes = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        // Without the privilege to exceed the host's limit, the kernel clamps the size to it.
        if set(socket, libc::SOL_SOCKET, forced, bytes).is_err() {
            set(socket, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

/// Size of the receive buffer, in the terms of [`set_up`]: the kernel doubles what it is asked for, because it counts
/// its own bookkeeping too, and reports the double.
pub(super) fn receive_buffer(socket: &UdpSocket) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    let mut size = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: both pointers are to values that outlive the call; `size` is that of `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    match result {
        0 => Ok(u64::try_from(value / 2).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: `value` lives through the call and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of datagrams per system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batching {
    messages: usize,
    /// Datagrams per message; the kernel segments a message with several.
    pub segments: usize,
}

impl Batching {
    /// One message per datagram.
    pub(super) const UNCUT: Self = Self {
        messages: MESSAGES,
        segments: 1,
    };

    /// One message with as many datagrams of this size as the kernel can segment.
    pub(super) fn cut(datagram_bytes: usize) -> Self {
        let fit = MESSAGE_BYTES.saturating_sub(64) / datagram_bytes.max(1);
        Self {
            messages: 1,
            segments: fit.clamp(1, SEGMENTS),
        }
    }

    /// Datagrams per call.
    pub(super) fn datagrams(self) -> usize {
        self.messages * self.segments
    }
}

/// Sends `datagrams` in one sendmmsg with `segments` per message; returns how many the kernel took. Each has `bytes`,
/// but the last one may be shorter.
pub(super) fn send(
    socket: &UdpSocket,
    datagrams: &[u8],
    bytes: usize,
    segments: usize,
) -> io::Result<usize> {
    let bytes = bytes.max(1);
    let mut control = Control::segments_of(bytes);
    // A paced load sends one at a time: leave unused entries uninitialized.
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let mut count: libc::c_uint = 0;
    let slots = vectors.iter_mut().zip(&mut headers);
    for (part, (vector, header)) in datagrams.chunks(bytes * segments.max(1)).zip(slots) {
        // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and lengths of 0.
        let header = header.write(unsafe { std::mem::zeroed() });
        header.msg_hdr.msg_iov = vector.write(libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        header.msg_hdr.msg_iovlen = 1;
        if part.len() > bytes {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: it only computes a length.
            header.msg_hdr.msg_controllen = unsafe { libc::CMSG_SPACE(SIZE_BYTES) } as _;
        }
        count += 1;
    }
    let first = headers.as_mut_ptr().cast();
    // SAFETY: the first `count` headers are initialized. They point to vectors and control messages, and these to
    // bytes, which all outlive the call. The kernel only reads them, except for the lengths in the headers.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, count, 0) };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok((sent * segments).min(datagrams.len().div_ceil(bytes)))
}

/// Memory for control messages, aligned as their headers require.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

impl Control {
    const fn new() -> Self {
        Self([0; CONTROL_BYTES])
    }

    /// Asks the kernel to segment a message into datagrams of `bytes`.
    fn segments_of(bytes: usize) -> Self {
        let mut control = Self::new();
        let header = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
        let size = u16::try_from(bytes).unwrap_or(u16::MAX);
        // SAFETY: the buffer is aligned for a header, zeroed, and larger than one with two bytes of data.
        unsafe {
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(SIZE_BYTES) as _;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast::<u16>(), size);
        }
        control
    }
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub bytes: &'a [u8],
    /// Receive time by the kernel's wall clock; 0 without a timestamp.
    pub at_ns: u64,
}

/// The buffers of one recvmmsg.
pub(super) struct Intake {
    data: AlignedBytes,
    controls: Vec<Control>,
}

impl Intake {
    /// Also enables coalescing and timestamps, where the kernel supports them.
    pub(super) fn new(socket: &UdpSocket) -> Self {
        let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        Self {
            data: AlignedBytes::new(1, MESSAGES * SLOT_BYTES),
            controls: vec![Control::new(); MESSAGES],
        }
    }

    /// Receives the available datagrams, or waits for one; calls `each` for every datagram. Returns the number of
    /// messages.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        mut each: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        // SAFETY: all-zero bytes are valid for both types: null pointers and lengths of 0.
        let (mut vectors, mut headers): ([libc::iovec; MESSAGES], [libc::mmsghdr; MESSAGES]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let buffers = self.data.chunks_exact_mut(SLOT_BYTES);
        let memory = buffers.zip(&mut self.controls);
        let slots = vectors.iter_mut().zip(&mut headers);
        for ((data, control), (vector, header)) in memory.zip(slots) {
            vector.iov_base = data.as_mut_ptr().cast();
            vector.iov_len = MESSAGE_BYTES;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: every header points to its own memory, which outlives the call and has the stated length; no name and
        // no timeout are passed.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                libc::c_uint::try_from(MESSAGES).unwrap_or(0),
                libc::MSG_WAITFORONE as _,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let buffers = self.data.chunks_exact(SLOT_BYTES);
        for (header, data) in headers.iter().zip(buffers).take(count) {
            let length = usize::try_from(header.msg_len).unwrap_or(0);
            let data = data.get(..length).unwrap_or_default();
            let (segment, at_ns) = facts(&header.msg_hdr);
            match segment.filter(|segment| *segment > 0) {
                Some(segment) => data
                    .chunks(segment)
                    .for_each(|bytes| each(Arrived { bytes, at_ns })),
                None => each(Arrived { bytes: data, at_ns }),
            }
        }
        Ok(count)
    }
}

/// Datagram size of a coalesced message, if it is one, and the receive time of the message.
fn facts(message: &libc::msghdr) -> (Option<usize>, u64) {
    let (mut segment, mut at_ns) = (None, 0);
    // SAFETY: recvmmsg has filled in a valid chain of control messages within `msg_controllen`. The data of each is
    // read unaligned, with the length that its type defines.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = ptr::read_unaligned(data.cast::<libc::c_int>());
                    segment = usize::try_from(size).ok();
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let time = ptr::read_unaligned(data.cast::<libc::timespec>());
                    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
                    at_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    (segment, at_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::Ipv4Addr;

    /// Each datagram is delivered once, with its own length, in batches of any size.
    #[test]
    fn batches_arrive_as_the_datagrams_that_they_are_made_of() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let wait = Duration::from_millis(100);
        let receiver = open(loopback, 1 << 20, wait).unwrap();
        assert!(receive_buffer(&receiver).unwrap() > 0);
        let sender = open(loopback, 1 << 20, wait).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut intake = Intake::new(&receiver);
        // The last one is shorter.
        let data: Vec<u8> = (0..=255).cycle().take(10 * 777 - 100).collect();
        for segments in [Batching::cut(777).segments, 1, 4] {
            assert_eq!(send(&sender, &data, 777, segments).unwrap(), 10);
        }
        let (mut came, mut stamps) = (Vec::new(), Vec::new());
        while came.len() < 30 {
            let count = intake.receive(&receiver, |arrived| {
                came.push(arrived.bytes.to_vec());
                stamps.push(arrived.at_ns);
            });
            assert!(count.unwrap() > 0);
        }
        for batch in came.chunks(10) {
            assert_eq!(batch, data.chunks(777).collect::<Vec<_>>());
        }
        assert!(stamps.iter().all(|at_ns| *at_ns > 0) && stamps.is_sorted());
    }
}
