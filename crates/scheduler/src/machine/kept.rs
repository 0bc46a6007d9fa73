//! The rows about data sets that stay. A set is noted before it is laid out, and is whole once a step on it has
//! succeeded.
//!
//! The agents make the directories as they prepare. No cell and no end of a run removes them.

use super::run::Run;
use benchmesh_model::mesh::AgentId;
use benchmesh_plan::{PlannedData, PlannedLoad, PlannedStep};
use benchmesh_store::rows::{NewKeptData, Row};
use std::collections::BTreeSet;

impl Run {
    /// Notes the step's set, because its data may exist from now on.
    pub(super) fn note_kept_data(&mut self) {
        let agents: BTreeSet<AgentId> = self.live().into_iter().map(|task| task.agent).collect();
        let Some(step) = self.active_plan() else {
            return;
        };
        let Some(data) = &step.kept else { return };
        let sum = |each: fn(&PlannedLoad) -> u64| {
            let loads = step.loads.iter();
            loads.fold(0_u64, |sum, load| {
                sum.saturating_add(each(load).saturating_mul(load.tasks.into()))
            })
        };
        let row = NewKeptData {
            name: data.name.clone(),
            path: step.path.clone(),
            target: step.target.clone(),
            system: step.system.clone(),
            workload: step.workload.clone(),
            shape: data.shape.clone(),
            tasks: u32::try_from(step.tasks.len()).unwrap_or(u32::MAX),
            bytes: sum(|load| load.footprint.bytes),
            files: sum(|load| load.footprint.files),
            remakes: data.remakes,
            run_uid: self.row.uid.clone(),
            agents: agents.into_iter().collect(),
            at: self.now,
        };
        self.out.rows.push(Row::KeptData(row));
    }

    /// Marks the set as whole after a step succeeded with all of its clients.
    pub(super) fn note_kept_whole(&mut self) {
        let kept = |step: &PlannedStep| {
            let PlannedData { name, .. } = step.kept.as_ref()?;
            Some((name.clone(), step.path.clone()))
        };
        if let Some((name, path)) = self.active_plan().and_then(kept) {
            let at = self.now;
            self.out.rows.push(Row::KeptDataWhole { name, path, at });
        }
    }
}
