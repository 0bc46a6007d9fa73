//! The events of alarms: one when an alarm is raised, one when it is over. Their details let a restarted collector know
//! which alarms of a run are still raised. Pure.

use super::state::{RaisedAlarm, Subject};
use benchmesh_model::events::EventKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The detail of both kinds.
#[derive(Serialize, Deserialize)]
struct Detail {
    /// The number of the plan's `[[alarm]]`, from 1.
    alarm: usize,
    when: String,
    /// Empty for the step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    daemon: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    daemon_id: Option<i64>,
    because: String,
}

/// The detail of an alarm's event, as JSON.
pub fn detail(alarm: &RaisedAlarm) -> String {
    let detail = Detail {
        alarm: alarm.alarm + 1,
        when: alarm.when.clone(),
        daemon: alarm.subject.name.clone(),
        daemon_id: alarm.subject.daemon_id,
        because: alarm.because.clone(),
    };
    serde_json::to_string(&detail).expect("a struct of texts and numbers is JSON")
}

/// The alarms whose newest event says that they are raised. `events`: kind and detail, oldest first.
pub fn still_raised(events: Vec<(String, Option<String>)>) -> Vec<RaisedAlarm> {
    let mut raised = BTreeMap::new();
    for (kind, detail) in events {
        let detail = detail.and_then(|detail| serde_json::from_str::<Detail>(&detail).ok());
        let Some(detail) = detail else { continue };
        let Some(alarm) = detail.alarm.checked_sub(1) else {
            continue;
        };
        let key = (alarm, detail.daemon.clone());
        if kind == EventKind::AlarmOver.as_str() {
            raised.remove(&key);
            continue;
        }
        let alarm = RaisedAlarm {
            alarm,
            when: detail.when,
            subject: Subject {
                name: detail.daemon,
                daemon_id: detail.daemon_id,
            },
            because: detail.because,
        };
        raised.insert(key, alarm);
    }
    raised.into_values().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn alarm(alarm: usize, daemon: &str) -> RaisedAlarm {
        RaisedAlarm {
            alarm,
            when: String::from("rss of ceph-osd > 8g"),
            subject: Subject {
                name: daemon.to_owned(),
                daemon_id: Some(7),
            },
            because: String::from("it is 9 GiB"),
        }
    }

    #[test]
    fn an_alarm_is_raised_until_its_own_event_says_that_it_is_over() {
        let event = |kind: EventKind, of: &RaisedAlarm| (kind.to_string(), Some(detail(of)));
        let (one, other, second) = (alarm(0, "osd.1"), alarm(0, "osd.2"), alarm(1, "osd.1"));
        let events = vec![
            event(EventKind::Alarm, &one),
            event(EventKind::Alarm, &other),
            event(EventKind::AlarmOver, &one),
            event(EventKind::Alarm, &second),
            (EventKind::Alarm.to_string(), None),
            (
                EventKind::Alarm.to_string(),
                Some(String::from("{\"alarm\": 0}")),
            ),
        ];
        assert_eq!(
            still_raised(events.clone()),
            [other.clone(), second.clone()]
        );
        let again = [
            events,
            vec![
                event(EventKind::AlarmOver, &other),
                event(EventKind::Alarm, &one),
            ],
        ]
        .concat();
        assert_eq!(still_raised(again), [one, second]);
    }
}
