//! Which alarms of a run are raised, from observations once a second. Pure.

use benchmesh_analysis::growth::{Verdict, growths};
use benchmesh_analysis::slope::{MIN_POINTS, Point};
use benchmesh_model::figures::{DaemonFigures, Figure, Figures, UNKNOWN, Unit};
use benchmesh_model::mesh::{MeshMicros, StepId};
use benchmesh_plan::alarms::{Alarm, Condition, DaemonFigure, Side, StepFigure, Watched};
use benchmesh_results::real;
use benchmesh_scheduler::snapshot::{DaemonNow, LoadNow};
use benchmesh_workloads::figures;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// A raised alarm is over when its condition has not held for this long.
const OVER_AFTER: Duration = Duration::from_secs(5);
/// Minimum time before the same alarm is raised again, because a figure may oscillate around its limit.
const RAISED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Growth is judged from one value per minute over the last two hours.
const TREND_MINUTES: u8 = 120;
const MINUTE_US: i64 = 60_000_000;
const HOUR_US: f64 = 3.6e9;

/// The observations at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub at: MeshMicros,
    pub step: StepSeen,
    pub daemons: &'a [DaemonNow],
    /// The ids of daemons that are known to have ended, among those of [`Alarms::unsampled`].
    pub ended: &'a [i64],
    /// Daemons that ended or were restarted since the last observation.
    pub deaths: &'a [Death],
}

/// The running step.
#[derive(Clone, Copy, Debug)]
pub enum StepSeen {
    /// No load runs.
    None,
    /// Its load has just begun, or it has no current figures: its agents are away, or it is ending.
    Unknown,
    Known(StepId, LoadNow),
}

/// Whether a condition holds.
#[derive(Clone, Debug)]
enum Holds {
    /// It holds; the text is the figure that shows it.
    Yes(String),
    No,
    /// No figure is known: the alarm stays as it is.
    Unknown,
}

impl Holds {
    fn of(holds: bool, words: impl FnOnce() -> String) -> Self {
        match holds {
            true => Self::Yes(words()),
            false => Self::No,
        }
    }
}

/// A daemon that ended or was restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub name: String,
    pub instance: String,
    pub message: String,
}

/// What an alarm is about: the running step, or a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// A daemon in messages; empty for the step.
    pub name: String,
    pub daemon_id: Option<i64>,
}

/// An alarm that is raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedAlarm {
    /// The alarm's index in the plan.
    pub alarm: usize,
    /// Its condition, as written in the plan.
    pub when: String,
    pub subject: Subject,
    /// The latest figure that met the condition.
    pub because: String,
}

/// An alarm that was raised, or is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmChange {
    pub alarm: RaisedAlarm,
    pub is_raised: bool,
}

/// The alarms of one run.
#[derive(Debug)]
pub struct Alarms {
    alarms: Vec<Alarm>,
    states: BTreeMap<(usize, String), AlarmState>,
    /// By alarm and daemon: a restarted process has another id.
    trends: HashMap<(usize, i64), Trend>,
    progress: Option<(StepId, u64, MeshMicros)>,
}

/// State of one alarm, for one daemon if it is about daemons.
#[derive(Clone, Debug, Default)]
struct AlarmState {
    holds_since: Option<MeshMicros>,
    fails_since: Option<MeshMicros>,
    raised: Option<MeshMicros>,
    is_raised: bool,
    /// It was raised before the collector restarted, and is raised again if its condition holds.
    is_restored: bool,
    /// The process that it was raised for before the collector restarted.
    restored_daemon_id: Option<i64>,
    daemon_id: Option<i64>,
    /// The latest figure that met the condition.
    because: String,
}

/// Whether a condition holds for one subject.
#[derive(Debug)]
struct Judged {
    subject: Subject,
    holds: Holds,
}

/// One daemon's figure, with one value per minute.
#[derive(Debug, Default)]
struct Trend {
    minutes: VecDeque<(i64, f64)>,
    /// It had enough values for a judgment.
    is_judged: bool,
    /// The lower bound of the growth per hour, as a share of the first value, and its description.
    grows: Option<(f64, String)>,
}

impl Alarms {
    pub fn new(alarms: Vec<Alarm>) -> Self {
        Self {
            alarms,
            states: BTreeMap::new(),
            trends: HashMap::new(),
            progress: None,
        }
    }

    pub fn get(&self, alarm: usize) -> Option<&Alarm> {
        self.alarms.get(alarm)
    }

    /// Whether any condition needs latencies, which are computed only while someone watches.
    pub fn need_latencies(&self) -> bool {
        self.alarms.iter().any(|alarm| {
            matches!(
                &alarm.condition,
                Condition::Beyond {
                    figure: Watched::Step(StepFigure::P50 | StepFigure::P99 | StepFigure::Max),
                    ..
                }
            )
        })
    }

    pub fn need_daemons(&self) -> bool {
        let is_of_daemons = |condition: &Condition| match condition {
            Condition::Beyond { figure, .. } => matches!(figure, Watched::Daemon { .. }),
            Condition::Grows { .. } => true,
            Condition::NoProgress { .. } | Condition::Dies { .. } => false,
        };
        self.alarms
            .iter()
            .any(|alarm| is_of_daemons(&alarm.condition))
    }

    pub fn need_deaths(&self) -> bool {
        let dies = |alarm: &Alarm| matches!(alarm.condition, Condition::Dies { .. });
        self.alarms.iter().any(dies)
    }

    /// Takes up alarms that were raised before the collector restarted.
    pub fn restore(&mut self, raised: Vec<RaisedAlarm>) {
        for alarm in raised {
            let is_of_plan = |of: &Alarm| of.when == alarm.when;
            if !self.alarms.get(alarm.alarm).is_some_and(is_of_plan) {
                continue;
            }
            let state = AlarmState {
                is_raised: true,
                is_restored: true,
                restored_daemon_id: alarm.subject.daemon_id,
                daemon_id: alarm.subject.daemon_id,
                because: alarm.because,
                ..AlarmState::default()
            };
            self.states.insert((alarm.alarm, alarm.subject.name), state);
        }
    }

    /// The alarms that are raised now.
    pub fn raised(&self) -> impl Iterator<Item = RaisedAlarm> {
        let states = self.states.iter();
        let raised = states.filter(|(_, state)| state.is_raised);
        raised.filter_map(|((alarm, subject), state)| {
            Some(RaisedAlarm {
                alarm: *alarm,
                when: self.alarms.get(*alarm)?.when.clone(),
                subject: Subject {
                    name: subject.clone(),
                    daemon_id: state.daemon_id,
                },
                because: state.because.clone(),
            })
        })
    }

    /// The daemons with a state that are not among the sampled ones.
    pub fn unsampled(&self, daemons: &[DaemonNow]) -> Vec<i64> {
        let is_sampled = |id: i64| daemons.iter().any(|now| now.daemon_id == id);
        let known = self.states.values().filter_map(|state| state.daemon_id);
        known.filter(|id| !is_sampled(*id)).collect()
    }

    /// Processes an observation; returns the alarms that it changes.
    pub fn observe(&mut self, seen: Observation<'_>) -> Vec<AlarmChange> {
        let silent = self.silence(seen);
        let mut changes = Vec::new();
        for (index, alarm) in self.alarms.iter().enumerate() {
            let (mut judged, lasting) = match &alarm.condition {
                Condition::NoProgress { lasting } => {
                    let words = || format!("no operation ended for {}", figures::span(silent));
                    let holds = match seen.step {
                        StepSeen::Unknown => Holds::Unknown,
                        _ => Holds::of(silent >= *lasting, words),
                    };
                    (vec![Judged::of_step(holds)], Duration::ZERO)
                }
                Condition::Beyond {
                    figure,
                    side,
                    limit,
                    lasting,
                } => (beyond(figure, *side, *limit, seen), *lasting),
                Condition::Grows {
                    figure,
                    daemon,
                    share_per_hour,
                } => {
                    let judged = daemons_called(daemon, seen.daemons).map(|(subject, now)| {
                        let holds = value_of(*figure, now).map_or(Holds::Unknown, |value| {
                            let trend = self.trends.entry((index, now.daemon_id)).or_default();
                            trend.add(seen.at, value, *figure);
                            let state = self.states.get(&(index, subject.name.clone()));
                            let is_restored = state.is_some_and(|state| {
                                state.is_restored && state.restored_daemon_id == Some(now.daemon_id)
                            });
                            match trend.holds(*share_per_hour, *figure, &subject.name) {
                                // Its values from before the restart are gone.
                                Holds::No if is_restored && !trend.is_judged => Holds::Unknown,
                                holds => holds,
                            }
                        });
                        Judged { subject, holds }
                    });
                    (judged.collect(), Duration::ZERO)
                }
                Condition::Dies { daemon } => (died(daemon, seen.deaths), Duration::ZERO),
            };
            let is_death = matches!(alarm.condition, Condition::Dies { .. });
            let absent = self
                .states
                .range((index, String::new())..(index + 1, String::new()))
                .filter(|((_, name), _)| !judged.iter().any(|one| one.subject.name == *name))
                .map(|((_, name), state)| Judged {
                    subject: Subject {
                        name: name.clone(),
                        daemon_id: state.daemon_id,
                    },
                    // A death is one observation. A daemon that is not sampled may be running: its host or its network
                    // may be gone.
                    holds: match is_death
                        || state.daemon_id.is_some_and(|id| seen.ended.contains(&id))
                    {
                        true => Holds::No,
                        false => Holds::Unknown,
                    },
                })
                .collect::<Vec<_>>();
            judged.extend(absent);
            let over_after = match is_death {
                true => RAISED_AGAIN_AFTER,
                false => OVER_AFTER,
            };
            for Judged { subject, holds } in judged {
                let state = self
                    .states
                    .entry((index, subject.name.clone()))
                    .or_default();
                state.daemon_id = subject.daemon_id;
                if let Some(is_raised) = state.next(seen.at, holds, lasting, over_after) {
                    changes.push(AlarmChange {
                        alarm: RaisedAlarm {
                            alarm: index,
                            when: alarm.when.clone(),
                            subject,
                            because: state.because.clone(),
                        },
                        is_raised,
                    });
                }
            }
        }
        self.forget(seen.at);
        changes
    }

    /// Removes what can no longer affect an alarm: a long run sees many daemons that end.
    fn forget(&mut self, now: MeshMicros) {
        let oldest = now.0.div_euclid(MINUTE_US) - i64::from(TREND_MINUTES);
        self.trends.retain(|_, trend| {
            let last = trend.minutes.back();
            last.is_some_and(|(minute, _)| *minute > oldest)
        });
        self.states.retain(|_, state| {
            let rests = |raised| between(raised, now) < RAISED_AGAIN_AFTER;
            state.is_raised || state.holds_since.is_some() || state.raised.is_some_and(rests)
        });
    }

    /// Time since an operation of the running step last ended.
    fn silence(&mut self, seen: Observation<'_>) -> Duration {
        let StepSeen::Known(step, load) = seen.step else {
            // Without figures nothing is known, and the time since the last operation goes on.
            if matches!(seen.step, StepSeen::None) {
                self.progress = None;
            }
            return Duration::ZERO;
        };
        match self.progress {
            Some((of, ops, since)) if of == step && ops == load.ops => between(since, seen.at),
            _ => {
                self.progress = Some((step, load.ops, seen.at));
                Duration::ZERO
            }
        }
    }
}

impl Judged {
    fn of_step(holds: Holds) -> Self {
        Self {
            subject: Subject::default(),
            holds,
        }
    }
}

impl AlarmState {
    /// Whether this observation raises or ends the alarm; `None` if the alarm stays as it is.
    fn next(
        &mut self,
        at: MeshMicros,
        holds: Holds,
        lasting: Duration,
        over_after: Duration,
    ) -> Option<bool> {
        match holds {
            Holds::Unknown => {
                self.holds_since = None;
                self.fails_since = None;
                None
            }
            Holds::Yes(because) => {
                self.because = because;
                self.fails_since = None;
                let since = *self.holds_since.get_or_insert(at);
                let rests = |raised| between(raised, at) < RAISED_AGAIN_AFTER;
                let is_told = self.is_raised && !self.is_restored;
                if is_told || between(since, at) < lasting || self.raised.is_some_and(rests) {
                    return None;
                }
                self.is_raised = true;
                self.is_restored = false;
                self.raised = Some(at);
                Some(true)
            }
            Holds::No => {
                self.holds_since = None;
                let since = *self.fails_since.get_or_insert(at);
                if !self.is_raised || between(since, at) < over_after {
                    return None;
                }
                self.is_raised = false;
                Some(false)
            }
        }
    }
}

impl Trend {
    /// Adds a value. The newest value of a minute counts; a completed minute is judged with those before it.
    fn add(&mut self, at: MeshMicros, value: f64, figure: DaemonFigure) {
        let minute = at.0.div_euclid(MINUTE_US);
        if let Some((last, newest)) = self.minutes.back_mut()
            && *last == minute
        {
            *newest = value;
            return;
        }
        self.is_judged = self.minutes.len() >= MIN_POINTS;
        self.grows = self.judged(figure);
        self.minutes.push_back((minute, value));
        if self.minutes.len() > usize::from(TREND_MINUTES) {
            self.minutes.pop_front();
        }
    }

    /// Whether it grows by more than this share per hour.
    fn holds(&self, share_per_hour: f64, figure: DaemonFigure, of: &str) -> Holds {
        match &self.grows {
            Some((share, words)) if *share > share_per_hour => {
                Holds::Yes(format!("{figure} of {of} {words}"))
            }
            _ => Holds::No,
        }
    }

    fn judged(&self, figure: DaemonFigure) -> Option<(f64, String)> {
        let hour = |minute: i64| real(minute.saturating_mul(MINUTE_US)) / HOUR_US;
        let (first, _) = *self.minutes.front()?;
        let points = self.minutes.iter().map(|(minute, value)| Point {
            at: hour(*minute) - hour(first),
            value: *value,
            stratum: 0,
        });
        let growth = growths(&[(points.collect(), 0.0)]).pop()??;
        // A jump, or a figure that rises and levels off, is not hourly growth.
        if growth.verdict != Verdict::Leaks || growth.first <= 0.0 {
            return None;
        }
        let words = format!(
            "grows {:.1} % per hour, at least {:.1} %: from {} to {}",
            growth.slope / growth.first * 100.0,
            growth.low / growth.first * 100.0,
            words_of(figure, growth.first),
            words_of(figure, growth.last)
        );
        Some((growth.low / growth.first, words))
    }
}

fn between(from: MeshMicros, until: MeshMicros) -> Duration {
    Duration::from_micros(u64::try_from(until.since(Some(from))).unwrap_or(0))
}

/// Whether each subject's figure is beyond the limit.
fn beyond(watched: &Watched, side: Side, limit: f64, seen: Observation<'_>) -> Vec<Judged> {
    let is_beyond = |value: f64| match side {
        Side::Above => value > limit,
        Side::Below => value < limit,
    };
    match watched {
        Watched::Step(figure) => {
            let holds = match seen.step {
                StepSeen::None => Holds::No,
                StepSeen::Unknown => Holds::Unknown,
                // Without an operation there is no latency.
                StepSeen::Known(_, load) => value_of_step(*figure, load)
                    .map_or(Holds::Unknown, |value| {
                        Holds::of(is_beyond(value), || words_of_step(*figure, value))
                    }),
            };
            vec![Judged::of_step(holds)]
        }
        Watched::Daemon { figure, daemon } => daemons_called(daemon, seen.daemons)
            .map(|(subject, now)| {
                let holds = value_of(*figure, now).map_or(Holds::Unknown, |value| {
                    let words = || {
                        format!(
                            "{figure} of {} is {}",
                            subject.name,
                            words_of(*figure, value)
                        )
                    };
                    Holds::of(is_beyond(value), words)
                });
                Judged { subject, holds }
            })
            .collect(),
    }
}

/// The dead daemons with this name or instance.
fn died(called: &str, deaths: &[Death]) -> Vec<Judged> {
    let is_meant = |death: &&Death| death.name == called || death.instance == called;
    let meant = deaths.iter().filter(is_meant);
    meant
        .map(|death| Judged {
            subject: Subject {
                name: format!("{} {}", death.name, death.instance),
                daemon_id: None,
            },
            holds: Holds::Yes(death.message.clone()),
        })
        .collect()
}

/// The daemons with this name or instance, each with its name in messages.
fn daemons_called<'a>(
    called: &'a str,
    daemons: &'a [DaemonNow],
) -> impl Iterator<Item = (Subject, &'a DaemonNow)> {
    let is_meant = move |now: &&DaemonNow| now.name == called || now.instance == called;
    daemons.iter().filter(is_meant).map(|now| {
        let instance = match now.instance.as_str() {
            "" => now.pid.to_string(),
            instance => instance.to_owned(),
        };
        let subject = Subject {
            name: format!("{} {instance} on {}", now.name, now.host),
            daemon_id: Some(now.daemon_id),
        };
        (subject, now)
    })
}

fn value_of_step(figure: StepFigure, load: LoadNow) -> Option<f64> {
    match figure {
        StepFigure::P50 => load.p50_ms,
        StepFigure::P99 => load.p99_ms,
        StepFigure::Max => load.max_ms,
        StepFigure::Rate => Some(load.ops_per_s),
        StepFigure::Throughput => Some(load.bytes_per_s),
    }
}

fn words_of_step(figure: StepFigure, value: f64) -> String {
    let name = figure.as_str();
    match figure {
        StepFigure::P50 | StepFigure::P99 | StepFigure::Max => {
            format!("{name} is {} ms", figures::millis(value))
        }
        StepFigure::Rate => format!("{name} is {} operations/s", figures::rate(value)),
        StepFigure::Throughput => format!("{name} is {}/s", mebibytes(value)),
    }
}

fn value_of(figure: DaemonFigure, now: &DaemonNow) -> Option<f64> {
    match figure {
        DaemonFigure::Cpu => now.cpu_percent,
        DaemonFigure::Sampled(figure) => {
            let is_it = |one: &Figure| one.name == figure.name;
            let at = DaemonFigures::ALL.iter().position(is_it)?;
            let value = now.newest.figures.values().into_iter().nth(at)?;
            (value != UNKNOWN).then(|| real(value))
        }
    }
}

fn words_of(figure: DaemonFigure, value: f64) -> String {
    match figure {
        DaemonFigure::Cpu => format!("{value:.0} %"),
        DaemonFigure::Sampled(figure) if figure.unit == Unit::Bytes => mebibytes(value),
        DaemonFigure::Sampled(_) => format!("{value:.0}"),
    }
}

fn mebibytes(value: f64) -> String {
    format!("{} MiB", figures::rate(value / 1_048_576.0))
}

#[cfg(test)]
mod tests;
