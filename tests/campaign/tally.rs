//! What the workers did, by agent, as counted by the tests' own file system.

use super::AGENTS;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use std::collections::BTreeMap;

/// Size of an operation of the load `io`; other files have other sizes.
const BLOCK: u64 = 4096;

/// The begin and end of each operation of an agent, by the operation's name in the database.
pub(super) type Tally = BTreeMap<(&'static str, &'static str), Vec<(i64, i64)>>;

pub(super) fn of(fs: &FuseFs) -> Tally {
    let mut tally = Tally::new();
    for call in fs.log() {
        let Some(op) = operation(&call) else {
            continue;
        };
        let agent = AGENTS
            .into_iter()
            .find(|name| call.path.starts_with(&format!("{name}/")));
        let agent = agent.unwrap_or_else(|| panic!("of no agent: {call:?}"));
        let calls = tally.entry((agent, op)).or_default();
        calls.push((call.began_us, call.ended_us));
    }
    for calls in tally.values_mut() {
        calls.sort_unstable();
    }
    tally
}

/// The operation of a call, if it belongs to the load.
fn operation(call: &Call) -> Option<&'static str> {
    let name = call.path.rsplit('/').next()?;
    if call.errno.is_some() {
        return None;
    }
    match call.op {
        Op::Write if call.amount == BLOCK && !name.starts_with('.') => Some("write"),
        Op::Create if is_file_of_load(name) => Some("create"),
        _ => None,
    }
}

/// `c000000001`, as named by the load `files`.
fn is_file_of_load(name: &str) -> bool {
    let number = name.strip_prefix('c');
    number.is_some_and(|number| number.len() == 9 && number.bytes().all(|it| it.is_ascii_digit()))
}
