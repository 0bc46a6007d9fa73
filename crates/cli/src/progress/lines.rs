//! Progress without redrawing: a line when a step begins, one every ten seconds, one when it ends.

use super::format;
use super::names::Names;
use benchmesh_scheduler::snapshot::RunUpdate;
use std::time::{Duration, Instant};

/// Interval between two lines of one step: frequent enough to show activity, rare enough for a log of days.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The lines already printed.
#[derive(Debug)]
pub struct Lines {
    step: Option<u32>,
    last_line_at: Option<Instant>,
    names: Names,
}

impl Lines {
    pub fn new(names: Names) -> Self {
        Self {
            step: None,
            last_line_at: None,
            names,
        }
    }

    /// The lines that an update adds at the instant `now`.
    pub fn update(&mut self, update: &RunUpdate, now: Instant) -> Vec<String> {
        let mut lines: Vec<String> = update
            .run
            .messages
            .iter()
            .map(|text| crate::terminal::clean(text))
            .collect();
        lines.extend(update.events.iter().map(format::event));
        for step in &update.run.finished {
            lines.extend(format::step_done(step, update.run.steps_total, &self.names));
        }
        let due = self
            .last_line_at
            .is_none_or(|last_line_at| now.duration_since(last_line_at) >= REPORT_INTERVAL);
        let Some(step) = &update.run.step else {
            // Between steps only a long removal of data is reported.
            if let Some(files) = update.run.removed_files.filter(|_| due) {
                self.last_line_at = Some(now);
                lines.push(format::cleaning(files));
            }
            return lines;
        };
        let began = self.step != Some(step.ordinal);
        if began || due {
            self.step = Some(step.ordinal);
            self.last_line_at = Some(now);
            let head = format!(
                "[{:>2}/{}] {}",
                step.ordinal,
                update.run.steps_total,
                format::step_now(step, &self.names)
            );
            lines.push(if began {
                format!("{head} ...")
            } else {
                let mut line = format!(
                    "{head}: {}; {}; {}",
                    format::step_rate(step, update.run.removed_files),
                    format::step_time(step),
                    format::run_time(update, &self.names)
                );
                let detail = format::detail(update);
                if !detail.is_empty() {
                    line.push_str("; ");
                    line.push_str(&detail);
                }
                line
            });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::tests::{done, now, update};
    use super::*;
    use benchmesh_model::mesh::{RunState, StepState};
    use benchmesh_scheduler::snapshot::EventNow;

    #[test]
    fn a_step_has_a_line_at_its_begin_every_ten_seconds_and_at_its_end() {
        let mut lines = Lines::new(Names::unknown());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut running = update(RunState::Running);
        running.run.step = Some(now(StepState::Prepare));
        assert_eq!(
            lines.update(&running, at(0)),
            ["[ 3/24] records: randread, cephfs (bs=4k numjobs=4), 3 agents ..."]
        );
        running.run.step = Some(now(StepState::Running));
        for second in 1..10 {
            assert!(lines.update(&running, at(second)).is_empty());
        }
        assert_eq!(
            lines.update(&running, at(10)),
            [
                "[ 3/24] records: randread, cephfs (bs=4k numjobs=4), 3 agents: 12,346 ops/s, 48.2 MiB/s, p50 0.0410 ms, p99 1.20 ms; \
              4.2 s, 42 %; 2 of 24 steps, 9.0 s, about 1m 12s left"
            ]
        );
        running.run.step = None;
        running.run.finished = vec![done(3, StepState::Done)];
        running.run.messages = vec!["agent n2 is lost".into()];
        running.events = vec![EventNow {
            event_id: 1,
            at_us: 1_795_254_092_000_000,
            severity: "warning".into(),
            agent: Some("s1".into()),
            message: "ceph-osd osd.7 (pid 812)\u{1b}[2J was started again".into(),
            ..EventNow::default()
        }];
        let added = lines.update(&running, at(11));
        assert_eq!(added.len(), 3);
        let event = added.get(1).map_or("", String::as_str);
        assert!(event.starts_with("2026-11-21"), "{event}");
        assert!(
            event.contains("warning: s1: ceph-osd osd.7 (pid 812)"),
            "{event}"
        );
        assert!(!event.contains('\u{1b}'), "{event:?}");
        assert_eq!(added.first().map(String::as_str), Some("agent n2 is lost"));
    }
}
