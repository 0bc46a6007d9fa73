//! Progress on a terminal: a line for the step and one for the run, drawn anew; results scroll by above them.

use super::echo::Unechoed;
use super::names::Names;
use super::words;
use crate::client::Update;
use crate::terminal::clean;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

const SHARES: u64 = 1000;

/// What the bar takes of its line.
const BAR_WIDTH: usize = 35;

/// Two lines at the bottom of the terminal.
#[derive(Debug)]
pub struct Bars {
    all: MultiProgress,
    names: Names,
    step: ProgressBar,
    rate: ProgressBar,
    run: ProgressBar,
    _unechoed: Unechoed,
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
        let run = line(bar);
        Self {
            all,
            names,
            step,
            rate,
            run,
            _unechoed: Unechoed::new(),
        }
    }

    pub fn update(&mut self, update: &Update) {
        for message in &update.messages {
            self.say(&clean(message));
        }
        for step in &update.finished {
            for line in words::step_done(step, update.steps_total, &self.names) {
                self.say(&line);
            }
        }
        let (what, rate) = match &update.step {
            Some(step) => (
                format!(
                    "[{:>2}/{}] {}",
                    step.ordinal,
                    update.steps_total,
                    words::step_now(step, &self.names)
                ),
                format!(
                    "  {}; {}",
                    words::step_rate(step, update.removed_files),
                    words::step_time(step)
                ),
            ),
            None => (
                format!("run {} is {}", update.run_id, update.state),
                update
                    .removed_files
                    .map_or_else(String::new, |files| format!("  {}", words::cleaning(files))),
            ),
        };
        let width = width();
        self.step.set_message(fitted(&what, width));
        self.rate.set_message(fitted(&rate, width));
        self.run.set_position(shares_done(update));
        self.run.set_message(fitted(
            &words::run_time(update),
            width.saturating_sub(BAR_WIDTH),
        ));
    }

    pub fn say(&self, text: &str) {
        // The lines stay beneath; a closed terminal leaves nobody to tell.
        let _ = self.all.println(text);
    }

    pub fn finish(&self) {
        self.step.finish_and_clear();
        self.rate.finish_and_clear();
        self.run.finish_and_clear();
    }
}

/// Columns that a line may take.
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

/// How much of the run is done, in [`SHARES`]: by time where it is known, by steps otherwise.
fn shares_done(update: &Update) -> u64 {
    let shares = match update.left {
        Some(left) if !(left + update.elapsed).is_zero() => {
            update
                .elapsed
                .as_millis()
                .saturating_mul(u128::from(SHARES))
                / (left + update.elapsed).as_millis().max(1)
        }
        _ => {
            u128::from(update.steps_done) * u128::from(SHARES)
                / u128::from(update.steps_total.max(1))
        }
    };
    u64::try_from(shares).unwrap_or(SHARES).min(SHARES)
}

#[cfg(test)]
mod tests {
    use super::super::words::tests::update;
    use super::*;
    use benchmesh_collector::model::RunState;

    #[test]
    fn the_share_is_of_the_time_or_else_of_the_steps() {
        let mut running = update(RunState::Running);
        assert_eq!(shares_done(&running), 1000 * 9 / 81);
        running.left = None;
        assert_eq!(shares_done(&running), 1000 * 2 / 24);
        running.steps_total = 0;
        assert_eq!(shares_done(&running), 1000);
    }
}
