//! `benchmesh agent`.

use super::{end_with_parent, until_told};
use crate::args::daemons::AgentArguments;
use crate::failure::{Outcome, wrong_usage};
use anyhow::Context;
use benchmesh_agent::AgentConfig;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub async fn agent(arguments: AgentArguments) -> anyhow::Result<Outcome> {
    if arguments.end_with_parent {
        end_with_parent()?;
    }
    let config = configured(arguments)?;
    config
        .check()
        .map_err(|error| wrong_usage(error.to_string()))?;
    let what = format!(
        "run the agent {:?} for the collector at {}",
        config.name, config.collector
    );
    until_told(|cancel| async move { benchmesh_agent::run(config, cancel).await.context(what) })
        .await
}

fn configured(arguments: AgentArguments) -> anyhow::Result<AgentConfig> {
    let name = match arguments.name {
        Some(name) => name,
        None => host_name().context("find the host's name; name the agent with --name")?,
    };
    let state_dir = match arguments.state_dir {
        Some(directory) => directory,
        None => default_state_dir(&name)?,
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
        allow: absolute(arguments.allow)?,
        allow_devices: absolute(arguments.allow_devices)?,
        allow_read: absolute(arguments.allow_read)?,
        scratch_dir: arguments.scratch,
        advertise: arguments.advertise,
        daemon_rules: arguments.watch,
        sample_period: arguments.sample_period,
        insecure: arguments.insecure,
        start_log: arguments.start_log,
        ..AgentConfig::new(name, state_dir)
    })
}

/// Paths as typed are meant from here.
fn absolute(paths: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let absolute = |path: PathBuf| {
        std::path::absolute(&path)
            .map_err(|error| wrong_usage(format!("the path {}: {error}", path.display())))
    };
    paths.into_iter().map(absolute).collect()
}

fn host_name() -> anyhow::Result<String> {
    let system = rustix::system::uname();
    Ok(system
        .nodename()
        .to_str()
        .context("it is not UTF-8")?
        .to_owned())
}

/// $XDG_STATE_HOME/benchmesh/NAME, else ~/.local/state/benchmesh/NAME; /var/lib/benchmesh/NAME as root.
fn default_state_dir(name: &str) -> anyhow::Result<PathBuf> {
    state_dir(
        name,
        rustix::process::geteuid().is_root(),
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        std::env::var_os("HOME").map(PathBuf::from),
    )
    .ok_or_else(|| {
        wrong_usage(
            "neither XDG_STATE_HOME nor HOME is set: say where to keep state with --state-dir",
        )
    })
}

fn state_dir(
    name: &str,
    root: bool,
    xdg: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let base = match (xdg.filter(absolute), root, home.filter(absolute)) {
        (Some(xdg), _, _) => xdg,
        (None, true, _) => PathBuf::from("/var/lib"),
        (None, false, Some(home)) => home.join(".local/state"),
        (None, false, None) => return None,
    };
    // A name is one directory, whatever is in it.
    Some(base.join("benchmesh").join(name.replace('/', "_")))
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
