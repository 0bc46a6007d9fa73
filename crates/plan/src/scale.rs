//! `scale`: shrinks or enlarges a whole plan, so that a run of a day can be tried in minutes.

use super::memory;
use benchmesh_workloads::{
    params::{
        KeyValue, ValueType,
        units::{Bytes, Span},
    },
    workload::{Workload, all_keys},
};
use serde_json::{Number, Value, json};

/// The keys that are multiplied: the amount of data and the duration of the load. Blocks, workers and rates are
/// unchanged.
const SCALED: &[&str] = &[
    "amount",
    "files",
    "hold",
    "io_size",
    "objects",
    "ops",
    "ramp_time",
    "runtime",
    "seeks",
    "size",
];

/// Smaller sizes are unchanged, and no size is scaled below this: small files keep their size.
const MIN_SIZE: u64 = 1 << 20;
/// Shorter load times are unchanged, and none is scaled below this.
const MIN_SECONDS: f64 = 1.0;

/// The factor of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl KeyValue for Scale {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "a number, 0.0001 to 1000",
            schema: || json!({"type": "number", "minimum": 0.0001, "maximum": 1000}),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        value
            .as_f64()
            .filter(|factor| (0.0001..=1000.0).contains(factor))
            .map(Self)
            .ok_or_else(String::new)
    }
}

impl Scale {
    /// Leaves unreadable values unchanged: a later check refuses them.
    pub(super) fn apply(self, name: &str, value: &mut Value, workload: &dyn Workload) {
        // An object is a block: its size is unchanged.
        let is_block = workload.name() == "objects" && name == "size";
        if self.0 == 1.0 || is_block || !SCALED.contains(&name) {
            return;
        }
        let Some(key) = all_keys(workload).find(|key| key.name == name) else {
            return;
        };
        let scaled = match (key.value)() {
            ValueType::Integer => value
                .as_u64()
                .filter(|count| *count > 0)
                .map(|count| Value::Number(Number::from(whole(count as f64 * self.0).max(1)))),
            ValueType::Duration => Span::read(value).ok().and_then(|span| self.of_time(span)),
            _ => match memory::multiple(key, value) {
                Some(multiple) => Some(Value::String(multiple.times(self.0).to_string())),
                None => Bytes::read(value).ok().and_then(|size| self.of_size(size)),
            },
        };
        if let Some(scaled) = scaled {
            *value = scaled;
        }
    }

    fn of_size(self, size: Bytes) -> Option<Value> {
        if size.0 < MIN_SIZE {
            return None;
        }
        // Round large results to whole MiB, so that blocks fit and the number is readable.
        let scaled = whole(size.0 as f64 * self.0 / MIN_SIZE as f64).max(1);
        Some(size_value(scaled.saturating_mul(MIN_SIZE)))
    }

    fn of_time(self, span: Span) -> Option<Value> {
        let seconds = span.0.as_secs_f64();
        if seconds < MIN_SECONDS {
            return None;
        }
        let scaled = (seconds * self.0).max(MIN_SECONDS);
        let millis = whole(scaled * 1000.0);
        Some(Value::String(match millis % 1000 {
            0 => format!("{}s", millis / 1000),
            _ => format!("{millis}ms"),
        }))
    }
}

fn size_value(bytes: u64) -> Value {
    Value::String(match bytes % MIN_SIZE {
        0 => format!("{}m", bytes / MIN_SIZE),
        _ => bytes.to_string(),
    })
}

/// Rounds a non-negative number to the nearest integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is too large becomes the largest number"
)]
fn whole(amount: f64) -> u64 {
    amount.round() as u64
}
