//! The events and marks for a watcher of a run: those of the run, and those within its time, each once.

use benchmesh_proto::v1;
use benchmesh_scheduler::snapshot::{EventNow, Snapshot};

/// Kinds of events that are passed on, in addition to those of daemons, carriers and stalls (by prefix).
const LISTED: [&str; 5] = [
    "client-frozen",
    "clock-gap",
    "link-errors",
    "link-silent",
    "link-silent-over",
];

/// Number of past events for a new watcher.
const EVENTS_AT_FIRST: usize = 5;

/// The last event and mark that were sent to a watcher.
#[derive(Debug, Default)]
pub(in crate::service) struct WatchPosition {
    event: Option<i64>,
    mark_us: i64,
}

/// Adds the run's marks, and the events that agents recorded, since the last call. The scheduler's own events are
/// already in the messages.
pub(in crate::service) fn add_events(
    update: &mut v1::RunUpdate,
    snapshot: &Snapshot,
    position: &mut WatchPosition,
) {
    let run = snapshot.runs.iter().find(|run| run.run_id == update.run_id);
    // Events of daemons and interfaces have no run: they count for the run that was under way.
    let was_under_way = |at_us: i64| {
        run.is_some_and(|run| {
            run.started_us.is_some_and(|from| at_us >= from)
                && run.ended_us.is_none_or(|until| at_us <= until)
        })
    };
    let is_news = |event: &&EventNow| {
        let kind = event.kind.as_str();
        position.event.is_none_or(|last| event.event_id > last)
            && event
                .run_id
                .map_or_else(|| was_under_way(event.at_us), |run| run == update.run_id)
            && (kind.starts_with("daemon-")
                || kind.starts_with("carrier-")
                || kind.starts_with("stall")
                || LISTED.contains(&kind))
    };
    // Newest first.
    let mut events: Vec<&EventNow> = snapshot.events.iter().filter(is_news).collect();
    if position.event.is_none() {
        events.truncate(EVENTS_AT_FIRST);
    }
    let newest = snapshot.events.first().map_or(0, |event| event.event_id);
    position.event = Some(position.event.unwrap_or(0).max(newest));
    update.events = events
        .into_iter()
        .rev()
        .map(|event| v1::EventUpdate {
            event_id: event.event_id,
            at_us: event.at_us,
            severity: event.severity.clone(),
            agent: event.agent.clone().unwrap_or_default(),
            message: event.message.clone(),
        })
        .collect();
    let run = snapshot.run.as_ref();
    let Some(run) = run.filter(|run| run.run_id.0 == update.run_id) else {
        return;
    };
    let marks = run.marks.iter().filter(|mark| mark.source == "mark");
    for mark in marks.filter(|mark| mark.at_us > position.mark_us) {
        update.events.push(v1::EventUpdate {
            event_id: 0,
            at_us: mark.at_us,
            severity: "info".to_owned(),
            agent: String::new(),
            message: format!("mark: {}", mark.text),
        });
    }
    let last = run.marks.last().map_or(0, |mark| mark.at_us);
    position.mark_us = position.mark_us.max(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_scheduler::snapshot::RunListed;

    /// Run 1 lasts from 10 s to 20 s; events of daemons have no run.
    #[test]
    fn a_watcher_of_an_ended_run_gets_the_events_of_its_time_alone() {
        const S: i64 = 1_000_000;
        let event = |event_id: i64, at_s: i64, kind: &str, run_id: Option<i64>| EventNow {
            event_id,
            at_us: at_s * S,
            severity: "warning".to_owned(),
            kind: kind.to_owned(),
            run_id,
            step_id: None,
            agent: None,
            message: event_id.to_string(),
        };
        let mut run = RunListed {
            run_id: 1,
            uid: String::new(),
            run: String::new(),
            state: "done".to_owned(),
            partial: false,
            stopping: false,
            created_us: 0,
            started_us: Some(10 * S),
            ended_us: Some(20 * S),
            steps: 1,
            steps_done: 1,
            warnings: 0,
            targets: Vec::new(),
            tags: std::collections::BTreeMap::new(),
            steps_flagged: 0,
        };
        // Newest first.
        let events = vec![
            event(6, 25, "daemon-restarted", None),
            event(5, 22, "stall", Some(2)),
            event(4, 21, "carrier-lost", None),
            event(3, 15, "daemon-ended", None),
            event(2, 12, "stall", Some(1)),
            event(1, 5, "daemon-started", None),
        ];
        let mut snapshot = Snapshot {
            events,
            runs: vec![run.clone()],
            ..Snapshot::default()
        };
        let told = |snapshot: &Snapshot, position: &mut WatchPosition| {
            let mut update = v1::RunUpdate {
                run_id: 1,
                ..v1::RunUpdate::default()
            };
            add_events(&mut update, snapshot, position);
            let events = update.events.into_iter();
            events.map(|event| event.event_id).collect::<Vec<_>>()
        };
        let mut position = WatchPosition::default();
        assert_eq!(told(&snapshot, &mut position), [2, 3]);
        assert_eq!(told(&snapshot, &mut position), [0_i64; 0]);
        snapshot
            .events
            .insert(0, event(7, 30, "daemon-started", None));
        assert_eq!(told(&snapshot, &mut position), [0_i64; 0]);
        // For a run under way, later events count. For a run that is not listed, only its own events count.
        run.ended_us = None;
        let mut position = WatchPosition::default();
        snapshot.runs = vec![run];
        assert_eq!(told(&snapshot, &mut position), [2, 3, 4, 6, 7]);
        snapshot.runs.clear();
        let mut position = WatchPosition::default();
        assert_eq!(told(&snapshot, &mut position), [2]);
    }
}
