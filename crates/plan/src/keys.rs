//! The keys of a plan itself, each declared once. Parsing, error messages, documentation and the plan's JSON Schema
//! derive from these declarations. Workloads declare their own keys.

use super::kept_data::DataName;
use super::presets::PresetName;
use super::steady::{Criterion, Until};
use super::{AlarmAction, Cache, OnStall, Pairs, Scale};
use benchmesh_model::targets::{LOCATOR_KEYS, Locator};
use benchmesh_workloads::{
    declare_keys, declare_words,
    params::{
        Absent, Key, KeyValue, Keys, Reader, Scope, ValueType, check_value, table_schema,
        units::Span,
    },
};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The keys of [`LoadKeys`] that a matrix may have.
pub const IN_MATRIX: &[&str] = &["clients", TASKS_PER_AGENT];

/// The key of [`PhaseKeys`] that a matrix may have. It belongs to the whole phase, even if the phase has groups.
pub const CACHE: &str = "cache";

/// The number of tasks of each agent of a step; results are distinguished by it as by a parameter.
pub const TASKS_PER_AGENT: &str = "tasks-per-agent";

declare_keys! {
    /// At the top of the file.
    #[derive(Debug)]
    pub struct TopKeys {
        /// What the run is called.
        "name" name: Option<String> = none("the file's name");
        /// How often the whole list of phases is run. Targets alternate within each repeat.
        "repeat" repeat: u32 = 1, min 1, max 1000;
        /// Repeats the list of phases, with its repeats, this many times. Results stand under each loop and over all;
        /// the steps of a loop are made when it begins.
        "loops" loops: Option<u32> = none("1"), min 1, max 100000;
        /// Repeats them until this time is over, counted from the start of the run: no loop begins afterwards, and the
        /// one under way ends. Instead of `loops`.
        "loop-for" loop_for: Option<Span> = none("one loop"), min "1s", max "8760h";
        /// Multiplies how much data there are and how long the load runs, in all phases: `amount`, `files`, `hold`,
        /// `io_size`, `objects`, `ops`, `ramp_time`, `runtime`, `seeks` and `size` (not of
        /// objects). A count stays 1 at least, a size 1 MiB and a time 1 s; what is smaller in the plan stays as it is.
        /// Blocks, workers and rates stay.
        "scale" scale: Scale = 1;
        /// `random`: the cells of each repeat run in a newly drawn order. The targets of a cell stay beside each other.
        "order" order: OrderWord = "plan";
        /// Seed of the random order. The run stores it (`runs.order_seed`), and the same seed gives the same order.
        "seed" seed: Option<u32> = none("drawn");
        /// What happens when an agent is lost during a step, when a task ends by its `errors-limit`, or when a link
        /// breaks. With `at-least`, the run goes on while N agents of the step are left.
        "on-loss" on_loss: OnLossValue = "continue";
        /// What happens when an operation, or a system call before or after the load, makes no progress for the phase's
        /// `stall-after`. `continue`: it is recorded as an event and waited for. `abort`: the run ends without waiting
        /// for it.
        "on-stall" on_stall: OnStall = "continue";
        /// An agent without contact for this long is lost. While its connection stays open, it takes 3 s of silence at
        /// least.
        "loss-after" loss_after: Span = "30s", min "1s";
        /// How long an agent without contact carries its load on before it stops it.
        "lease" lease: Span = "30s", max "168h";
        /// The storage under test: one table `[targets.NAME]` each.
        "targets" targets: Targets = none("none");
        /// The agents that carry the load: the table `[clients]`.
        "clients" clients: Clients = none("every agent that can");
        /// Conditions that the collector watches while the run goes on: one table `[[alarm]]` each, 64 at most.
        "alarm" alarm: Alarms = none("none");
        /// What most seconds of the run have to be like: one table `[[objective]]` each, 64 at most.
        "objective" objective: Objectives = none("none");
        /// What is measured, in this order: one table `[[phase]]` each.
        "phase" phase: Phases = none("required");
    }
}

declare_keys! {
    /// In `[[alarm]]`.
    #[derive(Debug)]
    pub struct AlarmKeys {
        /// The condition: `FIGURE > LIMIT for TIME` (or `<`; without `for` at once), `no progress for TIME`, `FIGURE of
        /// DAEMON > LIMIT for TIME`, `FIGURE of DAEMON grows PERCENT per hour`, or `DAEMON dies`. Figures of the
        /// running step, over its last 3 s: `p50`, `p99`, `max`, `rate` (operations per second), `throughput` (bytes
        /// per second). Figures of a daemon: `cpu` (percent of a processor) and the gauges that are sampled of it
        /// (`rss`, `vsz`, `threads`, `fds`, `swap`). DAEMON is a name or an instance, such as `ceph-osd` or `osd.7`.
        "when" when: String = required;
        /// What happens beside the event: `mark` marks the run's time line, `stop` stops the run, `abort` ends it as
        /// failed.
        "then" then: AlarmAction = "event";
    }
}

declare_keys! {
    /// In `[[objective]]`.
    #[derive(Debug)]
    pub struct ObjectiveKeys {
        /// `FIGURE < LIMIT for PERCENT of seconds` (or `>`). Figures, of every second of all steps, outside of ramps:
        /// `p50`, `p99`, `max` (of the operation where it is largest; a second in which nothing ended is not good),
        /// `rate` (operations per second), `throughput` (bytes per second).
        "holds" holds: String = required;
    }
}

declare_keys! {
    /// In `[targets.NAME]`.
    #[derive(Debug)]
    pub struct TargetKeys {
        /// The storage system, as results name it: cephfs, glusterfs, ext4, ...
        "system" system: String = required;
        include locator: LocatorKeys;
    }
}

/// The keys of `[targets.NAME]` that say where the target is: one of the table of keys, and those of its parts.
#[derive(Debug)]
pub struct LocatorKeys(pub Option<Locator>);

impl LocatorKeys {
    fn key(name: &'static str, doc: &'static [&'static str], absent: Absent) -> Key {
        Key {
            name,
            doc,
            absent,
            value: Option::<String>::value_type,
            check: check_value::<Option<String>>,
            min: None,
            max: None,
            modes: None,
            only: None,
            because: None,
        }
    }
}

impl Keys for LocatorKeys {
    fn all() -> &'static [&'static Key] {
        static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
            let absent = Absent::Described("one of these keys is required");
            let keys = LOCATOR_KEYS.iter();
            let keys = keys.map(|key| LocatorKeys::key(key.name, key.doc, absent));
            let absent = Absent::Described("as the agents' option says");
            let parts = LOCATOR_KEYS.iter().flat_map(|key| key.parts);
            let parts = parts.map(|part| LocatorKeys::key(part.name, part.doc, absent));
            keys.chain(parts).collect()
        });
        static ALL: LazyLock<Vec<&Key>> = LazyLock::new(|| KEYS.iter().collect());
        &ALL
    }

    /// The first that is given, with its parts: a target has exactly one.
    fn read_from(reader: &mut Reader<'_>) -> Option<Self> {
        let mut read = |name: &str| {
            let declared = Self::all().iter().find(|key| key.name == name)?;
            reader.value::<Option<String>>(declared)?
        };
        let given: Vec<_> = LOCATOR_KEYS
            .iter()
            .filter_map(|key| Some((*key, read(key.name)?)))
            .collect();
        let first = given.into_iter().next();
        Some(Self(first.map(|(key, name)| {
            let parts = key.parts.iter();
            let parts: Vec<_> = parts
                .filter_map(|part| Some((part.name, read(part.name)?)))
                .collect();
            let parts = parts.iter().map(|(part, value)| (*part, value.as_str()));
            Locator::with_parts(key, &name, parts)
        })))
    }

    fn condition_holds(&self, _key: &str, _scope: &Scope<'_>) -> bool {
        true
    }
}

declare_keys! {
    /// In `[clients]`.
    #[derive(Debug)]
    pub struct ClientsKeys {
        /// Agents with all of these labels: `"role=client,rack=3"`. The label `name` is the agent's name.
        "select" select: Option<Labels> = none("every agent that allows the target's path");
        /// These agents, instead of `select`.
        "agents" agents: Option<Names> = none("-");
    }
}

declare_keys! {
    /// In `[[phase]]`, whatever the workload.
    #[derive(Debug)]
    pub struct PhaseKeys {
        /// What results call the phase. No two phases share a name.
        "name" name: Option<String> = none("the workload's name");
        /// The phases of this preset stand here, with this phase's other keys in each that can have them.
        /// `benchmesh plan preset NAME` prints a preset.
        "preset" preset: Option<PresetName> = none("none");
        /// Several values for any key of the workload, for `clients`, `tasks-per-agent` and `cache`: one cell for each
        /// combination; the first key varies slowest. With groups, by their names: `{ readers = { bs = [...] } }`, and
        /// `cache` beside them. A combination that cannot be, such as a block larger than the file, is left out with a
        /// warning as long as others remain, and so is a mode that cannot be in one of them; a phase with groups has to
        /// name possible ones only.
        "matrix" matrix: Matrix = none("none");
        /// Lists of keys of `matrix` that advance together, instead of each value of one with each of the other: cell 1
        /// has the first value of each, cell 2 the second. All keys of a list have equally many values there. With
        /// groups, `GROUP.KEY`.
        "zip" zip: Zips = none("none");
        /// `cold`: caches are dropped before each step. `warm`: one unmeasured pass comes first (not for `replay`,
        /// whose data are laid out anew). `bypass`: O_DIRECT, like `direct = true` of `io` and `way = "direct"` of
        /// `copy`; no other workload does it. `other-client`: each client reads what the next one wrote, which its own
        /// caches do not have (`io`, `files`, `copy` and `objects`: it sets `reorder-tasks`); two clients or more,
        /// on one file system or pool. Needs a target.
        "cache" cache: Cache = "asis";
        /// Only these targets.
        "targets" targets: Option<Names> = none("all");
        /// The data stay on the target under this name, for other phases, runs and clients. Where they are there
        /// already, nothing is laid out. `benchmesh data` lists and removes them. For `io` (not on devices), `files`
        /// and `objects`.
        "keep" keep: Option<DataName> = none("the data go with their cell");
        /// Works on the data that were kept under this name, and lays nothing out: what is missing is an error. Data of
        /// other parameters or more clients are refused before the run, with the difference.
        "use" uses: Option<DataName> = none("the cell's own data");
        /// How long to rest between the layout of data and the start. `idle`: until the storage is idle, that is until,
        /// for 3 s, the daemons of each storage host (label `role=storage`; without one, every sampled host) together
        /// take less than that share of one CPU, and each of its disks is busy for less than that share of the time. At
        /// the limit the step starts anyway, and an event says what was busy.
        "settle" settle: SettleValue = none("0s");
        /// How long each task starts after the one before it. The window in which all are active begins with the last.
        "stagger" stagger: Span = "0s";
        /// Raises the phase's rate step by step, from `start` (0.1) of it in `steps` (10) equal ratios, or by `factor`.
        /// The report says where response time leaves its floor.
        "load-curve" load_curve: LoadCurve = none("none");
        /// Finds the highest rate of all clients together at which a bound on latency holds: `{ rate = "max", while =
        /// "p99 < 10ms" }`. Each probe is a step that lasts for the phase's `runtime`; the first has no rate, and each
        /// of the others one that the results so far lead to. Instead of a rate, `load-curve` and `until`.
        "search" search: SearchValue = none("none");
        /// `steady`: a step ends as soon as its load is in steady state, which the collector judges by all clients
        /// together; `runtime` is the longest that it may take. By `ss`; without it by SNIA's rule: over five rounds,
        /// each a fifth of `ss_dur`, operations per second lie within 20 % of their mean, and their best linear fit
        /// changes by at most 10 % of it.
        "until" until: Option<Until> = none("`runtime`");
        /// With `until`, fio's criterion: the figure of each second of the window lies no further from their mean than
        /// the limit (`iops`, `bw`, `lat`), or the slope of their best linear fit, per second, is below it
        /// (`iops_slope`, `bw_slope`, `lat_slope`). Operations per second, bytes per second, or the mean latency of a
        /// second's operations. A limit is a share of the mean (`5%`) or an amount (`500`, `10m`, `200us`).
        "ss" ss: Option<Criterion> = none("SNIA's rule");
        /// With `until`: how long the load has to be steady. The window is of the newest so many seconds.
        "ss_dur" ss_dur: Span = "5m", min "3s", max "24h";
        /// With `until`: seconds before this one, counted from the start, are not judged. Those of `ramp_time` never
        /// are.
        "ss_ramp" ss_ramp: Span = "0s", max "24h";
        /// Different loads at the same time: one table `[[phase.group]]` each. `workload`, `modes`, `clients` and the
        /// workload's keys then stand in the groups.
        "group" group: Groups = none("none");
    }
}

declare_keys! {
    /// In `[[phase]]`, or in its groups where it has some.
    #[derive(Debug)]
    pub struct LoadKeys {
        /// What is done.
        "workload" workload: Option<WorkloadName> = none("required");
        /// The steps of each cell, in this order. A group may have one mode for all steps of the phase.
        "modes" modes: Option<Names> = none("the workload's mode, if it has only one");
        /// How many agents: the first N, by name, of those that are selected. In a group without `select`, of those
        /// that the groups before it leave.
        "clients" clients: Option<u32> = none("all"), min 1, max 100000;
        /// Tasks on each agent.
        "tasks-per-agent" tasks_per_agent: u32 = 1, min 1, max 1024;
    }
}

declare_keys! {
    /// In `[[phase.group]]`, beside [`LoadKeys`].
    #[derive(Debug)]
    pub struct GroupKeys {
        /// What results call the group: letters, digits, `-` and `_`. No two groups of a phase share a name.
        "name" name: String = required;
        /// Agents with all of these labels. No agent is in two groups.
        "select" select: Option<Labels> = none("the plan's clients");
        /// These agents, instead of `select`.
        "agents" agents: Option<Names> = none("-");
    }
}

declare_keys! {
    /// In `[[phase]]` or `[[phase.group]]`, where the workload works between two agents.
    #[derive(Debug)]
    pub struct LinkKeys {
        /// The agents that send.
        "from" from: Option<LabelsOrNames> = none("the plan's clients");
        /// The agents that receive.
        "to" to: Option<LabelsOrNames> = none("the plan's clients");
        /// Which links are measured at once, in one step. `each`: none, one ordered pair after the other. `both-ways`:
        /// a pair in both directions, pair after pair. `many-to-one`: all that lead to one receiver, receiver after
        /// receiver. `one-to-many`: all that leave one sender, sender after sender. `all-to-all` (or `all`): every
        /// link.
        "pairs" pairs: Pairs = "each";
    }
}

declare_keys! {
    /// In `load-curve`.
    #[derive(Debug)]
    pub struct CurveKeys {
        /// The first load, as a part of the phase's rate.
        "start" start: Fraction = 0.1;
        /// How many loads.
        "steps" steps: u32 = 10, min 2, max 1000;
        /// Each load is this many times the one before it.
        "factor" factor: Option<Fraction> = none("so that the last load is the phase's rate");
    }
}

declare_words! {
    /// What a search is for.
    pub enum SearchedRate {
        Max = "max",
    }
}

declare_keys! {
    /// In `search`.
    #[derive(Debug)]
    pub struct SearchKeys {
        /// The rate that is searched for, in operations per second of all clients together: the highest.
        "rate" rate: SearchedRate = required;
        /// The bound, as in `[[alarm]]`: `FIGURE < LIMIT` with `p50`, `p99` or `max`, of the operation where it is
        /// largest. It is the response time, which runs from the instant when an operation was due; without a rate, the
        /// service time.
        "while" holds: String = required;
        /// How many probes one search has at most.
        "steps" steps: u32 = 12, min 2, max 100;
        /// The search ends when the lowest rate that fails is at most this much above the highest that passes.
        "within" within: Percent = "5%";
    }
}

declare_keys! {
    /// In a table of `settle`.
    #[derive(Debug)]
    pub struct IdleKeys {
        /// The share of the time below which a CPU and a disk are idle.
        "idle" idle: Percent = "5%";
        /// The longest time to wait.
        "limit" limit: Span = "2m";
    }
}

declare_keys! {
    /// In a table of `on-loss`.
    #[derive(Debug)]
    pub struct OnLossKeys {
        /// The run goes on while this many agents of the step are left.
        "at-least" at_least: u32 = required, min 1, max 100000;
    }
}

/// The names of several declarations' keys.
pub(crate) fn names(lists: &[&'static [&'static Key]]) -> Vec<&'static str> {
    lists
        .iter()
        .copied()
        .flatten()
        .map(|key| key.name)
        .collect()
}

declare_words! {
    /// The order of the cells of a repeat.
    pub enum OrderWord {
        Plan = "plan",
        Random = "random",
    }
}

/// Values whose parts have places of their own in a plan, so that they are read apart. Here they have a name and a
/// schema.
macro_rules! nested_values {
    ($($name:ident: $words:literal, $schema:expr;)*) => {$(
        #[derive(Debug)]
        pub struct $name;

        impl KeyValue for $name {
            fn value_type() -> ValueType {
                ValueType::Nested { words: $words, schema: || $schema }
            }

            fn read(_value: &Value) -> Result<Self, String> {
                Ok(Self)
            }

            fn absent() -> Option<Self> {
                Some(Self)
            }
        }
    )*};
}

nested_values! {
    Targets: "tables", json!({
        "type": "object",
        "additionalProperties": target_schema(),
    });
    Clients: "a table", table_schema(ClientsKeys::all().iter().copied());
    Alarms: "tables", json!({
        "type": "array",
        "items": table_schema(AlarmKeys::all().iter().copied()),
    });
    Objectives: "tables", json!({
        "type": "array",
        "items": table_schema(ObjectiveKeys::all().iter().copied()),
    });
    // The plan's schema defines the content of these, which depends on the workload.
    Phases: "tables", json!({"type": "array", "minItems": 1});
    Groups: "tables", json!({"type": "array", "minItems": 1});
    Matrix: "a table of lists", json!({"type": "object"});
    Zips: "lists of keys, such as [[\"bs\", \"iodepth\"]]", json!({
        "type": "array",
        "minItems": 1,
        "items": {"type": "array", "minItems": 2, "uniqueItems": true, "items": {"type": "string"}},
    });
    WorkloadName: "a text", json!({"type": "string"});
    OnLossValue: "\"continue\", \"abort\" or { at-least = N }", json!({"anyOf": [
        {"enum": ["continue", "abort"]},
        table_schema(OnLossKeys::all().iter().copied()),
    ]});
    SettleValue: "a duration, \"idle\" or { idle = \"5%\", limit = \"2m\" }", json!({"anyOf": [
        {"const": "idle"},
        Span::value_type().schema(None, None),
        table_schema(IdleKeys::all().iter().copied()),
    ]});
    LoadCurve: "true or { start, steps, factor }", json!({"anyOf": [
        {"type": "boolean"},
        table_schema(CurveKeys::all().iter().copied()),
    ]});
    SearchValue: "{ rate, while, steps, within }", table_schema(SearchKeys::all().iter().copied());
    Labels: "a label expression", labels_schema();
    Names: "a list of names", names_schema();
    LabelsOrNames: "a label expression or a list of names", json!({"anyOf": [labels_schema(), names_schema()]});
}

/// Of a target, one key has to say where it is.
#[expect(clippy::indexing_slicing, reason = "a JSON object takes any key")]
fn target_schema() -> Value {
    let mut schema = table_schema(TargetKeys::all().iter().copied());
    let places = LOCATOR_KEYS
        .iter()
        .map(|key| json!({"required": [key.name]}));
    schema["oneOf"] = places.collect();
    schema
}

fn labels_schema() -> Value {
    json!({"type": "string", "pattern": "^[^=]+=[^=]+(,[^=]+=[^=]+)*$"})
}

fn names_schema() -> Value {
    json!({"type": "array", "minItems": 1, "items": {"type": "string"}})
}

/// A number that may have decimals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub f64);

impl KeyValue for Fraction {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "a number",
            schema: || json!({"type": "number"}),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_f64().map(Self).ok_or_else(String::new)
    }
}

/// A share above 0 and up to 100, such as `"5%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl KeyValue for Percent {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "a share above 0% and up to 100%, such as \"5%\"",
            schema: || json!({"type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]+)?\\s*%\\s*$"}),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        let number = value
            .as_str()
            .and_then(|text| text.trim().strip_suffix('%'));
        let percent = number.and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        percent.map(Self).ok_or_else(String::new)
    }
}
