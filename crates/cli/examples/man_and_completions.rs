//! Writes man pages and shell completions into a directory, for packages:
//! `cargo run --example man_and_completions DIR`.

use clap_complete::Shell;
use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1) else {
        return Err(io::Error::other("name a directory"));
    };
    let directory = Path::new(&directory);
    let man = directory.join("man");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(benchmesh_cli::definition(), &man)?;
    let completions = directory.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(
            shell,
            &mut benchmesh_cli::definition(),
            "benchmesh",
            &completions,
        )?;
    }
    Ok(())
}
