//! `benchmesh agent clean`: what crashed runs left on targets, listed, and removed once the user agrees.

use crate::args::daemons::CleanArguments;
use crate::failure::{Outcome, wrong_usage};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_agent::leftovers::{Allowed, Leftover, find_leftovers, remove_leftover};
use benchmesh_collector::report::Table;
use std::io::{self, BufRead, IsTerminal};
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
    let allowed = Allowed::new(paths).context("look for what runs have left")?;
    let found = find_leftovers(&allowed).context("look for what runs have left")?;
    if found.is_empty() {
        output::print_notice("no run has left anything there");
        return Ok(Outcome::Done);
    }
    output::result(&terminal::plain(&sheet(&found, arguments.unchanged_for)))?;
    let offered: Vec<&Leftover> = found
        .iter()
        .filter(|it| is_offered(it, arguments.unchanged_for))
        .collect();
    if offered.is_empty() {
        output::print_notice("nothing of it is offered for removal");
        return Ok(Outcome::Done);
    }
    let directories = match offered.len() {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    };
    if !arguments.yes && !agrees(&directories)? {
        output::print_notice("nothing was removed");
        return Ok(Outcome::Done);
    }
    for leftover in offered {
        let path = leftover.path.display();
        let mut removed = 0;
        remove_leftover(&allowed, leftover, &mut |entries| removed = entries)
            .with_context(|| format!("remove {path}"))?;
        output::print_notice(&format!("removed {path} ({removed} entries)"));
    }
    Ok(Outcome::Done)
}

fn is_offered(leftover: &Leftover, unchanged_for: Duration) -> bool {
    !leftover.is_held && leftover.unchanged_for >= unchanged_for
}

fn sheet(found: &[Leftover], unchanged_for: Duration) -> Table {
    let cells = |cell: &dyn Fn(&Leftover) -> String| found.iter().map(cell).collect::<Vec<_>>();
    Table::default()
        .text("directory", cells(&|it| it.path.display().to_string()))
        .text("run", cells(&|it| it.run.clone()))
        .figures(
            "unchanged for",
            cells(&|it| humantime::format_duration(it.unchanged_for).to_string()),
        )
        .text(
            "state",
            cells(&|it| {
                let state = match (it.is_held, is_offered(it, unchanged_for)) {
                    (true, _) => "an agent works in it",
                    (false, true) => "left over",
                    (false, false) => "changed lately",
                };
                state.to_owned()
            }),
        )
}

/// Asks the user; without a terminal nobody can answer.
fn agrees(directories: &str) -> anyhow::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(wrong_usage(format!(
            "{directories} would be removed, and there is no terminal to ask: pass --yes"
        )));
    }
    output::print_notice(&format!(
        "remove {directories} and all that is in them? [y/N]"
    ));
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
