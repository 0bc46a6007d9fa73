//! The full-screen view of a run on a terminal: owns the terminal, its size and its keys.
//!
//! `view` holds what is shown, `draw` makes rows of it; both are pure. Drawing goes to standard error, as all progress.

mod draw;
mod keys;
mod tty;
mod view;

use super::is_in_background;
use super::names::Names;
use crate::interrupts::OnInterrupt;
use benchmesh_scheduler::snapshot::RunUpdate;
use draw::Palette;
use keys::{Key, Keys};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::fmt;
use std::io::{self, BufWriter, Stderr, Write};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tty::TakenTerminal;
pub use view::Severity;
use view::View;

/// The view is drawn anew at least this often: the age of its figures changes.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);
/// A frame goes to the terminal in few pieces, so that it does not flicker.
const FRAME_BYTES: usize = 64 << 10;

type Output = Terminal<CrosstermBackend<BufWriter<Stderr>>>;

/// The view, until it is dropped; one per process.
pub struct Screen {
    view: View,
    palette: Palette,
    output: Output,
    area: Rect,
    keys: Keys,
    resized: Signal,
    ticks: Interval,
    /// The terminal was given back for a stop, and is not taken again yet.
    is_suspended: bool,
    /// `None` until there is something to show, so that a run that has ended, or none of this name, does not flash by.
    /// After what writes to the terminal, which is then given back, and before Ctrl-Z stops the process by itself.
    taken: Option<TakenTerminal>,
    suspended: StopSignal,
}

impl Screen {
    /// The terminal is taken with the first update of a run that has not ended. Needs a runtime.
    pub fn open(names: Names, on_interrupt: OnInterrupt) -> io::Result<Self> {
        let area = terminal_area().unwrap_or(Rect::new(0, 0, 80, 24));
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let mut ticks = interval(DRAW_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (resized, suspended) = (signal(SignalKind::window_change())?, StopSignal::listen()?);
        Ok(Self {
            view: View::new(names, on_interrupt),
            palette: match no_color {
                true => Palette::plain(),
                false => Palette::coloured(),
            },
            output: output(area)?,
            area,
            keys: Keys::open(),
            resized,
            ticks,
            is_suspended: false,
            taken: None,
            suspended,
        })
    }

    pub fn update(&mut self, update: &RunUpdate) {
        self.view.update(update.clone(), Instant::now());
        if self.taken.is_none() && !update.run.state.is_end() && !is_in_background() {
            // Next time, if it fails.
            self.taken = TakenTerminal::take().ok();
        }
        self.draw();
    }

    pub fn say(&mut self, text: &str, severity: Severity) {
        self.view.say(text, severity);
        self.draw();
    }

    pub fn stopping(&mut self) {
        self.view.is_stopping = true;
        self.draw();
    }

    /// Returns when the user leaves the view. Draws it anew meanwhile, after a second, and when the terminal changes.
    /// Cancel-safe.
    pub async fn left(&mut self) {
        loop {
            tokio::select! {
                key = self.keys.next(), if tty::is_taken() => match key {
                    Key::Leave => return,
                    Key::Redraw => self.draw_anew(),
                },
                _ = self.resized.recv() => self.draw(),
                _ = self.suspended.0.recv() => self.suspend(),
                _ = self.ticks.tick() => {
                    self.view.tick(Instant::now());
                    self.take_again();
                    self.draw();
                }
            }
        }
    }

    /// Stops this process with the terminal given back, as Ctrl-Z asks; takes it again when the process continues in
    /// the foreground.
    fn suspend(&mut self) {
        self.is_suspended |= tty::leave();
        // Returns when the process continues.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        self.take_again();
    }

    /// Takes the terminal again after a stop. From the background (`bg`), or if it fails, the next tick tries again.
    fn take_again(&mut self) {
        if self.is_suspended && !is_in_background() && tty::enter().is_ok() {
            self.is_suspended = false;
            self.draw_anew();
        }
    }

    fn draw_anew(&mut self) {
        self.area = Rect::default();
        self.draw();
    }

    fn draw(&mut self) {
        // Given back by a panic of another thread, or not taken yet.
        if !tty::is_taken() {
            return;
        }
        // An error means that the terminal is gone; then a signal ends this process, or it goes on without.
        let _ = self.try_draw();
    }

    fn try_draw(&mut self) -> io::Result<()> {
        if let Some(area) = terminal_area().filter(|area| *area != self.area) {
            self.area = area;
            self.output = output(self.area)?;
            self.output.backend_mut().write_all(b"\x1b[2J")?;
        }
        let (view, palette) = (&self.view, self.palette);
        self.output
            .draw(|frame| draw::draw(view, palette, frame.area(), frame.buffer_mut()))?;
        Ok(())
    }
}

/// Ctrl-Z, which stops the process by itself again after this is dropped. Once per process: the handler is not
/// installed a second time.
struct StopSignal(Signal);

impl StopSignal {
    fn listen() -> io::Result<Self> {
        signal(SignalKind::from_raw(libc::SIGTSTP)).map(Self)
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        // SAFETY: the default action needs no handler; what it replaces is not used any more.
        unsafe {
            libc::signal(libc::SIGTSTP, libc::SIG_DFL);
        }
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen")
            .field("area", &self.area)
            .finish_non_exhaustive()
    }
}

fn terminal_area() -> Option<Rect> {
    let (width, height) = super::terminal_size()?;
    Some(Rect::new(0, 0, width, height))
}

/// A fixed area: the size is asked of the terminal that is drawn on, here and nowhere else.
fn output(area: Rect) -> io::Result<Output> {
    let out = BufWriter::with_capacity(FRAME_BYTES, io::stderr());
    let options = TerminalOptions {
        viewport: Viewport::Fixed(area),
    };
    Terminal::with_options(CrosstermBackend::new(out), options)
}
