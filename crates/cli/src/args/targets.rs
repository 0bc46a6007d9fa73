//! The options that allow targets: one for each kind of target.

use benchmesh_agent::targets::TargetNames;
use benchmesh_model::targets::{KINDS, TargetKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use std::path::PathBuf;

/// The targets named by these options.
#[derive(Clone, Debug, Default)]
pub struct TargetArguments(pub TargetNames);

impl Args for TargetArguments {
    fn augment_args(command: Command) -> Command {
        command.args(KINDS.iter().map(|kind| option(kind)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TargetArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = Self::default();
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for kind in KINDS {
            for name in matches
                .get_many::<PathBuf>(kind.option)
                .into_iter()
                .flatten()
            {
                self.0.add(kind, name);
            }
        }
        Ok(())
    }
}

fn option(kind: &TargetKind) -> Arg {
    Arg::new(kind.option)
        .long(kind.option)
        .value_name(kind.value_name)
        .value_parser(value_parser!(PathBuf))
        .value_hint(match (kind.key.is_path, kind.has_run_directory) {
            (true, true) => ValueHint::DirPath,
            (true, false) => ValueHint::FilePath,
            (false, _) => ValueHint::Other,
        })
        .action(ArgAction::Append)
        .help(kind.help)
}
