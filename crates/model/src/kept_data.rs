//! Data sets that stay on a target after their run, and their names there.
//!
//! A set is stored where a run's data are, under its own uid: `benchmesh-data-NAME` in a directory, the namespace
//! `benchmesh.MESH.data-NAME` in a pool. Uids of runs never have this prefix.

const PREFIX: &str = "data-";
const MAX_NAME_BYTES: usize = 64;

/// The directory of a set's only cell.
pub const CELL: &str = "data";

/// The uid under which a target holds the set.
pub fn uid(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The set with this uid; `None` if the uid belongs to a run.
pub fn name_of(uid: &str) -> Option<&str> {
    uid.strip_prefix(PREFIX)
}

/// Whether a set may have this name: letters, digits, `-`, `_` and `.`.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_leads_back_to_its_set_and_no_run_has_one() {
        assert_eq!(name_of(&uid("big-1g")), Some("big-1g"));
        assert_eq!(name_of("0f7c2a4e111142228333944444444444"), None);
        assert!(is_name("a.b-c_9") && !is_name("") && !is_name("a/b") && !is_name(&"x".repeat(65)));
    }
}
