//! What the full-screen view of a run shows, as plain values fed by updates. Pure: instants are passed in.
//!
//! Lists are bounded: a run may last for weeks.

use super::super::format;
use super::super::names::Names;
use crate::interrupts::OnInterrupt;
use crate::terminal::clean;
use benchmesh_answers::report::figures;
use benchmesh_model::mesh::StepState;
use benchmesh_scheduler::snapshot::{EventNow, RunUpdate, StepDone, StepNow};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of events, and of ended steps: more than a terminal has rows.
const KEPT_LINES: usize = 200;
/// Number of figures in a curve, one per second: more than a terminal has columns.
const KEPT_FIGURES: usize = 600;
/// Interval between two figures of a curve.
const FIGURE_PERIOD: Duration = Duration::from_secs(1);

/// The state of the view.
#[derive(Debug)]
pub struct View {
    pub names: Names,
    /// What Ctrl-C does.
    pub on_interrupt: OnInterrupt,
    /// The newest update; its events, messages and ended steps are in the lists below.
    pub newest: Option<RunUpdate>,
    /// The rate of the step under way, and the latency that [`LatencyShown`] selects; one per second, newest last.
    /// `None` if nothing came in that second.
    pub rates: VecDeque<Option<f64>>,
    pub p99s_ms: VecDeque<Option<f64>>,
    /// Newest last.
    pub results: VecDeque<StepDone>,
    pub events: VecDeque<EventLine>,
    /// A stop was requested.
    pub is_stopping: bool,
    /// Time since the newest update.
    pub age: Duration,
    updated_at: Option<Instant>,
    /// The step of the curves, and the instant of their newest figure.
    figured: Option<(u32, Instant)>,
}

/// Something that happened, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// Month, day and time in UTC; empty if it has no date.
    pub at: String,
    pub severity: Severity,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// The 99th percentile that is shown for a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyShown {
    /// Of a paced load: from the instant at which an operation was due.
    Response(f64),
    /// Of any other load: from the start of an operation.
    Service(f64),
}

impl View {
    pub fn new(names: Names, on_interrupt: OnInterrupt) -> Self {
        Self {
            names,
            on_interrupt,
            newest: None,
            rates: VecDeque::new(),
            p99s_ms: VecDeque::new(),
            results: VecDeque::new(),
            events: VecDeque::new(),
            is_stopping: false,
            age: Duration::ZERO,
            updated_at: None,
            figured: None,
        }
    }

    /// Takes in an update that came at `now`.
    pub fn update(&mut self, mut update: RunUpdate, now: Instant) {
        for message in update.run.messages.drain(..) {
            self.push_event(EventLine {
                at: String::new(),
                severity: Severity::Info,
                text: clean(&message),
            });
        }
        for event in update.events.drain(..) {
            self.push_event(EventLine::of(&event));
        }
        for step in update.run.finished.drain(..) {
            push(&mut self.results, step, KEPT_LINES);
        }
        if let Some(step) = &update.run.step {
            self.add_figures(step, now);
        }
        self.carry_clients(&mut update);
        self.newest = Some(update);
        self.updated_at = Some(now);
        self.age = Duration::ZERO;
    }

    /// Adds a notice of this command.
    pub fn say(&mut self, text: &str, severity: Severity) {
        self.push_event(EventLine {
            at: String::new(),
            severity,
            text: clean(text),
        });
    }

    /// Time passes without an update.
    pub fn tick(&mut self, now: Instant) {
        self.age = self
            .updated_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
    }

    fn push_event(&mut self, line: EventLine) {
        push(&mut self.events, line, KEPT_LINES);
    }

    /// Adds one figure per second to the curves of a running step, which begin anew with each step.
    fn add_figures(&mut self, step: &StepNow, now: Instant) {
        if step.state != StepState::Running {
            return;
        }
        let last = self.figured.filter(|(ordinal, _)| *ordinal == step.ordinal);
        if last.is_none() {
            self.rates.clear();
            self.p99s_ms.clear();
        }
        // Before the first figures there is no rate; later a rate of zero is a stall, and is shown.
        let is_known = step.load.ops_per_s > 0.0 || !self.rates.is_empty();
        let is_due = last.is_none_or(|(_, at)| now.saturating_duration_since(at) >= FIGURE_PERIOD);
        if !is_due || !is_known {
            return;
        }
        self.figured = Some((step.ordinal, now));
        let is_fresh = step.silent_us < format::MAX_AGE_US;
        push(
            &mut self.rates,
            Some(step.load.ops_per_s).filter(|_| is_fresh),
            KEPT_FIGURES,
        );
        push(
            &mut self.p99s_ms,
            LatencyShown::of(step)
                .filter(|_| is_fresh)
                .map(LatencyShown::ms),
            KEPT_FIGURES,
        );
    }

    /// An update may come without detail, for example from a collector that is busy. The clients of the same step stay.
    fn carry_clients(&mut self, update: &mut RunUpdate) {
        let Some(before) = &mut self.newest else {
            return;
        };
        let ordinal = |update: &RunUpdate| update.run.step.as_ref().map(|step| step.ordinal);
        if update.run.clients.is_empty() && ordinal(before) == ordinal(update) {
            update.run.clients = std::mem::take(&mut before.run.clients);
            update.clients = before.clients;
        }
    }
}

impl EventLine {
    fn of(event: &EventNow) -> Self {
        Self {
            at: figures::instant(event.at_us)
                .get(5..19)
                .unwrap_or_default()
                .replace('T', " "),
            severity: match event.severity.as_str() {
                "info" => Severity::Info,
                "error" => Severity::Error,
                _ => Severity::Warning,
            },
            text: format::event_text(event),
        }
    }
}

impl LatencyShown {
    pub fn of(step: &StepNow) -> Option<Self> {
        let load = &step.load;
        let response = load.response_p99_ms.map(Self::Response);
        response.or(load.p99_ms.map(Self::Service))
    }

    fn ms(self) -> f64 {
        match self {
            Self::Response(ms) | Self::Service(ms) => ms,
        }
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}
