//! The order of the layers, read from the source.
//!
//! A path `crate::x` in a file of layer `y` is an import from `y` to `x`; it may go down in `LAYERS` or stay within the
//! layer. Modules of tests are exempt: a test may use the whole crate.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top.
const LAYERS: &[&str] = &[
    "error_chain",
    "keys",
    "params",
    "measure",
    "target",
    "engine",
    "workloads",
    "registry",
];

/// Exported macros stand at the root of the crate; they are defined in `params`.
const MACROS: &[&str] = &["declare_keys", "declare_words"];

/// A file of the crate, without its tests and comments.
struct Source {
    /// From `src`, without `.rs`: `["engine", "task", "merge"]`.
    module: Vec<String>,
    code: String,
}

fn sources(src: &Path) -> Vec<Source> {
    let mut files = Vec::new();
    list(src, &mut files);
    let is_test = |path: &Path| {
        let own = path.strip_prefix(src).unwrap();
        own.components().any(|part| {
            let name = part.as_os_str().to_str().unwrap();
            matches!(
                name.trim_end_matches(".rs"),
                "tests" | "testing" | "defaults"
            )
        })
    };
    files.retain(|path| !is_test(path));
    let read = |path: PathBuf| {
        let own = path.strip_prefix(src).unwrap().with_extension("");
        let module = own.iter().map(|part| part.to_str().unwrap().to_owned());
        Source {
            module: module.collect(),
            code: code_of(&fs::read_to_string(&path).unwrap()),
        }
    };
    files.into_iter().map(read).collect()
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(&path, files),
            false if path.extension().is_some_and(|it| it == "rs") => files.push(path),
            false => {}
        }
    }
}

/// Without comments, and without what follows a `#[cfg(test)]` module with a body.
fn code_of(text: &str) -> String {
    let text = match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => text.get(..at).unwrap(),
        None => text,
    };
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules that `code` names as `crate::...`, a brace's first components one by one.
fn imports(code: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code
            .get(..at)
            .is_some_and(|before| before.ends_with(is_of_a_name))
        {
            continue;
        }
        collect(
            code.get(at + "crate::".len()..).unwrap(),
            &mut Vec::new(),
            &mut found,
        );
    }
    found
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Reads `a::b::{c, d::e}` from the beginning of `text`; returns what follows.
fn collect<'a>(
    text: &'a str,
    prefix: &mut Vec<String>,
    found: &mut BTreeSet<Vec<String>>,
) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            if let Some(after) = rest.strip_prefix(',') {
                rest = after;
                continue;
            }
            let after = collect(rest, prefix, found);
            assert_ne!(
                after.len(),
                rest.len(),
                "cannot read the import at {rest:.60}"
            );
            rest = after;
        }
    }
    let length = text
        .find(|letter| !is_of_a_name(letter))
        .unwrap_or(text.len());
    let (name, mut rest) = text.split_at(length);
    if name.is_empty() {
        return text.strip_prefix('*').unwrap_or(text);
    }
    prefix.push(name.to_owned());
    match rest.strip_prefix("::") {
        Some(after) => rest = collect(after, prefix, found),
        None => drop(found.insert(prefix.clone())),
    }
    prefix.pop();
    match rest.trim_start().strip_prefix("as ") {
        Some(after) => after.trim_start().trim_start_matches(is_of_a_name),
        None => rest,
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn height(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|it| *it == layer)
}

#[test]
fn an_import_goes_down_the_layers() {
    let mut wrong = Vec::new();
    for Source { module, code } in sources(&src()) {
        let [own, ..] = &module[..] else { continue };
        if own == "lib" {
            continue;
        }
        let own_height = height(own).unwrap_or_else(|| panic!("{own} is in no layer"));
        for import in imports(&code) {
            let first = import.first().map_or("", String::as_str);
            if MACROS.contains(&first) {
                continue;
            }
            match height(first) {
                Some(other) if other <= own_height => {}
                Some(_) => wrong.push(format!(
                    "{} imports {}",
                    module.join("::"),
                    import.join("::")
                )),
                // The names that `lib.rs` has for other crates hide the layer.
                None => wrong.push(format!(
                    "{} imports {} without its layer",
                    module.join("::"),
                    import.join("::")
                )),
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn no_workload_imports_another() {
    let mut wrong = Vec::new();
    for Source { module, code } in sources(&src()) {
        let [layer, own, ..] = &module[..] else {
            continue;
        };
        if layer != "workloads" {
            continue;
        }
        for import in imports(&code) {
            if let [layer, other, ..] = &import[..]
                && layer == "workloads"
                && other != own
            {
                wrong.push(format!(
                    "{} imports {}",
                    module.join("::"),
                    import.join("::")
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Within a layer, the modules `engine::task`, `engine::spec`, ... import one another in one direction only.
#[test]
fn no_circle_within_a_layer() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Source { module, code } in sources(&src()) {
        let [layer, own, ..] = &module[..] else {
            continue;
        };
        let used = uses.entry(format!("{layer}::{own}")).or_default();
        for import in imports(&code) {
            if let [other_layer, other, ..] = &import[..]
                && other_layer == layer
                && other != own
                && src().join(layer).join(other).with_extension("rs").exists()
            {
                used.insert(format!("{other_layer}::{other}"));
            }
        }
        let siblings = code.match_indices("super::").filter_map(|(at, _)| {
            let depth = if module.len() == 2 {
                code.get(at + 7..)?
            } else {
                return None;
            };
            let mut found = BTreeSet::new();
            collect(depth, &mut Vec::new(), &mut found);
            Some(found)
        });
        for import in siblings.flatten() {
            if let Some(other) = import.first()
                && other != own
                && src().join(layer).join(other).with_extension("rs").exists()
            {
                used.insert(format!("{layer}::{other}"));
            }
        }
    }
    // Takes away what uses nothing that is left, until nothing is left or a circle is.
    loop {
        let done: BTreeSet<String> = uses
            .iter()
            .filter(|(_, used)| !used.iter().any(|other| uses.contains_key(other)))
            .map(|(name, _)| name.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        uses.retain(|name, _| !done.contains(name));
    }
    assert!(uses.is_empty(), "in a circle, or above one: {uses:#?}");
}

#[test]
fn imports_are_read_as_rust_has_them() {
    let read = |code: &str| {
        let found = imports(code).into_iter();
        found.map(|it| it.join("::")).collect::<Vec<_>>()
    };
    assert_eq!(
        read("use crate::a::{self, b::{C, D as E}, f::*};\nlet x = crate::g::h(1);"),
        ["a::b::C", "a::b::D", "a::self", "g::h"]
    );
    assert_eq!(read("pub(crate) fn f() {}"), Vec::<String>::new());
    assert_eq!(
        code_of("// crate::a\nuse b;\n#[cfg(test)]\nmod tests {\n crate::c }"),
        "use b;"
    );
}
