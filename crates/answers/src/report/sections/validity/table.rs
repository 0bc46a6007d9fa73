//! The validity of the figures as a table: problems first, then one line for passed checks and one for checks that were
//! not made.

use crate::report::{Check, CheckVerdict, Table};

/// `None` if nothing was checked.
pub(in crate::report) fn table(checks: &[Check]) -> Option<Table> {
    if checks.is_empty() {
        return None;
    }
    let mut found: Vec<&Check> = checks
        .iter()
        .filter(|one| one.verdict > CheckVerdict::NotChecked)
        .collect();
    // The sort is stable: checks of the same verdict keep their order.
    found.sort_by_key(|one| std::cmp::Reverse(one.verdict));
    let word = |one: &&Check| match one.verdict {
        CheckVerdict::Failed => "failed".to_owned(),
        CheckVerdict::Warning => "warning".to_owned(),
        CheckVerdict::Note | CheckVerdict::NotChecked | CheckVerdict::Ok => "note".to_owned(),
    };
    let mut table = Table::titled("Validity");
    if !found.is_empty() {
        table = table
            .text("severity", found.iter().map(word))
            .text("about", found.iter().map(|one| one.name.clone()))
            .text("what", found.iter().map(|one| one.text.clone()));
    }
    for (verdict, head) in [
        (CheckVerdict::Ok, "Checked and fine"),
        (CheckVerdict::NotChecked, "Not checked"),
    ] {
        let those = checks.iter().filter(|one| one.verdict == verdict);
        let those: Vec<String> = those
            .map(|one| format!("{}: {}", one.name, one.text))
            .collect();
        if !those.is_empty() {
            table = table.note(format!("{head}: {}.", those.join("; ")));
        }
    }
    Some(table)
}
