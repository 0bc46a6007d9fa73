//! The checks of a run that another tool measured: the tool, and the findings in its log.

use super::{check, complete, errors, repeats, seconds_in_words};
use crate::report::{Check, CheckVerdict, Report};

/// The figures of imports are not checked; the log's errors and seconds without an operation are listed.
pub(super) fn checks(report: &Report, tool: &str) -> Vec<Check> {
    let text = format!(
        "from {tool}, by benchmesh {}; clocks, caches, the clients' CPUs and other load were not observed",
        report.run.version
    );
    let mut checks = vec![check("imported", CheckVerdict::NotChecked, text)];
    let logged = [complete(report), errors(&report.steps)];
    checks.extend(
        logged
            .into_iter()
            .filter(|one| one.verdict > CheckVerdict::Ok),
    );
    if let Some(zero) = seconds_in_words(&report.steps) {
        let text = format!("{zero}, as the log shows");
        checks.push(check("stalls", CheckVerdict::Note, text));
    }
    checks.extend(repeats(&report.steps));
    checks
}
