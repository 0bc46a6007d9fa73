//! The modes and keys of `network`, and what they amount to.
//!
//! Both ends of a link read the same parameters here, so that they agree on every size without a word about it. It knows
//! nothing of sockets.

use crate::common;
use crate::files::MOST_UNIT_BYTES;
use crate::op::Op;
use crate::params::effect::Effect;
use crate::params::{self, KeyInfo, ParamError};
use crate::units::{Bytes, Span};
use crate::workload::{Data, ModeInfo, Params, RAMP_TIME, Timing};
use serde::Deserialize;
use std::time::Duration;

pub(super) const NAME: &str = "network";
/// Each stream is a thread and a socket at both ends.
const MOST_STREAMS: u32 = 256;
pub(super) const DEFAULT_RUNTIME: Duration = Duration::from_secs(10);
const DEFAULT_THROUGHPUT_BYTES: Bytes = Bytes(1 << 20);
const DEFAULT_MESSAGE_BYTES: Bytes = Bytes(64);

pub(super) const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "throughput",
        meaning: "blocks one after the other on each stream; bytes count when the peer's kernel has acknowledged them, \
                  and at the end the receiving end has to have them all. The blocks are random bytes, so that a path that \
                  compresses carries no more than others; there is no `data` and no `verify`, for nothing is stored that \
                  could be read again, and TCP has its checksum",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Send],
    },
    ModeInfo {
        name: "ping",
        meaning: "round trips, one at a time on each stream: a message and an answer of its size, with TCP_NODELAY; \
                  where both ends wait blocking, a halted CPU's wake-up is a part of it",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Ping],
    },
    ModeInfo {
        name: "request",
        meaning: "requests, one at a time on each stream: the peer answers each one, once it has all of it, with a \
                  response of another size",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Request],
    },
];

pub(super) const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + common::KEYS.len() }>(&[OWN_KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "streams",
        kind: "count",
        default: "1",
        meaning: "connections of a task, each with a worker of its own",
    },
    KeyInfo {
        name: "numjobs",
        kind: "count",
        default: "1",
        meaning: "the same as `streams`, by the word of the other workloads; one of the two",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m; ping: 64",
        meaning: "throughput: bytes per block; ping: bytes of the message",
    },
    KeyInfo {
        name: "request-size",
        kind: "size",
        default: "64",
        meaning: "bytes of a request",
    },
    KeyInfo {
        name: "response-size",
        kind: "size",
        default: "64",
        meaning: "bytes of a response",
    },
    KeyInfo {
        name: "wait",
        kind: "blocking or busy",
        default: "blocking",
        meaning: "how both ends wait for each other. blocking: asleep in the kernel; busy: polling, \
                  with a CPU per stream at each end; it is stored with the result (`v_links`)",
    },
    KeyInfo {
        name: "size",
        kind: "size",
        default: "what `runtime` lets through",
        meaning: "bytes that each stream sends; with `runtime`, until what comes first",
    },
    KeyInfo {
        name: "ops",
        kind: "count",
        default: "what `runtime` lets through",
        meaning: "round trips of each stream; with `runtime`, until what comes first",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "10s, or none where `size` or `ops` ends it",
        meaning: "how long it runs",
    },
    RAMP_TIME,
];

/// Of the keys that do not have an effect everywhere.
pub(super) const EFFECTS: &[Effect] = &[
    Effect::in_modes("bs", &["throughput", "ping"]),
    Effect::in_modes("request-size", &["request"]),
    Effect::in_modes("response-size", &["request"]),
    Effect::in_modes(WAIT, &["ping", "request"]),
    Effect::in_modes("size", &["throughput"]),
    Effect::in_modes("ops", &["ping", "request"]),
    Effect::only(
        "ramp_time",
        "with a `runtime`, which is 10s unless `size` or `ops` says how much is done",
        |mode, params| {
            let amount = match mode {
                "throughput" => "size",
                _ => "ops",
            };
            params.contains_key("runtime") || !params.contains_key(amount)
        },
    ),
];

const WAIT: &str = "wait";

/// How an end of a link waits for the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wait {
    #[default]
    Blocking,
    Busy,
}

impl Wait {
    fn as_str(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Busy => "busy",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct NetworkParams {
    streams: Option<u32>,
    numjobs: Option<u32>,
    bs: Option<Bytes>,
    request_size: Option<Bytes>,
    response_size: Option<Bytes>,
    #[serde(default)]
    wait: Wait,
    size: Option<Bytes>,
    ops: Option<u64>,
    runtime: Option<Span>,
    #[serde(rename = "ramp_time")]
    ramp_time: Option<Span>,
}

/// A message to the peer and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub op: Op,
    pub request_bytes: usize,
    pub response_bytes: usize,
    /// What one of them counts.
    pub bytes: u64,
    pub wait: Wait,
}

/// What goes over each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// One way, in blocks of so many bytes.
    Blocks(usize),
    Exchanges(Exchange),
}

/// The parameters, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub traffic: Traffic,
    /// After how many bytes, or exchanges, each stream ends, if not before.
    pub amount: Option<u64>,
    pub streams: u32,
    pub timing: Timing,
}

impl Plan {
    /// What the mode's name and the parameters say.
    pub(super) fn of(mode: &ModeInfo, params: &Params) -> Result<Plan, ParamError> {
        if params
            .get("on-error")
            .is_some_and(|given| given == "continue")
        {
            let message =
                "a link that broke cannot be mended: any error ends the task; leave it out";
            return Err(ParamError::of("on-error", message));
        }
        let params: NetworkParams = params::parse(NAME, KEYS, params)?;
        let size = |key: &str, given: Option<Bytes>, default: Bytes| {
            checked_size(key, given.unwrap_or(default))
        };
        let (bs, request, response) = (params.bs, params.request_size, params.response_size);
        // All are judged, whatever the mode: a phase may have several.
        let message = size("bs", bs, DEFAULT_MESSAGE_BYTES)?;
        let request_bytes = size("request-size", request, DEFAULT_MESSAGE_BYTES)?;
        let response_bytes = size("response-size", response, DEFAULT_MESSAGE_BYTES)?;
        if params.size == Some(Bytes(0)) {
            return Err(ParamError::of("size", "must be at least 1 byte"));
        }
        if params.ops == Some(0) {
            return Err(ParamError::of("ops", "must be at least 1"));
        }
        let whole = params.size.unwrap_or(DEFAULT_THROUGHPUT_BYTES);
        let (traffic, amount) = match mode.name {
            "ping" => {
                let exchange = Exchange {
                    op: Op::Ping,
                    request_bytes: message,
                    response_bytes: message,
                    bytes: as_u64(message),
                    wait: params.wait,
                };
                (Traffic::Exchanges(exchange), params.ops)
            }
            "request" => {
                let exchange = Exchange {
                    op: Op::Request,
                    request_bytes,
                    response_bytes,
                    bytes: as_u64(request_bytes) + as_u64(response_bytes),
                    wait: params.wait,
                };
                (Traffic::Exchanges(exchange), params.ops)
            }
            "throughput" => {
                let block = size("bs", bs, DEFAULT_THROUGHPUT_BYTES.min(whole))?;
                if params.size.is_some_and(|all| all.0 < as_u64(block)) {
                    let message =
                        format!("{whole} is less than one block of {}", Bytes(as_u64(block)));
                    return Err(ParamError::of("size", message));
                }
                (Traffic::Blocks(block), params.size.map(|size| size.0))
            }
            _ => return Err(mode.unknown()),
        };
        let unless_given = amount.is_none().then_some(Span(DEFAULT_RUNTIME));
        let runtime = params.runtime.or(unless_given);
        Ok(Plan {
            traffic,
            amount,
            streams: streams(params.streams, params.numjobs)?,
            timing: Timing::of(params.ramp_time, runtime)?,
        })
    }
}

impl Plan {
    /// What all streams move; 0 where time alone ends them.
    pub(super) fn moved_bytes(&self) -> u64 {
        let each = match self.traffic {
            Traffic::Blocks(_) => 1,
            Traffic::Exchanges(exchange) => exchange.bytes,
        };
        let amount = self.amount.unwrap_or(0);
        amount
            .saturating_mul(each)
            .saturating_mul(self.streams.into())
    }
}

fn streams(streams: Option<u32>, numjobs: Option<u32>) -> Result<u32, ParamError> {
    let (key, count) = match (streams, numjobs) {
        (Some(_), Some(_)) => {
            let message = "is the same as `streams`, which stands here too; keep one of them";
            return Err(ParamError::of("numjobs", message));
        }
        (None, Some(count)) => ("numjobs", count),
        (given, None) => ("streams", given.unwrap_or(1)),
    };
    match count {
        0 => Err(ParamError::of(key, "must be at least 1")),
        1..=MOST_STREAMS => Ok(count),
        more => {
            let message =
                format!("{more} is more than the {MOST_STREAMS} streams that a link can have");
            Err(ParamError::of(key, message))
        }
    }
}

fn checked_size(key: &str, size: Bytes) -> Result<usize, ParamError> {
    match usize::try_from(size.0) {
        Ok(0) => Err(ParamError::of(key, "must be at least 1 byte")),
        Ok(bytes) if size.0 <= MOST_UNIT_BYTES => Ok(bytes),
        _ => {
            let most = Bytes(MOST_UNIT_BYTES);
            let message = format!("{size} is more than the {most} that one message may have");
            Err(ParamError::of(key, message))
        }
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// With the way of waiting spelled out, where the mode waits: without it no round trip can be compared.
pub(super) fn as_stored(mode: &str, params: &Params) -> Params {
    let mut stored = params.clone();
    let mut effects = EFFECTS.iter().filter(|effect| effect.key == WAIT);
    let waits = effects.any(|effect| effect.is_in(mode));
    if waits && !stored.contains_key(WAIT) {
        stored.insert(WAIT.to_owned(), Wait::default().as_str().into());
    }
    stored
}
