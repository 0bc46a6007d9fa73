//! How fast samples of daemons reach the database.
//!
//! `cargo bench -p benchmesh-collector --bench ingest -- writer` compares the store's writer with a bare rusqlite loop of
//! prepared inserts into the same table, with the same transaction sizes and settings, interleaved.
//! `... -- end-to-end` runs the real collector in this process and ten sessions in another one on the same CPUs:
//! batches of 100 rows, the shipped schema, synchronous=FULL, every row acknowledged after its commit. With
//! `--history-runs 3 --cut-every 10` it also prunes a generated history, and cuts connections.
//! `... -- writes --sessions 1 --daemons 10` reports the disk writes for an hour of samples.
//! `... -- prune --rate 50000` prunes a generated history during ingest into the same file.
//! `... -- lapse --hours 72 --sessions 12 --daemons 10` sends days of telemetry as fast as they are stored, with
//! retention. `--help` lists the options.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing
)]

mod end_to_end;
mod generator;
mod lapse;
mod load;
mod prune;
mod usage;
mod writer;
mod writes;

use benchmesh_synthetic::Shape;
use std::path::PathBuf;
use std::str::FromStr;

const HELP: &str = "\
cargo bench -p benchmesh-collector --bench ingest -- [writer] [end-to-end] [writes] [prune] [lapse] [OPTION]...
  --rounds N     writer: 7; end-to-end: 1
  --seconds N    of an end-to-end round: 60
  --sessions N   10
  --daemons N    per session: 20
  --beats N      per batch: 5; 20 daemons x 5 beats are its 100 rows
  --history-runs N     prune, end-to-end: runs of nine minutes in the history: 10; end-to-end: no history
  --history-seconds N  prune, end-to-end: length of the soak in it: 3600; a week of both is 960 and 86400
  --cut-every N  end-to-end: seconds after which each session loses its connection, again and again: 0, never
  --rate N       prune: rows that are sent in a second: 0, as many as are stored
  --devices N    lapse, writes: disks, and interfaces, of each session: 3
  --hours N      lapse: 12
  --keep-hours N lapse: how long rows of seconds stay, and those of 10 s four times as long: 6
  --max-mb N     lapse: how large the database may become: 0, no limit
  --every N      lapse: seconds between two samples: 1; 10 makes a file of many days sooner, of the same size
  --db FILE      lapse: the database is made there and kept; one that exists is only read
  --one-step     lapse: the run is one step from its beginning to its end
  --against-plain  end-to-end: each round with TLS, then without
  --dir DIR      where the databases go: the directory for temporary files";

/// The command-line options.
#[derive(Clone, Debug)]
pub struct Options {
    pub rounds: Option<usize>,
    pub seconds: u64,
    pub sessions: usize,
    pub daemons: usize,
    pub beats: usize,
    pub directory: PathBuf,
    pub address: String,
    pub history_runs: Option<u32>,
    pub history_seconds: u32,
    pub cut_every: u64,
    pub rate: u64,
    pub devices: i64,
    pub hours: u64,
    pub keep_hours: u64,
    pub max_mb: u64,
    pub every: u64,
    pub db: Option<PathBuf>,
    pub one_step: bool,
    pub against_plain: bool,
    /// Location of the owner's credentials for the generators; `None` means without TLS.
    pub credentials: Option<PathBuf>,
}

impl Options {
    /// The history that is pruned, of this number of runs.
    pub fn history(&self, runs: u32) -> Shape {
        Shape {
            runs,
            soak_seconds: self.history_seconds,
            ..Shape::week()
        }
    }

    pub fn rows_of_a_batch(&self) -> usize {
        self.daemons * self.beats
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = |word: &str| arguments.iter().any(|argument| argument == word);
    let options = Options {
        rounds: option(&arguments, "--rounds"),
        seconds: option(&arguments, "--seconds").unwrap_or(60),
        sessions: option(&arguments, "--sessions").unwrap_or(10),
        daemons: option(&arguments, "--daemons").unwrap_or(20),
        beats: option(&arguments, "--beats").unwrap_or(5),
        directory: option(&arguments, "--dir").unwrap_or_else(std::env::temp_dir),
        history_runs: option(&arguments, "--history-runs"),
        history_seconds: option(&arguments, "--history-seconds").unwrap_or(3600),
        address: option(&arguments, "--address").unwrap_or_default(),
        cut_every: option(&arguments, "--cut-every").unwrap_or(0),
        rate: option(&arguments, "--rate").unwrap_or(0),
        devices: option(&arguments, "--devices").unwrap_or(3),
        hours: option(&arguments, "--hours").unwrap_or(12),
        keep_hours: option(&arguments, "--keep-hours").unwrap_or(6),
        max_mb: option(&arguments, "--max-mb").unwrap_or(0),
        every: option(&arguments, "--every").unwrap_or(1),
        db: option(&arguments, "--db"),
        one_step: asked("--one-step"),
        against_plain: asked("--against-plain"),
        credentials: option(&arguments, "--credentials"),
    };
    if asked("--help") {
        println!("{HELP}");
        return;
    }
    if asked("generate") {
        generator::run(&options);
        return;
    }
    if asked("writes") {
        writes::run(&options);
    }
    if asked("prune") {
        prune::run(&options);
    }
    if asked("lapse") {
        lapse::run(&options);
    }
    let named = ["writer", "end-to-end", "writes", "prune", "lapse"];
    let all = !named.iter().any(|one| asked(one));
    if all || asked("writer") {
        writer::run(&options);
    }
    if all || asked("end-to-end") {
        end_to_end::run(&options);
    }
}

fn option<T: FromStr>(arguments: &[String], name: &str) -> Option<T> {
    let at = arguments.iter().position(|argument| argument == name)?;
    let value = arguments.get(at + 1)?;
    match value.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} {value} is not understood"),
    }
}

/// Median, minimum and maximum.
pub fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let median = if figures.len().is_multiple_of(2) {
        f64::midpoint(figures[middle - 1], figures[middle])
    } else {
        figures[middle]
    };
    (median, figures[0], figures[figures.len() - 1])
}
