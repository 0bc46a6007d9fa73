//! The log: to standard error, filtered by BENCHMESH_LOG.

use crate::args::Command;
use crate::output;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable with the log filter: a level, or directives such as `benchmesh_agent=debug`.
pub const VARIABLE: &str = "BENCHMESH_LOG";

/// Libraries that handle unauthenticated input.
const LIBRARIES: [&str; 6] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "tokio_rustls",
    "tonic",
];

/// Starts logging. Daemons log their activity, commands only problems.
pub fn start(command: &Command) {
    let level = match command {
        Command::Collector(collector) if collector.action.is_some() => LevelFilter::WARN,
        Command::Collector(_) | Command::Agent(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    };
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let (filter, mistake) = filter(wanted.trim(), level);
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Log);
    let registry = tracing_subscriber::registry().with(filter);
    if is_journal() {
        // The journal adds its own time stamps and priorities.
        let bare = lines.with_ansi(false).without_time().with_level(false);
        registry.with(bare.map_event_format(Prioritized)).init();
    } else {
        let lines = lines.with_ansi(std::io::stderr().is_terminal());
        registry.with(lines).init();
    }
    if let Some(error) = mistake {
        tracing::warn!(%error, "{VARIABLE}={wanted:?} is not a log level or filter; logging at {level}");
    }
}

/// The log filter. Unauthenticated input can make libraries log any number of warnings, so only their errors are logged
/// unless the filter names one of them.
fn filter(wanted: &str, level: LevelFilter) -> (Targets, Option<ParseError>) {
    let default = Targets::new().with_default(level);
    let (filter, mistake) = match wanted {
        "" => (default, None),
        wanted => match wanted.parse::<Targets>() {
            Ok(filter) => (filter, None),
            Err(error) => (default, Some(error)),
        },
    };
    let unnamed = LIBRARIES.into_iter().filter(|library| {
        let mut directives = wanted.split(',').map(str::trim);
        !directives.any(|directive| {
            let rest = directive.strip_prefix(library);
            directive == "off"
                || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':']))
        })
    });
    let filter = filter.with_targets(unnamed.map(|library| (library, LevelFilter::ERROR)));
    (filter, mistake)
}

/// Whether standard error is systemd's journal.
pub fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Begins each line with its priority, as `sd-daemon(3)` specifies.
struct Prioritized<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(match *event.metadata().level() {
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            Level::DEBUG | Level::TRACE => "<7>",
        })?;
        self.0.format_event(context, writer, event)
    }
}

/// Standard error, ignored once closed: the reader of a daemon's log may end before the daemon.
#[derive(Debug)]
struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = output::write_notice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_write_the_log_by_way_of_libraries() {
        let check = |wanted: &str, target: &str, level: Level, expected: bool| {
            let (filter, mistake) = filter(wanted, LevelFilter::INFO);
            assert!(mistake.is_none());
            assert_eq!(
                filter.would_enable(target, &level),
                expected,
                "{wanted:?} {target}"
            );
        };
        for wanted in ["", "info", "benchmesh_collector=debug,info", "debug"] {
            for target in [
                "h2::proto::streams::recv",
                "hyper::proto::h1::conn",
                "rustls::conn",
            ] {
                check(wanted, target, Level::WARN, false);
                check(wanted, target, Level::ERROR, true);
            }
            check(wanted, "benchmesh_collector::service", Level::INFO, true);
        }
        check(
            "info,h2=debug",
            "h2::proto::streams::recv",
            Level::DEBUG,
            true,
        );
        check("info,h2=debug", "rustls::conn", Level::WARN, false);
        assert!(filter("no such=level=x", LevelFilter::INFO).1.is_some());
    }
}
