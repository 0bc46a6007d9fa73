//! Mistakes in a plan, as a person reads them: where, what, why, what to do. All of a plan's mistakes come together.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Where in the plan; `None` when it is about the plan as a whole.
    pub place: Option<Place>,
    /// The key at fault, as a path: `phase.1.size`; empty when there is none.
    pub key: String,
    pub reason: String,
    /// What to do; empty when the reason says it.
    pub remedy: String,
}

/// A place in the plan's text, for people: lines and columns from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0: the line was put there by `--set`.
    pub line: usize,
    pub column: usize,
    /// How many characters are at fault, at least 1.
    pub width: usize,
    pub text: String,
}

/// Every mistake of a plan, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlanErrors {
    /// The plan's name for messages: its file.
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
            write!(f, "{file} with --set")?;
            String::from("--set")
        } else {
            write!(f, "{file}:{}:{}", place.line, place.column)?;
            place.line.to_string()
        };
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        writeln!(f, ": {}", self.reason)?;
        writeln!(f, "  {number} | {}", place.text)?;
        write!(
            f,
            "  {:number_width$} | {:indent$}{}",
            "",
            "",
            "^".repeat(place.width.max(1)),
            number_width = number.chars().count(),
            indent = place.column.saturating_sub(1),
        )?;
        if !self.remedy.is_empty() {
            write!(f, "\n  help: {}", self.remedy)?;
        }
        Ok(())
    }
}
