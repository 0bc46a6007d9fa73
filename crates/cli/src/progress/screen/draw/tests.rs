//! The view as text, at the sizes of terminals that people use and at a size that shows nothing well.

#![allow(clippy::unwrap_used)]

use super::super::super::format::tests::{done, now, update};
use super::*;
use crate::progress::Names;
use benchmesh_scheduler::snapshot::EventNow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::time::Instant;

/// The eighth second of a step, as a watcher sees it.
fn watched() -> View {
    let mut view = View::new(Names::unknown(), OnInterrupt::Leave);
    let began = Instant::now();
    for second in 0..8_u32 {
        let mut update = update(RunState::Running);
        let mut step = now(StepState::Running);
        step.load.ops_per_s = 12_345.6 - f64::from(second % 4) * 3000.0;
        step.load.p99_ms = Some(1.2 + f64::from(second % 3));
        update.run.step = Some(step);
        if second == 0 {
            update.run.finished = vec![done(1, StepState::Done), failed(2)];
            update.run.messages = vec!["agent n2 is lost".into()];
            update.events = vec![event(
                "warning",
                "ceph-osd osd.7 (pid 812)\u{1b}[2J was started again",
            )];
        }
        view.update(update, began + Duration::from_secs(u64::from(second)));
    }
    let newest = view.newest.as_mut().unwrap();
    newest.clients = 3;
    newest.run.clients = vec![
        ClientRate {
            is_absent: true,
            ..client("n2", 0.0)
        },
        client("n1", 1_821.4),
        client("n3", 4_321.0),
    ];
    newest.run.step.as_mut().unwrap().clients_absent = 1;
    newest.daemons = vec![
        daemon("s1", "ceph-osd", "osd.3", 187.2),
        daemon("s2", "ceph-osd", "osd.7", 93.0),
        daemon("s1", "ceph-mon", "a", 2.04),
    ];
    newest.run.alarms = vec![AlarmNow {
        when: "p99 > 50ms for 10s".into(),
        because: "p99 is 120 ms".into(),
    }];
    newest.run.objectives = vec![
        objective("p99 < 10ms", 2),
        objective("rate > 5000", 8),
        objective("errors = 0", 12),
    ];
    view
}

fn client(agent: &str, ops_per_s: f64) -> ClientRate {
    ClientRate {
        agent: agent.into(),
        ops_per_s,
        bytes_per_s: ops_per_s * 4096.0,
        is_absent: false,
    }
}

fn daemon(host: &str, name: &str, instance: &str, cpu_percent: f64) -> BusyDaemon {
    BusyDaemon {
        host: host.into(),
        name: name.into(),
        instance: instance.into(),
        cpu_percent,
        rss_bytes: 1 << 30,
    }
}

fn objective(holds: &str, bad_seconds: i64) -> ObjectiveNow {
    ObjectiveNow {
        holds: holds.into(),
        seconds: 100,
        bad_seconds,
        budget_s: 10.4,
        broken: bad_seconds > 10,
    }
}

fn event(severity: &str, message: &str) -> EventNow {
    EventNow {
        event_id: 1,
        at_us: 1_795_254_092_000_000,
        severity: severity.into(),
        agent: Some("s1".into()),
        message: message.into(),
        ..EventNow::default()
    }
}

fn failed(ordinal: u32) -> StepDone {
    StepDone {
        ops: Vec::new(),
        flags: vec!["partial".into()],
        ..done(ordinal, StepState::Failed)
    }
}

fn drawn(view: &View, palette: Palette, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(view, palette, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn text(view: &View, width: u16, height: u16) -> String {
    let buffer = drawn(view, Palette::plain(), width, height);
    let rows = (0..height).map(|y| {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", row.trim_end())
    });
    rows.collect()
}

#[test]
fn a_large_terminal() {
    insta::assert_snapshot!(text(&watched(), 120, 40));
}

#[test]
fn a_usual_terminal() {
    insta::assert_snapshot!(text(&watched(), 80, 24));
}

#[test]
fn a_terminal_of_twenty_columns() {
    insta::assert_snapshot!(text(&watched(), 20, 10));
}

/// A paced load, a plan without objectives, no daemon, nothing wrong; then no update for a while, and a stop.
#[test]
fn a_calm_run_and_a_collector_that_is_away() {
    let mut view = View::new(Names::unknown(), OnInterrupt::StopRun);
    let began = Instant::now();
    let mut update = update(RunState::Running);
    let mut step = now(StepState::Running);
    step.load.response_p99_ms = Some(950.0);
    update.run.step = Some(step);
    update.clients = 2;
    update.run.clients = vec![client("n1", 6_000.0), client("n2", 6_345.0)];
    view.update(update, began);
    insta::assert_snapshot!("calm", text(&view, 80, 12));
    view.tick(began + Duration::from_secs(12));
    view.is_stopping = true;
    let newest = view.newest.as_mut().unwrap();
    newest.run.left_is_low = true;
    newest.run.step.as_mut().unwrap().silent_us = 12_000_000;
    insta::assert_snapshot!("away", text(&view, 80, 12));
}

#[test]
fn between_steps_and_before_the_first_update() {
    let mut view = View::new(Names::unknown(), OnInterrupt::StopRun);
    assert_eq!(text(&view, 40, 1), "waiting for the run's first figures\n");
    let mut removing = update(RunState::Running);
    removing.run.removed_files = Some(12_000);
    view.update(removing, Instant::now());
    assert!(text(&view, 80, 10).contains("cleaning up, 12,000 files removed\n"));
}

/// No size panics, and the run is on the first row wherever there is one.
#[test]
fn every_size_is_drawn() {
    let mut view = watched();
    for _ in 0..2 {
        for width in [1, 2, 5, 12, 20, 40, 72, 140] {
            for height in (1..=12).chain([24, 45]) {
                let shown = text(&view, width, height);
                let first = "run 7 nightly".get(..usize::from(width.min(13))).unwrap();
                assert!(
                    shown.starts_with(first.trim_end()),
                    "{width} x {height}:\n{shown}"
                );
            }
        }
        view.newest.as_mut().unwrap().run.step = None;
    }
}

/// Without colours, states are words; with them, words have the colours of their state.
#[test]
fn states_have_colours_unless_nobody_wants_any() {
    let view = watched();
    let cells = |palette| drawn(&view, palette, 80, 24).content;
    assert!(
        cells(Palette::plain())
            .iter()
            .all(|cell| cell.fg == Color::Reset)
    );
    let of = |colour| -> String {
        let cells = cells(Palette::coloured());
        let cells = cells.iter().filter(|cell| cell.fg == colour);
        cells.map(|cell| cell.symbol()).collect()
    };
    let squeezed = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    insta::assert_snapshot!("amber", squeezed(of(Color::Yellow)));
    insta::assert_snapshot!("red", squeezed(of(Color::Red)));
}

#[test]
fn rows_go_first_to_what_matters_then_to_whoever_has_more() {
    let need = |least, most| Need {
        section: Section::Events,
        least,
        most,
    };
    let needs = [need(3, 3), need(3, 10), need(3, 100), need(0, 0)];
    let check = |height, expected: &[u16]| {
        assert_eq!(share_rows(height, &needs), expected, "{height} rows");
    };
    check(0, &[0, 0, 0, 0]);
    check(2, &[2, 0, 0, 0]);
    check(4, &[3, 0, 0, 0]);
    check(5, &[3, 2, 0, 0]);
    check(9, &[3, 3, 3, 0]);
    check(14, &[3, 6, 5, 0]);
    check(40, &[3, 10, 27, 0]);
    check(500, &[3, 10, 100, 0]);
}
