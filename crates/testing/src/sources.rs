//! The Rust source of the workspace, for tests that read it.

use std::path::{Path, PathBuf};

/// Each file's path and text.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        &mut found,
    );
    found
}

fn read(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        // Build output only; a source folder may also be called `target`.
        // Cargo tags only a directory that it has made itself.
        let is_built = ["CACHEDIR.TAG", ".rustc_info.json"]
            .iter()
            .any(|made| path.join(made).exists());
        if path.is_dir() && !is_built && !path.ends_with(".git") {
            read(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            found.push((path, text));
        }
    }
}

/// The string literals at the start of `arguments`: the first one, or with `all` every consecutive one. Empty if they
/// begin with another expression.
pub(crate) fn quoted(arguments: &str, all: bool) -> Vec<String> {
    let mut rest = arguments.trim_start();
    let mut found = Vec::new();
    while let Some((text, after)) = rest.strip_prefix('"').and_then(|it| it.split_once('"')) {
        found.push(text.to_owned());
        rest = after
            .trim_start()
            .strip_prefix(',')
            .unwrap_or("")
            .trim_start();
        if !all {
            break;
        }
    }
    found
}
