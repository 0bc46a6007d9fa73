//! Links: throughput and round trips from each agent to each other.

use crate::report::Table;
use crate::report::row::Statement;
use benchmesh_workloads::figures::{self, NONE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A figure of a link exists once per phase, cell and repeat.
const BEST_OF_ALL: &str =
    "The best of all phases, cells and repeats; SELECT * FROM v_links has each.";

/// Maximum number of agents for a matrix of links; more are shown as a list.
const MATRIX_AGENTS: usize = 10;

/// A network path from one agent to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    pub from_agent: String,
    pub to_agent: String,
    pub mib_per_s: Option<f64>,
    /// Both ends sleep in the kernel between messages.
    pub rtt_p50_us: Option<f64>,
    /// Both ends poll.
    pub rtt_busy_p50_us: Option<f64>,
}

pub(in crate::report) const LINKS: Statement = Statement {
    what: "v_links",
    sql:
        "SELECT from_agent, to_agent, max(mib_per_s) AS mib_per_s,
                 min(CASE WHEN wait = 'blocking' THEN rtt_p50_us END) AS rtt_p50_us,
                 min(CASE WHEN wait = 'busy' THEN rtt_p50_us END) AS rtt_busy_p50_us
          FROM v_links WHERE run_id = ? GROUP BY from_agent, to_agent ORDER BY from_agent, to_agent",
};

/// One matrix per figure, or one list.
pub(in crate::report) fn tables(links: &[LinkReport]) -> Vec<Table> {
    // A link with measured requests only is already among the results.
    let measured = |link: &&LinkReport| {
        let figures = [link.mib_per_s, link.rtt_p50_us, link.rtt_busy_p50_us];
        figures.iter().any(Option::is_some)
    };
    let links: Vec<&LinkReport> = links.iter().filter(measured).collect();
    let agents: BTreeSet<&str> = links
        .iter()
        .flat_map(|link| [link.from_agent.as_str(), link.to_agent.as_str()])
        .collect();
    if agents.len() > MATRIX_AGENTS {
        let list = Table::of("Links", &links)
            .text("from", |link| &link.from_agent)
            .text("to", |link| &link.to_agent)
            .rate("MiB/s", |link| link.mib_per_s)
            .rate("round trip us", |link| link.rtt_p50_us)
            .rate("busy polling us", |link| link.rtt_busy_p50_us)
            .note(BEST_OF_ALL);
        return list.done().into_iter().collect();
    }
    let matrix = |title: &str, figure: fn(&LinkReport) -> Option<f64>| {
        if !links.iter().any(|link| figure(link).is_some()) {
            return None;
        }
        let agents: Vec<&str> = agents.iter().copied().collect();
        let mut table = Table::of(title, &agents).text("from \\ to", |from| from);
        for to in &agents {
            table = table.figure(to, |from| {
                let mut links = links.iter();
                let link = links.find(|link| link.from_agent == *from && link.to_agent == *to);
                link.and_then(|link| figure(link))
                    .map_or_else(|| NONE.to_owned(), figures::rate)
            });
        }
        table.note(BEST_OF_ALL).done()
    };
    [
        matrix("Links, throughput in MiB/s", |link| link.mib_per_s),
        matrix("Links, round trip in us (median, blocking)", |link| {
            link.rtt_p50_us
        }),
        matrix("Links, round trip in us (median, busy polling)", |link| {
            link.rtt_busy_p50_us
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}
