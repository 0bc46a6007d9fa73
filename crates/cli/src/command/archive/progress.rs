//! How far a push or a fetch is: a bar with the rate and the time left on a terminal, a line per run otherwise.

use crate::failure::causes;
use crate::{output, terminal};
use benchmesh_archive::postgres::fetch::FetchEvent;
use benchmesh_archive::postgres::push::{Outcome, PushEvent};
use benchmesh_workloads::figures;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

#[derive(Debug)]
pub struct Progress {
    /// Drawn on a terminal only.
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        let template = "{msg} {bar:20} {human_pos}/{human_len} rows, {per_sec}, {eta} left";
        // A wrong template leaves the default one.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self {
            bar,
            began: Instant::now(),
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    pub fn pushed(&mut self, event: PushEvent<'_>) {
        match event {
            PushEvent::Note(note) => self.line(note),
            PushEvent::Site(_) => {}
            PushEvent::Run { run, nth, runs } => self.begin(&run.name, nth, runs),
            PushEvent::Rows { sent, all } => self.rows(sent, all),
            PushEvent::Pushed { run, outcome, rows } => {
                let what = match outcome {
                    Outcome::Unchanged => return,
                    Outcome::New => "pushed",
                    Outcome::Replaced => "replaced",
                    Outcome::ReplacedButSeconds => {
                        "replaced, but for its rows of seconds, of which the archive has more"
                    }
                };
                let took = self.took(rows);
                self.line(&format!("run {} ({}): {what}; {took}", run.id, run.name));
            }
            PushEvent::Again { error, wait } => {
                self.line(&format!(
                    "{}; again in {}",
                    causes(error),
                    figures::span(wait)
                ));
            }
        }
    }

    pub fn fetched(&mut self, event: FetchEvent<'_>) {
        match event {
            FetchEvent::Run { run, nth, runs } => self.begin(&run.run, nth, runs),
            FetchEvent::Rows { come, all } => self.rows(come, all),
            FetchEvent::Fetched(run) => {
                let took = self.took(run.rows.unsigned_abs());
                self.line(&format!(
                    "run {} of {} ({}): fetched; {took}",
                    run.run_id, run.site, run.run
                ));
            }
            FetchEvent::IsThere(run) => {
                self.line(&format!(
                    "run {} of {} ({}): is there",
                    run.run_id, run.site, run.run
                ));
            }
        }
    }

    fn begin(&mut self, name: &str, nth: usize, runs: usize) {
        self.began = Instant::now();
        self.bar.set_length(0);
        self.bar.set_position(0);
        self.bar.reset_eta();
        self.bar
            .set_message(format!("{nth}/{runs} {}", terminal::clean(name)));
    }

    fn rows(&self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    fn took(&self, rows: u64) -> String {
        let rows = figures::count(i64::try_from(rows).unwrap_or(i64::MAX));
        format!("{rows} rows in {}", figures::span(self.began.elapsed()))
    }

    fn line(&self, text: &str) {
        self.bar
            .suspend(|| output::print_notice(&terminal::clean_lines(text)));
    }
}
