//! Limits of the data that each agent may store within an hour, by table. This is the only list of these limits;
//! docs/operations.md shows it.
//!
//! Agents are identified by the names in their certificates. An agent that sends less saves up to [`HOURS_SAVED`] for
//! the spool that it delivers after a loss of contact. Batches are counted on arrival, whatever the dates of their
//! rows. An agent that exceeds a limit is refused for an hour. Pure: the clock is a parameter.

use super::batch::Batch;
use crate::distribution::Distribution;
use benchmesh_model::systems::facts::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
/// A full spool of 256 MiB needs at most one hour's budget of any table, so this is enough for larger spools.
const HOURS_SAVED: u64 = 3;
/// Above this number of accounts, idle ones are removed.
const MANY_ACCOUNTS: usize = 4096;

/// The limit of one table within an hour.
struct Limit {
    table: &'static str,
    rows: u64,
    /// Bytes of texts and histograms.
    bytes: u64,
    cost: fn(&Batch) -> Cost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    rows: u64,
    bytes: u64,
}

/// The cost of a table without a text or a histogram.
const NO_TEXT: u64 = 0;

static LIMITS: [Limit; 12] = [
    Limit {
        table: "op_intervals",
        rows: 12_000_000,
        bytes: 4 << 30,
        cost: |batch| {
            cost(batch.op_intervals.iter().map(|one| {
                let packed = |one: &Distribution| one.blob.v2_deflate.len();
                packed(&one.service) + one.response.as_ref().map_or(0, packed)
            }))
        },
    },
    Limit {
        table: "task_ends",
        rows: 2_000_000,
        bytes: 256 << 20,
        // Each kind of error is a row.
        cost: |batch| {
            let ends = batch.task_ends.iter();
            cost(ends.flat_map(|end| {
                let error = end.error.as_ref().map_or(0, String::len);
                let errors = end.errors.iter().map(|one| one.first.len());
                errors.chain([error])
            }))
        },
    },
    Limit {
        table: "daemons",
        rows: 131_072,
        bytes: 32 << 20,
        cost: |batch| {
            let daemons = batch.daemons.iter();
            cost(daemons.map(|one| {
                let texts = [&one.name, &one.instance, &one.cmdline, &one.version];
                texts.iter().map(|text| text.len()).sum()
            }))
        },
    },
    Limit {
        table: "daemon_samples",
        rows: 15_000_000,
        bytes: NO_TEXT,
        cost: |batch| rows(&batch.daemon_samples),
    },
    Limit {
        table: "host_samples",
        rows: 1_000_000,
        bytes: 256 << 20,
        cost: |batch| {
            let samples = batch.host_samples.iter();
            cost(samples.map(|one| one.busy_others.as_ref().map_or(0, String::len)))
        },
    },
    Limit {
        table: "disk_samples",
        rows: 8_000_000,
        bytes: NO_TEXT,
        cost: |batch| rows(&batch.disk_samples),
    },
    Limit {
        table: "net_samples",
        rows: 8_000_000,
        bytes: NO_TEXT,
        cost: |batch| rows(&batch.net_samples),
    },
    Limit {
        table: "target_samples",
        rows: 400_000,
        bytes: 64 << 20,
        cost: |batch| {
            let samples = batch.target_samples.iter();
            cost(samples.map(|one| one.target.len() + one.nonce.len()))
        },
    },
    Limit {
        table: "clock_offsets",
        rows: 100_000,
        bytes: NO_TEXT,
        cost: |batch| rows(&batch.clock_offsets),
    },
    Limit {
        table: "events",
        rows: 120_000,
        bytes: 32 << 20,
        cost: |batch| {
            cost(batch.events.iter().map(|one| {
                let detail = one.detail_json.as_ref().map_or(0, String::len);
                one.kind.as_str().len() + one.message.len() + detail
            }))
        },
    },
    Limit {
        table: "facts",
        rows: 400_000,
        bytes: 64 << 20,
        cost: |batch| {
            let facts = batch.facts.iter();
            cost(facts.map(|one| match &one.value {
                Value::Number(_) => one.name.len(),
                Value::Text(text) => one.name.len() + text.len(),
            }))
        },
    },
    Limit {
        table: "losses",
        rows: 200_000,
        bytes: NO_TEXT,
        cost: |batch| rows(&batch.losses),
    },
];

/// The cost of a batch for each table.
pub(crate) type Costs = [Cost; LIMITS.len()];

/// The cost of a batch, to be subtracted from its agent's budget.
pub fn costs(batch: &Batch) -> Costs {
    LIMITS.each_ref().map(|limit| (limit.cost)(batch))
}

fn cost(texts: impl Iterator<Item = usize>) -> Cost {
    texts.fold(Cost::default(), |sum, bytes| Cost {
        rows: sum.rows + 1,
        bytes: sum.bytes.saturating_add(wide(bytes)),
    })
}

fn rows<T>(rows: &[T]) -> Cost {
    Cost {
        rows: wide(rows.len()),
        bytes: 0,
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// An agent that has exceeded a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent `{name}` has sent more than {limit} {unit} for `{table}` within an hour, which no correct agent does: \
    the collector accepts it again in {minutes} min"
)]
pub struct Flood {
    pub name: String,
    pub table: &'static str,
    /// Rows, or bytes of texts.
    pub unit: &'static str,
    pub limit: u64,
    pub minutes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    left: Costs,
    /// The instant up to which `left` has been refilled.
    raised: Instant,
    /// Table, unit and limit that were exceeded, and the end of the ban.
    barred: Option<(&'static str, &'static str, u64, Instant)>,
}

/// Accounts by agent name.
#[derive(Debug, Default)]
pub struct Budget(HashMap<String, Account>);

/// The reason why a batch is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum FloodRefusal {
    /// This batch exceeds the limit.
    Begins(Flood),
    /// An earlier batch exceeded the limit.
    GoesOn(Flood),
}

impl Budget {
    /// Subtracts the cost of a batch.
    pub fn spend(&mut self, name: &str, costs: &Costs, now: Instant) -> Result<(), FloodRefusal> {
        self.check(name, now).map_err(FloodRefusal::GoesOn)?;
        if !self.0.contains_key(name) {
            self.forget_idle(now);
        }
        let account = self.0.entry(name.to_owned()).or_insert(Account {
            left: LIMITS.each_ref().map(|limit| Cost {
                rows: limit.rows,
                bytes: limit.bytes,
            }),
            raised: now,
            barred: None,
        });
        account.raise(now);
        for ((limit, left), cost) in LIMITS.iter().zip(&account.left).zip(costs) {
            let (unit, most) = if cost.rows > left.rows {
                ("rows", limit.rows)
            } else if cost.bytes > left.bytes {
                ("bytes of texts", limit.bytes)
            } else {
                continue;
            };
            account.barred = Some((limit.table, unit, most, now + HOUR));
            return match self.check(name, now) {
                Ok(()) => Ok(()),
                Err(flood) => Err(FloodRefusal::Begins(flood)),
            };
        }
        for (left, cost) in account.left.iter_mut().zip(costs) {
            left.rows = left.rows.saturating_sub(cost.rows);
            left.bytes = left.bytes.saturating_sub(cost.bytes);
        }
        Ok(())
    }

    /// Whether batches of an agent are accepted.
    pub fn check(&self, name: &str, now: Instant) -> Result<(), Flood> {
        let Some((table, unit, limit, until)) = self.0.get(name).and_then(|it| it.barred) else {
            return Ok(());
        };
        let seconds = until.saturating_duration_since(now).as_secs();
        if seconds == 0 {
            return Ok(());
        }
        Err(Flood {
            name: name.to_owned(),
            table,
            unit,
            limit,
            minutes: seconds.div_ceil(60),
        })
    }

    fn forget_idle(&mut self, now: Instant) {
        if self.0.len() > MANY_ACCOUNTS {
            let hours = HOUR * u32::try_from(HOURS_SAVED).unwrap_or(u32::MAX);
            self.0
                .retain(|_, account| now.saturating_duration_since(account.raised) < hours);
        }
    }
}

impl Account {
    fn raise(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.raised);
        // The refill of a shorter time would be rounded to 0.
        if passed < Duration::from_secs(1) {
            return;
        }
        self.raised = now;
        for (limit, left) in LIMITS.iter().zip(&mut self.left) {
            let raised = |left: u64, limit: u64| {
                let more = u128::from(limit) * passed.as_millis() / HOUR.as_millis();
                let more = u64::try_from(more).unwrap_or(u64::MAX);
                left.saturating_add(more).min(limit * HOURS_SAVED)
            };
            left.rows = raised(left.rows, limit.rows);
            left.bytes = raised(left.bytes, limit.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The cost of a batch with these rows, each with a text of `bytes` bytes.
    fn of(table: &str, rows: u64, bytes: u64) -> Costs {
        assert!(LIMITS.iter().any(|limit| limit.table == table), "{table}");
        LIMITS.each_ref().map(|limit| match limit.table == table {
            true => Cost {
                rows,
                bytes: rows * bytes,
            },
            false => Cost::default(),
        })
    }

    /// The arithmetic of docs/operations.md.
    #[test]
    fn the_largest_honest_agent_stays_within_its_hour() {
        let (mut budget, mut now) = (Budget::default(), Instant::now());
        budget.spend("a", &of("daemons", 1, 1), now).unwrap();
        // 200 daemons and 40 disks and interfaces at 100 ms, 1,000 tasks of three operations at 1 s, for days.
        for _ in 0..48 {
            now += HOUR;
            for (table, rows, bytes) in [
                ("op_intervals", 1000 * 3 * 3600, 300),
                ("task_ends", 1000 * 720, 64),
                ("daemons", 10_000, 512),
                ("daemon_samples", 200 * 36_000, 0),
                ("host_samples", 36_000, 300),
                ("disk_samples", 40 * 36_000, 0),
                ("net_samples", 40 * 36_000, 0),
                // 64 targets every ten seconds.
                ("target_samples", 64 * 360, 128),
                ("clock_offsets", 3600, 0),
                ("events", 20_000, 512),
                // 16 systems with 20 facts that change every ten seconds.
                ("facts", 16 * 20 * 360, 64),
                ("losses", 5 * 3600, 0),
            ] {
                let sent = budget.spend("a", &of(table, rows, bytes), now);
                assert_eq!(sent, Ok(()), "{table}");
            }
        }
    }

    /// A sampled row takes some 50 bytes of a spool of at most 256 MiB.
    #[test]
    fn a_full_spool_is_no_flood() {
        let now = Instant::now();
        for (table, bytes) in [
            ("daemon_samples", 50),
            ("disk_samples", 50),
            ("net_samples", 50),
            ("host_samples", 300),
        ] {
            let text = if bytes > 50 { bytes } else { 0 };
            let spool = of(table, (256 << 20) / bytes, text);
            assert_eq!(Budget::default().spend("a", &spool, now), Ok(()), "{table}");
        }
        let intervals = of("op_intervals", (256 << 20) / 200, 100);
        assert_eq!(Budget::default().spend("a", &intervals, now), Ok(()));
    }

    #[test]
    fn what_is_not_used_is_saved_for_some_hours() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let hour = of("daemons", 131_072, 0);
        budget.spend("a", &hour, start).unwrap();
        let later = start + HOUR * 20;
        for _ in 0..HOURS_SAVED {
            budget.spend("a", &hour, later).unwrap();
        }
        let refused = budget.spend("a", &hour, later).unwrap_err();
        assert!(matches!(refused, FloodRefusal::Begins(_)), "{refused:?}");
    }

    #[test]
    fn a_flood_is_named_once_and_its_agent_barred_for_an_hour() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let flood = of("daemons", 1200, 32 << 10);
        let Err(FloodRefusal::Begins(named)) = budget.spend("a", &flood, start) else {
            panic!("it is taken");
        };
        assert_eq!((named.table, named.minutes), ("daemons", 60));
        assert!(named.to_string().contains("`daemons`"), "{named}");
        let small = of("events", 1, 1);
        let again = budget.spend("a", &small, start + HOUR / 2);
        assert!(matches!(again, Err(FloodRefusal::GoesOn(_))), "{again:?}");
        assert!(budget.check("a", start + HOUR / 2).is_err());
        assert_eq!(budget.spend("b", &small, start), Ok(()));
        assert_eq!(budget.check("a", start + HOUR), Ok(()));
        assert_eq!(budget.spend("a", &small, start + HOUR), Ok(()));
    }

    #[test]
    fn docs_show_these_limits() {
        let docs = include_str!("../../../../docs/operations.md");
        let size = |bytes: u64| match bytes {
            NO_TEXT => "none".to_owned(),
            bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
            bytes => format!("{} MiB", bytes >> 20),
        };
        for limit in &LIMITS {
            let digits = limit.rows.to_string();
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .map(|group| std::str::from_utf8(group).unwrap())
                .collect();
            let (rows, bytes) = (groups.join(","), size(limit.bytes));
            let row = format!("| `{}` | {rows} | {bytes} |", limit.table);
            assert!(docs.contains(&row), "docs/operations.md lacks {row}");
        }
        let saved = format!("up to {HOURS_SAVED} hours' worth");
        assert!(docs.contains(&saved), "{saved}");
    }
}
