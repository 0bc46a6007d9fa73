//! What a plan expands to: steps and their tasks.

use super::{Cache, source::Spot};
use benchmesh_workloads::workload::Footprint;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, time::Duration};

/// The steps of a plan on given agents, in the order in which they will run.
#[derive(Clone, Debug)]
pub struct Expansion {
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// One step to come.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// From 1, over the whole run.
    pub ordinal: u32,
    /// From 1.
    pub repeat: u32,
    pub phase: String,
    /// Steps with equal numbers are the modes of one cell, which owns its data; from 0, over the whole run.
    pub cell: usize,
    /// The cell's directory within the run's.
    pub cell_name: String,
    /// The target's name; empty for workloads without one, as are system and path.
    pub target: String,
    pub system: String,
    pub path: String,
    pub workload: String,
    pub mode: String,
    pub cache: Cache,
    pub settle: Duration,
    pub params: Map<String, Value>,
    /// In the order of their index; agents by name.
    pub tasks: Vec<PlannedTask>,
    /// What each task takes.
    pub footprint: Footprint,
    /// To be moved by all tasks; 0: bounded by time alone.
    pub moved_bytes: u64,
    /// Of all tasks.
    pub files: u64,
    /// `None`: not bounded by time.
    pub expected: Option<Duration>,
    pub(crate) at: Spot,
}

/// One task of a step to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    pub agent: String,
    /// network: the receiving agent.
    pub peer: Option<String>,
}

impl PlannedStep {
    /// For messages: what is measured where.
    pub fn title(&self) -> String {
        let mut title = format!("step {} ({} {}", self.ordinal, self.phase, self.mode);
        if !self.target.is_empty() {
            title.push_str(" on ");
            title.push_str(&self.target);
        }
        title.push(')');
        title
    }

    /// network: "from -> to"; several pairs in a row.
    pub fn link(&self) -> String {
        let links: Vec<String> = self
            .tasks
            .iter()
            .filter_map(|task| Some(format!("{} -> {}", task.agent, task.peer.as_deref()?)))
            .collect();
        match links.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }

    /// The directory of the cell in its `attempt`th attempt: a new attempt never meets the data of an earlier one.
    pub fn directory(&self, attempt: u32) -> String {
        match attempt {
            0 | 1 => self.cell_name.clone(),
            _ => format!("{}-a{attempt}", self.cell_name),
        }
    }

    /// The agents that carry load in it, by name.
    pub fn agents(&self) -> BTreeSet<&str> {
        self.tasks.iter().map(|task| task.agent.as_str()).collect()
    }
}
