//! Changes of a run's targets since it began, as its agents see them.

use super::{ResumeError, store};
use crate::{
    Scheduler, environment,
    sessions::{MemberFacts, command::Survey},
    survey,
};
use benchmesh_model::mesh::RunId;
use benchmesh_model::targets::Locator;
use benchmesh_plan::{PathFacts, Plan};
use benchmesh_store::rows::NewRunTarget;
use benchmesh_workloads::figures;
use futures::future::try_join_all;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The size of some file systems depends on other data stored there. Pools have no size, and are not compared.
const SIZE_TOLERANCE_PERCENT: f64 = 5.0;
/// An attached agent that detaches during the check has this long to come back.
const LOSS_AFTER: Duration = Duration::from_secs(5);

impl Scheduler {
    /// The differences, one sentence each. Empty for a run that had not begun.
    pub(super) async fn changed_targets(
        &self,
        run: RunId,
        plan: &Plan,
    ) -> Result<Vec<String>, ResumeError> {
        let known = self.0.store.run_targets(run).await.map_err(store)?;
        let members = self.0.fleet.members().into_iter();
        let members = members.filter(|member| known.iter().any(|(agent, _)| *agent == member.id));
        let asked = members.filter(|member| member.attached).map(|member| {
            let paths = plan.target_paths();
            async move {
                let asked =
                    survey::ask(&self.0.fleet, member.id, paths, Vec::new(), LOSS_AFTER).await;
                let survey = asked.map_err(|reason| ResumeError::AgentSilent {
                    run,
                    agent: member.hello.name.clone(),
                    reason,
                })?;
                Ok((member, survey))
            }
        });
        let found: Vec<(MemberFacts, Survey)> = try_join_all(asked).await?;
        let mut changes = Vec::new();
        for (member, survey) in found {
            let paths: BTreeMap<String, PathFacts> = survey.paths.into_iter().collect();
            let now = environment::of_agent(plan, &member, &paths, &survey.inventory).targets;
            let of_agent = known.iter().filter(|(agent, _)| *agent == member.id);
            for (_, before) in of_agent {
                let of_target = |changes: Vec<String>| {
                    changes.into_iter().map(|change| {
                        format!(
                            "target `{}` on agent `{}` {change}",
                            before.target, member.hello.name
                        )
                    })
                };
                changes.extend(
                    match now.iter().find(|target| target.target == before.target) {
                        Some(now) => of_target(differences(before, now)),
                        None => of_target(vec![missing(before, &paths)]),
                    },
                );
            }
        }
        Ok(changes)
    }
}

fn missing(before: &NewRunTarget, found: &BTreeMap<String, PathFacts>) -> String {
    let why = found.get(&before.path).map(|facts| facts.problem.as_str());
    match why.filter(|why| !why.is_empty()) {
        Some(why) => format!("cannot be used any more: {why}"),
        None => format!("is not at {} any more", before.path),
    }
}

/// The differences of one target. Values that were unknown before do not count.
fn differences(before: &NewRunTarget, now: &NewRunTarget) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, before: &str, now: &str| {
        if !before.is_empty() && before != now {
            let now = if now.is_empty() { "unknown" } else { now };
            found.push(format!("has another {what}: {now}, before {before}"));
        }
    };
    differ("path", &before.path, &now.path);
    differ("file system", &before.mount_type, &now.mount_type);
    differ("device", &before.mount_source, &now.mount_source);
    let (packages, packages_now) = (packages(before), packages(now));
    for (package, version) in &packages {
        let version_now = packages_now.get(package).map_or("", String::as_str);
        differ(&format!("version of {package}"), version, version_now);
    }
    let has_size = Locator::parse(&before.path).key.is_path;
    if has_size && let (Some(before), Some(now)) = (before.size_bytes, now.size_bytes) {
        found.extend(other_size(before, now));
    }
    found
}

fn other_size(before: i64, now: i64) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a share of it is compared")]
    let percent = (now as f64 / before as f64 - 1.0) * 100.0;
    let bytes = |size: i64| figures::bytes(size.max(0).unsigned_abs());
    (percent.abs() > SIZE_TOLERANCE_PERCENT).then(|| {
        format!(
            "has another size: {} ({percent:+.1} %), before {}",
            bytes(now),
            bytes(before)
        )
    })
}

fn packages(target: &NewRunTarget) -> BTreeMap<String, String> {
    let parsed = target.packages_json.as_deref().map(serde_json::from_str);
    let Some(Ok(Value::Object(all))) = parsed else {
        return BTreeMap::new();
    };
    let text = |value: Value| value.as_str().map(str::to_owned);
    all.into_iter()
        .filter_map(|(package, version)| Some((package, text(version)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> NewRunTarget {
        NewRunTarget {
            target: String::from("t"),
            system: String::from("ceph"),
            path: String::from("/mnt/t"),
            mount_source: String::from("/dev/sdb1"),
            mount_type: String::from("xfs"),
            mount_options: String::from("rw"),
            beneath_json: None,
            size_bytes: Some(1 << 40),
            free_bytes: Some(5),
            packages_json: Some(String::from("{\"ceph-common\": \"18.2.0\"}")),
        }
    }

    #[test]
    fn another_file_system_device_size_or_version_is_a_difference() {
        let check = |change: fn(&mut NewRunTarget), expected: &[&str]| {
            let mut now = target();
            change(&mut now);
            assert_eq!(differences(&target(), &now), expected);
        };
        check(|_| {}, &[]);
        check(|now| now.free_bytes = Some(1 << 30), &[]);
        check(|now| now.size_bytes = Some((1 << 40) - (1 << 30)), &[]);
        check(
            |now| now.size_bytes = Some(1 << 41),
            &["has another size: 2.00 TiB (+100.0 %), before 1.00 TiB"],
        );
        check(
            |now| {
                now.mount_type = String::from("ext4");
                now.mount_source = String::new();
            },
            &[
                "has another file system: ext4, before xfs",
                "has another device: unknown, before /dev/sdb1",
            ],
        );
        check(
            |now| now.packages_json = Some(String::from("{\"ceph-common\": \"19.1.0\"}")),
            &["has another version of ceph-common: 19.1.0, before 18.2.0"],
        );
    }
}
