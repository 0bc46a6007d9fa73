//! The limits of an agent's policy: one table.
//!
//! A row defines its option and key (`--free-inodes`), its name in JSON and in `run_agents.policy`, what it bounds, its
//! notation, its default and its texts. The command line, configuration files, the hello, `benchmesh doctor`,
//! `benchmesh agents`, the page and the documents iterate the table. What it does not know: where a limit has its
//! effect. Agents enforce limits in `agent/src/policy`; agents and `plan check` count tasks against the limits of
//! [`Scope::AllLoad`] by `Footprint::claim_of`.

use crate::units::Bytes;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// What is known of a limit.
#[derive(Debug)]
pub struct LimitRow {
    /// The option of `benchmesh agent` without its dashes: the key in configuration files, messages and on the wire.
    pub option: &'static str,
    /// Its name in JSON.
    pub name: &'static str,
    pub scope: Scope,
    pub unit: Unit,
    /// What a percentage is of; `None`: it takes no percentage.
    pub share: Option<ShareOf>,
    pub default: Fallback,
    /// As `--help` and the configuration file describe it, without the default.
    pub help: &'static str,
    /// As docs/security.md describes it.
    pub meaning: &'static str,
}

/// What a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The most that all load of the agent takes together. Not 0. A number in JSON, 0 without a limit.
    AllLoad,
    /// The least that stays free on each target; 0: no minimum. Its notation in JSON.
    EachTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    BytesPerSecond,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareOf {
    /// Of the memory that is free at the agent's start.
    FreeMemory,
    /// Of each target's total.
    Target,
}

/// The setting of an agent without the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// In the limit's notation.
    Setting(&'static str),
    PerCpu {
        each: u64,
        least: u64,
    },
    Unlimited,
}

/// A limit as an operator sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Amount(u64),
    /// 1 to 100 percent, with an upper limit.
    Share {
        percent: u8,
        most: Option<u64>,
    },
}

impl Setting {
    /// The amount, if a share is of `total`.
    #[must_use]
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share { percent, most } => {
                let share = u128::from(total) * u128::from(percent) / 100;
                let share = u64::try_from(share).unwrap_or(u64::MAX);
                share.min(most.unwrap_or(u64::MAX))
            }
        }
    }
}

macro_rules! limits {
    ($($limit:ident { $($row:tt)+ })+) => {
        /// A limit of an agent's policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Limit { $($limit),+ }

        impl Limit {
            /// In the order of `--help` and of JSON.
            pub const ALL: &'static [Self] = &[$(Self::$limit),+];

            #[must_use]
            pub fn row(self) -> &'static LimitRow {
                match self { $(Self::$limit => &LimitRow { $($row)+ }),+ }
            }
        }
    };
}

limits! {
    Memory {
        option: "memory",
        name: "memory_bytes",
        scope: Scope::AllLoad,
        unit: Unit::Bytes,
        share: Some(ShareOf::FreeMemory),
        default: Fallback::Setting("50%"),
        help: "Memory for the buffers of all load together: a size, or a share of the memory that is free at the \
            agent's start",
        meaning: "Memory for buffers, recorders and stacks of all load together, estimated from a plan's parameters: \
            the memory of a `replay` list or of an archive is not counted, and the kernel does not enforce the limit. \
            A percentage refers to the free memory when the agent starts, within the limit of its cgroup. The page \
            cache is not counted.",
    }
    Threads {
        option: "threads",
        name: "threads",
        scope: Scope::AllLoad,
        unit: Unit::Count,
        share: None,
        default: Fallback::PerCpu { each: 16, least: 64 },
        help: "Threads of all load together",
        meaning: "Threads of all load together.",
    }
    Rate {
        option: "rate",
        name: "rate_bytes_per_s",
        scope: Scope::AllLoad,
        unit: Unit::BytesPerSecond,
        share: None,
        default: Fallback::Unlimited,
        help: "Bytes per second of all load together, e.g. 100MiB",
        meaning: "Bytes per second that all load together reads, writes and sends, in measurements and while data are \
            laid out. Files are moved in parts of a sixteenth of a second, at least 4 KiB and at most 8 MiB. A call \
            whose size the plan chooses (`bs`, a line of `replay`, an object, a request) is not divided; after a large \
            one all load waits longer. Receiving ends of links are not limited: their senders' agents limit what they \
            receive.",
    }
    FreeSpace {
        option: "free-space",
        name: "free_space",
        scope: Scope::EachTarget,
        unit: Unit::Bytes,
        share: Some(ShareOf::Target),
        default: Fallback::Setting("5%, at most 1GiB"),
        help: "Minimum free space on each target: a size, or a share of the file system; 0: no minimum",
        meaning: "Space that stays free on a target; a percentage is of the file system or pool. A task is refused if \
            there is less, or if no thread is available to watch it, and a running task is stopped when there is less \
            (checked once a second). 0: none.",
    }
    FreeInodes {
        option: "free-inodes",
        name: "free_inodes",
        scope: Scope::EachTarget,
        unit: Unit::Count,
        share: Some(ShareOf::Target),
        default: Fallback::Setting("1%, at most 10000"),
        help: "Minimum free inodes on each target: a number, or a share; 0: no minimum",
        meaning: "The same for inodes.",
    }
}

/// Separates a percentage from its upper limit.
const AT_MOST: &str = ", at most ";

impl Limit {
    #[must_use]
    pub fn from_option(option: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|limit| limit.row().option == option)
    }

    /// A setting in the notation that [`Self::notation`] writes: `4g`, `64`, `5%`, `5%, at most 1GiB`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(self, text: &str) -> Result<Setting, String> {
        let (share, most) = match text.split_once(AT_MOST) {
            Some((share, most)) => (share, Some(most)),
            None => (text, None),
        };
        if let Some(number) = share.trim().strip_suffix('%') {
            if self.row().share.is_none() {
                return Err(format!("it takes no share, {}", self.advice()));
            }
            let most = most.map(|most| self.amount(most)).transpose()?;
            if most == Some(0) {
                return Err(format!("an upper limit of 0 is none, {}", self.advice()));
            }
            return match number.trim().parse() {
                Ok(percent @ 1..=100) => Ok(Setting::Share { percent, most }),
                _ => Err("a share is 1% to 100%".to_owned()),
            };
        }
        match (self.amount(text)?, self.row().scope) {
            (0, Scope::AllLoad) => Err(format!("0 allows no load, {}", self.advice())),
            (amount, _) => Ok(Setting::Amount(amount)),
        }
    }

    fn amount(self, text: &str) -> Result<u64, String> {
        if self.row().unit == Unit::Count && self.row().share.is_none() {
            return match text.trim().parse::<u32>() {
                Ok(count) => Ok(count.into()),
                Err(_) => Err(format!("`{}` is no number, {}", text.trim(), self.advice())),
            };
        }
        match text.parse::<Bytes>() {
            Ok(Bytes(amount)) => Ok(amount),
            Err(error) => Err(format!("{error}; {}", self.advice())),
        }
    }

    fn advice(self) -> String {
        let amount = match self.row().unit {
            Unit::Bytes => "a size such as 4g",
            Unit::BytesPerSecond => "a rate such as 100MiB",
            Unit::Count => "a number such as 500",
        };
        match self.row().share {
            Some(_) => format!("write {amount}, or a share such as 5% or \"5%{AT_MOST}1g\""),
            None => format!("write {amount}"),
        }
    }

    /// The text that [`Self::parse`] reads.
    #[must_use]
    pub fn notation(self, setting: Setting) -> String {
        let amount = |amount: u64| match self.row().unit {
            Unit::Bytes | Unit::BytesPerSecond => Bytes(amount).to_string(),
            Unit::Count => amount.to_string(),
        };
        match setting {
            Setting::Amount(of_all) => amount(of_all),
            Setting::Share { percent, most } => {
                let most = most.map(|most| format!("{AT_MOST}{}", amount(most)));
                format!("{percent}%{}", most.unwrap_or_default())
            }
        }
    }

    /// A setting for people: `1.50 GiB`, `10.0 MiB/s`, `64`, `5%, at most 1GiB`.
    #[must_use]
    pub fn about(self, setting: Setting) -> String {
        match (setting, self.row().unit) {
            (Setting::Amount(bytes), Unit::Bytes) => Bytes(bytes).about(),
            (Setting::Amount(bytes), Unit::BytesPerSecond) => format!("{}/s", Bytes(bytes).about()),
            _ => self.notation(setting),
        }
    }

    /// The placeholder of its value.
    #[must_use]
    pub fn value_name(self) -> &'static str {
        match (self.row().unit, self.row().share) {
            (Unit::Count, None) => "N",
            (Unit::Count, Some(_)) => "N|PERCENT",
            (Unit::Bytes | Unit::BytesPerSecond, None) => "SIZE",
            (Unit::Bytes | Unit::BytesPerSecond, Some(_)) => "SIZE|PERCENT",
        }
    }

    /// The default on a host with this many CPUs; `None`: no limit.
    #[must_use]
    pub fn default_on(self, cpus: usize) -> Option<Setting> {
        match self.row().default {
            Fallback::Setting(text) => self.parse(text).ok(),
            Fallback::PerCpu { each, least } => {
                let cpus = u64::try_from(cpus).unwrap_or(u64::MAX);
                Some(Setting::Amount(cpus.saturating_mul(each).max(least)))
            }
            Fallback::Unlimited => None,
        }
    }
}

impl Fallback {
    /// For people.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Setting(text) => text.to_owned(),
            Self::PerCpu { each, least } => format!("{each} per CPU, at least {least}"),
            Self::Unlimited => "unlimited".to_owned(),
        }
    }
}

/// A value for each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerLimit<T>([T; Limit::ALL.len()]);

/// The settings of a policy; `None`: no limit, or not reported.
pub type Limits = PerLimit<Option<Setting>>;

impl<T> PerLimit<T> {
    #[must_use]
    pub fn from_fn(value: impl Fn(Limit) -> T) -> Self {
        // `ALL` has as many limits as the array.
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is below the length of `ALL`"
        )]
        Self(std::array::from_fn(|index| value(Limit::ALL[index])))
    }
}

impl<T> Index<Limit> for PerLimit<T> {
    type Output = T;

    #[expect(clippy::indexing_slicing, reason = "there is a value for each limit")]
    fn index(&self, limit: Limit) -> &T {
        &self.0[limit as usize]
    }
}

impl<T> IndexMut<Limit> for PerLimit<T> {
    #[expect(clippy::indexing_slicing, reason = "there is a value for each limit")]
    fn index_mut(&mut self, limit: Limit) -> &mut T {
        &mut self.0[limit as usize]
    }
}

impl Limits {
    /// These limits with another setting for one.
    #[must_use]
    pub fn with(mut self, limit: Limit, setting: Setting) -> Self {
        self[limit] = Some(setting);
        self
    }

    /// The amount of a limit; `None` for a share, and without a limit.
    #[must_use]
    pub fn amount(&self, limit: Limit) -> Option<u64> {
        match self[limit] {
            Some(Setting::Amount(amount)) => Some(amount),
            Some(Setting::Share { .. }) | None => None,
        }
    }

    /// The limits that are set.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, Setting)> {
        let all = Limit::ALL.iter();
        all.filter_map(|limit| Some((*limit, self[*limit]?)))
    }
}

/// An object with every limit by its name.
impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Limit::ALL.len()))?;
        for limit in Limit::ALL {
            let (row, setting) = (limit.row(), self[*limit]);
            match row.scope {
                Scope::AllLoad => map.serialize_entry(row.name, &self.amount(*limit).unwrap_or(0)),
                Scope::EachTarget => {
                    let text = setting.map(|setting| limit.notation(setting));
                    map.serialize_entry(row.name, &text.unwrap_or_default())
                }
            }?;
        }
        map.end()
    }
}

/// Other names are skipped: the limits are a part of a larger object.
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let mut limits = Limits::default();
        for limit in Limit::ALL {
            let name = limit.row().name;
            limits[*limit] = match values.get(name) {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) if text.is_empty() => None,
                Some(Value::String(text)) => {
                    let setting = limit.parse(text);
                    Some(setting.map_err(|problem| Error::custom(format!("`{name}`: {problem}")))?)
                }
                Some(value) => {
                    let amount = value.as_u64().ok_or_else(|| {
                        Error::custom(format!("`{name}` is {value}, neither an amount nor a text"))
                    })?;
                    (amount > 0).then_some(Setting::Amount(amount))
                }
            };
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
