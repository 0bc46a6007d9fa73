//! Mistakes in a plan, for users: location, problem, reason and remedy. All of a plan's mistakes are reported together.

use super::source::added_by;
use std::fmt;

/// Maximum number of characters shown of a line.
const MAX_LINE: usize = 160;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Location in the plan; `None` if the mistake concerns the plan as a whole.
    pub place: Option<PlanLocation>,
    /// The invalid key as a path: `phase.1.size`; empty if there is none.
    pub key: String,
    pub reason: String,
    /// What to do; empty if the reason already implies it.
    pub remedy: String,
}

/// A location in the plan's text, for users: lines and columns from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanLocation {
    /// 0 for a line added by an option: `--set`, `--objective`.
    pub line: usize,
    pub column: usize,
    /// Number of invalid characters, at least 1.
    pub width: usize,
    pub text: String,
}

/// Every mistake of a plan, ordered by line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlanErrors {
    /// The plan's file, as the name shown in messages.
    pub file: String,
    /// Never empty.
    pub errors: Vec<PlanError>,
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            error.write(&self.file, f)?;
        }
        Ok(())
    }
}

impl PlanError {
    fn write(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else {
            write!(f, "{file}: {}", self.reason)?;
            if !self.remedy.is_empty() {
                write!(f, "\n  help: {}", self.remedy)?;
            }
            return Ok(());
        };
        let number = if place.line == 0 {
            let option = added_by(&place.text).unwrap_or("--set");
            write!(f, "{file} with {option}")?;
            option.to_owned()
        } else {
            write!(f, "{file}:{}:{}", place.line, place.column)?;
            place.line.to_string()
        };
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        writeln!(f, ": {}", self.reason)?;
        let (text, indent, width) = excerpt(place);
        writeln!(f, "  {number} | {text}")?;
        let number_width = number.chars().count();
        let marks = "^".repeat(width);
        write!(f, "  {:number_width$} | {:indent$}{marks}", "", "")?;
        if !self.remedy.is_empty() {
            write!(f, "\n  help: {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Returns the shown part of a line, the number of characters before the fault in it, and the number of invalid
/// characters. A long line is cut around the fault.
fn excerpt(place: &PlanLocation) -> (String, usize, usize) {
    let before = place.column.saturating_sub(1);
    let skipped = match place.text.chars().count() > MAX_LINE {
        true => before.saturating_sub(MAX_LINE / 2),
        false => 0,
    };
    let text: String = place.text.chars().skip(skipped).take(MAX_LINE).collect();
    let indent = (before - skipped).min(MAX_LINE);
    let width = place.width.clamp(1, (MAX_LINE - indent).max(1));
    (text, indent, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_about_its_fault() {
        let error = |column, width| PlanError {
            place: Some(PlanLocation {
                line: 7,
                column,
                width,
                text: "x".repeat(100_000),
            }),
            key: String::new(),
            reason: "wrong".to_owned(),
            remedy: String::new(),
        };
        for (column, width, indent, marks) in [
            (1, 1, 0, 1),
            (70_001, 3, MAX_LINE / 2, 3),
            (100_001, 90_000, MAX_LINE / 2, MAX_LINE / 2),
        ] {
            let errors = PlanErrors {
                file: "plan.toml".to_owned(),
                errors: vec![error(column, width)],
            };
            let text = errors.to_string();
            let last = text.lines().last().unwrap_or_default();
            assert_eq!(
                last,
                format!("    | {}{}", " ".repeat(indent), "^".repeat(marks))
            );
            assert!(
                text.lines().all(|line| line.len() < MAX_LINE + 100),
                "{column}"
            );
        }
    }
}
