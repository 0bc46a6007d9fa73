//! The modes and keys of `network`, and the parameters derived from them.
//!
//! Both ends of a link derive every size from the same parameters, so that they need not exchange sizes. This module
//! does not use sockets.

use super::datagram::{MAX_BYTES, MIN_REQUEST_BYTES, MIN_RESPONSE_BYTES};
use crate::engine::author::*;
use std::time::Duration;

pub(super) const NAME: &str = "network";
pub(super) const DEFAULT_RUNTIME: Duration = Duration::from_secs(10);
const DEFAULT_THROUGHPUT_BYTES: Bytes = Bytes(1 << 20);
const DEFAULT_MESSAGE_BYTES: Bytes = Bytes(64);
/// Fits into an Ethernet frame, over IPv4 and IPv6.
const DEFAULT_DATAGRAM_BYTES: Bytes = Bytes(1448);

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "throughput",
        meaning: "sends blocks one after the other on each stream; bytes count when the peer's kernel has acknowledged \
                  them, and at the end the receiver must have all of them. The blocks are random bytes, so that a \
                  compressing path has no advantage. There is no `data` and no `verify`: nothing is stored, and TCP \
                  has its own checksum",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Send],
    },
    ModeInfo {
        name: "ping",
        meaning: "round trips, one at a time on each stream: a message and an answer of its size, with TCP_NODELAY; if \
                  both ends block while waiting, the wake-up of an idle CPU is included",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Ping],
    },
    ModeInfo {
        name: "request",
        meaning: "requests, one at a time on each stream: the peer answers each complete request with a response of \
                  another size",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Request],
    },
    ModeInfo {
        name: "udp-stream",
        meaning: "datagrams of `bs` bytes on each stream, at a rate or as fast as the kernel accepts them, like iperf3 \
                  -u; the receiver counts received, lost, duplicate and reordered datagrams, measures the jitter, and \
                  reports ten times a second",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[
            Op::Send,
            Op::Receive,
            Op::Lost,
            Op::Reordered,
            Op::Duplicate,
            Op::Late,
            Op::Jitter,
        ],
    },
    ModeInfo {
        name: "udp-request",
        meaning: "requests of one datagram each, `iodepth` of them in flight on each stream, like sockperf; the peer \
                  answers each with one datagram. A request without a response within `timeout` is lost: it is counted \
                  without a latency, and a later response is ignored",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Request, Op::Lost],
    },
];

const WAITING: &[&str] = &["ping", "request", "udp-request"];
const REQUESTS: &[&str] = &["request", "udp-request"];
const UDP: &[&str] = &["udp-stream", "udp-request"];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct NetworkKeys {
        /// Connections of a task, each with its own worker: a thread and a socket at both ends.
        "streams" streams: Option<u32> = none("1"), min 1, max 256;
        /// Alias of `streams`, as in other workloads. Only one of the two.
        "numjobs" numjobs: Option<u32> = none("1"), min 1, max 256;
        /// `throughput`: bytes per block. `ping`: bytes of the message. `udp-stream`: payload of a datagram, 24 to
        /// 65507; a payload above the path's MTU minus 28 (IPv6: 48) is sent in fragments.
        "bs" bs: Option<Bytes> = none("1m; ping: 64; udp-stream: 1448"), min 1, max "1g", in ["throughput", "ping", "udp-stream"];
        /// Bytes of a request. With UDP 24 to 65507.
        "request-size" request_size: Bytes = 64, min 1, max "1g", in REQUESTS;
        /// Bytes of a response. With UDP 16 to 65507.
        "response-size" response_size: Bytes = 64, min 1, max "1g", in REQUESTS;
        /// Requests that each stream keeps in flight. With a rate, the maximum number of outstanding requests.
        "iodepth" iodepth: u32 = 1, min 1, max 1024, in ["udp-request"];
        /// A request without a response within this time is lost.
        "timeout" timeout: Span = "1s", in ["udp-request"];
        /// Without a rate, the kernel gets up to 64 datagrams in one buffer and segments it (UDP_SEGMENT) if the path
        /// supports this; otherwise, and with `false`, one sendmmsg sends up to 32. With a rate, each datagram is sent
        /// individually.
        "gso" gso: bool = true, in ["udp-stream"];
        /// Bytes of each socket's buffer, up to the host's limit (net.core.rmem_max for agents that are not root), as
        /// iperf3's `-w`. Datagrams that arrive while it is full are lost and counted as lost: it has to hold what
        /// arrives while the receiving thread waits for a CPU. An event records a smaller buffer at the receiver.
        "socket-buffer" socket_buffer: Bytes = "16m", min 4096, max "1g", in UDP;
        /// How both ends wait for each other. `blocking`: sleeping in the kernel. `busy`: polling, with one CPU per
        /// stream at each end. The value is stored with the result (`v_links`).
        "wait" wait: Wait = "blocking", in WAITING;
        /// Bytes to send per stream. With `runtime`, until whichever comes first.
        "size" size: Option<Bytes> = none("as many as fit into `runtime`"), min 1, in ["throughput", "udp-stream"];
        /// Round trips per stream. With `runtime`, until whichever comes first.
        "ops" ops: Option<u64> = none("as many as fit into `runtime`"), min 1, in WAITING;
        /// Duration of the load.
        "runtime" runtime: Option<Span> = none("10s, or no limit with `size` or `ops`");
        /// Time before the results count, in addition to `runtime`.
        "ramp_time" ramp_time: Option<Span> = none("none"),
            only "with a `runtime`, which is 10s unless `size` or `ops` is set"
            if |keys, scope| keys.runtime.is_some() || match scope.mode {
                "throughput" | "udp-stream" => keys.size.is_none(),
                _ => keys.ops.is_none(),
            };
    }
}

const WAIT: &str = "wait";

declare_words! {
    /// How an end of a link waits for the other.
    pub(super) enum Wait {
        Blocking = "blocking",
        Busy = "busy",
    }
}

/// A message to the peer and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub op: Op,
    pub request_bytes: usize,
    pub response_bytes: usize,
    /// Bytes counted per exchange.
    pub bytes: u64,
    pub wait: Wait,
}

/// Traffic of each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// One way, in blocks of this number of bytes.
    Blocks(usize),
    Exchanges(Exchange),
    /// One way, in datagrams.
    Datagrams(Datagrams),
    /// A datagram each way.
    Requests(Requests),
}

impl Traffic {
    /// Memory of one stream, at either end.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let exchange = |it: &Exchange| it.request_bytes.saturating_add(it.response_bytes);
        match self {
            Self::Blocks(bytes) => buffers_of(*bytes),
            Self::Exchanges(it) => buffers_of(exchange(it)),
            Self::Datagrams(it) => buffers_of(it.bytes).saturating_add(it.buffer_bytes),
            Self::Requests(it) => {
                let in_flight = exchange(&it.exchange).saturating_mul(it.depth.into());
                buffers_of(in_flight).saturating_add(it.buffer_bytes)
            }
        }
    }
}

/// A stream of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagrams {
    pub bytes: usize,
    /// Let the kernel segment one buffer into several datagrams.
    pub gso: bool,
    /// Size of each socket's buffer.
    pub buffer_bytes: u64,
}

/// Requests and responses of one datagram each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    pub exchange: Exchange,
    /// Requests in flight at once.
    pub depth: u16,
    pub timeout: Duration,
    /// Size of each socket's buffer.
    pub buffer_bytes: u64,
}

/// The parameters, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkParams {
    pub traffic: Traffic,
    /// Bytes or exchanges after which each stream ends.
    pub amount: Option<u64>,
    pub streams: u32,
    pub timing: Timing,
}

impl NetworkParams {
    /// Checks the parameters of a mode.
    pub(super) fn of(mode: &ModeInfo, keys: &NetworkKeys) -> Result<NetworkParams, ParamError> {
        let bs = keys.bs;
        // Check all sizes, whatever the mode: a phase may have several modes.
        let message = bytes_of("bs", bs.unwrap_or(DEFAULT_MESSAGE_BYTES))?;
        let request_bytes = bytes_of("request-size", keys.request_size)?;
        let response_bytes = bytes_of("response-size", keys.response_size)?;
        let whole = keys.size.unwrap_or(DEFAULT_THROUGHPUT_BYTES);
        let (traffic, amount) = match mode.name {
            "ping" => {
                let exchange = Exchange {
                    op: Op::Ping,
                    request_bytes: message,
                    response_bytes: message,
                    bytes: as_u64(message),
                    wait: keys.wait,
                };
                (Traffic::Exchanges(exchange), keys.ops)
            }
            "request" => {
                let exchange = Exchange {
                    op: Op::Request,
                    request_bytes,
                    response_bytes,
                    bytes: as_u64(request_bytes) + as_u64(response_bytes),
                    wait: keys.wait,
                };
                (Traffic::Exchanges(exchange), keys.ops)
            }
            "throughput" => {
                let block = bytes_of("bs", bs.unwrap_or(DEFAULT_THROUGHPUT_BYTES.min(whole)))?;
                if keys.size.is_some_and(|all| all.0 < as_u64(block)) {
                    let message =
                        format!("{whole} is less than one block of {}", Bytes(as_u64(block)));
                    return Err(ParamError::of("size", message));
                }
                (Traffic::Blocks(block), keys.size.map(|size| size.0))
            }
            "udp-stream" => {
                let bs = bs.unwrap_or(DEFAULT_DATAGRAM_BYTES);
                let bytes = datagram_bytes("bs", bs, MIN_REQUEST_BYTES)?;
                let datagrams = Datagrams {
                    bytes,
                    gso: keys.gso,
                    buffer_bytes: keys.socket_buffer.0,
                };
                let amount = keys.size.map(|size| size.0.div_ceil(as_u64(bytes)));
                (Traffic::Datagrams(datagrams), amount)
            }
            "udp-request" => {
                let request = ("request-size", keys.request_size);
                let response = ("response-size", keys.response_size);
                let exchange = Exchange {
                    op: Op::Request,
                    request_bytes: datagram_bytes(request.0, request.1, MIN_REQUEST_BYTES)?,
                    response_bytes: datagram_bytes(response.0, response.1, MIN_RESPONSE_BYTES)?,
                    bytes: as_u64(request_bytes) + as_u64(response_bytes),
                    wait: keys.wait,
                };
                let requests = Requests {
                    exchange,
                    depth: u16::try_from(keys.iodepth).unwrap_or(u16::MAX),
                    timeout: keys.timeout.0,
                    buffer_bytes: keys.socket_buffer.0,
                };
                (Traffic::Requests(requests), keys.ops)
            }
            _ => return Err(mode.unknown()),
        };
        let unless_given = amount.is_none().then_some(Span(DEFAULT_RUNTIME));
        let runtime = keys.runtime.or(unless_given);
        Ok(NetworkParams {
            traffic,
            amount,
            streams: streams(keys)?,
            timing: Timing::of(keys.ramp_time, runtime)?,
        })
    }
}

impl NetworkParams {
    /// Bytes that all streams move; 0 if only the runtime ends them.
    pub(super) fn moved_bytes(&self) -> u64 {
        let each = match self.traffic {
            Traffic::Blocks(_) => 1,
            Traffic::Exchanges(exchange) | Traffic::Requests(Requests { exchange, .. }) => {
                exchange.bytes
            }
            Traffic::Datagrams(datagrams) => as_u64(datagrams.bytes),
        };
        let amount = self.amount.unwrap_or(0);
        amount
            .saturating_mul(each)
            .saturating_mul(self.streams.into())
    }
}

fn streams(keys: &NetworkKeys) -> Result<u32, ParamError> {
    match (keys.streams, keys.numjobs) {
        (Some(_), Some(_)) => {
            let message = "is an alias of `streams`, which is also set; keep one of them";
            Err(ParamError::of("numjobs", message))
        }
        (streams, numjobs) => Ok(streams.or(numjobs).unwrap_or(1)),
    }
}

fn bytes_of(key: &str, size: Bytes) -> Result<usize, ParamError> {
    usize::try_from(size.0).map_err(|_| ParamError::of(key, "is more than this host can address"))
}

/// Checks that a size fits one datagram.
fn datagram_bytes(key: &str, size: Bytes, least: usize) -> Result<usize, ParamError> {
    let bytes = bytes_of(key, size)?;
    match (least..=MAX_BYTES).contains(&bytes) {
        true => Ok(bytes),
        false => {
            let message = format!(
                "{bytes} bytes are outside the range of a UDP payload: {least} to {}",
                MAX_BYTES
            );
            Err(ParamError::of(key, message))
        }
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A broken link cannot be restored, so errors cannot be ignored.
pub(super) fn check_common(params: &Params) -> Result<(), ParamError> {
    match params.get("on-error") {
        Some(given) if given == "continue" => Err(ParamError::of(
            "on-error",
            "a broken link cannot be restored, so any error ends the task; leave it out",
        )),
        _ => Ok(()),
    }
}

/// Parameters to store, with `wait` written out in modes that have it: round trips are not comparable without it.
pub(super) fn as_stored(mode: &str, params: &Params) -> Params {
    let mut stored = params.clone();
    let waits = NetworkKeys::all()
        .iter()
        .any(|key| key.name == WAIT && key.modes.is_some_and(|modes| modes.contains(&mode)));
    if waits && !stored.contains_key(WAIT) {
        stored.insert(WAIT.to_owned(), Wait::Blocking.as_str().into());
    }
    stored
}
