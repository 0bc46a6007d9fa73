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
        Absent, ConditionInput, Key, KeyValue, Keys, Reader, ValueType, check_value, table_schema,
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
        /// Name of the run.
        "name" name: Option<String> = none("the file's name");
        /// Number of repeats of the list of phases. Targets alternate within each repeat.
        "repeat" repeat: u32 = 1, min 1, max 1000;
        /// Repeats the list of phases, including its repeats, this many times. Results are listed per loop and merged
        /// over all loops. The steps of a loop are created when it begins.
        "loops" loops: Option<u32> = none("1"), min 1, max 100000;
        /// Repeats the list of phases for this time, counted from the start of the run. No loop begins afterwards, and
        /// the running one is completed. Instead of `loops`.
        "loop-for" loop_for: Option<Span> = none("one loop"), min "1s", max "8760h";
        /// Multiplies the amount of data and the duration of the load in all phases: `amount`, `files`, `hold`,
        /// `io_size`, `objects`, `ops`, `ramp_time`, `runtime`, `seeks` and `size` (not of objects). A scaled count is
        /// at least 1, a size at least 1 MiB and a time at least 1 s; smaller values in the plan are unchanged. Block
        /// sizes, workers and rates are not scaled.
        "scale" scale: Scale = 1;
        /// `alternate`: the targets of a cell are in reverse in every second repeat and loop, so that a steady change
        /// with time affects them alike. `random`: the cells of each repeat run in a new random order. The targets of a
        /// cell run one after the other.
        "order" order: OrderWord = "plan";
        /// Seed of the random order. The run stores it (`runs.order_seed`); the same seed gives the same order.
        "seed" seed: Option<u32> = none("drawn");
        /// Reaction to an agent that is lost during a step, a task that ends by its `errors-limit`, or a broken link.
        /// With `at-least`, the run continues while N agents of the step are left.
        "on-loss" on_loss: OnLossValue = "continue";
        /// Reaction to an operation, or a system call before or after the load, without progress for the phase's
        /// `stall-after`. `continue`: records an event and waits for it. `abort`: ends the run without waiting for it.
        "on-stall" on_stall: OnStall = "continue";
        /// An agent without contact for this long is lost. While its connection is open, at least 3 s without a message
        /// are required.
        "loss-after" loss_after: Span = "30s", min "1s";
        /// Time for which an agent without contact continues its load before it stops it.
        "lease" lease: Span = "30s", max "168h";
        /// The storage under test: one table `[targets.NAME]` each.
        "targets" targets: Targets = none("none");
        /// The agents that run the load: the table `[clients]`.
        "clients" clients: Clients = none("every agent that can");
        /// Conditions that the collector checks during the run: one table `[[alarm]]` each, at most 64.
        "alarm" alarm: Alarms = none("none");
        /// Conditions that most seconds of the run must meet: one table `[[objective]]` each, at most 64.
        "objective" objective: Objectives = none("none");
        /// The phases, in the order of execution: one table `[[phase]]` each.
        "phase" phase: Phases = none("required");
    }
}

declare_keys! {
    /// In `[[alarm]]`.
    #[derive(Debug)]
    pub struct AlarmKeys {
        /// The condition: `FIGURE > LIMIT for TIME` (or `<`; without `for` at once), `no progress for TIME`, `FIGURE of
        /// DAEMON > LIMIT for TIME`, `FIGURE of DAEMON grows PERCENT per hour`, or `DAEMON dies`. Figures of the
        /// running step, over the last 3 s: `p50`, `p99`, `max`, `rate` (operations per second), `throughput` (bytes
        /// per second). Figures of a daemon: `cpu` (percent of a processor) and its sampled gauges (`rss`, `vsz`,
        /// `threads`, `fds`, `swap`). DAEMON is a name or an instance, such as `ceph-osd` or `osd.7`.
        "when" when: String = required;
        /// Action in addition to the event: `mark` adds a mark to the run's time line, `stop` stops the run, `abort`
        /// ends it as failed.
        "then" then: AlarmAction = "event";
    }
}

declare_keys! {
    /// In `[[objective]]`.
    #[derive(Debug)]
    pub struct ObjectiveKeys {
        /// `FIGURE < LIMIT for PERCENT of seconds` (or `>`). Figures are of each second of all steps, excluding ramps:
        /// `p50`, `p99`, `max` (of the operation with the largest value; a second without a completed operation is
        /// bad), `rate` (operations per second), `throughput` (bytes per second).
        "holds" holds: String = required;
    }
}

declare_keys! {
    /// In `[targets.NAME]`.
    #[derive(Debug)]
    pub struct TargetKeys {
        /// The storage system, named in results: cephfs, glusterfs, ext4, ... A name that contains that of a known system
        /// tells which daemons serve the target, otherwise the type of its mount does.
        "system" system: Option<String> = none("the target's name");
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
            let absent = Absent::Described("set by the agents' option");
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

    fn condition_holds(&self, _key: &str, _scope: &ConditionInput<'_>) -> bool {
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
        /// Name of the phase in results, unique in the plan.
        "name" name: Option<String> = none("the workload's name");
        /// Replaces this phase by the phases of a preset. This phase's other keys apply to each of them that supports
        /// the key. `benchmesh plan preset NAME` prints a preset.
        "preset" preset: Option<PresetName> = none("none");
        /// Several values for any key of the workload, for `clients`, `tasks-per-agent` and `cache`: one cell for each
        /// combination; the first key varies slowest. With groups, keys are listed by group name: `{ readers = { bs =
        /// [...] } }`; `cache` is outside the groups. An impossible combination, such as a block larger than the file,
        /// is skipped with a warning if others remain, and so is an impossible mode of a cell. A phase with groups may
        /// contain only possible combinations.
        "matrix" matrix: Matrix = none("none");
        /// Lists of keys of `matrix` that advance together, instead of all combinations: cell 1 has the first value of
        /// each, cell 2 the second. All keys of a list have the same number of values in `matrix`. With groups,
        /// `GROUP.KEY`.
        "zip" zip: Zips = none("none");
        /// `cold`: drops caches before each step. `warm`: runs one unmeasured pass first (not for `replay`, which lays
        /// its data out again). `bypass`: O_DIRECT, equal to `direct = true` of `io` and `way = "direct"` of `copy`;
        /// other workloads do not support it. `other-client`: each client reads the data of the next client, which are
        /// not in its own caches (`io`, `files`, `copy` and `objects`; sets `reorder-tasks`). It needs at least two
        /// clients on one file system or pool. All but `asis` need a target.
        "cache" cache: Cache = "asis";
        /// Only these targets.
        "targets" targets: Option<Names> = none("all");
        /// Keeps the data on the target under this name, for other phases, runs and clients. Existing data of this name
        /// are reused without a layout. `benchmesh data` lists and removes them. For `io` (not on devices), `files` and
        /// `objects`.
        "keep" keep: Option<DataName> = none("the data are removed with their cell");
        /// Uses the data kept under this name, without a layout: missing data are an error. Different parameters or
        /// more clients than at the layout are refused before the run; the message names the difference.
        "use" uses: Option<DataName> = none("the cell's own data");
        /// Rest between the layout of data and the start. `idle`: until the storage is idle. Storage is idle if, for 3
        /// s, the daemons of each storage host (label `role=storage`; without one, every sampled host) together use
        /// less than the share `idle` of one CPU, and each of its disks is busy for less than that share of the time.
        /// At the limit the step starts anyway, and an event names the busy daemons or disks.
        "settle" settle: SettleValue = none("0s");
        /// Delay between the starts of consecutive tasks. The window in which all are active begins with the last.
        "stagger" stagger: Span = "0s";
        /// Raises the phase's rate step by step, from the fraction `start` (0.1) of it in `steps` (10) equal ratios, or
        /// by `factor`. The report shows the knee, where response time begins to rise.
        "load-curve" load_curve: LoadCurve = none("none");
        /// Finds the highest total rate of all clients that meets a latency limit: `{ rate = "max", while = "p99 <
        /// 10ms" }`. Each probe is a step that lasts for the phase's `runtime`. The first probe has no rate; the rate
        /// of each further one is computed from the previous results. Excludes a rate, `load-curve` and `until`.
        "search" search: SearchValue = none("none");
        /// `steady`: a step ends as soon as its load is in steady state, judged by the collector over all clients
        /// together; `runtime` is the maximum duration. The criterion is `ss`, by default SNIA's rule: over five
        /// rounds, each a fifth of `ss_dur`, operations per second are within 20 % of their mean, and their best linear
        /// fit changes by at most 10 % of the mean.
        "until" until: Option<Until> = none("`runtime`");
        /// With `until`, fio's criterion: the figure of each second of the window deviates from the mean of the window
        /// by at most the limit (`iops`, `bw`, `lat`), or the slope of the best linear fit, per second, is below it
        /// (`iops_slope`, `bw_slope`, `lat_slope`). `iops` is operations per second, `bw` bytes per second, `lat` the
        /// mean latency of a second's operations. A limit is a share of the mean (`5%`) or an absolute value (`500`,
        /// `10m`, `200us`).
        "ss" ss: Option<Criterion> = none("SNIA's rule");
        /// With `until`: how long the load must be steady. The window covers the most recent seconds of this duration.
        "ss_dur" ss_dur: Span = "5m", min "3s", max "24h";
        /// With `until`: initial time, counted from the start, that is not judged. Seconds of `ramp_time` are never
        /// judged.
        "ss_ramp" ss_ramp: Span = "0s", max "24h";
        /// Different loads at the same time: one table `[[phase.group]]` each. `workload`, `modes`, `clients` and the
        /// workload's keys are then set in the groups.
        "group" group: Groups = none("none");
    }
}

declare_keys! {
    /// In `[[phase]]`, or in its groups where it has some.
    #[derive(Debug)]
    pub struct LoadKeys {
        /// The workload.
        "workload" workload: Option<WorkloadName> = none("required");
        /// The steps of each cell, in the order of execution. A group may have one mode for all steps of the phase.
        "modes" modes: Option<Names> = none("the workload's mode, if it has only one");
        /// Number of agents: the first N, by name, of the selected ones. In a group without `select`, of those not
        /// taken by earlier groups.
        "clients" clients: Option<u32> = none("all"), min 1, max 100000;
        /// Tasks on each agent.
        "tasks-per-agent" tasks_per_agent: u32 = 1, min 1, max 1024;
    }
}

declare_keys! {
    /// In `[[phase.group]]`, beside [`LoadKeys`].
    #[derive(Debug)]
    pub struct GroupKeys {
        /// Name of the group in results, unique in the phase: letters, digits, `-` and `_`.
        "name" name: String = required;
        /// Agents with all of these labels. An agent can be in only one group.
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
        /// Which links one step measures at the same time. `each`: one, for each ordered pair. `both-ways`: both
        /// directions of a pair, for each pair. `many-to-one`: all links to one receiver, for each receiver.
        /// `one-to-many`: all links from one sender, for each sender. `all-to-all` (or `all`): every link.
        "pairs" pairs: Pairs = "each";
    }
}

declare_keys! {
    /// In `load-curve`.
    #[derive(Debug)]
    pub struct CurveKeys {
        /// The first load, as a fraction of the phase's rate.
        "start" start: Fraction = 0.1;
        /// Number of loads.
        "steps" steps: u32 = 10, min 2, max 1000;
        /// Ratio of each load to the previous one.
        "factor" factor: Option<Fraction> = none("chosen so that the last load is the phase's rate");
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
        /// The target of the search: the highest rate, in operations per second of all clients together.
        "rate" rate: SearchedRate = required;
        /// The latency limit, as in `[[alarm]]`: `FIGURE < LIMIT` with `p50`, `p99` or `max`, of the operation with the
        /// largest value. It applies to the response time, which starts at the scheduled time of an operation; in the
        /// probe without a rate, to the service time.
        "while" holds: String = required;
        /// Maximum number of probes.
        "steps" steps: u32 = 12, min 2, max 100;
        /// The search ends when the lowest failing rate is at most this much above the highest passing rate.
        "within" within: Percent = "5%";
    }
}

declare_keys! {
    /// In a table of `settle`.
    #[derive(Debug)]
    pub struct IdleKeys {
        /// The share of the time below which a CPU and a disk are idle.
        "idle" idle: Percent = "5%";
        /// Maximum time to wait.
        "limit" limit: Span = "2m";
    }
}

declare_keys! {
    /// In a table of `on-loss`.
    #[derive(Debug)]
    pub struct OnLossKeys {
        /// The run continues while at least this many agents of the step are left.
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
        Alternate = "alternate",
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

/// Exactly one key of a target states where it is.
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
