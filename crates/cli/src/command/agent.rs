//! `benchmesh agent`.

use crate::args::Command;
use crate::args::daemons::{AgentArguments, AgentCommand, PolicyArguments};
use crate::command::collector::MAX_TOKEN_BYTES;
use crate::config_file::{ReloadedConfig, Reloads};
use crate::daemon::{end_with_parent, until_signal};
use crate::failure::{self, Outcome, wrong_usage};
use crate::input_file::{self, Accept};
use crate::systemd::Notifier;
use anyhow::Context;
use benchmesh_agent::memory::limit_arenas;
use benchmesh_agent::policy::PolicyConfig;
use benchmesh_agent::privileges::give_up_unused;
use benchmesh_agent::targets::TargetNames;
use benchmesh_agent::{AgentConfig, AgentError, Status, Supervision};
use benchmesh_trust::JoinToken;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub async fn agent(arguments: AgentArguments, insecure: bool) -> anyhow::Result<Outcome> {
    if arguments.end_with_parent {
        end_with_parent()?;
    }
    if arguments.drop_privileges {
        // No other thread exists yet.
        give_up_unused().context("drop the privileges that the agent does not use")?;
    }
    limit_arenas();
    let config = checked(arguments, insecure)?;
    until_signal(|cancel, notifier| async move {
        notifier.ready(&format!("dialing {}", config.collector));
        let mut reloads = Reloads::listen()?;
        let mut config = config;
        let mut before: Option<AgentConfig> = None;
        loop {
            let supervision = Supervision {
                stop: cancel.clone(),
                ..Supervision::default()
            };
            let what = format!(
                "run the agent {:?} for the collector at {}",
                config.name, config.collector
            );
            let work = benchmesh_agent::run(config.clone(), supervision.clone());
            tokio::pin!(work);
            let mut next = None;
            let ended = loop {
                tokio::select! {
                    ended = &mut work => break ended,
                    () = show_status(&supervision, &config.collector, &notifier) => {}
                    wanted = next_config(&mut reloads) => {
                        next = Some(wanted);
                        supervision.stop_when_idle.cancel();
                    }
                }
            };
            match (ended, before.take()) {
                (Err(error), Some(good)) if is_of_configuration(&error) => {
                    tracing::error!(
                        error = failure::causes(&error),
                        "the agent cannot start with the new configuration; it continues with the previous one"
                    );
                    config = good;
                    continue;
                }
                (ended, _) => ended.context(what)?,
            }
            match next {
                Some(wanted) if !cancel.is_cancelled() => {
                    before = Some(std::mem::replace(&mut config, wanted));
                }
                _ => return Ok(()),
            }
            tracing::info!("the agent restarts with the new configuration");
        }
    })
    .await
}

/// Whether the agent would start with a different configuration.
fn is_of_configuration(error: &AgentError) -> bool {
    matches!(
        error,
        AgentError::Config { .. }
            | AgentError::Policy { .. }
            | AgentError::Scratch { .. }
            | AgentError::State { .. }
    )
}

/// Checks and returns the configuration of an agent.
pub fn checked(arguments: AgentArguments, insecure: bool) -> anyhow::Result<AgentConfig> {
    let config = AgentConfig {
        insecure,
        ..configured(arguments)?
    };
    config
        .check()
        .map_err(|error| wrong_usage(error.to_string()))?;
    Ok(config)
}

/// Reports the status to the service manager until the agent ends.
async fn show_status(supervision: &Supervision, collector: &str, notifier: &Notifier) {
    let mut status = supervision.status.subscribe();
    loop {
        let text = match *status.borrow_and_update() {
            Status::NotAttached => format!("not attached to {collector}; trying"),
            Status::Attached => format!("attached to {collector}"),
        };
        notifier.status(&text);
        if status.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The next valid configuration that differs. Cancel-safe.
async fn next_config(reloads: &mut Reloads) -> AgentConfig {
    loop {
        let (path, change) = reloads.next().await;
        match change.and_then(|change| taken_over(&path, change)) {
            Ok(config) => return config,
            Err(error) => tracing::error!(
                file = path,
                error = failure::chain(&error),
                "the configuration is wrong; the agent continues with the previous one"
            ),
        }
    }
}

fn taken_over(path: &str, change: ReloadedConfig) -> anyhow::Result<AgentConfig> {
    let Command::Agent(AgentCommand { arguments, .. }) = change.arguments.command else {
        anyhow::bail!("the file is for another command");
    };
    let config = checked(arguments, change.arguments.insecure)?;
    benchmesh_agent::check(&config)?;
    tracing::info!(
        file = path,
        keys = change.keys.join(", "),
        "the configuration has changed; the agent applies it as soon as it holds no task"
    );
    Ok(config)
}

/// The token in a file; `None` if the file is gone, as after a join.
fn token_in(file: &Path) -> anyhow::Result<Option<JoinToken>> {
    let what = || format!("the join token in {}", file.display());
    match input_file::read_text(file, MAX_TOKEN_BYTES, Accept::RegularFile) {
        Ok(text) => {
            let token = text.trim().parse::<JoinToken>();
            let token = token.map_err(|error| wrong_usage(format!("{}: {error}", what())))?;
            Ok(Some(token))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong_usage(format!("{}: {error}", what()))),
    }
}

fn configured(arguments: AgentArguments) -> anyhow::Result<AgentConfig> {
    let name = match arguments.name {
        Some(name) => name,
        None => host_name().context("find the host's name; set the agent's name with --name")?,
    };
    let state_dir = match arguments.state_dir {
        Some(directory) => directory,
        None => default_state_dir(&name)?,
    };
    let join = match (arguments.join, &arguments.join_file) {
        (None, Some(file)) => token_in(file)?,
        (join, _) => join,
    };
    let mut labels = BTreeMap::new();
    for (key, value) in arguments.labels {
        if labels.insert(key.clone(), value).is_some() {
            return Err(wrong_usage(format!("the label {key:?} is given twice")));
        }
    }
    Ok(AgentConfig {
        collector: arguments.collector,
        labels,
        policy: policy(arguments.policy)?,
        scratch_dir: arguments.scratch,
        advertise: arguments.advertise,
        daemon_rules: arguments.watch,
        sample_period: arguments.sample_period,
        sample_always: arguments.sample_always,
        facts: (arguments.facts.into_iter())
            .flat_map(|facts| facts.0)
            .collect(),
        facts_period: arguments.facts_period,
        facts_timeout: arguments.facts_timeout,
        spool_limit_bytes: arguments.spool_limit.0,
        join,
        credentials_dir: benchmesh_trust::credentials::directory(),
        start_log: arguments.start_log,
        ..AgentConfig::new(name, state_dir)
    })
}

fn policy(arguments: PolicyArguments) -> anyhow::Result<PolicyConfig> {
    Ok(PolicyConfig {
        targets: absolute_targets(&arguments.targets.0)?,
        allow_read: arguments
            .allow_read
            .iter()
            .map(|path| absolute(path))
            .collect::<Result<_, _>>()?,
        allow_network: arguments.allow_network,
        link_ports: arguments.link_ports,
        allow_drop_caches: arguments.allow_drop_caches,
        workloads: arguments.workloads,
        limits: arguments.limits.0,
    })
}

fn absolute_targets(given: &TargetNames) -> anyhow::Result<TargetNames> {
    let mut names = TargetNames::default();
    for (kind, name) in given.iter() {
        match kind.key.is_path {
            true => names.add(kind, absolute(name)?),
            false => names.add(kind, name),
        }
    }
    Ok(names)
}

/// Resolves a relative path against the current directory.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| wrong_usage(format!("the path {}: {error}", path.display())))
}

fn host_name() -> anyhow::Result<String> {
    let system = rustix::system::uname();
    Ok(system
        .nodename()
        .to_str()
        .context("it is not UTF-8")?
        .to_owned())
}

/// The default state directory of an agent.
fn default_state_dir(name: &str) -> anyhow::Result<PathBuf> {
    user_state_path(name).ok_or_else(|| {
        wrong_usage(
            "neither XDG_STATE_HOME nor HOME is set: set the state directory with --state-dir",
        )
    })
}

/// $XDG_STATE_HOME/benchmesh/NAME, else ~/.local/state/benchmesh/NAME; /var/lib/benchmesh/NAME as root.
pub(super) fn user_state_path(name: &str) -> Option<PathBuf> {
    state_dir(
        name,
        rustix::process::geteuid().is_root(),
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        std::env::var_os("HOME").map(PathBuf::from),
    )
}

/// The directory of all state of this user.
pub(super) fn state_home() -> Option<PathBuf> {
    state_base(
        rustix::process::geteuid().is_root(),
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        std::env::var_os("HOME").map(PathBuf::from),
    )
}

fn state_dir(
    name: &str,
    root: bool,
    xdg: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Option<PathBuf> {
    // Each name gets exactly one directory, whatever characters it contains.
    state_base(root, xdg, home).map(|base| base.join(name.replace('/', "_")))
}

fn state_base(root: bool, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let base = match (xdg.filter(absolute), root, home.filter(absolute)) {
        (Some(xdg), _, _) => xdg,
        (None, true, _) => PathBuf::from("/var/lib"),
        (None, false, Some(home)) => home.join(".local/state"),
        (None, false, None) => return None,
    };
    Some(base.join("benchmesh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_has_a_place_of_its_own() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (root, xdg, home, expected) in [
            (false, path("/x"), path("/home/u"), path("/x/benchmesh/n")),
            (
                false,
                None,
                path("/home/u"),
                path("/home/u/.local/state/benchmesh/n"),
            ),
            (
                false,
                path("relative"),
                path("/home/u"),
                path("/home/u/.local/state/benchmesh/n"),
            ),
            (true, None, path("/root"), path("/var/lib/benchmesh/n")),
            (true, path("/x"), None, path("/x/benchmesh/n")),
            (false, None, None, None),
        ] {
            assert_eq!(state_dir("n", root, xdg, home), expected);
        }
        assert_eq!(
            state_dir("../x", true, None, None),
            path("/var/lib/benchmesh/.._x")
        );
    }
}
