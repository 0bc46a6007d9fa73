//! Commands of a collector that was taken over: understood within their bounds, or refused with their number.

#![allow(clippy::unwrap_used)]

use super::command::Incoming;
use benchmesh_proto::v1;
use benchmesh_testing::hostile::{damaged, withstands};
use proptest::prelude::*;
use prost::Message;

/// What a collector says, whole and as it comes: the wire's own fixtures.
fn messages() -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/tests/wire-1");
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["command-", "welcome", "clock-reply"]
            .iter()
            .any(|begin| name.starts_with(begin))
    });
    files
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            let bytes = digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
            bytes.collect()
        })
        .collect()
}

#[test]
fn damaged_commands_are_understood_or_refused() {
    let messages = messages();
    assert!(messages.len() > 8);
    for bytes in &messages {
        let message = v1::CollectorMessage::decode(bytes.as_slice()).unwrap();
        let heard = Incoming::try_from(message).unwrap();
        assert!(!matches!(heard, Incoming::BadCommand { .. }), "{heard:?}");
    }
    withstands(damaged(messages, 64 << 10), 32 << 20, |bytes| {
        let Ok(message) = v1::CollectorMessage::decode(bytes.as_slice()) else {
            return Ok(());
        };
        match Incoming::try_from(message) {
            Ok(Incoming::BadCommand { error, .. }) | Err(error) => {
                prop_assert!(!error.to_string().is_empty());
            }
            Ok(_) => {}
        }
        Ok(())
    });
}
