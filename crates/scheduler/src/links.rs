//! The speed of the network between an agent and a step's target: the limit that the agent's reads are checked against.
//!
//! A target is behind the network if the agent has mounted it as a network file system, or if the agent has the label
//! `link-mbits`, which gives the speed. Without the label the speed is the most that a `network` phase of this database
//! ever sent to the agent from other hosts without throttling, capped at the speed of its interfaces.

use benchmesh_plan::AgentFacts;
use benchmesh_results::origin::is_networked;

/// The label with the speed of the link to the storage.
const LABEL: &str = "link-mbits";
const BYTES_PER_MBIT: u64 = 125_000;
/// A link may carry a tenth more than was ever measured, because a measurement depends on the other load at that time.
const ABOVE_MEASURED: i64 = 10;

/// Bytes per second that the network between a step's target at `path` and an agent can carry; `None` if unknown.
/// `measured`: the highest rate ever sent to the agent.
pub(super) fn speed_of_link(
    facts: Option<&AgentFacts>,
    path: &str,
    measured: Option<i64>,
) -> Option<i64> {
    let facts = facts.filter(|_| !path.is_empty())?;
    let labelled = facts.labels.get(LABEL).and_then(|mbits| mbits.parse().ok());
    if let Some(mbits) = labelled.filter(|mbits: &u64| *mbits > 0) {
        return i64::try_from(mbits.saturating_mul(BYTES_PER_MBIT)).ok();
    }
    let surveyed = facts.surveyed.get(path);
    if !is_networked(surveyed.map_or("", |path| path.file_system.as_str())) {
        return None;
    }
    let interfaces = i64::try_from(facts.link_bytes_per_s).unwrap_or(i64::MAX);
    carries(measured, interfaces)
}

/// The speed of an unlabelled link: the measured one, capped at its interfaces' speed (0: unknown). A link that carried
/// no data was not measured, whatever its agent reports.
fn carries(measured: Option<i64>, interfaces: i64) -> Option<i64> {
    let measured = measured.filter(|most| *most > 0);
    let measured = measured.map(|most| most.saturating_add(most / ABOVE_MEASURED));
    let interfaces = Some(interfaces).filter(|speed| *speed > 0);
    measured.into_iter().chain(interfaces).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_link_speed_precedes_that_of_the_interfaces() {
        let check = |measured, interfaces, expected| {
            assert_eq!(carries(measured, interfaces), expected);
        };
        check(None, 0, None);
        // `tasks.link_bytes_per_s` does not allow 0.
        check(Some(0), 0, None);
        check(Some(0), 125_000_000, Some(125_000_000));
        check(None, 125_000_000, Some(125_000_000));
        check(Some(100_000_000), 0, Some(110_000_000));
        // A virtual interface reports 10 Gbit/s for a link with a tenth of it.
        check(Some(100_000_000), 1_250_000_000, Some(110_000_000));
        check(Some(120_000_000), 125_000_000, Some(125_000_000));
    }
}
