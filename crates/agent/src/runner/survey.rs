//! Surveys targets and sources before anything runs on them.
//!
//! Every call here may hang on a dead network file system, so each runs on a thread of its own.

use super::link_speed;
use crate::command::{PathFacts, Survey};
use crate::host::Inventory;
use crate::policy::Policy;
use crate::sampler::without_secrets;
use crate::targets::directory::{Use, facts};
use benchmesh_model::targets::Locator;
use benchmesh_workloads::error_chain;
use benchmesh_workloads::sandbox::Space;
use std::path::Path;

/// Free space of a missing scratch directory.
const NO_SCRATCH: i64 = -1;

/// Surveys all targets and sources.
#[must_use]
pub fn survey(
    policy: &Policy,
    scratch: Option<&Path>,
    targets: &[Locator],
    source_paths: &[String],
) -> Survey {
    let scratch_free_bytes = |path: &Path| {
        let space = Space::at(path).map_or(0, |space| space.free_bytes);
        i64::try_from(space).unwrap_or(i64::MAX)
    };
    Survey {
        targets: targets
            .iter()
            .map(|locator| target_facts(policy, locator))
            .collect(),
        sources: source_paths
            .iter()
            .map(|path| without_secrets_of_mounts(facts(&policy.sources, path, Use::Source)))
            .collect(),
        scratch_free_bytes: scratch.map_or(NO_SCRATCH, scratch_free_bytes),
        link_bytes_per_s: link_speed::bytes_per_s(Path::new(link_speed::INTERFACES)),
        inventory_json: Inventory::read(Path::new("/")).to_json(),
    }
}

/// Includes the floors of the policy.
fn target_facts(policy: &Policy, locator: &Locator) -> PathFacts {
    let mut facts = match policy.targets.open(locator) {
        Ok(target) => {
            let mut facts = target.survey();
            let space = target.free().filter(|space| space.size_bytes > 0);
            if let Some(space) = space.filter(|_| facts.exists) {
                let (bytes, files) = policy.floors.of(space.size_bytes, space.files);
                facts.floor_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                facts.floor_files = i64::try_from(files).unwrap_or(i64::MAX);
            }
            facts
        }
        Err(error) => PathFacts {
            problem: error_chain(&error),
            free_files: -1,
            ..PathFacts::default()
        },
    };
    facts.path = locator.to_string();
    without_secrets_of_mounts(facts)
}

fn without_secrets_of_mounts(mut facts: PathFacts) -> PathFacts {
    facts.mount_source = without_secrets(&facts.mount_source);
    facts.mount_options = without_secrets(&facts.mount_options);
    facts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;
    use crate::policy::PolicyConfig;
    use crate::targets::TargetNames;
    use std::fs;

    #[test]
    fn paths_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir(root.join("target")).unwrap();
        fs::write(root.join("target/file"), "x").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("target/out")).unwrap();
        let allowed = vec![root.join("target")];
        let policy = Policy::open(&PolicyConfig {
            targets: TargetNames::directories(&allowed),
            allow_read: allowed,
            ..PolicyConfig::default()
        })
        .unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let paths = [
            "target",
            "target/none",
            "target/file",
            "other",
            "target/out",
            "none",
            "target/../none",
            "target/../other",
            "target/out/none",
        ]
        .map(text);
        let locators = paths.clone().map(Locator::path);
        let survey = survey(&policy, None, &locators, &paths);
        let check = |facts: &PathFacts, allowed, exists, problem: &str| {
            assert_eq!(
                (facts.allowed, facts.exists),
                (allowed, exists),
                "{facts:?}"
            );
            assert_eq!(facts.problem.is_empty(), problem.is_empty(), "{facts:?}");
            assert!(facts.problem.contains(problem), "{facts:?}");
        };
        assert_eq!(survey.scratch_free_bytes, NO_SCRATCH);
        check(&survey.targets[0], true, true, "");
        check(&survey.targets[1], true, false, "does not exist");
        check(&survey.targets[2], true, true, "not a directory");
        check(&survey.targets[3], false, false, "--allow)");
        check(&survey.targets[4], false, false, "leads out");
        check(&survey.targets[5], false, false, "--allow)");
        // The answer is the same whether the path exists or not.
        check(&survey.targets[6], false, false, "--allow)");
        check(&survey.targets[7], false, false, "--allow)");
        check(&survey.targets[8], false, false, "leads out");
        check(&survey.sources[2], true, true, "");
        check(&survey.sources[3], false, false, "--allow-read");
        let target = &survey.targets[0];
        assert!(
            target.floor_bytes > 0 && target.floor_bytes <= 1 << 30 && target.floor_files <= 10_000
        );
        assert_eq!(
            (survey.sources[0].floor_bytes, survey.targets[3].floor_bytes),
            (0, 0)
        );
        assert!(target.free_bytes > 0 && target.device.contains(':'));
        // In a chroot the mount table lacks the root.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let has_root = table
            .lines()
            .any(|line| line.split(' ').nth(4) == Some("/"));
        assert!(!target.file_system.is_empty() || !has_root);
        assert_eq!(
            target_facts(&policy, &Locator::path("target")).problem,
            "is not an absolute path"
        );
    }
}
