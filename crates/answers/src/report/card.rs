//! The answer card: what every output about a run or a comparison begins with.
//!
//! A card is plain data, computed once: objectives, one line per load, what changed, caveats, validity, findings and
//! the next command. Terminal, Markdown, HTML, the page and JSON show the same value, so that they cannot disagree.
//! This module reads no database and knows no terminal: [`of_run`] takes a loaded report, [`of_comparison`] a
//! comparison, and [`lines`] lays a card out as text of a given width.

mod beside;
mod lines;
mod loads;
mod measured;
mod run;

pub use beside::changes;
pub use lines::{lines, of_loads};
pub(super) use loads::trusted;
pub use loads::{CardLoad, CardSide, Trust};
pub use run::{of_comparison, of_run};

use serde::{Deserialize, Serialize};

/// Maximum number of loads with a line each; the others are counted.
const MAX_LOADS: usize = 12;
/// Maximum number of lines of a list.
const MAX_LINES: usize = 3;
/// Maximum number of objectives.
const MAX_OBJECTIVES: usize = 6;

/// The title of the list of validity.
const VALIDITY: &str = "Validity";

/// How commands begin.
const PROGRAM: &str = "benchmesh ";

/// The answer in a few lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// What was measured, where, when, for how long, and with how many clients.
    pub title: String,
    /// The objectives of the plan, the broken ones first.
    #[serde(default)]
    pub objectives: Vec<CardLine>,
    pub loads: Vec<CardLoad>,
    /// Loads without a line.
    #[serde(default)]
    pub loads_left_out: usize,
    /// The differences to an earlier run of the same plan.
    #[serde(default)]
    pub changes: CardList,
    /// Differences between the clusters of the sides, and the rates that searches found.
    #[serde(default)]
    pub beside: CardList,
    #[serde(default)]
    pub caveats: CardList,
    #[serde(default)]
    pub validity: CardList,
    #[serde(default)]
    pub findings: CardList,
    /// The next command to type.
    #[serde(default)]
    pub next: String,
}

/// The first lines of a longer list, the most important first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CardList {
    pub lines: Vec<CardLine>,
    /// The number of lines left out.
    pub more: usize,
    /// The command that shows them.
    pub command: String,
}

/// A sentence with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardLine {
    pub state: CardState,
    pub text: String,
}

/// How good the statement of a line is; it selects the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardState {
    Bad,
    Warning,
    Note,
    Good,
}

impl CardState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Good => "good",
        }
    }
}

impl Card {
    /// Adds an option to the commands, such as the database that they are about.
    pub fn with_option(mut self, option: &str) -> Self {
        let lists = [
            &mut self.changes,
            &mut self.beside,
            &mut self.caveats,
            &mut self.validity,
            &mut self.findings,
        ];
        let commands = lists.into_iter().map(|list| &mut list.command);
        for command in commands.chain([&mut self.next]) {
            if command.starts_with(PROGRAM) {
                command.push_str(option);
            }
        }
        self
    }

    /// The lists beneath the loads, with their titles.
    pub fn lists(&self) -> [(&'static str, &CardList); 5] {
        [
            ("Changes", &self.changes),
            ("Also", &self.beside),
            ("Caveats", &self.caveats),
            (VALIDITY, &self.validity),
            ("Findings", &self.findings),
        ]
    }
}

impl CardList {
    /// The most important lines, in their order.
    fn of(mut lines: Vec<CardLine>, command: String) -> Self {
        lines.sort_by_key(|line| line.state);
        let more = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        Self {
            lines,
            more,
            command,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

fn line(state: CardState, text: impl Into<String>) -> CardLine {
    CardLine {
        state,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests;
