//! Asks for confirmation before data are removed.

use crate::failure::wrong_usage;
use crate::output;
use anyhow::Context;
use std::io::{self, BufRead, IsTerminal};

/// Asks whether to remove `what`; fails without a terminal.
pub(super) fn agrees_to_remove(what: &str) -> anyhow::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(wrong_usage(format!(
            "{what} would be removed, and there is no terminal to ask: pass --yes"
        )));
    }
    output::print_notice(&format!("remove {what}? [y/N]"));
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
