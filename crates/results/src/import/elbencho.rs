//! elbencho's CSV of `--csvfile`, with columns found by name: one row per phase, each a step.
//!
//! Rates come from its "last" columns, which cover everything up to the slowest thread, like our last-done rates. They
//! and the MiB are whole numbers, rounded down by elbencho. Entries (files and directories) are separate operations
//! beside the blocks of a write or read phase.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, size_text};
use serde_json::{Map, Value};
use std::collections::HashMap;

const FIRST_COLUMN: &str = "ISO date,";
const MIB: i64 = 1 << 20;

/// elbencho's names of phases, without counts and suffixes (`RWMIX70`, `WRITE+s`), with the mode and the operation of
/// an entry. Other phases keep their own name.
const PHASES: [(&str, &str, &str); 8] = [
    ("WRITE", "write", "create"),
    ("READ", "read", "open-read"),
    ("RWMIX", "rw", "create"),
    ("MIX-T", "rw", "create"),
    ("MKDIRS", "mkdir", "mkdir"),
    ("RMDIRS", "rmdir", "rmdir"),
    ("STAT", "stat", "stat"),
    ("RMFILES", "delete", "delete"),
];
/// Phases between others that create no load.
const NO_LOAD: [&str; 2] = ["SYNC", "DROPCACHE"];

pub(super) fn is_header(line: &str) -> bool {
    line.starts_with(FIRST_COLUMN) && line.contains(",operation,time ms [first],")
}

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut columns: Vec<&str> = Vec::new();
    let mut steps: Vec<ImportedStep> = Vec::new();
    let mut version = String::new();
    let mut started_us = None;
    let lines = log.lines().count();
    for (number, line) in log.lines().enumerate() {
        let number = number + 1;
        if is_header(line) {
            columns = line.split(',').collect();
            continue;
        }
        if line.trim().is_empty() {
            continue;
        }
        if columns.is_empty() {
            return Err(at(
                number,
                "this is no header of elbencho's CSV (run it without --nocsvlabels)",
            ));
        }
        let fields: Vec<&str> = line.split(',').collect();
        let whole = fields.len() == columns.len() && (number < lines || log.ends_with('\n'));
        if !whole {
            return Err(at(
                number,
                format!(
                    "{} fields instead of {}, or no end of line: the log is cut off",
                    fields.len(),
                    columns.len()
                ),
            ));
        }
        let row: HashMap<&str, &str> = columns.iter().copied().zip(fields).collect();
        version = row.get("version").copied().unwrap_or_default().to_owned();
        if started_us.is_none() {
            started_us = row.get("ISO date").and_then(|date| instant_us(date));
        }
        let step = CsvRow(row).step().map_err(|what| at(number, what))?;
        let Some(step) = step else { continue };
        let begun = steps
            .last()
            .map_or(0, |last| last.at_us.saturating_add(last.lasted_us));
        steps.push(ImportedStep {
            at_us: begun,
            ..step
        });
    }
    let lasted = steps
        .iter()
        .fold(0_i64, |sum, step| sum.saturating_add(step.lasted_us));
    Ok(ImportedLog {
        tool: format!("elbencho {version}").trim_end().to_owned(),
        started_us: started_us.unwrap_or_else(|| hints.written_us.saturating_sub(lasted)),
        steps,
    })
}

/// `2026-05-22T16:09:38+0200`, with or without milliseconds. Returns `None` without a time zone: then it is not an
/// instant.
fn instant_us(date: &str) -> Option<i64> {
    let zone = date.len().checked_sub(5)?;
    let (local, zone) = date.split_at_checked(zone)?;
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let hours: i64 = zone.get(1..3)?.parse().ok()?;
    let minutes: i64 = zone.get(3..5)?.parse().ok()?;
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let since = local.duration_since(std::time::UNIX_EPOCH).ok()?;
    let local_us = i64::try_from(since.as_micros()).ok()?;
    Some(local_us - sign * (hours * 60 + minutes) * 60_000_000)
}

/// A row, indexed by column name.
struct CsvRow<'l>(HashMap<&'l str, &'l str>);

impl CsvRow<'_> {
    /// Returns `None` for an empty field, which means not measured.
    fn number(&self, column: &str) -> Result<Option<i64>, String> {
        let text = self
            .0
            .get(column)
            .ok_or_else(|| format!("there is no column {column:?}: its version is not known"))?;
        match text.is_empty() {
            true => Ok(None),
            false => text
                .parse()
                .map(Some)
                .map_err(|_| format!("{text:?} in column {column:?} is no whole number")),
        }
    }

    fn needed(&self, column: &str) -> Result<i64, String> {
        self.number(column)?
            .ok_or_else(|| format!("column {column:?} is empty"))
    }

    /// `None` for a phase without load.
    fn step(&self) -> Result<Option<ImportedStep>, String> {
        let phase = *self
            .0
            .get("operation")
            .ok_or("there is no column \"operation\"")?;
        if NO_LOAD.contains(&phase) {
            return Ok(None);
        }
        let name = phase.split('+').next().unwrap_or(phase);
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let own = name.to_lowercase();
        let known = PHASES.iter().find(|(known, ..)| name == *known);
        let (mode, of_entry) = known.map_or((own.as_str(), own.as_str()), |(_, mode, entry)| {
            (mode, entry)
        });
        let random = self.number("random")? == Some(1);
        let is_io = matches!(mode, "write" | "read" | "rw");
        let lasted_us = self.needed("time ms [last]")?.saturating_mul(1000);
        let mut ops = Vec::new();
        let of_block = if mode == "rw" { "write" } else { mode };
        self.io(of_block, "", "IO", &mut ops)?;
        self.entries(of_entry, "", "Ent", &mut ops)?;
        if self.0.contains_key("rwmix read IOPS [last]") {
            self.io("read", "rwmix read ", "rwmix read IO", &mut ops)?;
            self.entries("open-read", "rwmix read ", "rwmix read Ent", &mut ops)?;
        }
        if ops.is_empty() {
            return Err(format!("phase {phase} has no figures"));
        }
        let threads = self.needed("threads")?;
        let hosts = self.number("hosts")?;
        Ok(Some(ImportedStep {
            phase: String::from("elbencho"),
            workload: String::from(if is_io { "io" } else { "files" }),
            mode: match (is_io, random) {
                (true, true) => format!("rand{mode}"),
                _ => mode.to_owned(),
            },
            params: self.params(threads, phase.strip_prefix("RWMIX"))?,
            lasted_us,
            tasks: threads.saturating_mul(hosts.unwrap_or(1)),
            clients: hosts,
            ops,
            ..ImportedStep::default()
        }))
    }

    fn params(&self, threads: i64, reads: Option<&str>) -> Result<Map<String, Value>, String> {
        let mut params = Map::new();
        let percent = reads.map(|reads| reads.split('+').next().unwrap_or(reads));
        if let Some(percent) = percent.and_then(|percent| percent.parse::<i64>().ok()) {
            params.insert(String::from("rwmixread"), Value::from(percent));
        }
        for (key, column) in [("size", "file size"), ("bs", "block size")] {
            if let Some(bytes) = self.number(column)?.filter(|bytes| *bytes > 0) {
                params.insert(key.to_owned(), Value::from(size_text(bytes)));
            }
        }
        params.insert(String::from("numjobs"), Value::from(threads));
        for (key, column) in [
            ("iodepth", "IO depth"),
            ("dirs", "dirs"),
            ("files", "files"),
        ] {
            if let Some(count) = self.number(column)? {
                params.insert(key.to_owned(), Value::from(count));
            }
        }
        let direct = self.number("direct IO")? == Some(1);
        params.insert(String::from("direct"), Value::from(direct));
        Ok(params)
    }

    /// Blocks read or written.
    fn io(
        &self,
        op: &str,
        prefix: &str,
        latency: &str,
        ops: &mut Vec<ImportedOp>,
    ) -> Result<(), String> {
        let mib = |column: &str| -> Result<Option<i64>, String> {
            let mib = self.number(&format!("{prefix}{column}"))?;
            Ok(mib.map(|mib| mib.saturating_mul(MIB)))
        };
        let counted = || {
            Ok(ImportedOp {
                bytes: mib("MiB [last]")?,
                bytes_per_s: mib("MiB/s [last]")?.map(crate::real),
                ..self.latency(latency)?
            })
        };
        self.rated(op, &format!("{prefix}IOPS [last]"), counted, ops)
    }

    /// Files and directories.
    fn entries(
        &self,
        op: &str,
        prefix: &str,
        latency: &str,
        ops: &mut Vec<ImportedOp>,
    ) -> Result<(), String> {
        let entries = format!("{prefix}entries [last]");
        let counted = || {
            Ok(ImportedOp {
                ops: self.number(&entries)?,
                ..self.latency(latency)?
            })
        };
        self.rated(op, &format!("{prefix}entries/s [last]"), counted, ops)
    }

    /// An operation, if the column of its rate is not empty.
    fn rated(
        &self,
        op: &str,
        rate: &str,
        counted: impl FnOnce() -> Result<ImportedOp, String>,
        ops: &mut Vec<ImportedOp>,
    ) -> Result<(), String> {
        if let Some(rate) = self.number(rate)? {
            ops.push(ImportedOp {
                op: op.to_owned(),
                ops_per_s: Some(crate::real(rate)),
                ..counted()?
            });
        }
        Ok(())
    }

    fn latency(&self, of: &str) -> Result<ImportedOp, String> {
        let ns = |which: &str| -> Result<Option<i64>, String> {
            let us = self.number(&format!("{of} lat us [{which}]"))?;
            Ok(us.map(|us| us.saturating_mul(1000)))
        };
        // Not measured if even the slowest took no time.
        let Some(max_ns) = ns("max")?.filter(|max| *max > 0) else {
            return Ok(ImportedOp::default());
        };
        Ok(ImportedOp {
            mean_ns: ns("avg")?.map(crate::real),
            min_ns: ns("min")?,
            max_ns: Some(max_ns),
            ..ImportedOp::default()
        })
    }
}
