//! The keys `data` and `verify`.

use crate::params::{KeyInfo, ParamError, part};
use crate::units;
use crate::workload::Params;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use std::fmt;

/// What is written, for the own list of a workload that reads nothing back.
pub const DATA: KeyInfo = KeyInfo {
    name: "data",
    kind: "random, zero, or a table",
    default: "random",
    meaning: "what is written: random bytes that neither compress (in pieces of up to 256 KiB) nor deduplicate, zeros, or { compress = 50, dedupe \
              = 20 }: so many percent of each block can be compressed away, so many percent of the blocks are equal \
              to another",
};

/// The keys, for the own list of a workload that writes and reads.
pub const KEYS: &[KeyInfo] = &[
    DATA,
    KeyInfo {
        name: "verify",
        kind: "true or false",
        default: "false",
        meaning: "every 4 KiB of a file know their file, offset and generation, and what is read is checked bit by bit, \
                  outside of the operation's time; an operation that has read what was not written there is one that \
                  failed, and each wrong sector of 4 KiB is an error of errno 74, the first three with their place",
    },
];

/// What blocks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    #[default]
    Random,
    Zero,
    Reducible {
        /// Percent of each block that can be compressed away.
        compress: u8,
        /// Percent of blocks that are equal to another.
        dedupe: u8,
    },
}

/// What a plan says about data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct DataSpec {
    #[serde(rename = "data", default)]
    pub kind: Kind,
    #[serde(default, deserialize_with = "units::flag")]
    pub verify: bool,
}

impl DataSpec {
    /// Reads the two keys among a workload's parameters.
    pub fn of(params: &Params) -> Result<DataSpec, ParamError> {
        let spec = DataSpec::or_zeros(params)?;
        if spec.verify && spec.kind == Kind::Zero {
            let message = "a block of zeros does not know where it belongs; verify other data";
            return Err(ParamError::of("verify", message));
        }
        Ok(spec)
    }

    /// The same for a workload that checks zeros by themselves: [`Content`](super::Content) is not made for that.
    pub(crate) fn or_zeros(params: &Params) -> Result<DataSpec, ParamError> {
        let spec: DataSpec = part(params)?;
        let dedupe = match spec.kind {
            Kind::Reducible { compress, dedupe } => {
                for (name, percent) in [("compress", compress), ("dedupe", dedupe)] {
                    if percent > 100 {
                        let message = format!(
                            "`{name}` is a share in percent, and {percent} is more than 100"
                        );
                        return Err(ParamError::of("data", message));
                    }
                }
                dedupe
            }
            Kind::Zero | Kind::Random => 0,
        };
        if spec.verify && dedupe > 0 {
            let message = "blocks that are equal to another do not know where they belong; leave out `dedupe`";
            return Err(ParamError::of("verify", message));
        }
        Ok(spec)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reducible {
    #[serde(default)]
    compress: u8,
    #[serde(default)]
    dedupe: u8,
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        struct OfKind;
        impl<'de> Visitor<'de> for OfKind {
            type Value = Kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"random\", \"zero\" or { compress = 50, dedupe = 20 }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Kind, E> {
                match text {
                    "random" => Ok(Kind::Random),
                    "zero" => Ok(Kind::Zero),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Kind, A::Error> {
                let Reducible { compress, dedupe } =
                    Reducible::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Kind::Reducible { compress, dedupe })
            }
        }
        deserializer.deserialize_any(OfKind)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn spec(params: &Value) -> Result<DataSpec, ParamError> {
        DataSpec::of(params.as_object().unwrap())
    }

    #[test]
    fn data_are_read() {
        assert_eq!(spec(&json!({"bs": 1})).unwrap(), DataSpec::default());
        let check =
            |value: Value, kind| assert_eq!(spec(&json!({"data": value})).unwrap().kind, kind);
        check(json!("random"), Kind::Random);
        check(json!("zero"), Kind::Zero);
        let (compress, dedupe) = (50, 20);
        check(
            json!({"compress": 50, "dedupe": 20}),
            Kind::Reducible { compress, dedupe },
        );
        check(
            json!({"dedupe": 20}),
            Kind::Reducible {
                compress: 0,
                dedupe,
            },
        );
        assert!(spec(&json!({"verify": 1})).unwrap().verify);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let check = |params: Value, key: &str, text: &str| {
            let error = spec(&params).unwrap_err();
            let named = error.key.as_deref().unwrap_or_default();
            assert!(
                named.starts_with(key) && error.message.contains(text),
                "{error}"
            );
        };
        check(json!({"data": "ones"}), "data", "expected \"random\"");
        check(json!({"data": 7}), "data", "expected \"random\"");
        check(json!({"data": {"compress": 101}}), "data", "more than 100");
        check(json!({"data": {"compress": -1}}), "data", "expected u8");
        check(json!({"data": {"comprss": 10}}), "data", "unknown field");
        check(json!({"data": "zero", "verify": true}), "verify", "zeros");
        check(
            json!({"data": {"dedupe": 1}, "verify": true}),
            "verify",
            "leave out `dedupe`",
        );
        spec(&json!({"data": {"compress": 10}, "verify": true})).unwrap();
    }
}
