//! Progress on a terminal, redrawn in place: the step, its rate with the rates of the last seconds, the slowest client
//! and the busiest daemon if requested, and the run. Results scroll by above these lines.

use super::echo::EchoOff;
use super::format;
use super::names::Names;
use crate::terminal::clean;
use benchmesh_model::mesh::StepState;
use benchmesh_scheduler::snapshot::RunUpdate;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

const SHARES: u64 = 1000;

/// Width of the bar in columns.
const BAR_WIDTH: usize = 35;

/// Number of rates in the sparkline.
const SPARKS: usize = 30;
/// Interval between two rates of the sparkline.
const SPARK_PERIOD: Duration = Duration::from_secs(1);
const LINES: usize = 4;

/// The lines at the bottom of the terminal.
#[derive(Debug)]
pub struct Bars {
    all: MultiProgress,
    names: Names,
    step: ProgressBar,
    rate: ProgressBar,
    detail: ProgressBar,
    run: ProgressBar,
    /// The rates of this step, one per second.
    rates: VecDeque<f64>,
    rated: Option<(u32, Instant)>,
    /// The width of the terminal, and of each line, when they were last drawn.
    drawn: Option<(usize, [usize; LINES])>,
    _echo_off: EchoOff,
}

impl Bars {
    pub fn new(names: Names) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let line = |style: ProgressStyle| all.add(ProgressBar::new(SHARES).with_style(style));
        let text = || {
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let bar = ProgressStyle::with_template("  [{bar:30}] {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let step = line(text());
        let rate = line(text());
        let detail = line(text());
        let run = line(bar);
        Self {
            all,
            names,
            step,
            rate,
            detail,
            run,
            rates: VecDeque::new(),
            rated: None,
            drawn: None,
            _echo_off: EchoOff::new(),
        }
    }

    pub fn update(&mut self, update: &RunUpdate) {
        self.clear_after_resize();
        for message in &update.run.messages {
            self.say(&clean(message));
        }
        for event in &update.events {
            self.say(&format::event(event));
        }
        for step in &update.run.finished {
            for line in format::step_done(step, update.run.steps_total, &self.names) {
                self.say(&line);
            }
        }
        self.keep_rate(update);
        let (what, rate) = match &update.run.step {
            Some(step) => (
                format!(
                    "[{:>2}/{}] {}",
                    step.ordinal,
                    update.run.steps_total,
                    format::step_now(step, &self.names)
                ),
                format!(
                    "  {}; {}  {}",
                    format::step_rate(step, update.run.removed_files),
                    format::step_time(step),
                    format::sparkline(self.rates.iter().copied())
                ),
            ),
            None => (
                format!("run {} is {}", update.run.run_id, update.run.state),
                update.run.removed_files.map_or_else(String::new, |files| {
                    format!("  {}", format::cleaning(files))
                }),
            ),
        };
        let width = width();
        let what = fitted(&what, width);
        let rate = fitted(rate.trim_end(), width);
        let detail = fitted(&format!("  {}", format::detail(update)), width);
        let time = fitted(
            &format::run_time(update, &self.names),
            width.saturating_sub(BAR_WIDTH),
        );
        let columns = [&what, &rate, &detail, &time].map(|text| text.chars().count());
        let [first, second, third, last] = columns;
        self.drawn = Some((width, [first, second, third, last + BAR_WIDTH]));
        self.step.set_message(what);
        self.rate.set_message(rate);
        self.detail.set_message(detail);
        self.run.set_position(shares(update.run.share_done));
        self.run.set_message(time);
    }

    /// Records the rate of a running step once per second.
    fn keep_rate(&mut self, update: &RunUpdate) {
        let Some(step) = update
            .run
            .step
            .as_ref()
            .filter(|step| step.state == StepState::Running)
        else {
            return;
        };
        let last = self.rated.filter(|(ordinal, _)| *ordinal == step.ordinal);
        if last.is_none() {
            self.rates.clear();
        }
        // Before the first figures a zero is not shown; later a zero is a stall, and is shown.
        let is_known = step.load.ops_per_s > 0.0 || !self.rates.is_empty();
        if last.is_some_and(|(_, at)| at.elapsed() < SPARK_PERIOD) || !is_known {
            return;
        }
        self.rated = Some((step.ordinal, Instant::now()));
        self.rates.push_back(step.load.ops_per_s);
        if self.rates.len() > SPARKS {
            self.rates.pop_front();
        }
    }

    /// After the terminal becomes narrower, the wrapped lines take more rows than the next drawing would clear.
    fn clear_after_resize(&mut self) {
        let Some((before, columns)) = self.drawn else {
            return;
        };
        let now = width();
        if now == before {
            return;
        }
        // If clearing fails, the next drawing overwrites the lines as well as possible.
        let _ = self.all.clear();
        let stale = stale_rows(columns, now.saturating_add(1));
        if stale > 0 {
            let _ = write!(std::io::stderr().lock(), "\x1b[{stale}A\r\x1b[J");
        }
    }

    pub fn say(&self, text: &str) {
        // The lines stay below; with a closed terminal there is nowhere to report an error.
        let _ = self.all.println(text);
    }

    pub fn finish(&self) {
        self.step.finish_and_clear();
        self.rate.finish_and_clear();
        self.detail.finish_and_clear();
        self.run.finish_and_clear();
    }
}

/// Rows that lines of these widths take on a terminal of `width` columns, in addition to one each.
fn stale_rows(columns: [usize; LINES], width: usize) -> usize {
    let rows = |columns: usize| columns.div_ceil(width.max(1)).max(1) - 1;
    columns.into_iter().map(rows).sum()
}

/// Maximum width of a line.
fn width() -> usize {
    let columns =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }.saturating_sub(1)
}

fn fitted(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((at, _)) => text.get(..at).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}

/// A share of the run in [`SHARES`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a position to look at"
)]
fn shares(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * SHARES as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrower_terminal_has_wrapped_the_lines() {
        assert_eq!(stale_rows([79, 40, 0, 70], 80), 0);
        assert_eq!(stale_rows([79, 40, 0, 70], 40), 2);
        assert_eq!(stale_rows([79, 40, 30, 70], 20), 3 + 1 + 1 + 3);
        assert_eq!(stale_rows([0, 0, 0, 35], 0), 34);
    }
}
