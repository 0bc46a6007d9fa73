//! Targets that ran out of space or inodes, or nearly did, outside of the steps that fill them on purpose.

use super::resources::RESOURCES;
use super::targets::SampledTarget;
use crate::findings::hosts::{LEFT_SHARE, LEFT_SHARE_ERROR, MinDuration, Scarce, Subject};
use crate::findings::mesh::Mesh;
use crate::findings::steps::{Step, Window, json};
use crate::findings::{FindingsError, reading};
use crate::rows::all_rows;
use benchmesh_model::mesh::Severity;
use benchmesh_results::{Finding, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;

/// A sample is valid for two sampling periods.
const SAMPLE_LASTS_US: i64 = 20_000_000;

/// The minimum left in each window, in percent and absolute, for some targets in some spans.
const LOWEST: &str = "
    SELECT (x.at_us - ?3) / ?4, min(100.0 * x.free_bytes / nullif(x.size_bytes, 0)),
           min(100.0 * x.free_files / nullif(x.files, 0)), min(x.free_bytes), min(x.free_files)
    FROM json_each(?2) AS p CROSS JOIN json_each(?1) AS t
         CROSS JOIN target_samples AS x
             ON x.target_id = t.value AND x.at_us >= p.value ->> 0 AND x.at_us < p.value ->> 1
    GROUP BY 1";

/// A window, and the minimum left in it of each figure: in percent, and absolute.
type LowestRow = (i64, Option<f64>, Option<f64>, Option<i64>, Option<i64>);

/// The findings of all targets, in their order.
pub(super) fn find(
    connection: &Connection,
    targets: &[SampledTarget],
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = Vec::new();
    let spans = json(&without_fills(steps, mesh));
    for target in targets {
        found.extend(ran_out(connection, target, &spans, mesh)?);
    }
    Ok(found)
}

/// The run without steps that fill a target on purpose. Each excluded span reaches from the end of the step before to
/// the beginning of the step after: a target is also sampled during preparation, and may be full until the last
/// client has ended.
fn without_fills(steps: &[Step], mesh: &Mesh) -> Vec<Window> {
    let mut spans = Vec::new();
    let mut from_us = mesh.from_us;
    let mut ended_us = mesh.from_us;
    let mut fills = false;
    for step in steps {
        if step.is_fill && !fills {
            spans.push(Window {
                from_us,
                until_us: ended_us,
            });
        } else if fills && !step.is_fill {
            from_us = step.from_us;
        }
        fills = step.is_fill;
        ended_us = ended_us.max(step.until_us);
    }
    if !fills {
        spans.push(Window {
            from_us,
            until_us: mesh.until_us,
        });
    }
    spans.retain(|span| span.from_us < span.until_us);
    spans
}

/// Whether the target ran out of space or inodes, or nearly did.
fn ran_out(
    connection: &Connection,
    target: &SampledTarget,
    spans: &str,
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<LowestRow> = all_rows(
        connection,
        LOWEST,
        &[
            target.ids_json().into(),
            spans.to_owned().into(),
            mesh.from_us.into(),
            mesh.window_us().into(),
        ],
    )
    .map_err(reading("target_samples"))?;
    let subject = Subject {
        name: &target.name,
        label: &target.label,
        host_id: target.host_id,
        agent_id: Some(target.agent_id),
        samples: ("target_samples", target.condition()),
    };
    let found = RESOURCES
        .iter()
        .enumerate()
        .filter_map(|(place, resource)| {
            let mut windows = vec![None; mesh.instants.len()];
            let mut least = f64::INFINITY;
            for (window, bytes_percent, files_percent, bytes, files) in &rows {
                let percent = [*bytes_percent, *files_percent].get(place).copied();
                let left = [*bytes, *files].get(place).copied();
                let (Some(percent), Some(left)) = (percent.flatten(), left.flatten()) else {
                    continue;
                };
                least = least.min(real(left));
                let window = usize::try_from(*window).ok();
                if let Some(window) = window.and_then(|window| windows.get_mut(window)) {
                    let is_scarce =
                        percent < 100.0 * LEFT_SHARE && real(left) < resource.max_scarce;
                    *window = Some((is_scarce, percent));
                }
            }
            carry_forward(&mut windows, mesh.window_us());
            let severity = |percent: f64| {
                let is_error =
                    percent < 100.0 * LEFT_SHARE_ERROR && least < 0.1 * resource.max_scarce;
                if is_error {
                    Severity::Error
                } else {
                    Severity::Warning
                }
            };
            let text = |percent: f64| {
                let what = match least < resource.min_usable {
                    true => resource.ran_out,
                    false => resource.nearly,
                };
                let of = resource.of_size(target.size_bytes);
                let (left, percent) = (resource.amount(least), figures::rate(percent));
                format!("{what}: {left} ({percent} %{of}) was free")
            };
            let scarce = Scarce {
                figure: resource.percent,
                unit: "%",
                windows,
                severity: &severity,
                most: false,
                min_duration: MinDuration::None,
                sql: resource.column,
                text: &text,
            };
            scarce.finding(mesh, &subject)
        });
    Ok(found.collect())
}

/// Fills windows without a sample with the previous value, for up to [`SAMPLE_LASTS_US`].
fn carry_forward(windows: &mut [Option<(bool, f64)>], window_us: i64) {
    let mut last = None;
    for window in windows {
        match window {
            Some(value) => last = Some((*value, SAMPLE_LASTS_US)),
            None => {
                let left_us = |(value, us): ((bool, f64), i64)| (value, us - window_us);
                last = last.map(left_us).filter(|(_, left_us)| *left_us >= 0);
                *window = last.map(|(value, _)| value);
            }
        }
    }
}
