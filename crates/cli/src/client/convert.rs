//! Conversion of generated types to the commands' own types.

use super::facts::{PlannedStep, RunResumed, RunStarted, StopDone};
use benchmesh_answers::query::ResultRow;
use benchmesh_proto::v1;
use benchmesh_store::annotate::Annotation;
use serde_json::{Map, Value};
use std::time::Duration;

pub fn row(row: v1::QueryRow) -> ResultRow {
    row.values.into_iter().map(super::value).collect()
}

impl From<v1::StartRunReply> for RunStarted {
    fn from(reply: v1::StartRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            run_uid: reply.run_uid,
            steps: reply.steps.into_iter().map(PlannedStep::from).collect(),
            warnings: reply.warnings,
        }
    }
}

impl From<v1::PlannedStep> for PlannedStep {
    fn from(step: v1::PlannedStep) -> Self {
        Self {
            ordinal: step.ordinal,
            repeat: step.repeat,
            phase: step.phase,
            target: step.target,
            workload: step.workload,
            mode: step.mode,
            params: params(&step.params_json),
            agents: step.agents,
            peer: Some(step.peer).filter(|peer| !peer.is_empty()),
            link: step.link,
            cache: step.cache,
            bytes: Some(step.bytes).filter(|bytes| *bytes > 0),
            files: step.files,
            expected_s: micros(step.expected_us)
                .filter(|span| !span.is_zero())
                .map(|span| span.as_secs_f64()),
        }
    }
}

impl From<v1::ResumeRunReply> for RunResumed {
    fn from(reply: v1::ResumeRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            run_uid: reply.run_uid,
            run: reply.run,
            steps_done: reply.steps_done,
            steps_total: reply.steps_total,
            changes: reply.changes,
        }
    }
}

impl From<v1::StopRunReply> for StopDone {
    fn from(reply: v1::StopRunReply) -> Self {
        Self {
            run_id: reply.run_id,
            state: reply.state,
        }
    }
}

/// An annotation in wire format.
pub(super) fn annotation(annotation: Annotation) -> v1::annotate_request::Annotation {
    use v1::annotate_request::Annotation as Wire;
    match annotation {
        Annotation::Tag { set, remove } => Wire::Tag(v1::TagRun {
            set: set.into_iter().collect(),
            remove,
        }),
        Annotation::Note(text) => Wire::Note(text),
        Annotation::Mark { text, at } => Wire::Mark(v1::RunMark {
            text,
            at_us: at.map(|at| at.0),
        }),
        Annotation::Baseline(name) => Wire::Baseline(name),
    }
}

fn micros(us: i64) -> Option<Duration> {
    u64::try_from(us).ok().map(Duration::from_micros)
}

/// Parameters that are not an object are dropped: they are only displayed.
fn params(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}
