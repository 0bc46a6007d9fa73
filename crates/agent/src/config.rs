//! The agent's configuration, and the mistakes that are detectable before it dials.
//!
//! This module does not touch files or sockets: `state` and the workloads' sandbox resolve paths. A collector cannot
//! change anything here.

use crate::facts::{FactSource, MAX_SOURCES};
use crate::policy::PolicyConfig;
use crate::sampler::{DaemonRule, MIN_PERIOD, RuleError};
use benchmesh_model::text::is_hidden;
use benchmesh_trust::JoinToken;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Default address of the collector.
pub const DEFAULT_COLLECTOR: &str = "127.0.0.1:4750";

/// Default size limit of the spool: a day's telemetry of a busy node.
pub const DEFAULT_SPOOL_LIMIT_BYTES: u64 = 256 << 20;

/// Minimum spool size: batches in flight, a few to merge, and the write-ahead log.
pub const MIN_SPOOL_LIMIT_BYTES: u64 = 16 << 20;

const MIN_FACTS_PERIOD: Duration = Duration::from_secs(1);
const FACTS_TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
const MAX_PERIOD: Duration = Duration::from_secs(3600);
const MAX_NAME_BYTES: usize = 128;
const MAX_LABELS: usize = 64;
const MAX_LABEL_BYTES: usize = 256;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The collector's gRPC address, `host:port`.
    pub collector: String,
    /// The agent's name, unique in its mesh.
    pub name: String,
    /// Labels by which plans select agents.
    pub labels: BTreeMap<String, String>,
    /// The load that the agent accepts.
    pub policy: PolicyConfig,
    /// Directory of the agent's uid and its spools; must not lie on a target.
    pub state_dir: PathBuf,
    /// Directory for task data that is not on a target; `None`: tasks that need it are refused.
    pub scratch_dir: Option<PathBuf>,
    /// The address where peers reach this agent; `None`: the address that the collector sees.
    pub advertise: Option<String>,
    /// Daemons to watch in addition to the built-in ones.
    pub daemon_rules: Vec<DaemonRule>,
    /// Sampling period, if the collector wants more than marks.
    pub sample_period: Duration,
    /// Sample this host between runs too.
    pub sample_always: bool,
    /// Commands that report the state of the storage cluster.
    pub facts: Vec<FactSource>,
    /// Minimum time between two readings of these facts.
    pub facts_period: Duration,
    /// Timeout of one such command; it is killed afterwards.
    pub facts_timeout: Duration,
    /// Size limit of the spool files together, in bytes.
    pub spool_limit_bytes: u64,
    /// Obtains a certificate if there is no suitable one.
    pub join: Option<JoinToken>,
    /// Directory of this user's credentials, where a collector of the same user leaves some; `None`: do not look.
    pub credentials_dir: Option<PathBuf>,
    /// Connect to the collector without TLS.
    pub insecure: bool,
    /// File for the raw start instant of every worker, as a check that is independent of the reported figures.
    pub start_log: Option<PathBuf>,
}

/// A mistake in the configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("collector `{given}`: {problem}; write it as host:port, such as {DEFAULT_COLLECTOR}")]
    Collector {
        given: String,
        problem: &'static str,
    },
    #[error("name `{given}`: {problem}")]
    Name {
        given: String,
        problem: &'static str,
    },
    #[error("label `{given}`: {problem}")]
    Label {
        given: String,
        problem: &'static str,
    },
    #[error("{given} labels are too many; at most {MAX_LABELS}")]
    Labels { given: usize },
    #[error("a sampling period of {given:?} is out of range; 100 ms to 1 h")]
    SamplePeriod { given: Duration },
    #[error("facts of {given} sources are too many; at most {MAX_SOURCES}")]
    Facts { given: usize },
    #[error("--facts names `{system}` twice")]
    FactsTwice { system: String },
    #[error("a period of {given:?} between readings of facts is out of range; 1 s to 1 h")]
    FactsPeriod { given: Duration },
    #[error("a timeout of {given:?} for a command of --facts is out of range; 1 s to 10 min")]
    FactsTimeout { given: Duration },
    #[error("a spool of {given} bytes is too small; at least {MIN_SPOOL_LIMIT_BYTES} (16MiB)")]
    SpoolLimit { given: u64 },
    #[error("daemon rule `{name}`")]
    Rule {
        name: String,
        #[source]
        source: RuleError,
    },
    #[error("advertised address `{given}`: {problem}")]
    Advertise {
        given: String,
        problem: &'static str,
    },
}

impl AgentConfig {
    /// A configuration with every default, which allows nothing and dials the collector on this machine.
    #[must_use]
    pub fn new(name: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            collector: DEFAULT_COLLECTOR.to_owned(),
            name: name.into(),
            labels: BTreeMap::new(),
            policy: PolicyConfig::default(),
            state_dir: state_dir.into(),
            scratch_dir: None,
            advertise: None,
            daemon_rules: Vec::new(),
            sample_period: Duration::from_secs(1),
            sample_always: false,
            facts: Vec::new(),
            facts_period: Duration::from_secs(10),
            facts_timeout: Duration::from_secs(60),
            spool_limit_bytes: DEFAULT_SPOOL_LIMIT_BYTES,
            join: None,
            credentials_dir: None,
            insecure: false,
            start_log: None,
        }
    }

    /// Checks everything that is verifiable before anything is opened.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_collector(&self.collector)?;
        check_name(&self.name)?;
        if self.labels.len() > MAX_LABELS {
            return Err(ConfigError::Labels {
                given: self.labels.len(),
            });
        }
        for (key, value) in &self.labels {
            check_label(key, value)?;
        }
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.sample_period) {
            return Err(ConfigError::SamplePeriod {
                given: self.sample_period,
            });
        }
        if self.spool_limit_bytes < MIN_SPOOL_LIMIT_BYTES {
            return Err(ConfigError::SpoolLimit {
                given: self.spool_limit_bytes,
            });
        }
        self.check_facts()?;
        for rule in &self.daemon_rules {
            rule.check().map_err(|source| ConfigError::Rule {
                name: rule.name.clone(),
                source,
            })?;
        }
        if let Some(address) = &self.advertise {
            check_advertise(address)?;
        }
        Ok(())
    }

    fn check_facts(&self) -> Result<(), ConfigError> {
        if self.facts.len() > MAX_SOURCES {
            return Err(ConfigError::Facts {
                given: self.facts.len(),
            });
        }
        let mut seen = BTreeSet::new();
        let again = |source: &&FactSource| !seen.insert(source.system().to_owned());
        if let Some(source) = self.facts.iter().find(again) {
            return Err(ConfigError::FactsTwice {
                system: source.system().to_owned(),
            });
        }
        if !(MIN_FACTS_PERIOD..=MAX_PERIOD).contains(&self.facts_period) {
            return Err(ConfigError::FactsPeriod {
                given: self.facts_period,
            });
        }
        if !FACTS_TIMEOUTS.contains(&self.facts_timeout) {
            return Err(ConfigError::FactsTimeout {
                given: self.facts_timeout,
            });
        }
        Ok(())
    }
}

/// Splits `host:port`; an IPv6 address is in brackets.
fn split(address: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let port = port
        .parse::<u16>()
        .map_err(|_| "its port is not a number from 1 to 65535")?;
    if port == 0 {
        return Err("its port is 0");
    }
    if host.is_empty() {
        return Err("it has no host");
    }
    if host.contains("//") {
        return Err("it is a URL");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address needs brackets");
    }
    if host
        .chars()
        .any(|c| c.is_whitespace() || c == '/' || c == '@')
    {
        return Err("its host is not a name or an address");
    }
    Ok((host, port))
}

fn check_collector(given: &str) -> Result<(), ConfigError> {
    split(given)
        .map(drop)
        .map_err(|problem| ConfigError::Collector {
            given: given.to_owned(),
            problem,
        })
}

fn check_name(given: &str) -> Result<(), ConfigError> {
    let wrong = |problem| {
        Err(ConfigError::Name {
            given: given.to_owned(),
            problem,
        })
    };
    if given.is_empty() {
        return wrong("it is empty");
    }
    if given.len() > MAX_NAME_BYTES {
        return wrong("it is longer than 128 bytes");
    }
    if given.chars().any(|c| is_hidden(c) || c.is_whitespace()) {
        return wrong("it contains a space or an invisible character");
    }
    // The name becomes a directory name.
    if given.contains('/') || given.contains("..") {
        return wrong("it contains `/` or `..`");
    }
    Ok(())
}

fn check_label(key: &str, value: &str) -> Result<(), ConfigError> {
    let wrong = |problem| {
        Err(ConfigError::Label {
            given: format!("{key}={value}"),
            problem,
        })
    };
    if key.is_empty() {
        return wrong("it has no key; write KEY=VALUE");
    }
    if key.len() + value.len() > MAX_LABEL_BYTES {
        return wrong("it is longer than 256 bytes");
    }
    if key.chars().chain(value.chars()).any(is_hidden) {
        return wrong("it contains a control character");
    }
    Ok(())
}

/// Must be an IP address: a host name could resolve differently on each host, and nothing resolves it.
fn check_advertise(given: &str) -> Result<(), ConfigError> {
    let problem = match given.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => {
            "it is the unspecified address: give one of this host"
        }
        Ok(_) => return Ok(()),
        Err(_) => {
            "it is not an IP address: give one without a port, because tasks choose the ports of links"
        }
    };
    Err(ConfigError::Advertise {
        given: given.to_owned(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn with(change: impl FnOnce(&mut AgentConfig)) -> Result<(), ConfigError> {
        let mut config = AgentConfig::new("node-1", "/var/lib/benchmesh/agent");
        change(&mut config);
        config.check()
    }

    #[test]
    fn defaults_are_right() {
        assert_eq!(with(|_| {}), Ok(()));
    }

    #[test]
    fn collectors() {
        for (given, good) in [
            ("127.0.0.1:4750", true),
            ("[::1]:4750", true),
            ("localhost:1", true),
            ("127.9.9.9:65535", true),
            ("10.0.0.1:4750", true),
            ("node-7:4750", true),
            ("127.0.0.1", false),
            ("127.0.0.1:", false),
            ("127.0.0.1:0", false),
            ("127.0.0.1:70000", false),
            (":4750", false),
            ("http://127.0.0.1:4750", false),
            ("::1:4750", false),
            ("", false),
        ] {
            assert_eq!(
                with(|c| c.collector = given.into()).is_ok(),
                good,
                "{given}"
            );
        }
    }

    #[test]
    fn names_labels_and_limits() {
        for name in ["", "a b", "a\n", &"n".repeat(129)] {
            assert!(with(|c| c.name = name.into()).is_err(), "{name:?}");
        }
        for (key, value) in [("", "x"), ("k", "\0"), ("k", &*"v".repeat(300))] {
            let label = (key.to_owned(), value.to_owned());
            assert!(with(|c| c.labels.extend([label])).is_err(), "{key}={value}");
        }
        assert!(with(|c| c.sample_period = Duration::from_millis(99)).is_err());
        assert!(with(|c| c.spool_limit_bytes = 1).is_err());
        let matches_all = DaemonRule {
            name: "all".to_owned(),
            ..DaemonRule::default()
        };
        assert!(with(|c| c.daemon_rules.push(matches_all)).is_err());
        let source: FactSource = "ceph".parse().unwrap();
        assert!(with(|c| c.facts = vec![source.clone(), source]).is_err());
        assert!(with(|c| c.facts_period = Duration::ZERO).is_err());
        assert!(with(|c| c.facts_timeout = Duration::ZERO).is_err());
        for (address, good) in [
            ("10.1.2.3", true),
            ("fe80::1", true),
            ("0.0.0.0", false),
            ("node", false),
            ("10.1.2.3:1", false),
            ("", false),
        ] {
            assert_eq!(
                with(|c| c.advertise = Some(address.into())).is_ok(),
                good,
                "{address}"
            );
        }
    }
}
