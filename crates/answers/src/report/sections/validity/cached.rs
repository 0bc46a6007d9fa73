//! Whether read bytes came from the storage, judged by byte counts; if they do not allow a judgment, the text gives
//! the reason.

use super::flagged::{has_flag, raised, steps_of};
use super::{Check, CheckVerdict};
use crate::report::StepReport;
use benchmesh_results::Flag;
use benchmesh_workloads::figures;

/// `None` if no step moved data to or from a target.
pub(super) fn check(steps: &[StepReport]) -> Option<Check> {
    if let Some(mut raised) = raised(steps, "cached") {
        for share in [most_cached(steps), most_unwritten(steps)]
            .into_iter()
            .flatten()
        {
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
            "the clients received, or read from disks, as much as the load read".to_owned(),
        ),
        _ if steps.iter().any(moved) => check(CheckVerdict::Ok, "nothing was read".to_owned()),
        _ => return None,
    })
}

/// The flagged step that wrote most, in words.
fn most_unwritten(steps: &[StepReport]) -> Option<String> {
    let flagged = steps
        .iter()
        .filter(|step| has_flag(step, Flag::WriteCached));
    let written = flagged.flat_map(|step| step.traffic.iter().map(move |one| (one, step)));
    let (one, step) = written.max_by(|(a, _), (b, _)| a.written_mib.total_cmp(&b.written_mib))?;
    let disks = one.disk_written_mib.unwrap_or(0.0);
    let sent = one.sent_mib.unwrap_or(0.0);
    Some(format!(
        "; {} wrote {} MiB in step {}, in which {} MiB went to its disks and {} MiB to its network",
        one.host,
        figures::rate(one.written_mib),
        step.ordinal,
        figures::rate(disks),
        figures::rate(sent)
    ))
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
