//! What a watcher of a run gets from the live state of the mesh: clients, daemons, and the events and marks of the run
//! or within its time, each once.

use benchmesh_scheduler::snapshot::{BusyDaemon, EventNow, RunUpdate, Snapshot};

/// Maximum number of clients and of daemons that a watcher gets: more than a terminal shows.
const WATCHED_ROWS: usize = 40;

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
pub(super) struct WatchPosition {
    event: Option<i64>,
    mark_us: i64,
}

/// Adds the slowest clients of the running step, and the busiest daemons that are not ours.
pub(super) fn add_detail(update: &mut RunUpdate, snapshot: &Snapshot) {
    if let (Some(run), Some(shown)) = (&snapshot.run, &mut update.run.step)
        && let Some(step) = run
            .step
            .as_ref()
            .filter(|step| step.step_id == shown.step_id)
    {
        shown.clients_absent = step.clients_absent;
        update.clients = run.clients.len();
        update.run.clients = run.clients.iter().take(WATCHED_ROWS).cloned().collect();
    }
    let daemons = snapshot.daemons.iter();
    update.daemons = daemons
        .filter(|daemon| daemon.name != "benchmesh")
        .filter_map(|daemon| {
            Some(BusyDaemon {
                host: daemon.host.clone(),
                name: daemon.name.clone(),
                instance: daemon.instance.clone(),
                cpu_percent: daemon.cpu_percent?,
                rss_bytes: daemon.newest.figures.rss_bytes,
            })
        })
        .take(WATCHED_ROWS)
        .collect();
}

/// Adds the run's marks, and the events that agents recorded, since the last call. The scheduler's own events are
/// already in the messages.
pub(super) fn add_events(
    update: &mut RunUpdate,
    snapshot: &Snapshot,
    position: &mut WatchPosition,
) {
    let run = snapshot
        .runs
        .iter()
        .find(|run| run.run_id == update.run.run_id);
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
            && event.run_id.map_or_else(
                || was_under_way(event.at_us),
                |run| run == update.run.run_id.0,
            )
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
    update.events = events.into_iter().rev().cloned().collect();
    let run = snapshot.run.as_ref();
    let Some(run) = run.filter(|run| run.run_id == update.run.run_id) else {
        return;
    };
    let marks = run.marks.iter().filter(|mark| mark.source == "mark");
    for mark in marks.filter(|mark| mark.at_us > position.mark_us) {
        update.events.push(EventNow {
            at_us: mark.at_us,
            severity: "info".to_owned(),
            message: format!("mark: {}", mark.text),
            ..EventNow::default()
        });
    }
    let last = run.marks.last().map_or(0, |mark| mark.at_us);
    position.mark_us = position.mark_us.max(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_model::mesh::RunId;
    use benchmesh_scheduler::snapshot::{DaemonNow, RunListed};

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
            run_id: RunId(1),
            started_us: Some(10 * S),
            ended_us: Some(20 * S),
            ..RunListed::default()
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
            let mut update = RunUpdate::default();
            update.run.run_id = RunId(1);
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

    /// A watcher gets the busiest daemons, however many there are, and none of ours.
    #[test]
    fn a_watcher_gets_as_many_daemons_as_a_terminal_shows() {
        let daemon = |name: &str, number: i32| DaemonNow {
            name: name.to_owned(),
            pid: i64::from(number),
            cpu_percent: Some(f64::from(500 - number)),
            ..DaemonNow::default()
        };
        let ours = (0..10).map(|number| daemon("benchmesh", number));
        let others = (10..300).map(|number| daemon("ceph-osd", number));
        let snapshot = Snapshot {
            daemons: ours.chain(others).collect(),
            ..Snapshot::default()
        };
        let mut update = RunUpdate::default();
        add_detail(&mut update, &snapshot);
        let shares = update.daemons.iter().map(|daemon| daemon.cpu_percent);
        let busiest = (10..50).map(|number| f64::from(500 - number));
        assert!(shares.eq(busiest));
    }
}
