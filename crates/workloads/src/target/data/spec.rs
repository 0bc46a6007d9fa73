//! The keys `data` and `verify`.

use crate::declare_keys;
use crate::params::{KeyValue, Keys, ParamError, Params, ValueType, from_serde};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde_json::{Value, json};
use std::fmt;

declare_keys! {
    #[derive(Debug)]
    pub struct DataKeys {
        /// What is written. `random`: bytes that neither compress (in pieces of up to 256 KiB) nor deduplicate. `zero`:
        /// zeros. `{ compress = 50, dedupe = 20 }`: so many percent of each block can be compressed away, so many percent
        /// of the blocks are equal to another.
        "data" kind: Option<DataKind> = none("random");
    }
}

/// What the key `verify` means where blocks are self-describing.
pub const VERIFY: &str = "Every 4 KiB of a file hold their file, offset and generation, and what is read is compared bit by \
                          bit, outside of the operation's time. An operation that reads anything else counts as failed, \
                          and each wrong sector of 4 KiB is an error of errno 74, the first three with their place.";

/// What blocks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataKind {
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

/// How much of a sector is random; the rest is zeros.
pub(super) fn random_bytes(kind: DataKind, sector: usize) -> usize {
    match kind {
        DataKind::Random => sector,
        DataKind::Zero => 0,
        DataKind::Reducible { compress, .. } => sector * usize::from(100 - compress.min(100)) / 100,
    }
}

/// What a plan says about data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSpec {
    pub kind: DataKind,
    pub verify: bool,
}

impl DataSpec {
    /// From the keys `data` and `verify`.
    pub fn new(data: &DataKeys, verify: bool) -> Result<DataSpec, ParamError> {
        let spec = DataSpec::or_zeros(data, verify)?;
        if spec.verify && spec.kind == DataKind::Zero {
            let message = "a block of zeros does not know where it belongs; verify other data";
            return Err(ParamError::of("verify", message));
        }
        Ok(spec)
    }

    /// From the two keys among others.
    pub fn of(params: &Params) -> Result<DataSpec, ParamError> {
        let verify = params.get("verify").is_some_and(|verify| *verify == true);
        DataSpec::new(&DataKeys::read(params)?, verify)
    }

    /// The same for a workload that checks zeros by themselves: [`Content`](super::Content) is not made for that.
    pub(crate) fn or_zeros(data: &DataKeys, verify: bool) -> Result<DataSpec, ParamError> {
        let kind = data.kind.unwrap_or_default();
        let has_twins = matches!(kind, DataKind::Reducible { dedupe: 1.., .. });
        if verify && has_twins {
            let message = "blocks that are equal to another do not know where they belong; leave out `dedupe`";
            return Err(ParamError::of("verify", message));
        }
        Ok(DataSpec { kind, verify })
    }
}

impl KeyValue for DataKind {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "\"random\", \"zero\" or { compress = 50, dedupe = 20 }",
            schema: || {
                let percent = json!({"type": "integer", "minimum": 0, "maximum": 100});
                json!({"anyOf": [
                    {"enum": ["random", "zero"]},
                    {
                        "type": "object",
                        "properties": {"compress": percent, "dedupe": percent},
                        "additionalProperties": false,
                    },
                ]})
            },
        }
    }

    fn read(value: &Value) -> Result<DataKind, String> {
        let kind: DataKind = from_serde(value)?;
        if let DataKind::Reducible { compress, dedupe } = kind {
            for (name, percent) in [("compress", compress), ("dedupe", dedupe)] {
                if percent > 100 {
                    return Err(format!(
                        "`{name}` is a share in percent, and {percent} is more than 100"
                    ));
                }
            }
        }
        Ok(kind)
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

impl<'de> Deserialize<'de> for DataKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DataKind, D::Error> {
        struct DataKindVisitor;
        impl<'de> Visitor<'de> for DataKindVisitor {
            type Value = DataKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"random\", \"zero\" or { compress = 50, dedupe = 20 }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DataKind, E> {
                match text {
                    "random" => Ok(DataKind::Random),
                    "zero" => Ok(DataKind::Zero),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DataKind, A::Error> {
                let Reducible { compress, dedupe } =
                    Reducible::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DataKind::Reducible { compress, dedupe })
            }
        }
        deserializer.deserialize_any(DataKindVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(params: &Value) -> Result<DataSpec, ParamError> {
        DataSpec::of(params.as_object().unwrap())
    }

    #[test]
    fn data_specs_parse() {
        assert_eq!(spec(&json!({"bs": 1})).unwrap(), DataSpec::default());
        let check =
            |value: Value, kind| assert_eq!(spec(&json!({"data": value})).unwrap().kind, kind);
        check(json!("random"), DataKind::Random);
        check(json!("zero"), DataKind::Zero);
        let (compress, dedupe) = (50, 20);
        check(
            json!({"compress": 50, "dedupe": 20}),
            DataKind::Reducible { compress, dedupe },
        );
        check(
            json!({"dedupe": 20}),
            DataKind::Reducible {
                compress: 0,
                dedupe,
            },
        );
        assert!(spec(&json!({"verify": true})).unwrap().verify);
    }

    #[test]
    fn invalid_data_specs_are_refused() {
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
        check(
            json!({"data": {"compress": -1}}),
            "data",
            "expected a whole number",
        );
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
