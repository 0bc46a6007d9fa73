//! The options that limit an agent's load: one for each limit.

use benchmesh_model::limits::{Fallback, Limit, Limits, Setting};
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// The limits set by these options.
#[derive(Clone, Debug, Default)]
pub struct LimitArguments(pub Limits);

impl Args for LimitArguments {
    fn augment_args(command: Command) -> Command {
        command.args(Limit::ALL.iter().map(|limit| option(*limit)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = Self::default();
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = Limits::from_fn(|limit| matches.get_one::<Setting>(limit.row().option).copied());
        Ok(())
    }
}

fn option(limit: Limit) -> Arg {
    let row = limit.row();
    let arg = Arg::new(row.option)
        .long(row.option)
        .value_name(limit.value_name())
        .value_parser(ValueParser::new(move |text: &str| limit.parse(text)));
    match row.default {
        Fallback::Setting(text) => arg.help(row.help).default_value(text),
        // The agent finds it.
        default => arg.help(format!("{} [default: {}]", row.help, default.describe())),
    }
}
