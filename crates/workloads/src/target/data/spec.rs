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
        /// Content to write. `random`: bytes that neither compress (in pieces of up to 256 KiB) nor deduplicate.
        /// `zero`: zeros. `{ pattern = "0x55" }`: these 1, 2, 4 or 8 bytes, repeated from the beginning of each block
        /// ("0xff": ones, "0x55": alternating zeros and ones). `{ compress = 50, dedupe = 20 }`: 50 % of each block can
        /// be compressed away, and 20 % of the blocks are equal to another block.
        "data" kind: Option<DataKind> = none("random");
    }
}

/// What the key `verify` means where blocks are self-describing.
pub const VERIFY: &str = "Every 4 KiB of a file contain their file, offset and generation. Data read are compared bit \
                          by bit, outside of the operation's time. An operation that reads wrong data counts as \
                          failed. Each wrong sector of 4 KiB is an error of errno 74; the first three are recorded \
                          with their position.";

/// The kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataKind {
    #[default]
    Random,
    Zero,
    /// These bytes repeated; shorter patterns are repeated to fill it.
    Pattern([u8; 8]),
    Reducible {
        /// Percent of each block that can be compressed away.
        compress: u8,
        /// Percent of blocks that are equal to another.
        dedupe: u8,
    },
}

impl DataKind {
    /// The bytes repeated throughout each block; `None` for other kinds.
    #[inline]
    pub(crate) fn repeated(self) -> Option<[u8; 8]> {
        match self {
            DataKind::Zero => Some([0; 8]),
            DataKind::Pattern(bytes) => Some(bytes),
            DataKind::Random | DataKind::Reducible { .. } => None,
        }
    }
}

/// For messages and descriptions of kept data.
impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataKind::Random => write!(f, "random"),
            DataKind::Zero => write!(f, "zero"),
            DataKind::Pattern(bytes) => write!(f, "pattern 0x{:016x}", u64::from_be_bytes(*bytes)),
            DataKind::Reducible { compress, dedupe } => {
                write!(f, "compress {compress}, dedupe {dedupe}")
            }
        }
    }
}

/// How much of a sector is random; the rest is zeros.
pub(super) fn random_bytes(kind: DataKind, sector: usize) -> usize {
    match kind {
        DataKind::Random => sector,
        DataKind::Zero | DataKind::Pattern(_) => 0,
        DataKind::Reducible { compress, .. } => sector * usize::from(100 - compress.min(100)) / 100,
    }
}

/// The data settings of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSpec {
    pub kind: DataKind,
    pub verify: bool,
}

impl DataSpec {
    /// Builds it from the keys `data` and `verify`.
    pub fn new(data: &DataKeys, verify: bool) -> Result<DataSpec, ParamError> {
        let spec = DataSpec::or_repeated(data, verify)?;
        if spec.verify && spec.kind.repeated().is_some() {
            let message = "blocks of zeros, or of a pattern, do not contain their position; verify other data";
            return Err(ParamError::of("verify", message));
        }
        Ok(spec)
    }

    /// Reads the two keys from all parameters.
    pub fn of(params: &Params) -> Result<DataSpec, ParamError> {
        let verify = params.get("verify").is_some_and(|verify| *verify == true);
        DataSpec::new(&DataKeys::read(params)?, verify)
    }

    /// Its part of a [`DataShape`](crate::engine::workload::DataShape).
    pub(crate) fn shape(&self) -> [(&'static str, String); 2] {
        [
            ("data", self.kind.to_string()),
            ("verify", self.verify.to_string()),
        ]
    }

    /// As [`DataSpec::new`], for a workload that checks zeros and patterns itself, because [`Content`](super::Content)
    /// cannot.
    pub(crate) fn or_repeated(data: &DataKeys, verify: bool) -> Result<DataSpec, ParamError> {
        let kind = data.kind.unwrap_or_default();
        let has_twins = matches!(kind, DataKind::Reducible { dedupe: 1.., .. });
        if verify && has_twins {
            let message = "blocks that are equal to another do not contain their position; leave out `dedupe`";
            return Err(ParamError::of("verify", message));
        }
        Ok(DataSpec { kind, verify })
    }
}

const DATA_WORDS: &str =
    "\"random\", \"zero\", { pattern = \"0x55\" } or { compress = 50, dedupe = 20 }";

/// 1, 2, 4 or 8 bytes in hexadecimal digits.
const PATTERN: &str = "^0x([0-9a-fA-F]{2}|[0-9a-fA-F]{4}|[0-9a-fA-F]{8}|[0-9a-fA-F]{16})$";

/// The bytes of a pattern such as `0x55`, repeated to 8 bytes.
fn pattern_bytes(text: &str) -> Result<[u8; 8], String> {
    let refused = || {
        format!(
            "`pattern`: `{text}` is not a pattern: write 0x and the hexadecimal digits of 1, 2, 4 or 8 bytes, such as \
             \"0x55\""
        )
    };
    let digits = text.strip_prefix("0x").ok_or_else(refused)?;
    let number = match digits.len() {
        // `from_str_radix` would accept a sign.
        2 | 4 | 8 | 16 if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).map_err(|_| refused())?
        }
        _ => return Err(refused()),
    };
    let bytes = number.to_be_bytes();
    let own = bytes.get(8 - digits.len() / 2..).unwrap_or_default();
    let mut repeated = [0; 8];
    for (to, from) in repeated.iter_mut().zip(own.iter().cycle()) {
        *to = *from;
    }
    Ok(repeated)
}

impl KeyValue for DataKind {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: DATA_WORDS,
            schema: || {
                let percent = json!({"type": "integer", "minimum": 0, "maximum": 100});
                json!({"anyOf": [
                    {"enum": ["random", "zero"]},
                    {
                        "type": "object",
                        "properties": {"pattern": {"type": "string", "pattern": PATTERN}},
                        "required": ["pattern"],
                        "additionalProperties": false,
                    },
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
                        "`{name}` is a percentage, and {percent} is more than 100"
                    ));
                }
            }
        }
        Ok(kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataTable {
    compress: Option<u8>,
    dedupe: Option<u8>,
    pattern: Option<String>,
}

impl<'de> Deserialize<'de> for DataKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DataKind, D::Error> {
        struct DataKindVisitor;
        impl<'de> Visitor<'de> for DataKindVisitor {
            type Value = DataKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(DATA_WORDS)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DataKind, E> {
                match text {
                    "random" => Ok(DataKind::Random),
                    "zero" => Ok(DataKind::Zero),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DataKind, A::Error> {
                let table = DataTable::deserialize(MapAccessDeserializer::new(map))?;
                match (table.pattern, table.compress, table.dedupe) {
                    (Some(pattern), None, None) => pattern_bytes(&pattern)
                        .map(DataKind::Pattern)
                        .map_err(A::Error::custom),
                    (Some(_), ..) => Err(A::Error::custom(
                        "`pattern` defines every byte: it allows no other key",
                    )),
                    (None, compress, dedupe) => Ok(DataKind::Reducible {
                        compress: compress.unwrap_or(0),
                        dedupe: dedupe.unwrap_or(0),
                    }),
                }
            }
        }
        deserializer.deserialize_any(DataKindVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_testing::table;

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
        let pattern = |text: &str, bytes| check(json!({"pattern": text}), DataKind::Pattern(bytes));
        pattern("0x55", [0x55; 8]);
        pattern("0xFF00", [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0]);
        pattern("0x00000001", [0, 0, 0, 1, 0, 0, 0, 1]);
        pattern("0x0102030405060708", [1, 2, 3, 4, 5, 6, 7, 8]);
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
        for [params, key, text] in table(
            r#"
            {"data": "ones"}                              | data   | expected "random"
            {"data": 7}                                   | data   | expected "random"
            {"data": {"compress": 101}}                   | data   | more than 100
            {"data": {"compress": -1}}                    | data   | expected a whole number
            {"data": {"comprss": 10}}                     | data   | unknown field
            {"data": {"pattern": "55"}}                   | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x5"}}                  | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x"}}                   | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x555555"}}             | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x5g"}}                 | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x+5"}}                 | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0X55"}}                 | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x010203040506070809"}} | data   | 1, 2, 4 or 8 bytes
            {"data": {"pattern": "0x55", "dedupe": 5}}    | data   | no other key
            {"data": {"pattern": 55}}                     | data   | expected a text
            {"data": {"pattern": "0x55"}, "verify": true} | verify | pattern
            {"data": "zero", "verify": true}              | verify | zeros
            {"data": {"dedupe": 1}, "verify": true}       | verify | leave out `dedupe`
            "#,
        ) {
            let error = spec(&serde_json::from_str(&params).unwrap()).unwrap_err();
            let named = error.key.as_deref().unwrap_or_default();
            assert!(
                named.starts_with(&key) && error.message.contains(&text),
                "{params}: {error}"
            );
        }
        spec(&json!({"data": {"compress": 10}, "verify": true})).unwrap();
    }
}
