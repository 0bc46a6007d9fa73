//! Checks whether the data of a plan fit: the sum over the clients that share a file system, above a minimum of free
//! space.

use super::{
    AgentFacts, Expansion, PathFacts, PlannedLoad, PlannedStep,
    source::{Mistakes, ValuePosition, listed},
};
use benchmesh_workloads::figures::bytes;
use benchmesh_workloads::workload::FillAim;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum of the free space that is kept.
const MAX_FLOOR_BYTES: u64 = 1 << 30;
/// Divisor: on small file systems, this part of the current free space is kept.
const FLOOR_PART: u64 = 20;

/// File systems that belong to one kernel. Every other type counts as shared by all hosts that mount it, which can only
/// make the sum too large.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3",
    "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// The space that benchmesh keeps free on a file system with `free_bytes` now: 5 % of it, at most 1 GiB.
pub fn floor_bytes(free_bytes: u64) -> u64 {
    (free_bytes / FLOOR_PART).min(MAX_FLOOR_BYTES)
}

/// A shortage of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub needed_bytes: u64,
    pub free_bytes: u64,
    pub floor_bytes: u64,
}

/// Whether `needed_bytes` fit into `free_bytes` above the minimum free space.
pub fn shortage(needed_bytes: u64, free_bytes: u64) -> Option<Shortage> {
    let floor_bytes = floor_bytes(free_bytes);
    (needed_bytes > free_bytes.saturating_sub(floor_bytes)).then_some(Shortage {
        needed_bytes,
        free_bytes,
        floor_bytes,
    })
}

/// The same above the agents' policy minimum, if that is higher. Below it no task is accepted, even one that needs no
/// space.
fn shortage_above(policy_bytes: u64, needed_bytes: u64, free_bytes: u64) -> Option<Shortage> {
    let floor_bytes = floor_bytes(free_bytes).max(policy_bytes);
    let is_short =
        free_bytes < policy_bytes || needed_bytes > free_bytes.saturating_sub(floor_bytes);
    is_short.then_some(Shortage {
        needed_bytes,
        free_bytes,
        floor_bytes,
    })
}

/// The combined need of the tasks on one file system, and its free space.
#[derive(Debug)]
struct SpaceNeed<'a> {
    bytes: u64,
    inodes: u64,
    free_bytes: u64,
    /// The space that the agents' policies keep free.
    floor_bytes: u64,
    free_files: Option<u64>,
    floor_files: u64,
    agents: Vec<&'a str>,
    fill: FillSum<'a>,
}

/// The fill levels of the tasks that fill a file system.
#[derive(Debug, Default)]
struct FillSum<'a> {
    /// The highest fill level; `None` if every task writes a fixed amount.
    percent: Option<u8>,
    /// The free space that one of the tasks must leave; otherwise it fails.
    floor_bytes: u64,
    /// Bytes of the file system available to ordinary users; 0 if unknown.
    usable_bytes: u64,
    /// The agent whose policy keeps the most space free.
    strictest: &'a str,
}

/// One problem of the modes of a phase. Modes that work on the same data have the same problem, which is reported once.
#[derive(Debug, PartialEq)]
struct Problem {
    at: ValuePosition,
    modes: Vec<String>,
    /// For one mode, and for several.
    verbs: [&'static str; 2],
    rest: String,
    remedy: String,
}

/// The problems found, each with its modes.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, step: &PlannedStep, verbs: [&'static str; 2], rest: String, remedy: String) {
        let same = |known: &&mut Problem| {
            known.at == step.at
                && known.verbs == verbs
                && known.rest == rest
                && known.remedy == remedy
        };
        match self.0.iter_mut().find(same) {
            Some(known) if known.modes.contains(&step.mode) => {}
            Some(known) => known.modes.push(step.mode.clone()),
            None => self.0.push(Problem {
                at: step.at.clone(),
                modes: vec![step.mode.clone()],
                verbs,
                rest,
                remedy,
            }),
        }
    }

    fn report(self, mistakes: &mut Mistakes<'_>) {
        for problem in self.0 {
            let modes: Vec<String> = (problem.modes.iter())
                .map(|mode| format!("`{mode}`"))
                .collect();
            let [one, several] = problem.verbs;
            let verb = if modes.len() == 1 { one } else { several };
            let modes = listed(modes.iter().map(String::as_str));
            let reason = format!("{modes} {verb} {}", problem.rest);
            mistakes.at(&problem.at, reason, problem.remedy);
        }
    }
}

pub(super) fn check(expansion: &Expansion, agents: &[AgentFacts], mistakes: &mut Mistakes<'_>) {
    let mut problems = Problems::default();
    let by_name: BTreeMap<&str, &AgentFacts> = agents
        .iter()
        .map(|agent| (agent.name.as_str(), agent))
        .collect();
    // All repeats are equal.
    for step in expansion.steps.iter().filter(|step| step.repeat == 1) {
        for sum in target_sums(step, &by_name).into_values() {
            refuse_target(step, &sum, &mut problems);
            refuse_fill(step, &sum, mistakes);
        }
        for agent in without_scratch(step, &by_name) {
            mistakes.at(
                &step.at,
                format!(
                    "agent `{agent}` has no --scratch, and `{}` keeps data in the agents' scratch directories",
                    step.mode
                ),
                "start the agent with --scratch DIRECTORY, or choose other agents for this phase",
            );
        }
        for sum in scratch_sums(step, &by_name).into_values() {
            if let Some(short) = shortage(sum.bytes, sum.free_bytes) {
                problems.add(
                    step,
                    ["keeps", "keep"],
                    format!(
                        "{} of data in the agents' scratch directories ({}), and {} are free there",
                        bytes(short.needed_bytes),
                        sum.agents.join(", "),
                        bytes(short.free_bytes),
                    ),
                    format!(
                        "copy less, or give the agents a larger --scratch; {} must stay free",
                        bytes(short.floor_bytes)
                    ),
                );
            }
        }
    }
    problems.report(mistakes);
}

fn target_sums<'a>(
    step: &'a PlannedStep,
    agents: &BTreeMap<&str, &AgentFacts>,
) -> BTreeMap<(String, String), SpaceNeed<'a>> {
    let mut sums: BTreeMap<(String, String), SpaceNeed<'a>> = BTreeMap::new();
    for task in step.tasks.iter() {
        let Some(agent) = agents.get(task.agent.as_str()) else {
            continue;
        };
        let Some(facts) = agent.surveyed.get(&step.path) else {
            continue;
        };
        let Some(PlannedLoad { footprint, .. }) = step.load(task) else {
            continue;
        };
        let sum = sums.entry(file_system(agent, facts)).or_insert(SpaceNeed {
            bytes: 0,
            inodes: 0,
            free_bytes: facts.free_bytes,
            floor_bytes: 0,
            free_files: facts.free_files,
            floor_files: 0,
            agents: Vec::new(),
            fill: FillSum::default(),
        });
        sum.fill
            .add(footprint.fill, &task.agent, facts, sum.floor_bytes);
        sum.bytes = sum.bytes.saturating_add(footprint.bytes);
        let inodes = footprint.files.saturating_add(footprint.directories);
        sum.inodes = sum.inodes.saturating_add(inodes);
        sum.free_bytes = sum.free_bytes.min(facts.free_bytes);
        sum.floor_bytes = sum.floor_bytes.max(facts.floor_bytes);
        sum.floor_files = sum.floor_files.max(facts.floor_files);
        sum.free_files = match (sum.free_files, facts.free_files) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        sum.agents.push(&task.agent);
    }
    sums
}

/// A key that is equal for agents which share a file system.
fn file_system(agent: &AgentFacts, facts: &PathFacts) -> (String, String) {
    if LOCAL.contains(&facts.file_system.as_str()) {
        (agent.host.clone(), facts.device.clone())
    } else {
        (String::new(), facts.file_system.clone())
    }
}

/// The part of a kept set that takes space, and how to remove it.
fn partly_there(step: &PlannedStep) -> String {
    match step.kept.as_ref().filter(|data| data.is_partly_there) {
        Some(data) => format!(
            ", such as what is there of the kept data: benchmesh data remove {}",
            data.name
        ),
        None => String::new(),
    }
}

fn refuse_target(step: &PlannedStep, sum: &SpaceNeed<'_>, problems: &mut Problems) {
    let clients = match sum.agents.len() {
        1 => String::from("1 task"),
        n => format!("{n} tasks together"),
    };
    if let Some(short) = shortage_above(sum.floor_bytes, sum.bytes, sum.free_bytes) {
        let share = u64::try_from(sum.agents.len().max(1)).unwrap_or(1);
        let room = short.free_bytes.saturating_sub(short.floor_bytes) / share;
        problems.add(
            step,
            ["takes", "take"],
            format!(
                "{} on target `{}` ({clients}{}), and {} are free at {}",
                bytes(short.needed_bytes),
                step.target,
                each(step),
                bytes(short.free_bytes),
                step.path,
            ),
            format!(
                "make it at most {} per task, or free some space{}; {} must stay free (the agents' `free-space`)",
                bytes(room),
                partly_there(step),
                bytes(short.floor_bytes),
            ),
        );
    }
    let has_too_few =
        |free: &u64| *free < sum.floor_files || sum.inodes > free.saturating_sub(sum.floor_files);
    if let Some(free_files) = sum.free_files.filter(has_too_few) {
        let remedy = match sum.floor_files {
            0 => String::from("make fewer files, or free some inodes"),
            floor => format!(
                "make fewer files, or free some inodes; {floor} must stay free (the agents' `free-inodes`)"
            ),
        };
        problems.add(
            step,
            ["makes", "make"],
            format!(
                "{} files and directories on target `{}` ({clients}), and {} has {free_files} free inodes",
                sum.inodes, step.target, step.path,
            ),
            remedy,
        );
    }
}

impl<'a> FillSum<'a> {
    /// Adds a task; `floor_bytes` is the space that the policies of the tasks before it keep free.
    fn add(&mut self, aim: Option<FillAim>, agent: &'a str, facts: &PathFacts, floor_bytes: u64) {
        if self.strictest.is_empty() || facts.floor_bytes > floor_bytes {
            self.strictest = agent;
        }
        let Some(aim) = aim else { return };
        self.percent = self.percent.max(aim.percent);
        self.floor_bytes = self.floor_bytes.max(aim.floor_bytes);
        // Agents that share it see the same size; take the smallest to be safe.
        let known = [self.usable_bytes, facts.usable_bytes];
        self.usable_bytes = known
            .into_iter()
            .filter(|bytes| *bytes > 0)
            .min()
            .unwrap_or(0);
    }
}

/// Refuses a fill level that leaves less space free than required: the fill would be stopped midway, and its cell would
/// fail.
fn refuse_fill(step: &PlannedStep, sum: &SpaceNeed<'_>, mistakes: &mut Mistakes<'_>) {
    let FillSum {
        percent: Some(percent),
        floor_bytes: own_floor,
        usable_bytes: usable @ 1..,
        strictest,
    } = sum.fill
    else {
        return;
    };
    let stays_free = share_of(usable, 100 - percent.min(100));
    // A file system that is already this full is not filled further.
    if sum.free_bytes <= stays_free {
        return;
    }
    let leaves = format!(
        "filled to {percent} %, target `{}` has {} free of {} at {}",
        step.target,
        bytes(stays_free),
        bytes(usable),
        step.path,
    );
    let fitting = |floor: u64| match percent_above(usable, floor) {
        0 => String::from("fill another target"),
        most => format!("set `share` to at most {most}"),
    };
    if stays_free < sum.floor_bytes {
        mistakes.at(
            &step.at,
            format!(
                "{leaves}, and the policy of agent `{strictest}` keeps {} free there (its `free-space`): it would stop \
                 the fill",
                bytes(sum.floor_bytes)
            ),
            format!(
                "{}, or start the agent with a smaller --free-space",
                fitting(sum.floor_bytes)
            ),
        );
    }
    if stays_free < own_floor {
        mistakes.at(
            &step.at,
            format!(
                "{leaves}, and the phase's `floor` keeps {} free: the fill would end there with an error",
                bytes(own_floor)
            ),
            format!(
                "{}, or set a smaller `floor`; with `floor = \"0\"` a full target is a normal end",
                fitting(own_floor)
            ),
        );
    }
}

fn share_of(bytes: u64, percent: u8) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// The highest fill level that leaves `floor` free.
fn percent_above(usable: u64, floor: u64) -> u64 {
    let room = u128::from(usable.saturating_sub(floor));
    u64::try_from(room * 100 / u128::from(usable.max(1))).unwrap_or(0)
}

/// The need of each task, if it is the same for all.
fn each(step: &PlannedStep) -> String {
    match step.loads.as_slice() {
        [only] => format!(", {} each", bytes(only.footprint.bytes)),
        _ => String::new(),
    }
}

/// The step's agents that need a scratch and have none.
fn without_scratch<'a>(
    step: &'a PlannedStep,
    agents: &BTreeMap<&str, &AgentFacts>,
) -> BTreeSet<&'a str> {
    let keeps = step.tasks.iter().filter(|task| {
        step.load(task)
            .is_some_and(|load| load.footprint.scratch_bytes > 0)
    });
    keeps
        .map(|task| task.agent.as_str())
        .filter(|name| agents.get(name).is_some_and(|agent| agent.has_no_scratch))
        .collect()
}

fn scratch_sums<'a>(
    step: &'a PlannedStep,
    agents: &BTreeMap<&str, &AgentFacts>,
) -> BTreeMap<String, SpaceNeed<'a>> {
    let mut sums: BTreeMap<String, SpaceNeed<'a>> = BTreeMap::new();
    for task in step.tasks.iter() {
        let Some(scratch_bytes) = step
            .load(task)
            .map(|load| load.footprint.scratch_bytes)
            .filter(|bytes| *bytes > 0)
        else {
            continue;
        };
        let Some(agent) = agents.get(task.agent.as_str()) else {
            continue;
        };
        let Some(free_bytes) = agent.scratch_free_bytes else {
            continue;
        };
        let sum = sums.entry(agent.host.clone()).or_insert(SpaceNeed {
            bytes: 0,
            inodes: 0,
            free_bytes,
            floor_bytes: 0,
            free_files: None,
            floor_files: 0,
            agents: Vec::new(),
            fill: FillSum::default(),
        });
        sum.bytes = sum.bytes.saturating_add(scratch_bytes);
        sum.free_bytes = sum.free_bytes.min(free_bytes);
        sum.agents.push(&task.agent);
    }
    sums
}
