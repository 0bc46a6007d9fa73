//! The CSV line of bonnie++ 1.96 to 2.00: rates of characters, blocks and seeks, of creating, statting and deleting
//! files, and the largest latency of each. `+++++` means too fast to measure and becomes absent here.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, size_text};
use serde_json::{Map, Value};

const KIB: f64 = 1024.0;
/// bonnie++'s default, used if the line has none.
const CHUNK_BYTES: i64 = 8192;
/// bonnie++ counts its small files in units of this.
const FILES_UNIT: i64 = 1024;

#[derive(Clone, Copy)]
enum Unit {
    /// KiB per second, in single bytes.
    Chars,
    /// KiB per second, in blocks.
    Blocks,
    PerSecond,
}

/// Phase, workload, mode and operation of each figure, in the order of the line.
const FIGURES: [(&str, &str, &str, &str, Unit); 12] = [
    ("characters", "io", "putc", "putc", Unit::Chars),
    ("blocks", "io", "write", "write", Unit::Blocks),
    ("blocks", "io", "rmw", "rewrite", Unit::Blocks),
    ("characters", "io", "getc", "getc", Unit::Chars),
    ("blocks", "io", "read", "read", Unit::Blocks),
    ("seeks", "io", "seek", "seek", Unit::PerSecond),
    (
        "sequential files",
        "files",
        "create",
        "create",
        Unit::PerSecond,
    ),
    ("sequential files", "files", "stat", "stat", Unit::PerSecond),
    (
        "sequential files",
        "files",
        "delete",
        "delete",
        Unit::PerSecond,
    ),
    ("random files", "files", "create", "create", Unit::PerSecond),
    ("random files", "files", "stat", "stat", Unit::PerSecond),
    ("random files", "files", "delete", "delete", Unit::PerSecond),
];

/// Positions of the figures in one version of the line.
struct FieldPositions {
    fields: usize,
    characters: usize,
    files: usize,
    latencies: usize,
}

fn layout(format: &str) -> Option<FieldPositions> {
    match format {
        "1.96" | "1.97" => Some(FieldPositions {
            fields: 48,
            characters: 7,
            files: 24,
            latencies: 36,
        }),
        "1.98" => Some(FieldPositions {
            fields: 50,
            characters: 9,
            files: 26,
            latencies: 38,
        }),
        _ => None,
    }
}

/// Whether a line is a bonnie++ result: it begins with the versions of the format and the program.
pub(super) fn is_result(line: &str) -> bool {
    let mut fields = line.split(',');
    let versions = [fields.next(), fields.next()];
    line.matches(',').count() > 6
        && versions.iter().all(|field| {
            field.is_some_and(|version| {
                let number = version.trim_end_matches(|c: char| c.is_ascii_lowercase());
                matches!(number.split_once('.'), Some(("1" | "2", minor)) if minor.len() == 2 && minor.parse::<u8>().is_ok())
            })
        })
}

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut steps = Vec::new();
    let mut tool = String::new();
    for (number, line) in log.lines().enumerate() {
        if !is_result(line) {
            continue;
        }
        let fields: Vec<&str> = line.trim_end().split(',').collect();
        let field = |place: usize| fields.get(place).copied().unwrap_or_default();
        let layout = layout(field(0)).ok_or_else(|| {
            at(
                number + 1,
                format!("format {} is not known; 1.96 to 1.98 are", field(0)),
            )
        })?;
        if fields.len() != layout.fields {
            return Err(at(
                number + 1,
                format!(
                    "{} fields instead of {}: the line is cut off",
                    fields.len(),
                    layout.fields
                ),
            ));
        }
        tool = format!("bonnie++ {}", field(1));
        steps.extend(result(&field, &layout).map_err(|what| at(number + 1, what))?);
    }
    if steps.is_empty() {
        return Err(at(
            log.lines().count().max(1),
            "bonnie++'s CSV line, the last that it writes, is not there: the log is cut off, or only the table was kept",
        ));
    }
    Ok(ImportedLog {
        tool,
        started_us: hints.written_us,
        steps,
    })
}

fn result<'f>(
    field: &dyn Fn(usize) -> &'f str,
    layout: &FieldPositions,
) -> Result<Vec<ImportedStep>, String> {
    let mut steps = Vec::new();
    for (number, (phase, workload, mode, op, unit)) in FIGURES.into_iter().enumerate() {
        let place = match number {
            0..6 => layout.characters + 2 * number,
            _ => layout.files + 2 * (number - 6),
        };
        let rate = match field(place) {
            "" => continue,
            fast if fast.starts_with('+') => None,
            rate => Some(
                rate.parse::<f64>()
                    .map_err(|_| format!("{rate:?} is no rate of {op}"))?,
            ),
        };
        let mut params = match number {
            0..6 => file_params(field),
            _ => small_file_params(field, layout)?,
        };
        if let Ok(numjobs) = field(3).parse::<i64>() {
            params.insert(String::from("numjobs"), Value::from(numjobs));
        }
        let (ops_per_s, bytes_per_s) = match unit {
            Unit::Chars => (rate.map(|rate| rate * KIB), rate.map(|rate| rate * KIB)),
            Unit::Blocks => {
                let bytes = rate.map(|rate| rate * KIB);
                (bytes.map(|bytes| bytes / crate::real(CHUNK_BYTES)), bytes)
            }
            Unit::PerSecond => (rate, None),
        };
        steps.push(ImportedStep {
            phase: phase.to_owned(),
            workload: workload.to_owned(),
            mode: mode.to_owned(),
            params,
            tasks: field(3).parse().unwrap_or(1),
            ops: vec![ImportedOp {
                op: op.to_owned(),
                ops_per_s,
                bytes_per_s,
                max_ns: latency(field(layout.latencies + number))?,
                ..ImportedOp::default()
            }],
            ..ImportedStep::default()
        });
    }
    Ok(steps)
}

/// The size of the one large file, and of its blocks if they are not of the default size.
fn file_params<'f>(field: &dyn Fn(usize) -> &'f str) -> Map<String, Value> {
    let given = [("size", field(5)), ("bs", field(6))].into_iter();
    given
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (key.to_owned(), Value::from(text.to_lowercase())))
        .collect()
}

/// Number, sizes and directories of the small files. bonnie++ counts files in units of 1024, and an empty size is 0.
fn small_file_params<'f>(
    field: &dyn Fn(usize) -> &'f str,
    layout: &FieldPositions,
) -> Result<Map<String, Value>, String> {
    let mut params = Map::new();
    let [files, max, min, dirs] =
        [5, 4, 3, 1].map(|before| field(layout.files.saturating_sub(before)));
    let count = |what: &str, text: &str| -> Result<Option<i64>, String> {
        match text {
            "" => Ok(None),
            text => (text.parse().map(Some)).map_err(|_| format!("{text:?} is no {what}")),
        }
    };
    if let Some(files) = count("number of files", files)? {
        let files = files.checked_mul(FILES_UNIT);
        let files = files.ok_or("the number of files is no number that fits")?;
        params.insert(String::from("files"), Value::from(files));
    }
    if matches!(max, "link" | "symlink") {
        params.insert(String::from("files-are"), Value::from(format!("{max}s")));
    } else {
        let max = count("size of files", max)?.unwrap_or(0);
        let min = count("size of files", min)?.unwrap_or(max);
        params.insert(
            String::from("size"),
            match min == max {
                true => Value::from(size_text(max)),
                false => Value::from(format!("{}-{}", size_text(min), size_text(max))),
            },
        );
    }
    if let Some(dirs) = count("number of directories", dirs)? {
        params.insert(String::from("dirs"), Value::from(dirs));
    }
    Ok(params)
}

/// `17788us`, `4050ms`
fn latency(text: &str) -> Result<Option<i64>, String> {
    let wrong = || format!("{text:?} is no latency");
    let (number, ns) = match text {
        "" => return Ok(None),
        fast if fast.starts_with('+') => return Ok(None),
        text => match (text.strip_suffix("us"), text.strip_suffix("ms")) {
            (Some(us), _) => (us, 1_000),
            (None, Some(ms)) => (ms, 1_000_000),
            (None, None) => return Err(wrong()),
        },
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    Ok(number.checked_mul(ns))
}
