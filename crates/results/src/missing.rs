//! Clients that left a step before its end, and their work until then: the wording for every text about a partial step.

use benchmesh_workloads::figures;
use serde::{Deserialize, Serialize};

const MIB: f64 = 1_048_576.0;

/// One task that ended abnormally.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    pub agent: String,
    /// `lost`, `failed` or `stopped`.
    pub state: String,
    /// From the step's start to its last known operation; `None` if it never started.
    pub ran_us: Option<i64>,
    /// Operations of all kinds, without the ramp.
    pub ops: i64,
    pub bytes: i64,
    /// Duration of its absence, if its client rejoined the step.
    #[serde(default)]
    pub away_us: Option<i64>,
}

impl Missing {
    /// `b` (lost after 12 s, at least 3,400 operations and 13.0 MiB done)
    pub fn describe(&self) -> String {
        let mut text = format!("`{}` ({}", self.agent, self.state);
        if let Some(ran) = self.ran_us.and_then(|us| figures::between(0, us)) {
            text.push_str(&format!(" after {}", figures::span(ran)));
        }
        if let Some(away) = self.away_us.and_then(|us| figures::between(0, us)) {
            text.push_str(&format!(", back after {}", figures::span(away)));
        }
        // The work of a lost client after its last message is unknown.
        let is_lost = self.state == "lost";
        if self.ops == 0 && self.bytes == 0 {
            text.push_str(match is_lost {
                true => ", nothing known to be done)",
                false => ", nothing done)",
            });
            return text;
        }
        let at_least = if is_lost { "at least " } else { "" };
        text.push_str(&format!(
            ", {at_least}{} operations",
            figures::count(self.ops)
        ));
        if self.bytes > 0 {
            let mib = super::real(self.bytes) / MIB;
            text.push_str(&format!(" and {} MiB", figures::rate(mib)));
        }
        text.push_str(" done)");
        text
    }
}

/// "without `a` (...), `b` (...)"; `None` if no client is missing.
pub fn without(missing: &[Missing]) -> Option<String> {
    let described: Vec<String> = missing.iter().map(Missing::describe).collect();
    (!described.is_empty()).then(|| format!("without {}", described.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_described_with_what_it_had_done() {
        let lost = Missing {
            agent: String::from("b"),
            state: String::from("lost"),
            ran_us: Some(12_300_000),
            ops: 3400,
            bytes: 13 << 20,
            away_us: None,
        };
        let returned = Missing {
            away_us: Some(4_200_000),
            ..lost.clone()
        };
        let failed = Missing {
            agent: String::from("c"),
            state: String::from("failed"),
            ran_us: None,
            ops: 0,
            bytes: 0,
            away_us: None,
        };
        assert_eq!(
            without(&[lost, failed]).as_deref(),
            Some(
                "without `b` (lost after 12 s, at least 3,400 operations and 13.0 MiB done), `c` (failed, nothing done)"
            )
        );
        assert_eq!(
            without(&[returned]).as_deref(),
            Some(
                "without `b` (lost after 12 s, back after 4.2 s, at least 3,400 operations and 13.0 MiB done)"
            )
        );
        assert_eq!(without(&[]), None);
    }
}
