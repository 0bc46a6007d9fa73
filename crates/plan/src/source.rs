//! The plan's text and positions in it; mistakes are collected here until all have been found.
//!
//! A line added by `--set` or `--objective` ends in a mark and is not counted, so that every other line keeps its
//! number in the user's file.

use super::errors::{PlanError, PlanErrors, PlanLocation};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Further mistakes are not listed: each is located in the text, which takes time.
const MAX_MISTAKES: usize = 1000;

/// Ends each line added by `--set`.
pub(crate) const SET_MARK: &str = "# --set";

/// Ends each line added by `--objective`.
pub(crate) const OBJECTIVE_MARK: &str = "# --objective";

/// The option that added a line of the plan's text; `None` if the line is the user's own.
pub(crate) fn added_by(line: &str) -> Option<&'static str> {
    let marks = [SET_MARK, OBJECTIVE_MARK];
    let mark = marks
        .into_iter()
        .find(|mark| line.trim_end().ends_with(mark))?;
    mark.strip_prefix("# ")
}

/// Ends the reading or the expansion of a plan early. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A plan's text and its name for messages.
#[derive(Clone, Debug)]
pub(crate) struct PlanSource {
    pub text: String,
    pub file: String,
    pub cancel: Cancel,
}

/// The position of a value. It is stored with the value, so that a mistake found later still has its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValuePosition {
    pub span: Range<usize>,
    /// The key as a path: `phase.1.size`.
    pub key: String,
}

impl PlanSource {
    /// The location of the bytes `span`.
    pub fn place(&self, span: &Range<usize>) -> PlanLocation {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(line_start..).unwrap_or_default();
        let text = rest.lines().next().unwrap_or_default().trim_end();
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        let room = text.chars().count().saturating_sub(column - 1).max(1);
        let width = self
            .text
            .get(start..span.end.min(self.text.len()))
            .map_or(1, |s| s.lines().next().unwrap_or_default().chars().count())
            .clamp(1, room);
        let line = if added_by(text).is_some() {
            0
        } else {
            let earlier = self.text.get(..line_start).unwrap_or_default();
            1 + earlier
                .lines()
                .filter(|line| added_by(line).is_none())
                .count()
        };
        // A tab has no fixed width: the caret counts it as one blank.
        let text = text.replace('\t', " ");
        PlanLocation {
            line,
            column,
            width,
            text,
        }
    }
}

/// Mistakes found so far.
#[derive(Debug)]
pub(crate) struct Mistakes<'s> {
    source: &'s PlanSource,
    found: Vec<(usize, PlanError)>,
    /// There are more than `MAX_MISTAKES`.
    is_cut: bool,
}

impl<'s> Mistakes<'s> {
    pub fn new(source: &'s PlanSource) -> Self {
        Self {
            source,
            found: Vec::new(),
            is_cut: false,
        }
    }

    /// Whether the caller no longer waits for the answer. Code that reads or expands many cells then ends early.
    pub fn is_cancelled(&self) -> bool {
        self.source.cancel.is_cancelled()
    }

    /// Reports a mistake at `position`. The same mistake in many matrix cells is reported once.
    pub fn at(
        &mut self,
        position: &ValuePosition,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if self.found.len() >= MAX_MISTAKES {
            self.is_cut = true;
            return;
        }
        let error = PlanError {
            place: Some(self.source.place(&position.span)),
            key: position.key.clone(),
            reason: reason.into(),
            remedy: remedy.into(),
        };
        if !self.found.iter().any(|(_, known)| *known == error) {
            self.found.push((position.span.start, error));
        }
    }

    /// Reports a mistake of the plan as a whole.
    pub fn whole(&mut self, reason: impl Into<String>, remedy: impl Into<String>) {
        let error = PlanError {
            place: None,
            key: String::new(),
            reason: reason.into(),
            remedy: remedy.into(),
        };
        self.found.push((usize::MAX, error));
    }

    /// An empty collection for the same plan.
    pub fn fork(&self) -> Mistakes<'s> {
        Self::new(self.source)
    }

    /// Takes over the mistakes of another collection, each once.
    pub fn extend(&mut self, other: Self) {
        for (at, error) in other.found {
            if self.found.len() >= MAX_MISTAKES {
                self.is_cut = true;
                return;
            }
            if !self.found.iter().any(|(_, known)| *known == error) {
                self.found.push((at, error));
            }
        }
    }

    /// Drops mistakes of the plan as a whole, and those whose byte and key do not match `wanted`.
    pub fn retain(&mut self, wanted: impl Fn(usize, &str) -> bool) {
        self.found
            .retain(|(at, error)| error.place.is_some() && wanted(*at, &error.key));
    }

    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Returns `value` if there was no mistake.
    pub fn into_result<T>(self, value: Option<T>) -> Result<T, PlanErrors> {
        match value {
            Some(value) if self.found.is_empty() && !self.is_cancelled() => Ok(value),
            _ => Err(self.into_errors()),
        }
    }

    /// The mistakes found, ordered by line.
    pub fn into_errors(mut self) -> PlanErrors {
        if self.is_cut {
            self.whole("there are more mistakes than these", "");
        }
        if self.is_cancelled() {
            self.whole("cancelled", "");
        }
        self.found.sort_by_key(|(at, _)| *at);
        PlanErrors {
            file: self.source.file.clone(),
            errors: self.found.into_iter().map(|(_, error)| error).collect(),
        }
    }
}

/// "a, b and c", or "none".
pub(crate) fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.split_last() {
        None => String::from("none"),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Maximum number of hosts named in a message.
pub(crate) const NAMED: usize = 5;

/// The first few words, and the number of the others.
pub(crate) fn first_few(words: &[String], separator: &str) -> String {
    match words.get(..NAMED) {
        Some(few) if words.len() > NAMED => {
            format!(
                "{}{separator}and {} more",
                few.join(separator),
                words.len() - NAMED
            )
        }
        _ => words.join(separator),
    }
}
