//! The order of the crate's layers, read from its source: an import goes down and never up, so there is no circle.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top.
const LAYERS: &[&str] = &[
    "model",
    "trust",
    "figures",
    "database",
    "results",
    "plan",
    "import",
    "ingest",
    "store",
    "clock",
    "live",
    "query",
    "compare",
    "sessions",
    "scheduler",
    "report",
    "export",
    "pictures",
    "overview",
    "web",
    "service",
];

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        match (path.is_dir(), name.as_str()) {
            (_, "tests") => {}
            (true, _) => files(&path, found),
            (false, _) => found.push(path),
        }
    }
}

/// The top-level modules that a file imports: `crate::a::b` and `crate::{a::b, c}`.
fn imports(text: &str) -> Vec<String> {
    let code: String = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = code.get(at + "crate::".len()..).unwrap();
        let mut depth = 0_usize;
        let mut name = String::new();
        let mut wanted = true;
        for letter in rest.chars() {
            match letter {
                '{' => {
                    depth += 1;
                    wanted = depth == 1;
                }
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 1 => wanted = true,
                letter if letter.is_alphanumeric() || letter == '_' => {
                    if wanted {
                        name.push(letter);
                    }
                    continue;
                }
                letter if letter.is_whitespace() && name.is_empty() => continue,
                _ => {}
            }
            if !name.is_empty() {
                found.push(std::mem::take(&mut name));
                wanted = letter == ',' && depth == 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn height(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

#[test]
fn imports_are_read() {
    let text = "use crate::{\n    a::{b, c},\n    d,\n};\nuse crate::e::f;\n// crate::g\nfn x() { crate::h::i(); }";
    assert_eq!(imports(text), ["a", "d", "e", "h"]);
}

#[test]
fn an_import_goes_down_the_layers() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&src, &mut all);
    let mut wrong = Vec::new();
    for path in all {
        let own = path.strip_prefix(&src).unwrap();
        let module = own.components().next().unwrap().as_os_str();
        let module = module.to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own_height = height(module).unwrap_or_else(|| panic!("{module} is in no layer"));
        for import in imports(&fs::read_to_string(&path).unwrap()) {
            // A type or function that the crate's root hands on has no layer.
            if height(&import).is_some_and(|other| other > own_height) {
                wrong.push(format!("{} imports {import}", own.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
