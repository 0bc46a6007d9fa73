//! Parsers of single command-line values; each error states what to write instead.

use benchmesh_agent::policy::Bytes;
use benchmesh_agent::sampler::DaemonRule;
use benchmesh_answers::query::local_time;
use benchmesh_collector::web::HttpListen;
use benchmesh_model::targets::Locator;
use benchmesh_store::retention::{KeepFor, MaxSize};
use benchmesh_trust::JoinToken;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// Default address on which the collector listens and to which commands and agents connect.
pub use benchmesh_agent::config::DEFAULT_COLLECTOR;

/// `HOST:PORT`, an IPv6 address in brackets. The name is resolved when dialled.
pub fn address(text: &str) -> Result<String, String> {
    let wrong = |problem: &str| {
        Err(format!(
            "{problem}; write HOST:PORT, e.g. {DEFAULT_COLLECTOR}"
        ))
    };
    if text.contains("//") {
        return wrong("it is a URL");
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong("it has no port");
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return wrong("it has no valid host");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return wrong("an IPv6 address needs brackets");
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(text.to_owned()),
        _ => wrong("its port is not a number from 1 to 65535"),
    }
}

/// A token printed by `benchmesh collector token`.
pub fn join_token(text: &str) -> Result<JoinToken, String> {
    text.parse::<JoinToken>().map_err(|error| error.to_string())
}

/// `ADDR:PORT`, an IPv6 address in brackets: one of this machine's addresses, or 0.0.0.0 for all.
pub fn listener(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        String::from(
            "not an address with a port; write ADDR:PORT, e.g. 0.0.0.0:4750 or 127.0.0.1:0",
        )
    })
}

/// `ADDR:PORT`, or `off`.
pub fn http(text: &str) -> Result<HttpListen, String> {
    match text {
        "off" => Ok(HttpListen::Off),
        text => text.parse().map(HttpListen::At).map_err(|_| {
            String::from("not an address with a port; write ADDR:PORT, e.g. 127.0.0.1:4751, or off")
        }),
    }
}

/// Rejects the former option `plan show --agents N`.
pub fn renamed_agents(text: &str) -> Result<u32, String> {
    Err(format!(
        "write --assume-agents {text}: `plan show` does not wait for agents as `run --agents` does"
    ))
}

/// An amount of data of at least 1 MiB.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) if bytes >= 1 << 20 => Ok(bytes),
        Ok(_) => Err("write at least 1m, e.g. 256m".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// `K=V` with a key.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write K=V, e.g. role=client".to_owned()),
    }
}

/// `K=V` with a key, passed on unchanged: the plan gives it a meaning.
pub fn override_(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write K=V, e.g. repeat=3".to_owned()),
    }
}

/// A span with its unit: `500ms`, `30s`, `10m`, `2h`.
pub fn span(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if !span.is_zero() => Ok(span),
        Ok(_) => Err("it must be longer than 0 s, e.g. 30s".to_owned()),
        Err(_) => Err("write a number and a unit, e.g. 500ms, 30s, 10m".to_owned()),
    }
}

/// A span, or `forever`.
pub fn keep_for(text: &str) -> Result<KeepFor, String> {
    match text {
        "forever" => Ok(KeepFor::Forever),
        text => span(text)
            .map(KeepFor::Span)
            .map_err(|_| "write a span such as 7d, or forever".to_owned()),
    }
}

/// A size, or `unlimited`.
pub fn max_size(text: &str) -> Result<MaxSize, String> {
    match text {
        "unlimited" => Ok(MaxSize::Unlimited),
        text => match text.parse::<Bytes>() {
            Ok(Bytes(0)) => {
                Err("a size of 0 is too small; write e.g. 20GB, or unlimited".to_owned())
            }
            Ok(Bytes(bytes)) => Ok(MaxSize::Bytes(bytes)),
            Err(error) => Err(format!("{error}; or write unlimited")),
        },
    }
}

/// When a run begins, in microseconds since the Unix epoch: a time of day here (`02:00`, the next one), a date and a
/// time, or a span from now (`8h`).
pub fn begin_at(text: &str) -> Result<i64, String> {
    let now = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    let span = humantime::parse_duration(text).ok();
    let after = span.and_then(|span| now.checked_add(i64::try_from(span.as_micros()).ok()?));
    match after.or_else(|| local_time::instant(text, now)) {
        Some(at) if at > now => Ok(at),
        Some(_) => Err("this time is in the past; write a future time, such as 02:00 or 8h".to_owned()),
        None => Err("write a time of day such as 02:00, a date and a time such as 2026-12-24T02:00 (with Z or +02:00 \
                     if it is not local time), or a span from now such as 8h"
            .to_owned()),
    }
}

/// An instant in microseconds since the Unix epoch: a date (`2026-11-21`), an instant in UTC (`2026-11-21T09:41:32Z`),
/// or a span ago (`15m`).
pub fn instant(text: &str) -> Result<i64, String> {
    let wrong = || {
        "write a date, an instant such as 2026-11-21T09:41:32Z, or a span ago such as 15m"
            .to_owned()
    };
    let midnight = format!("{text}T00:00:00Z");
    let at = humantime::parse_rfc3339_weak(text)
        .or_else(|_| humantime::parse_rfc3339_weak(&midnight))
        .ok()
        .or_else(|| {
            let ago = humantime::parse_duration(text).ok()?;
            wall_clock().checked_sub(ago)
        })
        .ok_or_else(wrong)?;
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(|_| wrong())?;
    i64::try_from(since.as_micros()).map_err(|_| wrong())
}

/// The wall clock, to which a user's "five minutes ago" refers; mesh time was set from it.
#[expect(
    clippy::disallowed_methods,
    reason = "no collector is asked, so there is no mesh time at hand"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// A daemon to watch: a process's name, or `name=N,comm=C,...`.
pub fn daemon_rule(text: &str) -> Result<DaemonRule, String> {
    let mut rule = DaemonRule::default();
    if !text.contains('=') {
        rule.name = text.trim().to_owned();
        rule.comm = Some(rule.name.clone());
    }
    for part in text.split(',').filter(|_| text.contains('=')) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(format!(
                "`{part}` has no value; write name=NAME,cmdline=PATTERN"
            ));
        };
        let value = value.trim().to_owned();
        match key.trim() {
            "name" => rule.name = value,
            "comm" => rule.comm = Some(value),
            "cmdline" => rule.cmdline = Some(value),
            "cgroup" => rule.cgroup = Some(value),
            "unit" => rule.unit = Some(value),
            "instance-option" => rule.instance_option = Some(value),
            other => {
                return Err(format!(
                    "`{other}` is unknown; the keys are name, comm, cmdline, cgroup, unit, instance-option"
                ));
            }
        }
    }
    rule.check().map_err(|error| error.to_string())?;
    Ok(rule)
}

/// A target as `run WORKLOAD` takes it.
pub fn target(text: &str) -> Result<Locator, String> {
    benchmesh_plan::read_target(text)
}

/// An id, a uid or a name of a run. An empty text is usually an unset variable and never means the newest run.
pub fn run_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a run is an id, a uid, a name, or `last`".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_rule_is_a_name_or_conditions() {
        let rule = daemon_rule("mysqld").unwrap();
        assert_eq!(
            (rule.name.as_str(), rule.comm.as_deref()),
            ("mysqld", Some("mysqld"))
        );
        let rule = daemon_rule("name=shard, cmdline=*--shard=3*,instance-option=--port").unwrap();
        assert_eq!(rule.cmdline.as_deref(), Some("*--shard=3*"));
        assert_eq!(rule.instance_option.as_deref(), Some("--port"));
        for wrong in [
            "",
            "name=x",
            "comm=x",
            "name=x,color=red",
            "name=x,comm",
            "name=x,comm=",
        ] {
            assert!(daemon_rule(wrong).is_err(), "{wrong:?}");
        }
    }
}
