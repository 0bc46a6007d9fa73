//! The SQL functions that a query has beside SQLite's own: order statistics, the standard deviation, the logarithm, and
//! histograms as the database has them.
//!
//! Aggregates treat NULL as SQLite's own do: it is left out, and the result without any value is NULL. What they hold
//! counts as memory of the queries of this process ([`held_bytes`]), so that the limit of [`Limits`] also bounds it.

use super::Limits;
use super::stop::{Stop, memory_bytes};
use benchmesh_results::real;
use benchmesh_workloads::histogram::Histogram;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// A function, as the reference and the prompt list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlFunction {
    /// With its arguments: `quantile(x, q)`.
    pub signature: &'static str,
    pub meaning: &'static str,
}

/// All of them.
pub const FUNCTIONS: [SqlFunction; 8] = [
    SqlFunction {
        signature: "median(x)",
        meaning: "aggregate: the middle value; between two, their mean",
    },
    SqlFunction {
        signature: "quantile(x, q)",
        meaning: "aggregate: the value below which a share q of 0 to 1 lies, interpolated between two values",
    },
    SqlFunction {
        signature: "stddev(x)",
        meaning: "aggregate: the sample standard deviation; NULL of fewer than two values",
    },
    SqlFunction {
        signature: "ln(x)",
        meaning: "the natural logarithm; NULL of zero and of negative values",
    },
    SqlFunction {
        signature: "exp(x)",
        meaning: "e to the power of x; exp(avg(ln(x))) is the geometric mean",
    },
    SqlFunction {
        signature: "hist_merge(histogram)",
        meaning: "aggregate: all histograms added up, as a histogram",
    },
    SqlFunction {
        signature: "hist_quantile(histogram, q)",
        meaning: "the duration in ns that a share q of 0 to 1 does not exceed; at most 0.8 % too large",
    },
    SqlFunction {
        signature: "hist_count(histogram)",
        meaning: "how many values it has",
    },
];

impl SqlFunction {
    /// Without its arguments.
    pub fn name(&self) -> &'static str {
        self.signature.split('(').next().unwrap_or(self.signature)
    }
}

/// Adds all functions to a connection. A query that holds more than `limits` allow is ended by `stop`.
pub(super) fn register(connection: &Connection, limits: &Limits, stop: &Stop) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    let order = |function| Order {
        function,
        budget: Budget {
            limit_bytes: limits.memory_bytes,
            stop: stop.clone(),
        },
    };
    connection.create_aggregate_function("median", 1, flags, order("median"))?;
    connection.create_aggregate_function("quantile", 2, flags, order("quantile"))?;
    connection.create_aggregate_function("stddev", 1, flags, StandardDeviation)?;
    // SQLite has these two itself if it is built with its mathematical functions.
    connection.create_scalar_function("ln", 1, flags, |context| {
        let value = number("ln", context.get_raw(0))?;
        Ok(value.filter(|value| *value > 0.0).map(f64::ln))
    })?;
    connection.create_scalar_function("exp", 1, flags, |context| {
        Ok(number("exp", context.get_raw(0))?.map(f64::exp))
    })?;
    connection.create_aggregate_function("hist_merge", 1, flags, Merge)?;
    connection.create_scalar_function("hist_quantile", 2, flags, |context| {
        let share = share("hist_quantile", context.get_raw(1))?;
        let histogram = histogram("hist_quantile", context.get_raw(0))?;
        let (Some(share), Some(histogram)) = (share, histogram) else {
            return Ok(None);
        };
        Ok((!histogram.is_empty()).then(|| whole(histogram.quantile(share))))
    })?;
    connection.create_scalar_function("hist_count", 1, flags, |context| {
        let histogram = histogram("hist_count", context.get_raw(0))?;
        Ok(histogram.map(|histogram| whole(histogram.count())))
    })
}

/// Bytes that the aggregates of all queries in this process hold.
pub(super) fn held_bytes() -> u64 {
    HELD_BYTES.load(Ordering::Relaxed)
}

static HELD_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes counted as held until it is dropped.
#[derive(Debug, Default)]
struct HeldBytes(u64);

impl HeldBytes {
    fn set(&mut self, bytes: u64) {
        HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
        HELD_BYTES.fetch_sub(self.0, Ordering::Relaxed);
        self.0 = bytes;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn refused(message: String) -> Error {
    Error::UserFunctionError(message.into())
}

/// Which value it is, for a message.
fn named(value: ValueRef<'_>) -> String {
    const CHARS: usize = 40;
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(integer) => integer.to_string(),
        ValueRef::Real(real) => real.to_string(),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let shown: String = text.chars().take(CHARS).collect();
            let more = if shown.len() < text.len() { "..." } else { "" };
            format!("the text '{shown}{more}'")
        }
        ValueRef::Blob(blob) => format!("a blob of {} bytes", blob.len()),
    }
}

/// `None` for NULL.
fn number(function: &str, value: ValueRef<'_>) -> Result<Option<f64>> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(integer) => Ok(Some(real(integer))),
        ValueRef::Real(real) => Ok(Some(real)),
        ValueRef::Text(_) | ValueRef::Blob(_) => Err(refused(format!(
            "{function}() takes numbers, and got {}",
            named(value)
        ))),
    }
}

/// `None` for NULL.
fn share(function: &str, value: ValueRef<'_>) -> Result<Option<f64>> {
    let share = match value {
        ValueRef::Null => return Ok(None),
        ValueRef::Integer(integer) => Some(real(integer)),
        ValueRef::Real(real) => Some(real),
        ValueRef::Text(_) | ValueRef::Blob(_) => None,
    };
    match share.filter(|share| (0.0..=1.0).contains(share)) {
        Some(share) => Ok(Some(share)),
        None => Err(refused(format!(
            "{function}() takes a share q from 0 to 1, such as 0.99, and got {}",
            named(value)
        ))),
    }
}

/// `None` for NULL.
fn histogram(function: &str, value: ValueRef<'_>) -> Result<Option<Histogram>> {
    let why = match value {
        ValueRef::Null => return Ok(None),
        ValueRef::Blob(blob) => match Histogram::from_v2_deflate(blob) {
            Ok(histogram) => return Ok(Some(histogram)),
            Err(error) => format!("and this blob is none: {error}"),
        },
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => {
            format!("and got {}", named(value))
        }
    };
    Err(refused(format!(
        "{function}() takes a histogram, such as service_histogram of op_intervals, {why}"
    )))
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Limit on the memory of all values together.
#[derive(Debug)]
struct Budget {
    limit_bytes: u64,
    stop: Stop,
}

impl Budget {
    /// Whether `more` bytes fit; the query ends if they do not.
    fn admit(&self, more: u64) -> Result<()> {
        if memory_bytes().saturating_add(more) <= self.limit_bytes {
            return Ok(());
        }
        self.stop.memory_full();
        Err(refused("out of memory".to_owned()))
    }
}

/// `median` and `quantile`.
struct Order {
    function: &'static str,
    budget: Budget,
}

/// The values of a group.
#[derive(Default)]
struct Values {
    numbers: Vec<f64>,
    held: HeldBytes,
    /// `None` before the first row; `Some(None)` for NULL.
    share: Option<Option<f64>>,
}

/// Room for the first values of a group.
const FIRST_VALUES: usize = 16;

impl Values {
    fn push(&mut self, number: f64, budget: &Budget) -> Result<()> {
        let capacity = self.numbers.capacity();
        if self.numbers.len() == capacity {
            let more = capacity.max(FIRST_VALUES);
            let bytes = |values: usize| (values * size_of::<f64>()) as u64;
            budget.admit(bytes(more))?;
            self.numbers.reserve_exact(more);
            self.held.set(bytes(self.numbers.capacity()));
        }
        self.numbers.push(number);
        Ok(())
    }

    /// The value at the share, interpolated between its neighbours.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position within the values"
    )]
    fn at(mut self, share: f64) -> Option<f64> {
        let last = self.numbers.len().checked_sub(1)?;
        let position = share * real(i64::try_from(last).unwrap_or(i64::MAX));
        let below = (position.floor() as usize).min(last);
        let (_, low, above) = self
            .numbers
            .select_nth_unstable_by(below, |a, b| a.total_cmp(b));
        let low = *low;
        let high = above.iter().copied().min_by(|a, b| a.total_cmp(b));
        let part = position - position.floor();
        match high.filter(|high| part > 0.0 && *high > low) {
            Some(high) => Some(low + (high - low) * part),
            None => Some(low),
        }
    }
}

impl Aggregate<Values, Option<f64>> for Order {
    fn init(&self, _: &mut Context<'_>) -> Result<Values> {
        Ok(Values::default())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Values) -> Result<()> {
        let share = match context.len() {
            1 => Some(0.5),
            _ => share(self.function, context.get_raw(1))?,
        };
        if *values.share.get_or_insert(share) != share {
            return Err(refused(format!(
                "{}() takes the same q in all rows of a group",
                self.function
            )));
        }
        match number(self.function, context.get_raw(0))? {
            Some(number) => values.push(number, &self.budget),
            None => Ok(()),
        }
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Values>) -> Result<Option<f64>> {
        let found = values.and_then(|values| {
            let share = values.share.flatten()?;
            values.at(share)
        });
        Ok(found)
    }
}

struct StandardDeviation;

/// Welford's running mean and sum of squared deviations.
#[derive(Clone, Copy, Default)]
struct Deviations {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Aggregate<Deviations, Option<f64>> for StandardDeviation {
    fn init(&self, _: &mut Context<'_>) -> Result<Deviations> {
        Ok(Deviations::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Deviations) -> Result<()> {
        if let Some(number) = number("stddev", context.get_raw(0))? {
            sum.count += 1.0;
            let before = number - sum.mean;
            sum.mean += before / sum.count;
            sum.squares += before * (number - sum.mean);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Deviations>) -> Result<Option<f64>> {
        let several = sum.filter(|sum| sum.count >= 2.0);
        Ok(several.map(|sum| (sum.squares / (sum.count - 1.0)).max(0.0).sqrt()))
    }
}

struct Merge;

/// The histograms of a group, added up.
#[derive(Default)]
struct Merged {
    sum: Option<Histogram>,
    held: HeldBytes,
}

/// About what a histogram takes.
const HISTOGRAM_BYTES: u64 = 36 << 10;

impl Aggregate<Merged, Option<Vec<u8>>> for Merge {
    fn init(&self, _: &mut Context<'_>) -> Result<Merged> {
        Ok(Merged::default())
    }

    fn step(&self, context: &mut Context<'_>, merged: &mut Merged) -> Result<()> {
        let Some(one) = histogram("hist_merge", context.get_raw(0))? else {
            return Ok(());
        };
        match &mut merged.sum {
            Some(sum) => sum.add(&one),
            None => {
                merged.sum = Some(one);
                merged.held.set(HISTOGRAM_BYTES);
            }
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, merged: Option<Merged>) -> Result<Option<Vec<u8>>> {
        let sum = merged.and_then(|merged| merged.sum);
        Ok(sum.map(|sum| sum.to_v2_deflate()))
    }
}

#[cfg(test)]
mod tests;
