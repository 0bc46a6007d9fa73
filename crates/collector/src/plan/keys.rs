//! The keys that every plan may have, with what docs/plan.md says of them. A workload's own keys are its `KeyInfo`s.

/// One key, as the reference describes it.
#[derive(Clone, Copy, Debug)]
pub struct KeyDoc {
    pub name: &'static str,
    pub kind: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> KeyDoc {
    KeyDoc {
        name,
        kind,
        default,
        meaning,
    }
}

/// At the top of the file.
pub const TOP: &[KeyDoc] = &[
    key("name", "text", "the file's name", "what the run is called"),
    key(
        "repeat",
        "1 to 1000",
        "1",
        "the whole list of phases so many times; targets alternate within each",
    ),
    key(
        "order",
        "\"plan\" or \"random\"",
        "\"plan\"",
        "random: the cells of each repeat in an order that is drawn anew, a cell's targets beside each other",
    ),
    key(
        "seed",
        "0 to 4294967295",
        "drawn",
        "what the random order is drawn from; the run keeps it (runs.order_seed), and the same seed gives the same order",
    ),
    key(
        "on-loss",
        "\"continue\", \"abort\" or { at-least = N }",
        "\"continue\"",
        "what happens when an agent is lost during a step; with at-least, the run goes on while N agents of the step are left",
    ),
    key(
        "on-stall",
        "\"continue\" or \"abort\"",
        "\"continue\"",
        "what follows from an operation, or a system call before or after the load, that does not end for a phase's `stall-after`: it is told of and waited for, or the run ends, without waiting for it",
    ),
    key(
        "loss-after",
        "duration",
        "30s",
        "an agent without contact for so long is lost; of one whose connection stays, silence tells after 3s at the soonest",
    ),
    key(
        "lease",
        "duration",
        "30s",
        "an agent without contact carries its load on for so long, then stops it",
    ),
    key(
        "targets",
        "tables",
        "none",
        "the storage under test, one table [targets.NAME] each",
    ),
    key(
        "clients",
        "table",
        "every agent that can",
        "which agents carry the load",
    ),
    key(
        "phase",
        "tables",
        "required",
        "what is measured, one table [[phase]] each, in this order",
    ),
];

/// In `[targets.NAME]`.
pub const TARGET: &[KeyDoc] = &[
    key(
        "system",
        "text",
        "required",
        "the storage system, as results name it: cephfs, glusterfs, ext4, ...",
    ),
    key(
        "path",
        "absolute path",
        "required",
        "where every client of the run has it mounted",
    ),
];

/// In `[clients]`.
pub const CLIENTS: &[KeyDoc] = &[
    key(
        "select",
        "label expression",
        "every agent that allows the target's path",
        "agents that have all these labels: \"role=client,rack=3\"; the label `name` is the agent's name",
    ),
    key(
        "agents",
        "list of names",
        "-",
        "these agents; instead of select",
    ),
];

/// In `[[phase]]`, whatever the workload.
pub const PHASE: &[KeyDoc] = &[
    key(
        "name",
        "text",
        "the workload's name",
        "what results call it; no two phases share one",
    ),
    key("workload", "text", "required", "what is done"),
    key(
        "modes",
        "list of words",
        "the workload's mode, if it has one only",
        "the steps of each cell, in this order",
    ),
    key(
        "matrix",
        "table of lists",
        "none",
        "several values for any key of the workload, for clients and for tasks-per-agent: one cell for each combination, the first key varying slowest; with groups, by their names: { readers = { bs = [...] } }",
    ),
    key(
        "cache",
        "\"asis\", \"cold\", \"warm\" or \"bypass\"",
        "\"asis\"",
        "cold: caches are dropped before each step; warm: one unmeasured pass first (not for `replay`, whose data are laid out anew); bypass: O_DIRECT, as direct = true of `io` and way = \"direct\" of `copy` ask for it (no other workload does). There is none without a target",
    ),
    key(
        "clients",
        "1 to 100000",
        "all",
        "the first N of the selected agents, by name",
    ),
    key(
        "tasks-per-agent",
        "1 to 1024",
        "1",
        "so many tasks on each agent",
    ),
    key("targets", "list of names", "all", "only these targets"),
    key(
        "settle",
        "duration, \"idle\" or { idle = \"5%\", limit = \"2m\" }",
        "0s",
        "rest between the layout of data and the start; idle: until, for 3 s, the daemons of each storage host (label role=storage; without one, every host that is sampled) together take less than that share of one CPU, and each of its disks is busy for less than that share of the time; when the limit is reached, the step starts all the same and an event says what was busy",
    ),
    key(
        "stagger",
        "duration",
        "0s",
        "each task starts so long after the one before it; the window in which all are active begins with the last",
    ),
    key(
        "load-curve",
        "true or { start, steps, factor }",
        "none",
        "the phase's rate is walked up, one step each, from `start` (0.1) of it in `steps` (10) equal ratios, or by `factor`; the report says where response time leaves its floor",
    ),
    key(
        "group",
        "tables",
        "none",
        "different loads at the same time, one table [[phase.group]] each; workload, modes, clients and the workload's keys then stand in the groups",
    ),
];

/// In `[[phase.group]]`, whatever the workload.
pub const GROUP: &[KeyDoc] = &[
    key(
        "name",
        "letters, digits, `-` and `_`",
        "required",
        "what results call it; no two groups of a phase share one",
    ),
    key("workload", "text", "required", "what it does"),
    key(
        "modes",
        "list of words",
        "the workload's mode, if it has one only",
        "one for all steps of the phase, or one for each step",
    ),
    key(
        "clients",
        "1 to 100000",
        "all that are left",
        "the first N, by name, of the agents that it selects, or of those that the groups before it leave",
    ),
    key(
        "select",
        "label expression",
        "the plan's clients",
        "agents that have all these labels; no agent is in two groups",
    ),
    key(
        "agents",
        "list of names",
        "-",
        "these agents; instead of select",
    ),
    key(
        "tasks-per-agent",
        "1 to 1024",
        "1",
        "so many tasks on each agent",
    ),
];

/// In `[[phase]]` when the workload works between two agents.
pub const PEERS: &[KeyDoc] = &[
    key(
        "from",
        "label expression or list of names",
        "the plan's clients",
        "the agents that send",
    ),
    key(
        "to",
        "label expression or list of names",
        "the plan's clients",
        "the agents that receive",
    ),
    key(
        "pairs",
        "\"each\", \"both-ways\", \"many-to-one\", \"one-to-many\" or \"all-to-all\"",
        "\"each\"",
        "which links are measured at once, in one step. each: none, one ordered pair after the other; both-ways: a pair in both directions, pair after pair; many-to-one: all that lead to one receiver, receiver after receiver; one-to-many: all that leave one sender, sender after sender; all-to-all (or all): every link",
    ),
];

/// In `load-curve`.
pub const CURVE: &[KeyDoc] = &[
    key(
        "start",
        "fraction",
        "0.1",
        "the first load, as a part of the phase's rate",
    ),
    key("steps", "2 to 1000", "10", "how many loads"),
    key(
        "factor",
        "above 1",
        "so that the last load is the phase's rate",
        "each load is so many times the one before it",
    ),
];

/// The names of `keys`.
pub(crate) fn names<'k>(lists: &[&'k [KeyDoc]]) -> Vec<&'k str> {
    lists
        .iter()
        .flat_map(|list| list.iter().map(|key| key.name))
        .collect()
}
