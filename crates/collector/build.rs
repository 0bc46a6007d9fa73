//! A migration that is added, renamed or taken away is compiled in again.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
