//! Log of the policy's refusals on the agent's host: each text at most once a minute, and a bounded number of texts.
//!
//! The collector chooses its requests and thus the texts, so both the log and its memory are bounded.

use crate::command::{CommandResult, RefusalKind};
use crate::sampler::cut;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAX_PER_MINUTE: usize = 32;
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 400;

/// Texts logged within the last minute.
#[derive(Debug, Default)]
pub struct DenialLog(Mutex<BTreeMap<String, Instant>>);

/// What to do with a denial.
#[derive(Debug, PartialEq, Eq)]
enum DenialLine {
    Log,
    /// Log it as the last one: the log is full until the oldest logged text is a minute old.
    LogAsLast,
    Omit,
}

impl DenialLog {
    /// Logs the outcome of a command if it is a denial.
    pub fn note(&self, outcome: &CommandResult) {
        let Err(refusal) = outcome else { return };
        if refusal.kind != RefusalKind::NotAllowed {
            return;
        }
        let clean = refusal.message.replace(|char: char| char.is_control(), " ");
        let denial = cut(clean, MAX_TEXT);
        match self.line(&denial, Instant::now()) {
            DenialLine::Log => tracing::warn!("a command of the collector was refused: {denial}"),
            DenialLine::LogAsLast => tracing::warn!(
                "a command of the collector was refused: {denial}; further denials of this minute are not logged"
            ),
            DenialLine::Omit => {}
        }
    }

    fn line(&self, denial: &str, now: Instant) -> DenialLine {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|_, at| now.saturating_duration_since(*at) < MINUTE);
        if logged.len() >= MAX_PER_MINUTE || logged.contains_key(denial) {
            return DenialLine::Omit;
        }
        logged.insert(denial.to_owned(), now);
        match logged.len() {
            MAX_PER_MINUTE => DenialLine::LogAsLast,
            _ => DenialLine::Log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_denial_is_logged_once_a_minute_and_so_many_of_all() {
        let (log, start) = (DenialLog::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(log.line("a", at(0)), DenialLine::Log);
        assert_eq!(log.line("a", at(59)), DenialLine::Omit);
        assert_eq!(log.line("a", at(60)), DenialLine::Log);
        for nth in 1..31 {
            assert_eq!(log.line(&nth.to_string(), at(70)), DenialLine::Log, "{nth}");
        }
        assert_eq!(log.line("the last", at(70)), DenialLine::LogAsLast);
        assert_eq!(log.line("one more", at(71)), DenialLine::Omit);
        assert_eq!(log.line("one more", at(121)), DenialLine::LogAsLast);
        assert_eq!(log.line("one more", at(181)), DenialLine::Log);
    }
}
