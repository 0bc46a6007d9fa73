//! Compiles the .proto files with protox, in pure Rust: no protoc is needed on the machine.

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
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
