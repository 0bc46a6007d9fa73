//! `benchmesh query` without a statement: a prompt that asks one statement after the other.
//!
//! It reads lines, keeps their history in the user's state directory and completes names. What a line means is decided
//! by [`parse`], without a terminal. Each statement is asked as on the command line, with the same limits; Ctrl-C ends
//! what was entered and not the prompt.

use super::names::Names;
use super::{Asked, Found, RowFormat, answer, asked, example, explain_nothing};
use crate::command::agent;
use crate::failure::{self, Outcome, wrong_usage};
use crate::{output, terminal};
use anyhow::Context as _;
use benchmesh_answers::query::functions::FUNCTIONS;
use benchmesh_answers::query::{is_whole_statement, questions};
use benchmesh_answers::report::Table;
use benchmesh_model::text::{did_you_mean, nearest};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History};
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const PROMPT: &str = "benchmesh> ";
const CONTINUED: &str = "      ...> ";
const HISTORY_LINES: usize = 1000;

const HELP: &str = "\
SQL                ends with a semicolon and may have several lines; Ctrl-C stops it. Several statements are asked one
                   after the other, up to the first error
.tables            all views and tables
.schema [NAME]     columns of all views and tables, or the SQL of one
.questions         the documented questions, with their numbers
NUMBER [RUN]       ask a question, about the newest run or another: its id, uid or name
.quit              leave; Ctrl-D too
Tab completes names, the arrow keys bring back earlier statements.
";

/// How statements are asked.
#[derive(Debug)]
pub(super) struct Asking {
    pub source: Asked,
    pub limit: Duration,
    pub format: RowFormat,
}

/// Whether a person can use the prompt.
pub(super) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

pub(super) async fn run(asking: Asking) -> anyhow::Result<Outcome> {
    let names = Names::read(&asking.source, asking.limit).await?;
    let mut lines = Lines::open(names)?;
    let place = match &asking.source {
        Asked::Database(path) => path.display().to_string(),
        Asked::Collector(address) => format!("the collector at {address}"),
    };
    output::print_notice(&terminal::clean(&format!(
        "{place}: SQL ends with a semicolon; .help lists the commands, .quit leaves"
    )));
    loop {
        // Nothing else is to do on this runtime while it blocks.
        let Some(text) = lines.next()? else {
            return Ok(Outcome::Done);
        };
        let entry = parse(&text);
        if entry == Entry::Quit {
            return Ok(Outcome::Done);
        }
        // Anew for each entry: a Ctrl-C from before does not count.
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for signals")?;
        let done = tokio::select! {
            done = perform(&asking, &mut lines, entry) => done,
            _ = interrupt.recv() => {
                output::print_notice("\nstopped");
                Ok(())
            }
        };
        match done {
            // Nobody reads the answers.
            Err(error) if failure::reader_left(&error) => return Err(error),
            Err(error) => failure::print_error(&error, false),
            Ok(()) => {}
        }
    }
}

async fn perform(asking: &Asking, lines: &mut Lines, entry: Entry<'_>) -> anyhow::Result<()> {
    match entry {
        Entry::Nothing | Entry::Quit => Ok(()),
        Entry::Help => output::result(&help()),
        Entry::Tables => output::result(&tables(lines.names())),
        Entry::Schema(None) => output::result(&columns(lines.names())),
        Entry::Schema(Some(name)) => schema(asking, lines.names(), name).await,
        Entry::Questions => output::result(&listed_questions()),
        Entry::Question(number, run) => question(asking, lines, number, run).await,
        Entry::Statements(text) => {
            for sql in statements(text) {
                statement(asking, sql).await?;
            }
            Ok(())
        }
        Entry::Unknown(word) => Err(wrong_usage(format!(
            "there is no command {word:?}; .help lists them"
        ))),
    }
}

async fn statement(asking: &Asking, sql: &str) -> anyhow::Result<Found> {
    let rows = asked(&asking.source, asking.limit, sql).await?;
    answer(rows, asking.format).await
}

async fn question(
    asking: &Asking,
    lines: &mut Lines,
    number: usize,
    run: Option<&str>,
) -> anyhow::Result<()> {
    let all = questions::all();
    let Some(question) = number.checked_sub(1).and_then(|at| all.get(at)) else {
        return Err(wrong_usage(format!(
            "there are questions 1 to {}; .questions lists them",
            all.len()
        )));
    };
    let sql = example(&asking.source, asking.limit, question.name, run).await?;
    output::result(&format!("{}\n\n{sql};\n\n", question.asks))?;
    lines.remember(&format!("{sql};"));
    if statement(asking, &sql).await? == Found::Nothing {
        explain_nothing(question.name);
    }
    Ok(())
}

/// The SQL that made a table or view.
async fn schema(asking: &Asking, names: &Names, name: &str) -> anyhow::Result<()> {
    let known = names.tables.iter().map(|table| table.name.as_str());
    let Some(name) = known.clone().find(|one| one.eq_ignore_ascii_case(name)) else {
        let meant =
            nearest(name, known).map_or_else(|| ".tables lists them".to_owned(), did_you_mean);
        return Err(wrong_usage(format!("there is no table {name:?}; {meant}")));
    };
    let quoted = name.replace('\'', "''");
    let sql = format!("SELECT sql FROM sqlite_schema WHERE name = '{quoted}'");
    let rows = asked(&asking.source, asking.limit, &sql).await?;
    let text = rows.first_text().await?.unwrap_or_default();
    output::result(&format!("{};\n", terminal::clean_lines(&text)))
}

fn help() -> String {
    let mut text = HELP.to_owned();
    text.push_str("\nFunctions beside SQLite's own:\n");
    for one in FUNCTIONS {
        let _ = writeln!(text, "{:<28} {}", one.signature, one.meaning);
    }
    text
}

fn tables(names: &Names) -> String {
    let mut text = String::new();
    for table in &names.tables {
        text.push_str(&terminal::clean(&table.name));
        text.push('\n');
    }
    text
}

fn columns(names: &Names) -> String {
    let mut text = String::new();
    for table in &names.tables {
        let line = format!("{} ({})", table.name, table.columns.join(", "));
        text.push_str(&terminal::clean(&line));
        text.push('\n');
    }
    text
}

fn listed_questions() -> String {
    let all = questions::all();
    let table = Table::titled("")
        .figures("", (1..=all.len()).map(|number| number.to_string()))
        .text("name", all.iter().map(|one| one.name.to_owned()))
        .text("question", all.iter().map(|one| one.asks.to_owned()));
    terminal::fitting(&table, terminal::width(), "json")
}

/// What a person has entered.
#[derive(Debug, PartialEq, Eq)]
enum Entry<'t> {
    Nothing,
    Quit,
    Help,
    Tables,
    Schema(Option<&'t str>),
    Questions,
    /// Its number from 1, and the run that it is about.
    Question(usize, Option<&'t str>),
    /// One or more.
    Statements(&'t str),
    /// A command that does not exist.
    Unknown(&'t str),
}

fn parse(text: &str) -> Entry<'_> {
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim().trim_end_matches(';').trim_end();
    let argument = Some(rest).filter(|rest| !rest.is_empty());
    let word = first.trim_end_matches(';');
    match word {
        "" => Entry::Nothing,
        ".quit" | ".exit" | ".q" => Entry::Quit,
        ".help" | ".h" | ".?" => Entry::Help,
        ".tables" => Entry::Tables,
        ".schema" => Entry::Schema(argument),
        ".questions" => Entry::Questions,
        _ if word.starts_with('.') => Entry::Unknown(word),
        _ => match word.parse() {
            Ok(number) => Entry::Question(number, argument),
            Err(_) => Entry::Statements(text),
        },
    }
}

/// Whether more lines belong to what was entered so far: a statement goes on to its semicolon.
fn is_incomplete(text: &str) -> bool {
    matches!(parse(text), Entry::Statements(sql) if !is_whole_statement(sql))
}

/// The statements of a text that ends with a whole one. What follows the last semicolon is a comment.
fn statements(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(';') {
        let one = text.get(start..=at).unwrap_or_default();
        if is_whole_statement(one) {
            found.push(one.trim());
            start = at + 1;
        }
    }
    found.retain(|one| *one != ";");
    found
}

/// Reads what a person enters, line by line.
struct Lines {
    editor: Editor<Completion, FileHistory>,
    /// `None`: the history is not kept.
    history: Option<PathBuf>,
}

impl Lines {
    fn open(names: Names) -> anyhow::Result<Self> {
        let what = "open the terminal";
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_LINES)
            .context(what)?
            .build();
        let mut editor = Editor::with_config(config).context(what)?;
        editor.set_helper(Some(Completion {
            names,
            before: String::new(),
        }));
        let history = history_path();
        if let Some(path) = &history {
            // The history may not exist yet or be unreadable: the prompt works without it.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    fn names(&self) -> &Names {
        static NONE: Names = Names::none();
        self.editor.helper().map_or(&NONE, |helper| &helper.names)
    }

    /// A command or a whole statement; `None` at the end. Ctrl-C drops the lines so far.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let mut text = String::new();
        loop {
            if let Some(helper) = self.editor.helper_mut() {
                helper.before.clone_from(&text);
            }
            let prompt = if text.is_empty() { PROMPT } else { CONTINUED };
            match self.editor.readline(prompt) {
                Ok(line) => {
                    text.push_str(&line);
                    if is_incomplete(&text) {
                        text.push('\n');
                        continue;
                    }
                    self.remember(&text);
                    return Ok(Some(text));
                }
                Err(ReadlineError::Interrupted) => text.clear(),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error).context("read from the terminal"),
            }
        }
    }

    fn remember(&mut self, text: &str) {
        let Some(entry) = history_entry(text) else {
            return;
        };
        let is_new = self.editor.add_history_entry(entry).unwrap_or(false);
        if let (true, Some(path)) = (is_new, &self.history) {
            // A full disk must not end the prompt.
            let _ = self.editor.history_mut().append(path);
        }
    }
}

/// The text as the history keeps it: on one line, if that does not change it. `None`: a line that begins with a blank
/// is not kept.
fn history_entry(text: &str) -> Option<String> {
    if text.starts_with(char::is_whitespace) {
        return None;
    }
    // The end of a line may be part of a literal or a name, and ends a comment.
    let is_kept = text.contains(['\'', '"', '`', '[']) || text.contains("--");
    Some(match is_kept {
        true => text.to_owned(),
        false => text.replace('\n', " "),
    })
}

/// `query_history` in the user's state directory, which only the user can read.
fn history_path() -> Option<PathBuf> {
    let directory = agent::state_home()?;
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .ok()?;
    Some(directory.join("query_history"))
}

/// Completes names at the cursor.
struct Completion {
    names: Names,
    /// The lines of the statement before this one.
    before: String,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let until = line.get(..position).unwrap_or(line);
        let statement = format!("{}{line}", self.before);
        Ok(self.names.complete(until, &statement))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart() {
        for (text, expected, more) in [
            ("", Entry::Nothing, false),
            ("  ;", Entry::Nothing, false),
            (".quit", Entry::Quit, false),
            (" .help ", Entry::Help, false),
            (".schema", Entry::Schema(None), false),
            (
                ".schema v_results;",
                Entry::Schema(Some("v_results")),
                false,
            ),
            ("12", Entry::Question(12, None), false),
            ("12;", Entry::Question(12, None), false),
            (
                "3 nightly soak",
                Entry::Question(3, Some("nightly soak")),
                false,
            ),
            (".dump x", Entry::Unknown(".dump"), false),
            ("SELECT 1;", Entry::Statements("SELECT 1;"), false),
            ("SELECT 1\n", Entry::Statements("SELECT 1"), true),
            (
                "SELECT 1\nFROM runs; ",
                Entry::Statements("SELECT 1\nFROM runs;"),
                false,
            ),
            (
                "SELECT 1; -- one",
                Entry::Statements("SELECT 1; -- one"),
                false,
            ),
            ("SELECT 'a;\n", Entry::Statements("SELECT 'a;"), true),
        ] {
            assert_eq!(parse(text), expected, "{text}");
            assert_eq!(is_incomplete(text), more, "{text}");
        }
    }

    #[test]
    fn statements_are_asked_one_by_one() {
        for (text, expected) in [
            ("SELECT 1;", ["SELECT 1;"].as_slice()),
            (
                "SELECT 1;\nSELECT ';' -- ;\n; ;SELECT 3; -- three;",
                &["SELECT 1;", "SELECT ';' -- ;\n;", "SELECT 3;"],
            ),
        ] {
            assert_eq!(statements(text), expected, "{text}");
        }
    }

    #[test]
    fn the_history_keeps_statements_as_they_are() {
        for (text, expected) in [
            ("SELECT 1;", Some("SELECT 1;")),
            ("SELECT 1\nFROM  runs;", Some("SELECT 1 FROM  runs;")),
            ("SELECT 'a  b\nc';", Some("SELECT 'a  b\nc';")),
            (
                "SELECT 1 -- one\nFROM runs;",
                Some("SELECT 1 -- one\nFROM runs;"),
            ),
            (" SELECT 1;", None),
            ("\tSELECT 1;", None),
            (".tables", Some(".tables")),
        ] {
            assert_eq!(history_entry(text).as_deref(), expected, "{text}");
        }
    }
}
