//! The flags that a step's figures raise, and their limits. `store/finish/flags` raises the flags of a step's other
//! rows.
//!
//! Each flag depends on the tasks in the sum and on the results computed from it; [`crate::flags`] explains the flags.

use super::StepSum;
use crate::direction::{Direction, direction_of, is_write};
use crate::facts::{Arrivals, PacedUnit, TaskFacts};
use crate::figures::{Headline, OpResult, TaskResult};
use crate::flags::Flag;
use crate::real;
use crate::window::TaskOverlap;
use benchmesh_model::mesh::{AgentId, TaskState};
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use std::collections::{HashMap, HashSet};

/// A harness cost above this share of the workers' time makes a result tool-bound.
const HARNESS_SHARE: f64 = 0.20;
/// A start with a larger error than this share of the measured time is uncertain.
const START_ERROR_SHARE: f64 = 0.05;
/// An agent that moved this share of its policy's limit was limited by it.
const POLICY_SHARE: f64 = 0.95;
/// A step in which more than this share of the operations failed has failed.
const FAILED_SHARE: f64 = 0.5;
/// A schedule counts as kept if this share of the due operations was done.
const KEPT_SHARE: f64 = 0.99;
/// A schedule counts as kept if 99 % of the operations were issued at most this late.
const LATE_NS: u64 = 100_000_000;
/// Workers that waited for a CPU for more than this share of their time lacked CPU time.
const WAIT_SHARE: f64 = 0.10;
/// Shorter waits for a CPU, in microseconds per operation, are those of every wake-up.
const MIN_WAIT_US: f64 = 200.0;

impl StepSum {
    pub(super) fn flags(&self, ops: &[OpResult], tasks: &[TaskResult]) -> Vec<Flag> {
        let unended = |task: &TaskFacts| {
            task.ended_us.is_none() || matches!(task.state, TaskState::Lost | TaskState::Failed)
        };
        let mut flags = Vec::new();
        let mut raise = |flag, raised: bool| {
            if raised {
                flags.push(flag);
            }
        };
        raise(Flag::NoData, ops.is_empty());
        let overlap = self.overlap.unwrap_or(false);
        let leads =
            |group: &TaskOverlap| self.headline(Some(group.measured_us())) == Headline::Window;
        let leads = self.groups.values().all(leads);
        raise(Flag::WindowShort, overlap && !leads && !ops.is_empty());
        raise(
            Flag::Undated,
            leads && ops.iter().any(|op| op.headline == Headline::LastDone),
        );
        raise(Flag::NoOverlap, self.overlap == Some(false));
        raise(Flag::StartUnsure, self.is_start_unsure());
        let (tool_bound, cpu_short) = self.bound_by_client();
        raise(Flag::ToolBound, tool_bound);
        raise(
            Flag::CpuShort,
            cpu_short || self.is_cpu_short_under_rate(tasks),
        );
        raise(Flag::PolicyBound, self.is_policy_bound(tasks));
        raise(
            Flag::BehindSchedule,
            self.is_behind_schedule(tasks) || is_issued_late(ops),
        );
        raise(Flag::CacheSuspect, self.is_cache_suspect(tasks));
        raise(Flag::AckSuspect, self.is_ack_suspect(tasks));
        raise(Flag::Partial, self.tasks.iter().any(unended));
        raise(Flag::Errors, ops.iter().any(|op| op.errors > 0));
        raise(Flag::MostlyFailed, is_mostly_failed(ops));
        raise(
            Flag::Saturated,
            ops.iter().any(|op| op.service.saturated() > 0),
        );
        flags
    }

    /// Whether a paced task did less than was due in its time.
    fn is_behind_schedule(&self, results: &[TaskResult]) -> bool {
        self.tasks.iter().any(|task| {
            let (Some(paced), Some(activity)) = (task.paced, self.activities.get(&task.task))
            else {
                return false;
            };
            let seconds = real(activity.ended_us.saturating_sub(activity.measured_us)) / 1e6;
            let due = paced.per_second * seconds;
            let own = results
                .iter()
                .filter(|result| result.task == task.task && Op::is_work(&result.op));
            let (done, operations) = own.fold((0.0, 0.0), |(done, operations), result| {
                let ops = real(result.ops.saturating_add(result.errors));
                let counted = match paced.unit {
                    PacedUnit::Operations => ops,
                    PacedUnit::Bytes => real(result.bytes),
                };
                (done + counted, operations + ops)
            });
            // One operation of each worker may still be under way; random arrivals vary by the square root of their
            // number.
            let of_one = if operations > 0.0 {
                done / operations
            } else {
                0.0
            };
            let random = match paced.arrivals {
                Arrivals::Even => 0.0,
                Arrivals::Poisson => 3.0 * operations.sqrt(),
            };
            let spared = of_one * (f64::from(task.workers) + random);
            due > 0.0 && done + spared < KEPT_SHARE * due
        })
    }

    /// Whether direct writes of any task were acknowledged faster than a round trip to another host.
    fn is_ack_suspect(&self, results: &[TaskResult]) -> bool {
        self.tasks.iter().any(|task| {
            let Some(round_trip) = task.round_trip_ns.filter(|_| task.direct) else {
                return false;
            };
            results.iter().any(|result| {
                result.task == task.task
                    && is_write(&result.op)
                    && quantile(&result.service, 0.5)
                        .is_some_and(|p50| i64::try_from(p50).is_ok_and(|p50| p50 < round_trip))
            })
        })
    }

    /// Whether the tasks of any one agent together read, or wrote, more in a second than its network can carry.
    fn is_cache_suspect(&self, results: &[TaskResult]) -> bool {
        let directions = [Direction::FromStorage, Direction::ToStorage];
        directions.into_iter().any(|direction| {
            let rates = self.agents_rates(|task| {
                let own = results.iter().filter(|result| {
                    result.task == task.task
                        && direction_of(&result.op, &task.mode) == Some(direction)
                });
                let moved = own.filter_map(|result| result.bytes_per_s).sum();
                Some((moved, real(task.link_bytes_per_s?)))
            });
            rates.iter().any(|(moved, link)| moved > link)
        })
    }

    /// By agent, the total rate of its clients and the lowest of their limits. The parts of one client are consecutive:
    /// the client's rate is that of its fastest part.
    fn agents_rates(&self, of: impl Fn(&TaskFacts) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
        let mut clients: HashMap<(AgentId, u32), (f64, f64)> = HashMap::new();
        for task in &self.tasks {
            if let Some((rate, limit)) = of(task) {
                let key = (task.agent, task.client);
                let known = clients.entry(key).or_insert((0.0, f64::INFINITY));
                *known = (known.0.max(rate), known.1.min(limit));
            }
        }
        let mut agents: HashMap<AgentId, (f64, f64)> = HashMap::new();
        for ((agent, _), (rate, limit)) in clients {
            let known = agents.entry(agent).or_insert((0.0, f64::INFINITY));
            *known = (known.0 + rate, known.1.min(limit));
        }
        agents.into_values().collect()
    }

    /// Whether the errors of the agents' clocks are too large for a step this short.
    fn is_start_unsure(&self) -> bool {
        let agents: HashSet<AgentId> = self.tasks.iter().map(|task| task.agent).collect();
        let measured = self.together.as_ref().map(TaskOverlap::measured_us);
        let worst = self
            .tasks
            .iter()
            .filter_map(|task| task.skew_error_us)
            .max();
        let (Some(measured), Some(worst), 2..) = (measured, worst, agents.len()) else {
            return false;
        };
        real(worst) > START_ERROR_SHARE * real(measured)
    }

    /// Whether the tasks of any one agent together reached the limit of its policy.
    fn is_policy_bound(&self, results: &[TaskResult]) -> bool {
        let rates = self.agents_rates(|task| {
            let limit = real(task.rate_limit_bytes_per_s?);
            let own = results
                .iter()
                .filter(|result| result.task == task.task && Op::is_work(&result.op));
            Some((own.filter_map(|result| result.bytes_per_s).sum(), limit))
        });
        rates
            .iter()
            .any(|(moved, limit)| *moved >= POLICY_SHARE * limit)
    }

    /// Whether workers of any paced task waited too long for a CPU: relative to the time in which they had an operation
    /// to do, because they sleep for the rest. A wake-up alone is such a wait, too, of a part of a millisecond.
    fn is_cpu_short_under_rate(&self, results: &[TaskResult]) -> bool {
        self.tasks.iter().any(|task| {
            let (Some(_), Some(activity), Some(wait_us)) = (
                task.paced,
                self.activities.get(&task.task),
                task.wait_cpu_us,
            ) else {
                return false;
            };
            let workers_us =
                real(activity.ended_us.saturating_sub(activity.start_us)) * f64::from(task.workers);
            let own = results
                .iter()
                .filter(|result| result.task == task.task && Op::is_work(&result.op));
            let (ops, busy_us) = own.fold((0.0, 0.0), |(ops, busy_us), result| {
                let service_us = result.service.sum_ns() / 1e3;
                (ops + real(result.ops), busy_us + service_us)
            });
            let wait_us = real(wait_us);
            // The wait is that of the whole task with its ramp, of which the results know nothing.
            let all = real(self.totals.all_ops.get(&task.task).copied().unwrap_or(0));
            let (ops, busy_us) = match ops > 0.0 {
                true => (all.max(ops), busy_us * (all / ops).max(1.0)),
                false => (0.0, 0.0),
            };
            // A worker that waits before it issues an operation is not yet busy with it.
            let due_us = (busy_us + wait_us).min(workers_us);
            wait_us > WAIT_SHARE * due_us && wait_us > MIN_WAIT_US * ops && ops > 0.0
        })
    }

    /// Whether the harness cost too much, and whether workers waited too long for a CPU.
    fn bound_by_client(&self) -> (bool, bool) {
        let mut workers_us = 0.0;
        let mut harness_us = 0.0;
        let mut wait_us = 0.0;
        for task in &self.tasks {
            // A paced load sleeps for most of its time; its wait for a CPU is judged by itself.
            if task.paced.is_some() {
                continue;
            }
            let Some(activity) = self.activities.get(&task.task) else {
                continue;
            };
            let busy = activity.ended_us.saturating_sub(activity.start_us);
            workers_us += real(busy) * f64::from(task.workers);
            let ops = self.totals.all_ops.get(&task.task).copied().unwrap_or(0);
            harness_us += real(task.harness_ns_per_op.unwrap_or(0)) * real(ops) / 1e3;
            wait_us += real(task.wait_cpu_us.unwrap_or(0));
        }
        (
            // Relative to the time in which the workers had a CPU.
            harness_us > HARNESS_SHARE * (workers_us - wait_us).max(0.0) && harness_us > 0.0,
            wait_us > WAIT_SHARE * workers_us && workers_us > 0.0,
        )
    }
}

fn quantile(histogram: &Histogram, q: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.quantile(q))
}

/// Whether the failed operations of any group exceed [`FAILED_SHARE`].
fn is_mostly_failed(ops: &[OpResult]) -> bool {
    let mut groups: HashMap<&str, (i64, i64)> = HashMap::new();
    for op in ops.iter().filter(|op| Op::is_work(&op.op)) {
        let (done, failed) = groups.entry(&op.group).or_default();
        *done = done.saturating_add(op.ops);
        *failed = failed.saturating_add(op.errors);
    }
    groups.values().any(|(done, failed)| {
        let all = real(done.saturating_add(*failed));
        *failed > 0 && real(*failed) > FAILED_SHARE * all
    })
}

/// Whether one operation in a hundred was issued late.
fn is_issued_late(ops: &[OpResult]) -> bool {
    ops.iter().any(|op| {
        let response = op.response.as_ref().and_then(|all| quantile(all, 0.99));
        match (response, quantile(&op.service, 0.99)) {
            (Some(response), Some(service)) => response.saturating_sub(service) > LATE_NS,
            _ => false,
        }
    })
}
