//! The probes of a search. Each probe is a step, made when the one before it has ended, at the rate that the results so
//! far lead to.
//!
//! The rows of the probes are the whole state of a search. A restarted collector reads their measurements and decides
//! the same. The event of the search's end is stored with its consequences, so that the search ends once.

use super::{
    effect::{Lookup, Show},
    run::{Run, StepFacts},
    stage::Stage,
    step_rows::new_steps,
    waiting::Waiting,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{StepId, StepState};
use benchmesh_plan::search::{Decision, Found, Judged, NotFound, Probe, ProbeOp, Search};
use benchmesh_store::rows::Row;
use benchmesh_workloads::figures;
use serde_json::json;
use std::{ops::Range, sync::Arc};

impl Run {
    /// Decides the first open search whose probes have all ended before this step. Returns whether there is one.
    pub(super) fn decide_search(&mut self, until: usize) -> bool {
        let ended = self.first_open.min(until)..until;
        let is_open = |index: &usize| {
            let id = self.facts.get(*index).map(|facts| facts.id);
            self.is_last_probe(*index) && id.is_some_and(|id| !self.searched.contains(&id))
        };
        let Some(last) = ended.into_iter().find(is_open) else {
            return false;
        };
        let of_probes = self.facts.get(self.probes_until(last)).unwrap_or_default();
        let steps = of_probes.iter().map(|facts| facts.id).collect();
        self.stage = Stage::Searching;
        self.lookup(Waiting::ProbesRead { last }, Lookup::Probes(steps));
        true
    }

    fn probe(&self, index: usize) -> Option<&Probe> {
        self.steps.get(index)?.probe.as_ref()
    }

    fn is_last_probe(&self, index: usize) -> bool {
        let goes_on = || self.probe(index + 1).is_some_and(|next| next.number > 1);
        self.probe(index).is_some() && !goes_on()
    }

    /// The probes of a search, up to its last.
    fn probes_until(&self, last: usize) -> Range<usize> {
        let before = self.probe(last).map_or(0, |probe| probe.number - 1);
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        last.saturating_sub(before)..last + 1
    }

    /// Handles the measurements of the probes, in their order.
    pub(super) fn on_probes_read(&mut self, last: usize, measured: &[Vec<ProbeOp>]) {
        let Some(search) = self.probe(last).map(|probe| Arc::clone(&probe.search)) else {
            return;
        };
        let probes = self.probes_until(last);
        let judge = |(index, ops): (usize, &Vec<ProbeOp>)| {
            let facts = self.facts.get(index);
            let is_done = facts.is_some_and(|facts| facts.state == StepState::Done);
            let rate = self.steps.get(index).and_then(|step| step.probe_rate());
            search.judge(rate, if is_done { ops } else { &[] })
        };
        let judged: Vec<Judged> = probes.clone().zip(measured).map(judge).collect();
        match search.decide(&judged) {
            Decision::Probe(rate) => self.add_probe(&probes, rate),
            Decision::Found(found) => {
                let words = found_in_words(&search, &found, &judged);
                self.end_search(&search, &probes, &judged, Some(found), &words);
            }
            Decision::NotFound(why) => {
                let words = self.not_found_in_words(&search, why, &probes, &judged);
                self.end_search(&search, &probes, &judged, None, &words);
            }
        }
    }

    /// Makes the step of the next probe, next to the others of its search.
    fn add_probe(&mut self, probes: &Range<usize>, rate: u64) {
        let number = u32::try_from(probes.len() + 1).unwrap_or(u32::MAX);
        let (first, next) = (probes.start, probes.end);
        let Some(step) = self
            .steps
            .get(first)
            .and_then(|step| step.at_rate(number, rate))
        else {
            return;
        };
        // In a cell of its own, a probe has no predecessor.
        let shares_cell = self
            .steps
            .get(first)
            .is_some_and(|first| first.cell == step.cell);
        let attempt = self.facts.get(first).filter(|_| shares_cell);
        let attempt = attempt.map_or(1, |facts| facts.attempt);
        self.show_message(format!("{}: {} operations/s", step.title(), rate));
        self.out.rows.push(Row::Steps {
            run: self.row.id,
            steps: new_steps(std::iter::once(&step), attempt),
        });
        let mut steps = self.steps.to_vec();
        steps.insert(next, step);
        self.steps = steps.into();
        self.facts
            .insert(next, StepFacts::planned(StepId(0), attempt));
        let token = self.wait_for(Waiting::StepsMade {
            range: next..next + 1,
            only: vec![next],
            attempt,
        });
        self.out.made.push(token);
        self.show(Show::Loop {
            number: self.loop_number,
            before: self.earlier.count(),
            steps: Arc::clone(&self.steps),
        });
    }

    /// Records the outcome of the search, once.
    fn end_search(
        &mut self,
        search: &Search,
        probes: &Range<usize>,
        judged: &[Judged],
        found: Option<Found>,
        words: &str,
    ) {
        let last = probes.end.saturating_sub(1);
        let Some((step, id)) = self
            .steps
            .get(last)
            .zip(self.facts.get(last).map(|facts| facts.id))
        else {
            return;
        };
        let ordinal = |place: usize| {
            let step = self.steps.get(probes.start + place);
            step.map(|step| step.ordinal)
        };
        let of_probe = |(place, probe): (usize, &Judged)| {
            json!({
                "ordinal": ordinal(place),
                "rate_per_s": probe.rate,
                "ops_per_s": probe.achieved,
                "latency_ms": probe.latency_ms,
                "errors": probe.errors,
                "verdict": probe.verdict.to_string(),
            })
        };
        let best = found.and_then(|found| judged.get(found.probe));
        let above = found.and_then(|found| found.above);
        let beyond = above.and_then(|place| judged.get(place));
        let detail = json!({
            "while": search.bound.words,
            "figure": search.bound.figure.as_str(),
            "within": search.within,
            "highest_per_s": found.map(|found| found.per_s),
            "latency_ms": best.map(|probe| probe.latency_ms),
            "ordinal": found.and_then(|found| ordinal(found.probe)),
            "beyond_per_s": beyond.and_then(|probe| probe.rate),
            "beyond_latency_ms": beyond.map(|probe| probe.latency_ms),
            "beyond_ordinal": above.and_then(ordinal),
            "words": words,
            "probes": judged.iter().enumerate().map(of_probe).collect::<Vec<_>>(),
        });
        let on = match step.target.as_str() {
            "" => String::new(),
            target => format!(" on {target}"),
        };
        let message = format!("{} {}{on}: {words}", step.phase, step.mode);
        let kind = match found {
            Some(_) => EventKind::SearchFound,
            None => EventKind::SearchNotFound,
        };
        self.searched.insert(id);
        let detail = Some(detail.to_string());
        self.record_event_of(Some(id), None, kind, message, detail);
    }

    fn not_found_in_words(
        &self,
        search: &Search,
        why: NotFound,
        probes: &Range<usize>,
        judged: &[Judged],
    ) -> String {
        let bound = &search.bound.words;
        match why {
            NotFound::Unmeasured(place) => {
                let index = probes.start + place;
                let title = self.steps.get(index).map(|step| step.title());
                let reason = self.facts.get(index).and_then(|facts| facts.reason.clone());
                let reason = reason
                    .unwrap_or_else(|| String::from("its tasks did not run at the same time"));
                format!(
                    "no highest rate with {bound}: {} has no rate: {reason}",
                    title.unwrap_or_default()
                )
            }
            NotFound::NonePassed => {
                let rates = judged.iter().filter_map(|probe| probe.rate);
                let lowest = rates.min().map_or_else(
                    || String::from("without a rate"),
                    |rate| format!("at {rate} operations/s"),
                );
                let last = judged.last();
                let last = last
                    .map(|probe| in_words(search, probe))
                    .unwrap_or_default();
                format!(
                    "no rate with {bound} in {}: {lowest} {last}",
                    figures::plural(judged.len(), "probe")
                )
            }
        }
    }
}

/// For example `p99 12.3 ms, too slow`.
fn in_words(search: &Search, probe: &Judged) -> String {
    format!(
        "{} {} ms, {}",
        search.bound.figure.as_str(),
        figures::millis(probe.latency_ms),
        probe.verdict
    )
}

fn found_in_words(search: &Search, found: &Found, judged: &[Judged]) -> String {
    let bound = &search.bound.words;
    let best = judged.get(found.probe);
    let best = best
        .map(|probe| in_words(search, probe))
        .unwrap_or_default();
    let beyond = match found.above.and_then(|place| judged.get(place)) {
        None => String::from("without a rate, the load reaches no more"),
        Some(probe) => {
            let rate = match probe.rate {
                Some(rate) => format!("at {rate}"),
                None => String::from("without a rate"),
            };
            format!("{rate} {}", in_words(search, probe))
        }
    };
    let rough = match found.is_rough {
        true => format!(
            "; the probes ran out before the search came within {} %",
            search.within * 100.0
        ),
        false => String::new(),
    };
    format!(
        "the highest rate with {bound} is {} operations/s ({best}); {beyond}{rough}; {}",
        figures::rate(found.per_s),
        figures::plural(judged.len(), "probe")
    )
}
