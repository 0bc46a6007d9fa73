//! A simulated agent: it holds tasks and directories, and answers each command as a real agent does.

mod directories;
mod load;

use crate::{
    machine::event::Token,
    sessions::command::{AgentAnswer, CacheDrop, Command, End, RefusalKind},
};
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_proto::v1;
use benchmesh_workloads::{random::Random, registry};
use directories::directory_takes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An operation that hangs returns at last.
const HANGS_FOR_US: i64 = 3_600_000_000;

/// An agent's answer, or its refusal.
pub(super) type Reply = Result<AgentAnswer, (RefusalKind, String)>;

/// Answers, and to whom.
pub(super) type Replies = Vec<(Token, Reply)>;

/// Path and file system -> nonce of the run's directory there.
pub(super) type Disks = BTreeMap<(String, usize), String>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SimTaskState {
    Preparing {
        waiting: Vec<Token>,
    },
    Prepared,
    Running {
        start: MeshMicros,
        waiting: Vec<Token>,
    },
    Ended(End),
}

#[derive(Clone, Debug)]
pub(super) struct SimTask {
    pub state: SimTaskState,
    pub stopped: bool,
    /// Why, in the words of the first stop.
    pub stop_reason: String,
    /// It was stopped before its start.
    cancelled: bool,
    /// It hangs: it does not end, even when it is stopped.
    pub hangs: bool,
    /// It begins at its start; otherwise its agent has confirmed the start, and nothing follows.
    pub begins: bool,
    /// The operation that it records.
    op: &'static str,
    /// Its load has a rate.
    pub is_paced: bool,
    /// Over how many tasks the rate of its step was split again; `None`: as it was prepared.
    pub rate_tasks: Option<u32>,
    /// Its agent has not answered a stop of it.
    pub ignored_stop: bool,
    /// When it began; `None`: it has not.
    pub began: Option<MeshMicros>,
    forgotten: bool,
}

impl SimTask {
    /// No operation begins after this.
    pub fn stop(&mut self, now: MeshMicros, reason: &str) {
        if let SimTaskState::Running { start, .. } = self.state
            && !self.stopped
        {
            self.cancelled = now < start;
        }
        if !self.stopped {
            self.stop_reason = reason.to_owned();
        }
        self.stopped = true;
    }
}

/// A delayed consequence of a command.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Later {
    Prepared(TaskId),
    /// The load of a task that was armed for an instant ends.
    Over(TaskId, MeshMicros),
    /// The oldest command on a directory of this path is done.
    Directory(String),
}

/// An agent that wants to hold up the others' run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hostile {
    /// It reports progress of a preparation for ever.
    PreparesForEver,
    /// It never answers a start.
    IgnoresArm,
    /// It refuses each preparation.
    RefusesPrepare,
}

#[derive(Clone, Debug)]
pub(super) struct SimAgent {
    pub id: AgentId,
    pub hostile: Option<Hostile>,
    /// 0: not attached.
    pub session: u64,
    /// Every operation on its target fails.
    pub target_is_dead: bool,
    pub held_at_hello: Vec<TaskId>,
    /// The database was put back from a copy that is older than what it was acknowledged.
    pub was_ahead: bool,
    pub last_contact: i64,
    /// When the last command reached it.
    pub last_arrival: i64,
    pub file_system: usize,
    pub tasks: BTreeMap<TaskId, SimTask>,
    pub receivers: BTreeSet<TaskId>,
    pub sequence: u64,
    /// Commands on the run's directory of each path, carried out one after the other in the order of arrival. `None`:
    /// the answer is not awaited any more.
    pub directories: BTreeMap<String, VecDeque<(Option<Token>, Command)>>,
    /// The last batch of each task.
    pub spool: Vec<v1::Batch>,
}

/// How likely an agent does something else than a perfect one, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub refuses_prepare: u64,
    /// A mode that no target supports.
    pub unsupported: Option<&'static str>,
    pub never_prepares: u64,
    pub stalls: u64,
    pub late_arm: u64,
    /// The collector is too slow to send an `Arm` in time.
    pub late_ask: u64,
    pub fails: u64,
    pub hangs: u64,
    pub refuses_directory: u64,
    /// Starts a task at another instant than it has confirmed.
    pub starts_apart: u64,
    /// Confirms a start, and never begins.
    pub never_begins: u64,
    /// Ignores the first stop of each task.
    pub ignores_stop: u64,
    /// How long every load lasts, unless its start says when it ends; `None`: each another time.
    pub lasts_us: Option<i64>,
    /// A path on which removals do not come back.
    pub hangs_on: Option<&'static str>,
}

const DEAD: &str = "Transport endpoint is not connected";
/// As a task says it that its errors-limit has ended.
const GAVE_UP: &str =
    "worker 0: errors-limit: nothing has succeeded for 30 s (100 errors in a row), the last: read";

impl SimAgent {
    pub fn new(id: AgentId, file_system: usize) -> Self {
        Self {
            id,
            hostile: None,
            session: 0,
            target_is_dead: false,
            held_at_hello: Vec::new(),
            was_ahead: false,
            last_contact: 0,
            last_arrival: 0,
            file_system,
            tasks: BTreeMap::new(),
            receivers: BTreeSet::new(),
            sequence: 0,
            directories: BTreeMap::new(),
            spool: Vec::new(),
        }
    }

    /// It was started again: its tasks are gone, its spool is not.
    pub fn restart(&mut self) {
        self.tasks.clear();
        self.receivers.clear();
        self.directories.clear();
        self.session_over();
    }

    /// Answers from now on do not reach the session that ended: its commands are sent again.
    pub fn session_over(&mut self) {
        self.session = 0;
        for (token, _) in self.directories.values_mut().flatten() {
            *token = None;
        }
        for task in self.tasks.values_mut() {
            if let SimTaskState::Preparing { waiting } | SimTaskState::Running { waiting, .. } =
                &mut task.state
            {
                waiting.clear();
            }
        }
    }

    pub fn loads(&self) -> impl Iterator<Item = TaskId> + '_ {
        let loads = |task: &&SimTask| {
            matches!(
                task.state,
                SimTaskState::Preparing { .. }
                    | SimTaskState::Prepared
                    | SimTaskState::Running { .. }
            ) && !task.stopped
        };
        self.tasks
            .iter()
            .filter(move |(_, task)| loads(task))
            .map(|(id, _)| *id)
    }

    /// Carries out one command. Returns the answers with their tokens, and delayed consequences with their delays.
    pub fn command(
        &mut self,
        token: Token,
        command: &Command,
        now: MeshMicros,
        faults: &Faults,
        random: &mut Random,
    ) -> (Replies, Vec<(i64, Later)>) {
        let mut later = Vec::new();
        let chance = |random: &mut Random, thousandths: u64| random.below(1000) < thousandths;
        let refused = |kind: RefusalKind, why: &str| Err((kind, why.to_owned()));
        let reply: Reply = match command {
            Command::OpenRunDirectory { path, .. } | Command::RemoveRunDirectory { path, .. } => {
                let queue = self.directories.entry(path.clone()).or_default();
                queue.push_back((Some(token), command.clone()));
                if queue.len() == 1 {
                    later.extend(directory_takes(command, faults, random));
                }
                return (Vec::new(), later);
            }
            Command::Listen(listen) => {
                self.receivers.insert(listen.task);
                Ok(AgentAnswer::Listening { port: 4242 })
            }
            Command::Prepare(prepare) => match self.tasks.get_mut(&prepare.task) {
                Some(task) => match &mut task.state {
                    SimTaskState::Preparing { waiting } => {
                        waiting.push(token);
                        return (Vec::new(), later);
                    }
                    _ => Ok(AgentAnswer::Done),
                },
                None if chance(random, faults.stalls) => {
                    refused(RefusalKind::Stalled, "a call hangs on the target")
                }
                None if self.target_is_dead && !prepare.path.is_empty() => {
                    refused(RefusalKind::TargetLost, DEAD)
                }
                None if faults.unsupported == Some(prepare.mode.as_str()) => {
                    refused(RefusalKind::Unsupported, "no O_DIRECT")
                }
                None if self.hostile == Some(Hostile::RefusesPrepare)
                    || chance(random, faults.refuses_prepare) =>
                {
                    refused(RefusalKind::NoSpace, "the disk is full")
                }
                None => {
                    let state = SimTaskState::Preparing {
                        waiting: vec![token],
                    };
                    self.tasks.insert(
                        prepare.task,
                        SimTask {
                            state,
                            stopped: false,
                            stop_reason: String::new(),
                            cancelled: false,
                            hangs: false,
                            begins: true,
                            op: operation(&prepare.workload, &prepare.mode),
                            is_paced: prepare.params_json.contains("rate_iops"),
                            rate_tasks: None,
                            ignored_stop: false,
                            began: None,
                            forgotten: false,
                        },
                    );
                    if self.hostile != Some(Hostile::PreparesForEver)
                        && !chance(random, faults.never_prepares)
                    {
                        let takes = i64::try_from(random.below(50_000)).unwrap();
                        later.push((takes, Later::Prepared(prepare.task)));
                    }
                    return (Vec::new(), later);
                }
            },
            Command::Arm { .. } if self.hostile == Some(Hostile::IgnoresArm) => {
                return (Vec::new(), later);
            }
            Command::Arm { task, start, end } => match self.tasks.get_mut(task) {
                None => refused(RefusalKind::UnknownTask, "not known"),
                Some(_) if chance(random, faults.late_arm) => {
                    refused(RefusalKind::TooLate, "the start has passed")
                }
                Some(held) => match &held.state {
                    SimTaskState::Prepared if start.0 <= now.0 => {
                        refused(RefusalKind::TooLate, "the start has passed")
                    }
                    SimTaskState::Prepared => {
                        held.state = SimTaskState::Running {
                            start: *start,
                            waiting: Vec::new(),
                        };
                        held.hangs = chance(random, faults.hangs);
                        held.begins = !chance(random, faults.never_begins);
                        let lead = start.0 - now.0;
                        let longest = match held.is_paced {
                            true => 60_000_000,
                            false => 5_000_000,
                        };
                        let takes = i64::try_from(random.below(longest)).unwrap();
                        let takes = faults.lasts_us.unwrap_or(takes);
                        let takes = end.map_or(takes, |end| takes.min(end.0 - start.0));
                        let takes = match held.hangs || !held.begins {
                            true => HANGS_FOR_US,
                            false => takes,
                        };
                        later.push((lead + takes, Later::Over(*task, *start)));
                        Ok(AgentAnswer::Armed { lead_us: lead })
                    }
                    SimTaskState::Running { start: armed, .. } if armed == start => {
                        Ok(AgentAnswer::Armed {
                            lead_us: start.0 - now.0,
                        })
                    }
                    _ => refused(RefusalKind::Failed, "it is not prepared"),
                },
            },
            Command::AwaitEnd { task } => match self.tasks.get_mut(task).map(|it| &mut it.state) {
                None => refused(RefusalKind::UnknownTask, "not known"),
                Some(SimTaskState::Ended(end)) => Ok(AgentAnswer::End(end.clone())),
                Some(SimTaskState::Running { waiting, .. }) => {
                    waiting.push(token);
                    return (Vec::new(), later);
                }
                Some(_) => refused(RefusalKind::Failed, "it has not been armed"),
            },
            Command::StopTask { task, reason } => {
                let receiver = self.receivers.remove(task);
                match self.tasks.get_mut(task) {
                    None if receiver => Ok(AgentAnswer::Done),
                    None => refused(RefusalKind::UnknownTask, "not known"),
                    Some(held) if !held.ignored_stop && chance(random, faults.ignores_stop) => {
                        held.ignored_stop = true;
                        return (Vec::new(), later);
                    }
                    Some(held) => {
                        held.stop(now, reason);
                        match held.state {
                            SimTaskState::Preparing { .. } => {
                                later.push((1000, Later::Prepared(*task)));
                            }
                            SimTaskState::Prepared => held.state = SimTaskState::Ended(UNSTARTED),
                            SimTaskState::Running { start, .. } if !held.hangs => {
                                let takes = i64::try_from(random.below(20_000)).unwrap();
                                later.push((takes, Later::Over(*task, start)));
                            }
                            _ => {}
                        }
                        Ok(AgentAnswer::Done)
                    }
                }
            }
            Command::ShareRate { task, tasks, .. } => match self.tasks.get_mut(task) {
                None => refused(RefusalKind::UnknownTask, "not known"),
                Some(held) => {
                    held.rate_tasks = Some(*tasks);
                    Ok(AgentAnswer::Done)
                }
            },
            Command::ForgetTask { task } => {
                self.receivers.remove(task);
                match self.tasks.get_mut(task) {
                    Some(held) => match held.state {
                        SimTaskState::Running { .. } => {
                            refused(RefusalKind::Failed, "it still runs")
                        }
                        SimTaskState::Preparing { .. } => {
                            held.stop(now, "it is not needed any more");
                            held.forgotten = true;
                            later.push((1000, Later::Prepared(*task)));
                            Ok(AgentAnswer::Done)
                        }
                        _ => {
                            self.tasks.remove(task);
                            Ok(AgentAnswer::Done)
                        }
                    },
                    None => Ok(AgentAnswer::Done),
                }
            }
            Command::DropCaches { .. } => Ok(AgentAnswer::Dropped(vec![CacheDrop {
                what: String::from("page-cache"),
                dropped: !chance(random, 100),
                error: String::new(),
            }])),
            _ => Ok(AgentAnswer::Done),
        };
        (vec![(token, reply)], later)
    }
}

fn operation(workload: &str, mode: &str) -> &'static str {
    let workload = registry::find(workload).unwrap();
    workload.mode(mode).unwrap().ops[0].as_str()
}

/// The end of a task that never began: it has no row.
const UNSTARTED: End = End {
    state: TaskState::Stopped,
    last_batch: None,
    stalled: false,
};
