//! Compiles the .proto files with protox, in pure Rust: no protoc is needed on the machine.
//!
//! It also lists which fields of agents' messages hold messages or repeated texts (`shapes.rs`), so that
//! [`bounded`](src/bounded.rs) can count them before decoding.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Messages sent by agents.
const BOUNDED: [&str; 2] = ["Batch", "AgentMessage"];

// Constants of google/protobuf/descriptor.proto.
const LABEL_REPEATED: i32 = 3;
const TYPE_STRING: i32 = 9;
const TYPE_MESSAGE: i32 = 11;
const TYPE_BYTES: i32 = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(
        [
            "benchmesh/v1/telemetry.proto",
            "benchmesh/v1/mesh.proto",
            "benchmesh/v1/control.proto",
            "benchmesh/v1/trust.proto",
        ],
        ["proto"],
    )?;
    let mut shapes = String::new();
    let mut messages = BTreeMap::new();
    for message in descriptors.file.iter().flat_map(|file| &file.message_type) {
        let name = message.name();
        let shape = match BOUNDED.contains(&name) {
            true => format!("Some(&{})", constant(name)),
            false => "None".to_owned(),
        };
        writeln!(
            shapes,
            "impl Bounded for crate::v1::{name} {{ const SHAPE: Option<&'static MessageShape> = {shape}; }}"
        )?;
        for nested in &message.nested_type {
            messages.insert(format!("{name}.{}", nested.name()), &nested.field);
        }
        messages.insert(name.to_owned(), &message.field);
    }
    let mut wanted: Vec<String> = BOUNDED.map(str::to_owned).to_vec();
    while let Some(name) = wanted.pop() {
        // Already written.
        let Some(fields) = messages.remove(&name) else {
            continue;
        };
        write!(
            shapes,
            "static {}: MessageShape = MessageShape(&[",
            constant(&name)
        )?;
        for field in fields {
            let number = field.number();
            let is_repeated = field.label == Some(LABEL_REPEATED);
            match field.r#type {
                Some(TYPE_MESSAGE) => {
                    let of = field.type_name().trim_start_matches(".benchmesh.v1.");
                    write!(shapes, "({number}, Some(&{})), ", constant(of))?;
                    wanted.push(of.to_owned());
                }
                Some(TYPE_STRING | TYPE_BYTES) if is_repeated => {
                    write!(shapes, "({number}, None), ")?;
                }
                _ => {}
            }
        }
        writeln!(shapes, "]);")?;
    }
    let directory = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&directory).join("shapes.rs"), shapes)?;
    tonic_prost_build::configure()
        .codec_path("crate::bounded::BoundedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}

/// Converts a name such as `Hello.LabelsEntry` to that of a constant.
fn constant(message: &str) -> String {
    let mut name = String::new();
    for letter in message.chars() {
        match letter {
            '.' => name.push_str("__"),
            letter if letter.is_ascii_uppercase() => {
                name.push('_');
                name.push(letter);
            }
            letter => name.push(letter.to_ascii_uppercase()),
        }
    }
    format!("SHAPE{name}")
}
