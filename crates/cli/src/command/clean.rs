//! `benchmesh agent clean`: lists leftovers of crashed runs on targets, and removes them after confirmation.

use super::confirm::agrees_to_remove;
use crate::args::daemons::CleanArguments;
use crate::failure::{Outcome, wrong_usage};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_agent::leftovers::{
    Allowed, LeftRun, Leftover, PoolRun, PoolSpec, Proof, Usage, find_leftovers, remove_leftover,
    runs_in,
};
use benchmesh_answers::report::Table;
use benchmesh_model::kept_data;
use std::path::PathBuf;
use std::time::Duration;

pub fn clean(arguments: CleanArguments) -> anyhow::Result<Outcome> {
    let absolute = |path: PathBuf| {
        std::path::absolute(&path)
            .map_err(|error| wrong_usage(format!("the path {}: {error}", path.display())))
    };
    let paths: Vec<PathBuf> = arguments
        .allow
        .into_iter()
        .map(absolute)
        .collect::<Result<_, _>>()?;
    let allowed = Allowed::new(paths).context("search for leftovers of runs")?;
    let directories = find_leftovers(&allowed).context("search for leftovers of runs")?;
    let mut found: Vec<FoundLeftover> = directories
        .into_iter()
        .map(FoundLeftover::Directory)
        .collect();
    for pool in &arguments.allow_pool {
        let spec = PoolSpec::parse(pool).map_err(|error| wrong_usage(error.to_string()))?;
        let left = runs_in(&spec).context("search for leftovers of runs")?;
        let found_there = left.into_iter().map(|left| FoundLeftover::Namespace {
            spec: spec.clone(),
            left,
        });
        found.extend(found_there);
    }
    if found.is_empty() {
        output::print_notice("no leftovers of runs found");
        return Ok(Outcome::Done);
    }
    let judged: Vec<(&FoundLeftover, Judgement)> = found
        .iter()
        .map(|leftover| {
            (
                leftover,
                judge(leftover, arguments.unchanged_for, &arguments.ended),
            )
        })
        .collect();
    output::result(&terminal::shown(&sheet(&judged), "json"))?;
    if judged
        .iter()
        .any(|(_, judgement)| *judgement == Judgement::Unknown)
    {
        output::print_notice(
            "leftovers in a pool, and in a directory whose locks do not show whether an agent on another host uses it, \
             are removed only with --ended RUN-UID: name a run that you know has ended",
        );
    }
    if judged
        .iter()
        .any(|(_, judgement)| *judgement == Judgement::Kept)
    {
        output::print_notice(
            "to remove kept data, run `benchmesh data remove NAME`; if no collector knows them any more, use --ended \
             data-NAME",
        );
    }
    let offered: Vec<(&FoundLeftover, Proof)> = judged
        .into_iter()
        .filter_map(|(leftover, judgement)| Some((leftover, judgement.proof()?)))
        .collect();
    if offered.is_empty() {
        output::print_notice("none of these can be removed now");
        return Ok(Outcome::Done);
    }
    let directories = match offered.len() {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    };
    if !arguments.yes && !agrees_to_remove(&format!("{directories} and all that is in them"))? {
        output::print_notice("nothing was removed");
        return Ok(Outcome::Done);
    }
    for (leftover, proof) in offered {
        let shown = leftover.shown();
        let mut removed = 0;
        let removal = leftover.remove(&allowed, proof, &mut |entries| removed = entries);
        removal.with_context(|| format!("remove {shown}"))?;
        output::print_notice(&format!("removed {shown} ({removed} entries)"));
    }
    Ok(Outcome::Done)
}

/// The leftovers of a run.
#[derive(Clone, Debug)]
enum FoundLeftover {
    Directory(Leftover),
    /// In a pool, where nothing shows whether an agent is using it.
    Namespace {
        spec: PoolSpec,
        left: LeftRun,
    },
}

impl FoundLeftover {
    fn shown(&self) -> String {
        match self {
            Self::Directory(leftover) => leftover.path.display().to_string(),
            Self::Namespace { spec, .. } => format!("pool {}", spec.pool),
        }
    }

    fn run(&self) -> &str {
        match self {
            Self::Directory(leftover) => &leftover.run,
            Self::Namespace { left, .. } => &left.run,
        }
    }

    fn unchanged_for(&self) -> Duration {
        match self {
            Self::Directory(leftover) => leftover.unchanged_for,
            Self::Namespace { left, .. } => left.unchanged_for,
        }
    }

    fn usage(&self) -> Usage {
        match self {
            Self::Directory(leftover) => leftover.usage,
            Self::Namespace { .. } => Usage::Unknown,
        }
    }

    fn remove(
        &self,
        allowed: &Allowed,
        proof: Proof,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<()> {
        match self {
            Self::Directory(leftover) => remove_leftover(allowed, leftover, proof, progress)?,
            Self::Namespace { spec, left } => {
                let run = PoolRun {
                    spec: spec.clone(),
                    mesh: left.mesh.clone(),
                    run: left.run.clone(),
                };
                run.remove(progress)?;
            }
        }
        Ok(())
    }
}

/// Whether a directory may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    LeftOver(Proof),
    /// Data kept by a plan.
    Kept,
    InUse,
    ChangedLately,
    /// Nothing proves that it is unused.
    Unknown,
}

impl Judgement {
    fn proof(self) -> Option<Proof> {
        match self {
            Self::LeftOver(proof) => Some(proof),
            Self::Kept | Self::InUse | Self::ChangedLately | Self::Unknown => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::LeftOver(_) => "left over",
            Self::Kept => "kept data",
            Self::InUse => "in use by an agent",
            Self::ChangedLately => "changed recently",
            Self::Unknown => "unknown: no shared locks",
        }
    }
}

fn judge(leftover: &FoundLeftover, unchanged_for: Duration, ended: &[String]) -> Judgement {
    let has_ended = ended.iter().any(|run| run == leftover.run());
    match leftover.usage() {
        Usage::InUse => Judgement::InUse,
        _ if kept_data::name_of(leftover.run()).is_some() && !has_ended => Judgement::Kept,
        _ if leftover.unchanged_for() < unchanged_for => Judgement::ChangedLately,
        Usage::Unused => Judgement::LeftOver(Proof::Lock),
        Usage::Unknown if has_ended => Judgement::LeftOver(Proof::RunHasEnded),
        Usage::Unknown => Judgement::Unknown,
    }
}

fn sheet(judged: &[(&FoundLeftover, Judgement)]) -> Table {
    let cells = |cell: &dyn Fn(&FoundLeftover) -> String| {
        let cells = judged.iter().map(|(leftover, _)| cell(leftover));
        cells.collect::<Vec<_>>()
    };
    let states: Vec<String> = judged
        .iter()
        .map(|(_, it)| it.as_str().to_owned())
        .collect();
    Table::default()
        .text("directory", cells(&FoundLeftover::shown))
        .text("run", cells(&|leftover| leftover.run().to_owned()))
        .figures(
            "unchanged for",
            cells(&|leftover| humantime::format_duration(leftover.unchanged_for()).to_string()),
        )
        .text("state", states)
}
