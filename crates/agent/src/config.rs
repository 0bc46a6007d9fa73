//! What an agent is told at its start, and the mistakes that can be known before it dials.
//!
//! It knows nothing of files or sockets: paths are resolved by `state` and by the sandbox of the workloads. A collector
//! cannot change anything here.

use crate::policy::PolicyConfig;
use crate::sampler::{DaemonRule, MIN_PERIOD, RuleError};
use benchmesh_model::text::is_hidden;
use benchmesh_trust::JoinToken;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where the collector listens unless told otherwise.
pub const DEFAULT_COLLECTOR: &str = "127.0.0.1:4750";

/// How much an agent spools at the most: a day's telemetry of a busy node.
pub const DEFAULT_SPOOL_LIMIT_BYTES: u64 = 256 << 20;

/// The smallest spool that can work: it holds the batches on their way and a few to merge, and its write-ahead log.
pub const MIN_SPOOL_LIMIT_BYTES: u64 = 16 << 20;

const MAX_PERIOD: Duration = Duration::from_secs(3600);
const MAX_NAME_BYTES: usize = 128;
const MAX_LABELS: usize = 64;
const MAX_LABEL_BYTES: usize = 256;

/// Everything an agent is told.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The collector's gRPC address, `host:port`.
    pub collector: String,
    /// The agent's name, unique in its mesh.
    pub name: String,
    /// What plans select agents by.
    pub labels: BTreeMap<String, String>,
    /// What load it takes.
    pub policy: PolicyConfig,
    /// Where the agent keeps its uid and its spools; must not lie on a target.
    pub state_dir: PathBuf,
    /// Where tasks keep local data that is not on a target; none: such tasks are refused.
    pub scratch_dir: Option<PathBuf>,
    /// The address where peers reach this agent; none: as the collector sees it.
    pub advertise: Option<String>,
    /// Daemons to watch beside those that are known by name.
    pub daemon_rules: Vec<DaemonRule>,
    /// How often to sample, when the collector wants more than marks.
    pub sample_period: Duration,
    /// Sample this host between runs, too.
    pub sample_always: bool,
    /// How much may wait in the spools, in bytes of their files.
    pub spool_limit_bytes: u64,
    /// Gets the agent its certificate where there is none that fits.
    pub join: Option<JoinToken>,
    /// Where this user's credentials are; a collector of the same user leaves some there. `None`: nowhere.
    pub credentials_dir: Option<PathBuf>,
    /// Speak to the collector without TLS.
    pub insecure: bool,
    /// Where the raw start of every worker is written, apart from what is reported.
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
    /// A configuration that allows nothing, with every default: the collector on this machine.
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
            spool_limit_bytes: DEFAULT_SPOOL_LIMIT_BYTES,
            join: None,
            credentials_dir: None,
            insecure: false,
            start_log: None,
        }
    }

    /// Everything that can be known to be wrong before anything is opened.
    ///
    /// # Errors
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
}

/// Splits `host:port`; an IPv6 address stands in brackets.
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
        return wrong("it contains a space, or a character that is not seen");
    }
    // It becomes the name of a directory.
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

/// A name would mean something else to each host, and nothing looks it up.
fn check_advertise(given: &str) -> Result<(), ConfigError> {
    let problem = match given.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => "it is every address: give one",
        Ok(_) => return Ok(()),
        Err(_) => {
            "give an IP address, without a port: links are opened to it, and tasks choose theirs"
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
