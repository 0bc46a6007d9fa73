//! Single writes of the scheduler, for tests.

use super::super::rows::{NewCacheDrop, NewStep, NewTask, Row, RunChange, StepChange};
use super::super::{Store, StoreError};
use benchmesh_model::mesh::{RunId, StepId, TaskId, TaskState};

impl Store {
    async fn apply_one(&self, row: Row) -> Result<Vec<i64>, StoreError> {
        let made = self.apply(vec![row]).await?;
        Ok(made.into_iter().flatten().collect())
    }

    pub(super) async fn set_run_state(
        &self,
        run: RunId,
        change: RunChange,
    ) -> Result<(), StoreError> {
        self.apply_one(Row::Run { run, change }).await.map(drop)
    }

    pub(super) async fn create_steps(
        &self,
        run: RunId,
        steps: Vec<NewStep>,
    ) -> Result<Vec<StepId>, StoreError> {
        let ids = self.apply_one(Row::Steps { run, steps }).await?;
        Ok(ids.into_iter().map(StepId).collect())
    }

    pub(super) async fn set_step_state(
        &self,
        step: StepId,
        change: StepChange,
    ) -> Result<(), StoreError> {
        self.apply_one(Row::Step { step, change }).await.map(drop)
    }

    pub(super) async fn create_tasks(
        &self,
        step: StepId,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<TaskId>, StoreError> {
        let ids = self.apply_one(Row::Tasks { step, tasks }).await?;
        Ok(ids.into_iter().map(TaskId).collect())
    }

    pub(super) async fn set_task_state(
        &self,
        task: TaskId,
        state: TaskState,
        error: Option<String>,
    ) -> Result<(), StoreError> {
        let row = Row::Task {
            task,
            state,
            error,
            last_batch: None,
        };
        self.apply_one(row).await.map(drop)
    }

    pub(super) async fn add_cache_drops(
        &self,
        step: StepId,
        drops: Vec<NewCacheDrop>,
    ) -> Result<(), StoreError> {
        self.apply_one(Row::CacheDrops { step, drops })
            .await
            .map(drop)
    }
}
