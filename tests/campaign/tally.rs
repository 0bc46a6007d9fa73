//! What the workers did, as the tests' own file system counted it, by agent.

use super::AGENTS;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use std::collections::BTreeMap;

/// Bytes of an operation of the load `io`; what is laid out beside it has other lengths.
const BLOCK: u64 = 4096;

/// When each operation of an agent began and ended, by the operation's name in the database.
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

/// The operation that a call is, if it is one of the load.
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

/// `c000000001`, as the load `files` names them.
fn is_file_of_load(name: &str) -> bool {
    let number = name.strip_prefix('c');
    number.is_some_and(|number| number.len() == 9 && number.bytes().all(|it| it.is_ascii_digit()))
}
