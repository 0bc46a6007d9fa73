//! The limits of load on this agent, from its own configuration only: no collector can widen them.
//!
//! [`Policy`] is read once, when the agent starts. It checks every task before the task is prepared. Tasks claim shared
//! amounts ([`Budget`]) as a guard that returns them on drop. A refusal is a [`Denial`]: it names the key of the policy
//! as on the command line, its value, and the request. This module does not know about commands, tasks or the wire.

pub mod config;

mod budget;
mod floors;
mod networks;

pub use budget::{Budget, Claim, Demand};
pub use config::{Bytes, PolicyConfig, PortRange, WorkloadNames};
pub use floors::Floors;
pub use networks::NetworkRule;

use crate::targets::{NotAllowable, Targets};
use benchmesh_model::limits::{Limit, Limits, Setting};
use benchmesh_model::targets::{DEVICE, DIRECTORY, KINDS};
use benchmesh_workloads::pacing::RateLimit;
use benchmesh_workloads::params::Cidr;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::Allowed;
use benchmesh_workloads::workload::Needs;
use networks::Networks;
use std::net::IpAddr;
use std::sync::Arc;

/// A request that the policy does not allow, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy of this agent does not allow it: `{key}` is {value}, and {asked}")]
pub struct Denial {
    /// The option of `benchmesh agent` without its dashes, which is also its key in a configuration file.
    pub key: &'static str,
    pub value: String,
    /// What was requested, as a sentence.
    pub asked: String,
}

impl Denial {
    fn new(key: &'static str, value: impl Into<String>, asked: impl Into<String>) -> Self {
        Self {
            key,
            value: value.into(),
            asked: asked.into(),
        }
    }

    fn limit(limit: Limit, setting: Setting, asked: impl Into<String>) -> Self {
        Self::new(limit.row().option, limit.about(setting), asked)
    }
}

/// The opened policy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub targets: Targets,
    pub sources: Allowed,
    pub workloads: WorkloadNames,
    networks: Networks,
    /// Ports for receiving ends of links; `None`: the kernel chooses them.
    pub link_ports: Option<PortRange>,
    pub drop_caches: bool,
    /// With the defaults of this host.
    pub limits: Limits,
    pub budget: Budget,
    pub floors: Floors,
    /// Rate limit of all load on the agent together; `None`: unlimited.
    pub rate: Option<Arc<RateLimit>>,
}

impl Policy {
    /// Finds the targets and measures the totals for default shares.
    ///
    /// # Errors
    /// If a path does not exist, or a device path is not a device.
    pub fn open(config: &PolicyConfig) -> Result<Self, NotAllowable> {
        let limits = config.resolved_limits();
        let rate = limits.amount(Limit::Rate);
        Ok(Self {
            targets: Targets::allow(&config.targets)?,
            sources: Allowed::new(config.allow_read.clone()).map_err(|source| NotAllowable {
                option: "allow-read",
                source,
            })?,
            workloads: config.workloads.clone(),
            networks: Networks::new(config.allow_network.clone()),
            link_ports: config.link_ports,
            drop_caches: config.allow_drop_caches,
            limits,
            budget: Budget::new(&limits),
            floors: Floors::new(&limits),
            rate: rate.map(|rate| Arc::new(RateLimit::new(rate))),
        })
    }

    /// Whether the agent accepts any load. If not, it only samples.
    fn takes_load(&self) -> bool {
        !(self.networks.are_none() && self.targets.is_empty())
    }

    /// Refuses a workload that is not allowed. An unknown workload is refused at its lookup.
    ///
    /// # Errors
    /// If the workload or its target is not allowed.
    pub fn check_workload(&self, name: &str) -> Result<(), Denial> {
        let asked = || format!("a task of `{name}` was requested");
        match registry::find(name).map(|workload| workload.needs()) {
            Some(Needs::Peer) if self.networks.are_none() => {
                return Err(Denial::new(
                    "allow-network",
                    "not set (start the agent with --allow-network to let it measure links)",
                    asked(),
                ));
            }
            Some(_) if !self.takes_load() => {
                return Err(Denial::new(
                    "allow",
                    format!(
                        "not set (this agent only samples; start it with {}, to let it take load)",
                        ways_to_load()
                    ),
                    asked(),
                ));
            }
            Some(_) | None => {}
        }
        match self.workloads.has(name) {
            true => Ok(()),
            false => Err(Denial::new(
                "workloads",
                self.workloads.to_string(),
                asked(),
            )),
        }
    }

    /// The workloads that the policy allows, with their revisions.
    #[must_use]
    pub fn taken_workloads(&self) -> Vec<(&'static str, u32)> {
        registry::all()
            .iter()
            .filter(|workload| self.check_workload(workload.name()).is_ok())
            .map(|workload| (workload.name(), workload.revision()))
            .collect()
    }

    /// Refuses a link's peer outside the allowed networks. Only the collector can check whether the peer belongs to the
    /// run.
    ///
    /// # Errors
    /// When the peer is in no allowed network.
    pub fn check_peer(&self, peer: IpAddr) -> Result<(), Denial> {
        match self.networks.contain(peer) {
            true => Ok(()),
            false => Err(Denial::new(
                "allow-network",
                self.networks.to_string(),
                format!("the other end of the link is {peer}"),
            )),
        }
    }

    /// The allowed networks of links at this moment.
    #[must_use]
    pub fn networks(&self) -> Vec<Cidr> {
        self.networks.cidrs()
    }

    /// The policy as it is sent to the collector.
    #[must_use]
    pub fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            devices: self
                .targets
                .names_of(&DEVICE)
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            workloads: self.workloads.names().to_vec(),
            limits: self.limits,
            networks: self.networks.resolved(),
            drop_caches: self.drop_caches,
        }
    }
}

/// The options that let an agent accept load.
fn ways_to_load() -> String {
    let options = KINDS.iter().skip(1).map(|kind| kind.option);
    let others: Vec<String> = options
        .chain(["allow-network"])
        .map(|option| format!("--{option}"))
        .collect();
    format!(
        "--{} {}, or {}",
        DIRECTORY.option,
        DIRECTORY.value_name,
        others.join(" or ")
    )
}

/// Facts about the policy that the agent sends when it attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    pub devices: Vec<String>,
    /// Empty: all.
    pub workloads: Vec<String>,
    /// With the defaults of this host.
    pub limits: Limits,
    /// In CIDR notation.
    pub networks: Vec<String>,
    pub drop_caches: bool,
}

#[cfg(test)]
mod tests;
