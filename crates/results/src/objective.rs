//! How an objective of the plan has been kept, in the same words in a report, its JUnit file, the full-screen view, the
//! progress lines, the page and an alarm.

use crate::real;
use benchmesh_workloads::figures;

/// An objective that used up more than this share of its budget is at risk.
const AT_RISK: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Broken,
    AtRisk,
    Kept,
    NotJudged,
}

impl Standing {
    pub fn word(self) -> &'static str {
        match self {
            Standing::Broken => "broken",
            Standing::AtRisk => "at risk",
            Standing::Kept => "kept",
            Standing::NotJudged => "not judged",
        }
    }
}

/// The seconds of an objective. Those of a running run are the seconds so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveSeconds {
    pub judged: i64,
    pub bad: i64,
    /// The number of seconds that may be bad, out of those judged and those left of the run.
    pub budget: f64,
    pub is_broken: bool,
}

impl ObjectiveSeconds {
    /// For a run that has ended, or if only its seconds so far are judged.
    pub fn of_ended(judged: i64, bad: i64, budget: f64) -> ObjectiveSeconds {
        ObjectiveSeconds {
            judged,
            bad,
            budget,
            is_broken: is_above(bad, budget),
        }
    }

    pub fn standing(&self) -> Standing {
        match self.judged {
            0 => Standing::NotJudged,
            _ if self.is_broken => Standing::Broken,
            _ if self.bad > 0 && real(self.bad) > self.budget * AT_RISK => Standing::AtRisk,
            _ => Standing::Kept,
        }
    }

    /// `9 of 240 seconds were bad, 2.40 may be`.
    pub fn words(&self) -> String {
        if self.judged == 0 {
            return "no second was judged".to_owned();
        }
        format!(
            "{} of {} seconds were bad, {} may be",
            figures::count(self.bad),
            figures::count(self.judged),
            figures::rate(self.budget)
        )
    }
}

/// Whether more seconds were bad than may be. The budget is a product of shares, so it is not exact.
pub fn is_above(bad: i64, budget: f64) -> bool {
    real(bad) > budget + 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_follows_from_the_budget() {
        for (judged, bad, budget, is_broken, standing, words) in [
            (
                0,
                0,
                0.0,
                false,
                Standing::NotJudged,
                "no second was judged",
            ),
            (
                240,
                9,
                2.4,
                true,
                Standing::Broken,
                "9 of 240 seconds were bad, 2.40 may be",
            ),
            (
                100,
                9,
                10.0,
                false,
                Standing::AtRisk,
                "9 of 100 seconds were bad, 10.0 may be",
            ),
            (
                100,
                7,
                10.0,
                false,
                Standing::Kept,
                "7 of 100 seconds were bad, 10.0 may be",
            ),
            (
                60,
                0,
                0.0,
                false,
                Standing::Kept,
                "0 of 60 seconds were bad, 0 may be",
            ),
        ] {
            let seconds = ObjectiveSeconds {
                judged,
                bad,
                budget,
                is_broken,
            };
            assert_eq!(seconds.standing(), standing, "{seconds:?}");
            assert_eq!(seconds.words(), words);
        }
    }
}
