//! The migrations are compiled in: the crate is built again when they change, and not at all when two have one version,
//! which every database would refuse.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a build script speaks to cargo on standard output, and stops the build by a panic"
)]

use std::collections::BTreeMap;

fn main() {
    println!("cargo::rerun-if-changed=migrations");
    let mut versions: BTreeMap<String, String> = BTreeMap::new();
    for entry in std::fs::read_dir("migrations").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let version = name.split('_').next().unwrap().to_owned();
        if let Some(other) = versions.insert(version, name.clone()) {
            panic!("migrations/{name} and migrations/{other} have one version: rename one of them");
        }
    }
}
