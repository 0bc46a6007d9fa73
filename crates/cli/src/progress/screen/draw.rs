//! Draws the view of a run into any area, from one row of one column on. Pure.
//!
//! From top to bottom: the run, its alarms, the step with its curves, objectives, clients beside daemons, ended steps,
//! events, keys. Every figure has its unit. States are words first, and also have colours: amber for what needs a
//! look, red for what is broken.

mod layout;
mod palette;

use super::super::format;
use super::view::{EventLine, LatencyShown, View};
use crate::interrupts::OnInterrupt;
use crate::terminal::{clean, wrapped};
use benchmesh_answers::report::figures;
use benchmesh_model::mesh::{RunState, StepState};
use benchmesh_results::objective::Standing;
use benchmesh_scheduler::snapshot::{
    AlarmNow, BusyDaemon, ClientRate, ObjectiveNow, RunUpdate, StepDone,
};
use layout::{TableRow, last_lines, lines, newest, rows, spread, table};
pub use palette::Palette;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Sparkline, Widget};
use std::collections::VecDeque;
use std::time::Duration;

/// An older update is called old; they come every second.
const OLD: Duration = Duration::from_secs(4);
/// Clients are beside daemons on a terminal of at least this width.
const SIDE_BY_SIDE: u16 = 72;
/// Curves are higher in a body of at least this height.
const MIN_TALL_HEIGHT: u16 = 28;
/// The least height that has a row for the keys.
const MIN_WITH_KEYS: u16 = 6;
/// `11-21 09:41:32` and a gap.
const DATE_WIDTH: usize = 16;
const MAX_ALARMS: usize = 5;
/// A client with a lower part of the mean rate is marked.
const SLOW_PERCENT: f64 = 50.0;
/// Width of the figures beside a curve, and the least width of a curve.
const FIGURES_WIDTH: u16 = 47;
const MIN_CURVE: u16 = 8;

/// Draws the view.
pub fn draw(view: &View, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Some(update) = &view.newest else {
        let line = Line::styled("waiting for the run's first figures", palette.dim);
        buffer.set_line(area.x, area.y, &line, area.width);
        return;
    };
    let head = head(view, update, palette, area.width);
    let [top, body, foot] = Layout::vertical([
        Constraint::Length(rows(head.len()).saturating_add(1)),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height >= MIN_WITH_KEYS)),
    ])
    .areas(area);
    lines(&head, top, buffer);
    let gauge = Rect {
        y: top.y + top.height.saturating_sub(1),
        height: u16::from(top.height > rows(head.len())),
        ..top
    };
    share_of_run(update, palette, gauge, buffer);
    Body {
        view,
        update,
        palette,
    }
    .draw(body, buffer);
    lines(&[foot_line(view, palette, foot.width)], foot, buffer);
}

/// `run 12 nightly  running`, with the steps and the time on the right or on a line of their own.
fn head<'a>(view: &View, update: &RunUpdate, palette: Palette, width: u16) -> Vec<Line<'a>> {
    let run = &update.run;
    let partial = if run.partial { ", partial" } else { "" };
    let mut left = vec![
        Span::raw(format!("run {} {}  ", run.run_id, clean(&run.run))),
        Span::styled(format!("{}{partial}", run.state), palette.run(run.state)),
    ];
    if view.age >= OLD {
        let text = format!("  no news for {}", figures::span(view.age));
        left.push(Span::styled(text, palette.error));
    }
    let left = Line::from(left);
    let right = Line::from(format::run_time(update, &view.names));
    if left.width() + right.width() + 2 <= usize::from(width) {
        vec![spread(left, right, width)]
    } else {
        vec![left, right]
    }
}

fn share_of_run(update: &RunUpdate, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let share = update.run.share_done;
    LineGauge::default()
        .ratio(share.clamp(0.0, 1.0))
        .label(format!("{:>3.0} %", (share * 100.0).floor()))
        .filled_symbol("━")
        .unfilled_symbol("─")
        .unfilled_style(palette.dim)
        .render(area, buffer);
}

fn foot_line<'a>(view: &View, palette: Palette, width: u16) -> Line<'a> {
    if view.is_stopping {
        return Line::styled(
            "stopping the run; Ctrl-C again exits at once",
            palette.warning,
        );
    }
    let (long, short) = match view.on_interrupt {
        OnInterrupt::Leave => (
            "q or Ctrl-C: stop watching, the run continues",
            "q: stop watching",
        ),
        OnInterrupt::StopRun => (
            "q: detach, the run continues    Ctrl-C: stop the run",
            "q detach, ^C stop",
        ),
    };
    let fits = long.chars().count() <= usize::from(width);
    Line::styled(if fits { long } else { short }, palette.dim)
}

/// The part between the run and the keys.
struct Body<'a> {
    view: &'a View,
    update: &'a RunUpdate,
    palette: Palette,
}

/// The sections of the body, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Alarms,
    Step,
    Objectives,
    /// Clients beside daemons.
    Tables,
    Clients,
    Daemons,
    Results,
    Events,
}

/// The height that a section needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    section: Section,
    /// To be of use.
    least: u16,
    /// To show everything.
    most: u16,
}

impl Need {
    /// A title and rows, of which `shown` should be visible. Nothing without rows.
    fn titled(section: Section, rows: usize, shown: u16) -> Self {
        let count = self::rows(rows);
        let title = u16::from(count > 0);
        Self {
            section,
            least: title + count.min(shown),
            most: title.saturating_add(count),
        }
    }
}

impl Body<'_> {
    fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let needs = self.needs(area);
        let heights = share_rows(area.height, &needs);
        let shown = heights.iter().filter(|height| **height > 0).count();
        let rest = area.height.saturating_sub(heights.iter().sum());
        // Unused rows separate the sections.
        let gap = u16::from(rest >= rows(shown));
        let mut y = area.y.saturating_add(gap);
        for (need, height) in needs.iter().zip(heights) {
            let own = Rect { y, height, ..area };
            if height > 0 {
                self.section(need.section, own, buffer);
                y = y.saturating_add(height).saturating_add(gap);
            }
        }
    }

    fn needs(&self, area: Rect) -> Vec<Need> {
        let run = &self.update.run;
        let (clients, daemons) = (run.clients.len(), self.update.daemons.len());
        let alarms = rows(run.alarms.len().min(MAX_ALARMS));
        let step = if area.height >= MIN_TALL_HEIGHT { 7 } else { 3 };
        let mut needs = vec![
            Need {
                section: Section::Alarms,
                least: alarms,
                most: alarms,
            },
            Need {
                section: Section::Step,
                least: 3,
                most: step,
            },
            Need::titled(Section::Objectives, run.objectives.len(), 2),
        ];
        if area.width >= SIDE_BY_SIDE {
            needs.push(Need::titled(Section::Tables, clients.max(daemons), 3));
        } else {
            needs.push(Need::titled(Section::Clients, clients, 3));
            needs.push(Need::titled(Section::Daemons, daemons, 2));
        }
        let results = self.view.results.iter().map(|step| step.ops.len().max(1));
        needs.push(Need::titled(Section::Results, results.sum(), 2));
        // Long ones take several rows.
        let width = usize::from(area.width).saturating_sub(DATE_WIDTH).max(1);
        let events = self.view.events.iter();
        let events = events.map(|event| event.text.len() / width + 1);
        needs.push(Need::titled(Section::Events, events.sum(), 2));
        needs
    }

    fn section(&self, section: Section, area: Rect, buffer: &mut Buffer) {
        let run = &self.update.run;
        match section {
            Section::Alarms => {
                let alarms = run.alarms.iter();
                let alarms: Vec<Line> = alarms.map(|alarm| self.alarm(alarm)).collect();
                lines(&alarms, area, buffer);
            }
            Section::Step => self.step(area, buffer),
            Section::Objectives => {
                let broken = run.objectives.iter().filter(|one| one.broken).count();
                let title = match broken {
                    0 => "objectives".to_owned(),
                    broken => format!("objectives, {broken} broken"),
                };
                let area = self.titled(&title, area, buffer);
                let rows = run.objectives.iter().map(|one| self.objective(one));
                lines(&rows.collect::<Vec<_>>(), area, buffer);
            }
            Section::Tables => {
                let halves = [Constraint::Fill(1), Constraint::Fill(1)];
                let [left, right] = Layout::horizontal(halves).spacing(2).areas(area);
                self.clients(left, buffer);
                self.daemons(right, buffer);
            }
            Section::Clients => self.clients(area, buffer),
            Section::Daemons => self.daemons(area, buffer),
            Section::Results => {
                let area = self.titled("ended steps", area, buffer);
                let newest = newest(&self.view.results, area.height);
                let rows = newest.flat_map(|step| self.result(step, area.width));
                last_lines(&rows.collect::<Vec<_>>(), area, buffer);
            }
            Section::Events => {
                let area = self.titled("events", area, buffer);
                let rows = newest(&self.view.events, area.height);
                let rows = rows.flat_map(|event| self.event(event, area.width));
                last_lines(&rows.collect::<Vec<_>>(), area, buffer);
            }
        }
    }

    /// Draws the title of a section; returns the rest of its area.
    fn titled(&self, title: &str, area: Rect, buffer: &mut Buffer) -> Rect {
        let rule = "─".repeat(usize::from(area.width).saturating_sub(title.chars().count() + 1));
        let line = Line::from(vec![
            Span::styled(title.to_owned(), self.palette.strong),
            Span::styled(format!(" {rule}"), self.palette.dim),
        ]);
        lines(&[line], area, buffer);
        Rect {
            y: area.y.saturating_add(1),
            height: area.height.saturating_sub(1),
            ..area
        }
    }

    fn alarm<'a>(&self, alarm: &AlarmNow) -> Line<'a> {
        let text = clean(&format!("ALARM {}: {}", alarm.when, alarm.because));
        Line::styled(text, self.palette.error)
    }

    fn objective<'a>(&self, objective: &ObjectiveNow) -> Line<'a> {
        let style = match objective.in_seconds().standing() {
            Standing::Broken => self.palette.error,
            Standing::AtRisk => self.palette.warning,
            Standing::Kept => Style::new(),
            Standing::NotJudged => self.palette.dim,
        };
        Line::styled(clean(&format::objective_text(objective)), style)
    }

    /// The step, its rate and its latency.
    fn step(&self, area: Rect, buffer: &mut Buffer) {
        let run = &self.update.run;
        let Some(step) = &run.step else {
            let text = match run.removed_files {
                Some(files) => format::cleaning(files),
                None if run.state == RunState::Queued => "the run waits in the queue".to_owned(),
                None => "between two steps".to_owned(),
            };
            lines(&[Line::raw(text)], area, buffer);
            return;
        };
        let name = vec![
            Span::styled(format!("step {}  ", step.ordinal), self.palette.strong),
            Span::raw(format::step_now(step, &self.view.names)),
        ];
        let absent = match step.clients_absent {
            0 => String::new(),
            absent => format!("{absent} without contact  "),
        };
        let time = Line::from(vec![
            Span::styled(absent, self.palette.warning),
            Span::raw(format::step_time(step)),
        ]);
        let title = spread(Line::from(name), time, area.width);
        let [top, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        lines(&[title], top, buffer);
        if step.state != StepState::Running || run.removed_files.is_some() {
            lines(
                &[Line::raw(format::step_rate(step, run.removed_files))],
                rest,
                buffer,
            );
            return;
        }
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [rate, latency] = Layout::vertical(halves).areas(rest);
        let is_silent = step.silent_us >= format::MAX_AGE_US;
        let load = &step.load;
        let text = if self.view.rates.is_empty() {
            Line::styled("no figures yet", self.palette.dim)
        } else if is_silent {
            Line::styled(format::step_rate(step, None), self.palette.warning)
        } else {
            let mut text = format!("rate {} ops/s", figures::rate(load.ops_per_s));
            if load.bytes_per_s > 0.0 {
                text.push_str(&format!(
                    "  {} MiB/s",
                    figures::rate(load.bytes_per_s / format::MIB)
                ));
            }
            Line::raw(text)
        };
        self.curve(text, &self.view.rates, rate, buffer);
        let millis = |name: &str, ms: Option<f64>| {
            ms.map_or_else(String::new, |ms| {
                format!("  {name} {} ms", figures::millis(ms))
            })
        };
        let text = match LatencyShown::of(step).filter(|_| !is_silent) {
            None => String::new(),
            Some(LatencyShown::Response(p99_ms)) => format!(
                "response p99 {} ms{}",
                figures::millis(p99_ms),
                millis("service p99", load.p99_ms)
            ),
            Some(LatencyShown::Service(p99_ms)) => format!(
                "p99 {} ms{}{}",
                figures::millis(p99_ms),
                millis("p50", load.p50_ms),
                millis("max", load.max_ms)
            ),
        };
        self.curve(Line::raw(text), &self.view.p99s_ms, latency, buffer);
    }

    /// A line of figures with the curve of the last seconds beside it, if there is room for one.
    fn curve(
        &self,
        text: Line<'_>,
        values: &VecDeque<Option<f64>>,
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let width = area.width.saturating_sub(FIGURES_WIDTH);
        let has_room = width >= MIN_CURVE;
        let text_width = if has_room {
            FIGURES_WIDTH - 1
        } else {
            area.width
        };
        if area.height == 0 {
            return;
        }
        buffer.set_line(area.x, area.y, &text, text_width);
        if !has_room {
            return;
        }
        let area = Rect {
            x: area.x + FIGURES_WIDTH,
            width,
            ..area
        };
        let hidden = values.len().saturating_sub(usize::from(width));
        let heights = values
            .iter()
            .skip(hidden)
            .map(|value| value.map(in_thousandths));
        Sparkline::default()
            .data(heights)
            .absent_value_symbol("·")
            .absent_value_style(self.palette.dim)
            .render(area, buffer);
    }

    fn clients(&self, area: Rect, buffer: &mut Buffer) {
        let (run, all) = (&self.update.run, self.update.clients);
        let title = match run.clients.len() {
            0 => "clients".to_owned(),
            shown if all > shown => {
                format!("clients, the {shown} slowest of {all}")
            }
            _ => format!("clients ({all}), slowest first"),
        };
        let area = self.titled(&title, area, buffer);
        let step = run.step.as_ref();
        let mean = step.map_or(0.0, |step| {
            let present = usize::try_from(step.clients).unwrap_or(usize::MAX);
            let present =
                u32::try_from(present.saturating_sub(step.clients_absent)).unwrap_or(u32::MAX);
            step.load.ops_per_s / f64::from(present.max(1))
        });
        let rows = run.clients.iter().map(|client| self.client(client, mean));
        table(&rows.collect::<Vec<_>>(), &[3, 2], area, buffer);
    }

    fn client(&self, client: &ClientRate, mean: f64) -> TableRow {
        let name = clean(&client.agent);
        if client.is_absent {
            return TableRow {
                cells: vec![name, "no contact".to_owned()],
                style: self.palette.error,
            };
        }
        let percent = client.ops_per_s / mean * 100.0;
        let (style, of_mean) = match percent.is_finite() {
            false => (Style::new(), String::new()),
            true => {
                let is_slow = percent < SLOW_PERCENT;
                let style = if is_slow {
                    self.palette.warning
                } else {
                    Style::new()
                };
                (style, format!("{percent:.0} % of mean"))
            }
        };
        let bytes = match client.bytes_per_s > 0.0 {
            true => format!("{} MiB/s", figures::rate(client.bytes_per_s / format::MIB)),
            false => String::new(),
        };
        TableRow {
            cells: vec![
                name,
                format!("{} ops/s", figures::rate(client.ops_per_s)),
                bytes,
                of_mean,
            ],
            style,
        }
    }

    fn daemons(&self, area: Rect, buffer: &mut Buffer) {
        let daemons = &self.update.daemons;
        let title = match daemons.len() {
            0 => "daemons: none found",
            _ => "daemons, busiest first",
        };
        let area = self.titled(title, area, buffer);
        let rows = daemons.iter().map(daemon);
        table(&rows.collect::<Vec<_>>(), &[3, 1], area, buffer);
    }

    /// The lines of an ended step: what it was on the left, its figures on the right.
    fn result<'a>(&self, step: &StepDone, width: u16) -> Vec<Line<'a>> {
        let name = format::step_name(step, &self.view.names);
        let flags = format::step_flags(step);
        let style = match step.state {
            StepState::Done if flags.is_empty() => Style::new(),
            StepState::Failed => self.palette.error,
            _ => self.palette.warning,
        };
        let name = Line::from(vec![
            Span::raw(format!("{:>3} {name} ", step.ordinal)),
            Span::styled(flags, style),
        ]);
        if step.ops.is_empty() {
            return vec![spread(name, Line::raw("no operation completed"), width)];
        }
        let mut name = Some(name);
        let ops = step.ops.iter().map(|op| {
            let kind = match step.ops.len() {
                1 => String::new(),
                _ => format!("{} {}", op.group, op.op).trim_start().to_owned(),
            };
            let mut figures = clean(&format!("{kind} {}", format::op_done(op)));
            let left = name.take().unwrap_or_default();
            // Aligned, unless the name needs the room.
            if left.width() + figures.chars().count() + 2 > usize::from(width) {
                figures = figures.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            spread(left, Line::raw(figures), width)
        });
        ops.collect()
    }

    /// The lines of an event, with its date on the first.
    fn event<'a>(&self, event: &EventLine, width: u16) -> Vec<Line<'a>> {
        let at = match width >= SIDE_BY_SIDE {
            true => format!("{:<DATE_WIDTH$}", event.at),
            false => String::new(),
        };
        let style = self.palette.severity(event.severity);
        let room = usize::from(width).saturating_sub(at.len());
        let texts = wrapped(&event.text, room).into_iter();
        let mut at = Some(at);
        let lines = texts.map(|text| {
            let indent = " ".repeat(usize::from(width).saturating_sub(room));
            Line::from(vec![
                Span::styled(at.take().unwrap_or(indent), self.palette.dim),
                Span::styled(text, style),
            ])
        });
        lines.collect()
    }
}

fn daemon(daemon: &BusyDaemon) -> TableRow {
    let name = format!("{} {}", daemon.name, daemon.instance);
    let memory = u64::try_from(daemon.rss_bytes).unwrap_or(0);
    TableRow {
        cells: vec![
            clean(name.trim_end()),
            clean(&daemon.host),
            format!("{} % CPU", figures::rate(daemon.cpu_percent)),
            figures::bytes(memory),
        ],
        style: Style::new(),
    }
}

/// Shares `height` rows among sections: first each gets what it needs to be of use, in their order, then those that
/// have more to show get a row each in turn.
fn share_rows(height: u16, needs: &[Need]) -> Vec<u16> {
    let mut left = height;
    let mut heights: Vec<u16> = needs
        .iter()
        .map(|need| {
            // A title without a row is of no use.
            let is_useless = left < need.least && left < 2;
            let own = if is_useless { 0 } else { need.least.min(left) };
            left -= own;
            own
        })
        .collect();
    loop {
        let mut has_grown = false;
        for (own, need) in heights.iter_mut().zip(needs) {
            if left > 0 && *own > 0 && *own < need.most {
                *own += 1;
                left -= 1;
                has_grown = true;
            }
        }
        if !has_grown {
            return heights;
        }
    }
}

/// Bars are drawn from whole numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a height to look at"
)]
fn in_thousandths(value: f64) -> u64 {
    (value.max(0.0) * 1000.0).round() as u64
}

#[cfg(test)]
mod tests;
