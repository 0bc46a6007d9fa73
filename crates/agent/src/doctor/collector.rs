//! The connection to the collector: its port, the agent's certificate, and TLS.

use super::Finding;
use crate::config::AgentConfig;
use crate::identity;
use benchmesh_trust::{Credentials, Security, TcpConnection, credentials, now_s};
use benchmesh_workloads::error_chain;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Number of connections; the fastest one is the latency.
const ROUNDS: usize = 5;
const WITHIN: Duration = Duration::from_secs(5);
/// Above this latency a start instant is far away, and the clocks' error is large.
const SLOW: Duration = Duration::from_millis(50);

const DAY_S: u64 = 86_400;

/// Checks the certificate and the connection to the collector.
pub async fn examine_collector(config: &AgentConfig) -> Vec<Finding> {
    let (certificate, own) = certificate(config).await;
    vec![certificate, connection(config, own.as_ref()).await]
}

/// The agent's own credentials, else those that a collector of the same user has left.
async fn certificate(config: &AgentConfig) -> (Finding, Option<Credentials>) {
    const CHECK: &str = "certificate";
    let join = "get a token with `benchmesh collector token` on the collector's machine, and start the agent once with \
                --join-file FILE";
    if config.insecure {
        let found = "not used (--insecure): anyone who takes over the collector's port can command this agent";
        return (
            Finding::warn(CHECK, found, "remove --insecure on both sides"),
            None,
        );
    }
    let file = config.state_dir.join(identity::FILE);
    let own = match Credentials::load(&file) {
        Ok(own) => own,
        Err(error) => return (Finding::fail(CHECK, error_chain(&error), join), None),
    };
    if let Some(own) = own {
        let finding = judge(&own, &config.name, join);
        return (finding, Some(own));
    }
    let of_user = match &config.credentials_dir {
        Some(directory) => {
            let file = credentials::find_for(directory, &config.collector).await;
            Credentials::load(&file).ok().flatten()
        }
        None => None,
    };
    match (of_user, &config.join) {
        (_, Some(_)) => (
            Finding::ok(CHECK, "none yet; the agent gets one with its join token"),
            None,
        ),
        (Some(user), None) => (
            Finding::ok(
                CHECK,
                "none yet; the agent gets one with this user's credentials for the collector",
            ),
            Some(user),
        ),
        (None, None) => (
            Finding::fail(
                CHECK,
                format!("none ({} does not exist)", file.display()),
                join,
            ),
            None,
        ),
    }
}

fn judge(own: &Credentials, name: &str, join: &str) -> Finding {
    const CHECK: &str = "certificate";
    if own.name != name {
        return Finding::fail(
            CHECK,
            format!(
                "for the agent `{}`, but this agent's name is `{name}`",
                own.name
            ),
            format!("start it with --name {}, or {join}", own.name),
        );
    }
    if own.is_expired() {
        return Finding::fail(CHECK, "has expired", join);
    }
    let days = own.expires_s.saturating_sub(now_s()) / DAY_S;
    Finding::ok(
        CHECK,
        format!("for the agent `{name}`, valid for {days} days; the agent renews it"),
    )
}

async fn connection(config: &AgentConfig, own: Option<&Credentials>) -> Finding {
    const CHECK: &str = "collector";
    let address = &config.collector;
    let remedy = "start the collector, correct --collector, or open the port in firewalls";
    let Some(least) = round_trip(address).await else {
        return Finding::fail(CHECK, format!("no answer from {address}"), remedy);
    };
    let latency = format!(
        "{address}: round trip {:.2} ms",
        least.as_secs_f64() * 1000.0
    );
    let security = match (config.insecure, own) {
        (true, _) => Security::Plain,
        (false, Some(own)) => match Security::of(own) {
            Ok(security) => security,
            Err(error) => {
                return Finding::fail(CHECK, error_chain(&error), "join again with a token");
            }
        },
        // The certificate's own finding names the missing part.
        (false, None) => return Finding::ok(CHECK, latency),
    };
    let dialled = match TcpConnection::at(address).await {
        Ok(connection) => connection.dial(security).await.map(drop),
        Err(error) => Err(error),
    };
    match dialled {
        Err(error) => Finding::fail(CHECK, error_chain(&error), remedy),
        Ok(()) if least > SLOW => Finding::warn(
            CHECK,
            latency,
            "move the collector closer: half the round trip bounds the clock error, and each step's start waits for it",
        ),
        Ok(()) => Finding::ok(
            CHECK,
            format!("{latency}; it accepts this host's certificate"),
        ),
    }
}

/// The shortest time to connect, which is one round trip.
async fn round_trip(address: &str) -> Option<Duration> {
    let mut least: Option<Duration> = None;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        timeout(WITHIN, TcpStream::connect(address))
            .await
            .ok()?
            .ok()?;
        let took = began.elapsed();
        least = Some(least.map_or(took, |least| least.min(took)));
    }
    least
}
