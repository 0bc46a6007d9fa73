//! Streams and requests on loopback with known counts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod requests;
mod streams;

use super::super::datagram::{Header, MIN_REQUEST_BYTES, PROBE, StreamKey, write_response};
use super::channel::{OPEN, OpenedSocket, Report};
use crate::engine::task::TaskSpec;
use crate::measure::interval::Interval;
use crate::measure::op::Op;
use crate::measure::pacing::RateLimit;
use crate::workloads::network::hello;
use crate::workloads::network::tests::{LOOPBACK, TOKEN, listen, prepare, run, spec, wait_for};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const KEY: StreamKey = StreamKey(*b"8 bytes!");

fn ops(intervals: &[Interval], op: Op) -> u64 {
    let of_kind = intervals.iter().filter(|interval| interval.op == op);
    of_kind.map(|interval| interval.ops).sum()
}

fn bytes(intervals: &[Interval], op: Op) -> u64 {
    let of_kind = intervals.iter().filter(|interval| interval.op == op);
    of_kind.map(|interval| interval.bytes).sum()
}

/// A sending end that the test drives.
struct HandSender {
    control: TcpStream,
    socket: UdpSocket,
}

impl HandSender {
    fn new(receiver: SocketAddr) -> Self {
        let mut control = TcpStream::connect(receiver).unwrap();
        control
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        control
            .write_all(&hello::encode(0, TOKEN).unwrap())
            .unwrap();
        let mut welcome = [0; 1];
        control.read_exact(&mut welcome).unwrap();
        control.write_all(&KEY.0).unwrap();
        let mut opened = [0; OpenedSocket::BYTES];
        control.read_exact(&mut opened).unwrap();
        let port = OpenedSocket::decode(opened).port;
        let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
        socket.connect((receiver.ip(), port)).unwrap();
        let sender = Self { control, socket };
        sender.send(KEY, PROBE);
        let mut answer = [0; 1];
        (&sender.control).read_exact(&mut answer).unwrap();
        assert_eq!(answer, [OPEN]);
        sender
    }

    fn send(&self, key: StreamKey, sequence: u64) {
        let mut datagram = [0; MIN_REQUEST_BYTES + 6];
        let header = Header {
            sequence,
            sent_ns: 0,
        };
        header.write(key, &mut datagram);
        assert_eq!(self.socket.send(&datagram).unwrap(), datagram.len());
    }

    fn report(&mut self) -> Report {
        let mut report = [0; Report::BYTES];
        self.control.read_exact(&mut report).unwrap();
        Report::decode(&report)
    }

    /// Sends the number of datagrams, and returns the last report.
    fn conclude(&mut self, sent: u64) -> Report {
        self.control.write_all(&sent.to_le_bytes()).unwrap();
        loop {
            let report = self.report();
            if report.is_last {
                return report;
            }
        }
    }
}

/// A receiving end that has admitted its one stream, and that the test drives.
struct HandReceiver {
    control: TcpStream,
    socket: UdpSocket,
    key: StreamKey,
}

impl HandReceiver {
    /// Admits the stream that connects to `listener`.
    fn admit(listener: &TcpListener) -> Self {
        let (mut control, _) = listener.accept().unwrap();
        control
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut greeting = vec![0; hello::encode(0, TOKEN).unwrap().len()];
        control.read_exact(&mut greeting).unwrap();
        control.write_all(&[hello::WELCOME]).unwrap();
        let mut key = [0; 8];
        control.read_exact(&mut key).unwrap();
        let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
        let opened = OpenedSocket {
            port: socket.local_addr().unwrap().port(),
            buffer_bytes: 1000,
        };
        control.write_all(&opened.encode()).unwrap();
        let receiver = Self {
            control,
            socket,
            key: StreamKey(key),
        };
        assert_eq!(receiver.next().0, PROBE);
        (&receiver.control).write_all(&[OPEN]).unwrap();
        receiver
    }

    fn next(&self) -> (u64, SocketAddr) {
        let mut datagram = [0; 2000];
        let (count, from) = self.socket.recv_from(&mut datagram).unwrap();
        let header = Header::read(self.key, &datagram[..count]).unwrap();
        (header.sequence, from)
    }

    fn respond(&self, sequence: u64, to: SocketAddr, bytes: usize) {
        let mut response = vec![0; bytes];
        write_response(self.key, sequence, &mut response);
        self.socket.send_to(&response, to).unwrap();
    }
}
