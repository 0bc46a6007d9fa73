//! Serialises a token's [`Replacement`] as two fields in the registry's file.

use benchmesh_trust::Replacement;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
struct Fields {
    replace: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
}

pub fn serialize<S: Serializer>(
    replacement: &Replacement,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let fields = Fields {
        replace: *replacement != Replacement::Nobody,
        replaces: replacement.named().map(str::to_owned),
    };
    fields.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Replacement, D::Error> {
    let fields = Fields::deserialize(deserializer)?;
    Ok(match (fields.replace, fields.replaces) {
        (false, _) => Replacement::Nobody,
        (true, None) => Replacement::HolderOfName,
        (true, Some(name)) => Replacement::Named(name),
    })
}
