//! iozone 3.x: the table of `-a` (and `-R`, whose Excel report repeats it) and the throughput test of `-t`.
//!
//! A step per figure. iozone writes neither a date with a time zone nor durations: a step's duration follows from its
//! size and its rate, the log's start from the file's date. A test that did not run leaves its column blank, or 0 with
//! `-+n`.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, nanos, size_text};
use serde_json::{Map, Value};

const KIB: f64 = 1024.0;

/// Workload, mode and operation of a test, in plan terms.
type Test = (&'static str, &'static str, &'static str);

/// The columns of the table, after file size and record size.
const COLUMNS: [Test; 13] = [
    ("io", "write", "write"),
    ("io", "rewrite", "write"),
    ("io", "read", "read"),
    ("io", "reread", "read"),
    ("io", "randread", "read"),
    ("io", "randwrite", "write"),
    ("io", "backread", "read"),
    ("io", "recrewrite", "write"),
    ("io", "strideread", "read"),
    ("io", "fwrite", "fwrite"),
    ("io", "frewrite", "fwrite"),
    ("io", "fread", "fread"),
    ("io", "freread", "fread"),
];
/// The names above the columns end where their figures do, within this many characters, in every version: 3.397 has
/// columns of 8, 3.429 of 9 and 10.
const COLUMN_SLACK: usize = 2;
const COLUMN_NAMES: &str =
    "reclen write rewrite read reread read write read rewrite read fwrite frewrite fread freread";

/// The throughput test's names of its tests.
const THROUGHPUT: [(&str, Test); 13] = [
    ("initial writers", ("io", "write", "write")),
    ("rewriters", ("io", "rewrite", "write")),
    ("readers", ("io", "read", "read")),
    ("re-readers", ("io", "reread", "read")),
    ("reverse readers", ("io", "backread", "read")),
    ("stride readers", ("io", "strideread", "read")),
    ("random readers", ("io", "randread", "read")),
    ("random writers", ("io", "randwrite", "write")),
    ("mixed workload", ("io", "randrw", "mixed")),
    ("pwrite writers", ("io", "pwrite", "write")),
    ("pread readers", ("io", "pread", "read")),
    ("fwriters", ("io", "fwrite", "fwrite")),
    ("freaders", ("io", "fread", "fread")),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    KibPerSecond,
    OpsPerSecond,
    MicrosPerOp,
}

/// Parser state after the lines read so far.
struct Reader {
    call: Call,
    steps: Vec<ImportedStep>,
}

/// What one call of iozone printed before its figures. Each call in a log begins with a new one.
struct Call {
    unit: Unit,
    /// End positions of the table's column names; empty before the table begins.
    column_ends: Vec<usize>,
    /// Load options of the command line.
    params: Map<String, Value>,
    /// Bytes of each process's file and of a record, for a throughput test.
    each: Option<(i64, i64)>,
}

impl Call {
    fn new() -> Self {
        Self {
            unit: Unit::KibPerSecond,
            column_ends: Vec::new(),
            params: Map::from_iter([(String::from("direct"), Value::from(false))]),
            each: None,
        }
    }
}

const BANNER: &str = "Iozone: Performance Test of File I/O";

/// Flags that describe the load, with the plan's key or, if there is none, iozone's flag.
const FLAGS: [(&str, &str, Value); 5] = [
    ("-I", "direct", Value::Bool(true)),
    ("-o", "sync", Value::Bool(true)),
    ("-e", "end_fsync", Value::Bool(true)),
    ("-c", "iozone -c", Value::Bool(true)),
    ("-B", "iozone -B", Value::Bool(true)),
];

pub(super) fn is_log(log: &str) -> bool {
    log.contains(BANNER)
}

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut reader = Reader {
        call: Call::new(),
        steps: Vec::new(),
    };
    let mut version = None;
    let mut ended = false;
    let mut lines = 0;
    for (number, line) in log.lines().enumerate() {
        lines = number + 1;
        let text = line.trim();
        if let Some(given) = text.strip_prefix("Version $Revision: ") {
            let given = given.trim_end_matches([' ', '$']);
            if !given.starts_with("3.") {
                return Err(at(lines, format!("iozone {given} is not known; 3.x is")));
            }
            version = Some(given.to_owned());
        } else if text == BANNER {
            ended = false;
            reader.call = Call::new();
        } else if text == "iozone test complete." {
            ended = true;
            reader.call.column_ends.clear();
        } else {
            reader.line(line, text).map_err(|what| at(lines, what))?;
        }
    }
    let version = version.ok_or_else(|| {
        at(
            1,
            "there is no line with iozone's version: its whole output is needed",
        )
    })?;
    if !ended {
        return Err(at(
            lines.max(1),
            "\"iozone test complete.\" does not follow: the log is cut off",
        ));
    }
    let lasted = reader
        .steps
        .iter()
        .fold(0_i64, |sum, step| sum.saturating_add(step.lasted_us));
    Ok(ImportedLog {
        tool: format!("iozone {version}"),
        started_us: hints.written_us.saturating_sub(lasted),
        steps: reader.steps,
    })
}

impl Reader {
    fn line(&mut self, line: &str, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if text.starts_with("OPS Mode.") {
            self.call.unit = Unit::OpsPerSecond;
        } else if text.starts_with("Microseconds/op Mode.") {
            self.call.unit = Unit::MicrosPerOp;
        } else if let Some(command) = text.strip_prefix("Command line used: ") {
            for (flag, key, value) in FLAGS {
                if command.split_whitespace().any(|word| word == flag) {
                    self.call.params.insert(key.to_owned(), value);
                }
            }
        } else if let [unit, names @ ..] = words.as_slice()
            && unit.eq_ignore_ascii_case("kb")
        {
            if names.join(" ") != COLUMN_NAMES {
                return Err(format!(
                    "the columns are {text:?}; those of iozone -a without -+u are read"
                ));
            }
            self.call.column_ends = word_ends(line).split_off(2);
        } else if text.starts_with("Each process ") {
            self.call.each = each(&words);
            if self.call.each.is_none() {
                return Err(format!(
                    "{text:?} does not say how large files and records are"
                ));
            }
        } else if let Some(rest) = text.strip_prefix("Children see throughput for ") {
            self.throughput(rest)?;
        } else if let Some(rest) = text.strip_prefix("Min xfer") {
            self.least_transfer(rest)?;
        } else if !self.call.column_ends.is_empty()
            && words
                .first()
                .is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.row(line, &words)?;
        }
        Ok(())
    }

    /// Parses a row of the table. A full row is split into words, another one by the end positions of its figures.
    fn row(&mut self, line: &str, words: &[&str]) -> Result<(), String> {
        let [kib, record, figures @ ..] = words else {
            return Err(String::from("the row ends in the middle"));
        };
        let bytes = |text: &str| {
            text.parse::<i64>()
                .ok()
                .and_then(|kib| kib.checked_mul(1024))
        };
        let (size, record) = bytes(kib)
            .zip(bytes(record))
            .filter(|(size, record)| *size > 0 && *record > 0)
            .ok_or_else(|| format!("{kib:?} and {record:?} are no sizes in kB"))?;
        let before = self.steps.len();
        let ends = word_ends(line);
        for (place, figure) in figures.iter().enumerate() {
            let column = match figures.len() == COLUMNS.len() {
                true => Some(place),
                false => ends.get(place + 2).and_then(|end| self.column_at(*end)),
            };
            let Some(test) = column.and_then(|column| COLUMNS.get(column)) else {
                return Err(format!("{figure:?} is under no column of iozone's table"));
            };
            let figure: f64 = figure
                .parse()
                .map_err(|_| format!("{figure:?} is no figure"))?;
            if figure > 0.0 {
                self.push(*test, size, record, 1, figure)?;
            }
        }
        match self.steps.len() == before {
            true => Err(String::from("the row has no figure")),
            false => Ok(()),
        }
    }

    /// The column in which a figure ends.
    fn column_at(&self, end: usize) -> Option<usize> {
        let mut ends = self.call.column_ends.iter();
        ends.position(|column| column.abs_diff(end) <= COLUMN_SLACK)
    }

    /// ` 2 initial writers = 8081579.50 kB/sec`
    fn throughput(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("{text:?} is no line of iozone's throughput test");
        let (who, figure) = text.split_once('=').ok_or_else(wrong)?;
        let (count, who) = who.trim().split_once(' ').ok_or_else(wrong)?;
        let count: i64 = count.parse().map_err(|_| wrong())?;
        let (figure, unit) = figure.trim().split_once(' ').ok_or_else(wrong)?;
        let figure: f64 = figure.parse().map_err(|_| wrong())?;
        match unit.trim().to_ascii_lowercase().as_str() {
            "kb/sec" => self.call.unit = Unit::KibPerSecond,
            "ops/sec" => self.call.unit = Unit::OpsPerSecond,
            _ => return Err(wrong()),
        }
        let who = who.trim();
        let (_, test) = THROUGHPUT
            .iter()
            .find(|(name, _)| *name == who)
            .ok_or_else(|| format!("{who:?} is no test of iozone that is known"))?;
        let (size, record) = self
            .call
            .each
            .ok_or("no line that begins with \"Each process\" before this one")?;
        self.push(*test, size, record, count, figure)?;
        // All processes stop when the first has ended: how much the others did is in no line.
        if let Some(step) = self.steps.last_mut() {
            step.lasted_us = 0;
            for op in &mut step.ops {
                (op.ops, op.bytes) = (None, None);
            }
        }
        Ok(())
    }

    /// ` = 25556.00 KB`, or ` = 65536.00 ops`: the least that a process transferred. If that is its whole file, all
    /// processes transferred theirs.
    fn least_transfer(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("{text:?} is no amount that iozone prints");
        let (least, unit) = text
            .trim_start_matches([' ', '\t', '='])
            .split_once(' ')
            .ok_or_else(wrong)?;
        let least: f64 = least.parse().map_err(|_| wrong())?;
        let (Some((size, record)), Some(step)) = (self.call.each, self.steps.last_mut()) else {
            return Ok(());
        };
        let least = match unit.trim() {
            "ops" => least * crate::real(record),
            _ => least * KIB,
        };
        if least < crate::real(size) {
            return Ok(());
        }
        let bytes = size.checked_mul(step.tasks).ok_or_else(wrong)?;
        for op in &mut step.ops {
            (op.ops, op.bytes) = (Some(bytes / record), Some(bytes));
        }
        Ok(())
    }

    /// Appends a step after the previous ones.
    fn push(
        &mut self,
        (workload, mode, op): Test,
        size: i64,
        record: i64,
        tasks: i64,
        figure: f64,
    ) -> Result<(), String> {
        let real = crate::real;
        let ops_per_s = match self.call.unit {
            Unit::KibPerSecond => figure * KIB / real(record),
            Unit::OpsPerSecond => figure,
            Unit::MicrosPerOp => 1e6 / figure,
        };
        let bytes_per_s = match self.call.unit {
            Unit::KibPerSecond => figure * KIB,
            _ => ops_per_s * real(record),
        };
        let bytes = size
            .checked_mul(tasks)
            .ok_or("the sizes of all files are no number of bytes")?;
        let mut params = self.call.params.clone();
        params.insert(String::from("bs"), Value::from(size_text(record)));
        params.insert(String::from("size"), Value::from(size_text(size)));
        if tasks > 1 {
            params.insert(String::from("numjobs"), Value::from(tasks));
        }
        let at_us = self
            .steps
            .last()
            .map_or(0, |last| last.at_us.saturating_add(last.lasted_us));
        self.steps.push(ImportedStep {
            at_us,
            phase: String::from("iozone"),
            workload: workload.to_owned(),
            mode: mode.to_owned(),
            params,
            lasted_us: nanos(real(bytes) / bytes_per_s * 1e6),
            tasks,
            ops: vec![ImportedOp {
                op: op.to_owned(),
                ops: Some(bytes / record),
                bytes: Some(bytes),
                ops_per_s: Some(ops_per_s),
                bytes_per_s: Some(bytes_per_s),
                mean_ns: (self.call.unit == Unit::MicrosPerOp).then_some(figure * 1e3),
                ..ImportedOp::default()
            }],
            ..ImportedStep::default()
        });
        Ok(())
    }
}

/// End position of each word of a line.
fn word_ends(line: &str) -> Vec<usize> {
    let mut letters = line.char_indices().peekable();
    let mut ends = Vec::new();
    while let Some((at, letter)) = letters.next() {
        let last = letters.peek().is_none_or(|(_, next)| next.is_whitespace());
        if !letter.is_whitespace() && last {
            ends.push(at + letter.len_utf8());
        }
    }
    ends
}

/// `Each process writes a 1024 kByte file in 64 kByte records`
fn each(words: &[&str]) -> Option<(i64, i64)> {
    let mut sizes = words
        .windows(2)
        .filter(|pair| {
            pair.last()
                .is_some_and(|unit| unit.starts_with("kByte") || unit.starts_with("Kbyte"))
        })
        .filter_map(|pair| pair.first()?.parse::<i64>().ok()?.checked_mul(1024))
        .filter(|size| *size > 0);
    Some((sizes.next()?, sizes.next()?))
}
