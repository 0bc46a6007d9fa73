//! Rows of a host and of its interfaces must come from the agent that was appointed to sample them at that time.
//! Other rows are removed from the batch and counted.

use super::batch::Batch;
use benchmesh_model::events::EventSource;
use benchmesh_model::mesh::MeshMicros;

/// A sampler may date its rows up to this long before its appointment, or after the appointment of its successor.
const TOLERANCE_US: i64 = 2_000_000;

/// When an agent was appointed to sample a host or its interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appointed {
    /// The agent is not a stand-in, so its rows also update the stored description.
    pub is_own: bool,
    /// Start and end of each appointment, oldest first.
    pub spans: Vec<(MeshMicros, MeshMicros)>,
}

impl Appointed {
    fn holds(&self, at: MeshMicros) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|(from, until)| {
            (from.0.saturating_sub(TOLERANCE_US)..=until.0.saturating_add(TOLERANCE_US))
                .contains(&at.0)
        })
    }
}

impl Batch {
    /// Removes the rows that the agent was not appointed to sample; returns their number.
    pub fn take_out_of_others(&mut self, host: &Appointed, interfaces: &Appointed) -> usize {
        let before = self.rows();
        self.daemons.retain(|row| host.holds(row.at));
        self.daemon_samples.retain(|row| host.holds(row.at));
        self.host_samples.retain(|row| host.holds(row.at));
        self.disk_samples.retain(|row| host.holds(row.at));
        self.net_samples.retain(|row| interfaces.holds(row.at));
        self.events.retain(|row| match row.kind.source() {
            EventSource::Sampler => host.holds(row.at),
            EventSource::InterfaceSampler => interfaces.holds(row.at),
            EventSource::Agent | EventSource::Collector => true,
        });
        let since = host.spans.last().map(|(from, _)| *from);
        self.stands_in_since = since.filter(|_| !host.is_own);
        before - self.rows()
    }
}
