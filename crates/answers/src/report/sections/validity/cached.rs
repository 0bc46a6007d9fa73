//! Whether read bytes came from the storage, judged by byte counts; if they do not allow a judgment, the text gives
//! the reason.

use super::flagged::{raised, steps_of};
use super::{Check, CheckVerdict};
use crate::report::StepReport;
use benchmesh_workloads::figures;

/// `None` if no step moved data to or from a target.
pub(super) fn check(steps: &[StepReport]) -> Option<Check> {
    if let Some(mut raised) = raised(steps, "cached") {
        if let Some(share) = most_cached(steps) {
            raised.text.push_str(&share);
        }
        return Some(raised);
    }
    let moved = |step: &StepReport| {
        step.traffic
            .iter()
            .any(|one| one.read_mib + one.written_mib > 0.0)
    };
    let reads = |step: &StepReport| step.traffic.iter().any(|one| one.read_mib > 0.0);
    let why = steps
        .iter()
        .flat_map(|step| &step.traffic)
        .find_map(|one| one.not_judged.as_deref());
    let not_judged = steps_of(steps, |step| {
        step.traffic.iter().any(|one| one.not_judged.is_some())
    });
    let check = |verdict, text: String| super::check("cached", verdict, text);
    Some(match (not_judged, why) {
        (Some(which), Some(why)) => check(
            CheckVerdict::NotChecked,
            format!("not judged in {which}: {why}"),
        ),
        _ if steps.iter().any(reads) => check(
            CheckVerdict::Ok,
            "the data read came from the storage".to_owned(),
        ),
        _ if steps.iter().any(moved) => check(CheckVerdict::Ok, "nothing was read".to_owned()),
        _ => return None,
    })
}

/// The step with the largest cached share, in words.
fn most_cached(steps: &[StepReport]) -> Option<String> {
    let cached = steps.iter().flat_map(|step| {
        let of_hosts = step.traffic.iter();
        of_hosts.filter_map(move |one| Some((one.cached_percent?, one, step)))
    });
    let (percent, one, step) = cached.max_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
    (percent > 0.0).then(|| {
        format!(
            "; {} read {} MiB in step {}, of which {} % never reached it",
            one.host,
            figures::rate(one.read_mib),
            step.ordinal,
            figures::rate(percent)
        )
    })
}
