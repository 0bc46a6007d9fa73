//! The one binary: everything is in `benchmesh_cli` and the crates beneath.

fn main() -> std::process::ExitCode {
    benchmesh_cli::main()
}
