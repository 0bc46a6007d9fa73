//! Marks: what the load did before, during and after each.

use super::{Align, Table};
use crate::figures::{self, NONE};
use crate::report::{MarkReport, MarkedOp, MarkedSpan, Outage, Report};

/// Marks shown; the rest are counted.
const MARKS_SHOWN: usize = 20;

/// Characters of a mark's text that are shown.
const TEXT_SHOWN: usize = 60;

type SpanOf = fn(&MarkedOp) -> &MarkedSpan;
type Row<'r> = (&'r MarkReport, Option<&'r MarkedOp>);

/// A row per mark and operation of the step that was under way; `None`: there is no mark.
pub(super) fn table(report: &Report) -> Option<Table> {
    if report.marks.is_empty() {
        return None;
    }
    let shown = report.marks.get(..MARKS_SHOWN).unwrap_or(&report.marks);
    let rows: Vec<Row<'_>> = shown
        .iter()
        .flat_map(|mark| -> Vec<Row<'_>> {
            match mark.ops.as_slice() {
                [] => vec![(mark, None)],
                ops => ops.iter().map(|op| (mark, Some(op))).collect(),
            }
        })
        .collect();
    let text = |cell: &dyn Fn(&MarkReport) -> String| -> Vec<String> {
        rows.iter()
            .scan(None, |last: &mut Option<*const MarkReport>, (mark, _)| {
                let again =
                    last.replace(std::ptr::from_ref(*mark)) == Some(std::ptr::from_ref(*mark));
                Some(if again { String::new() } else { cell(mark) })
            })
            .collect()
    };
    let label = |mark: &MarkReport| match mark.source.as_str() {
        "mark" => shortened(&mark.text),
        source => shortened(&format!("{source}: {}", mark.text)),
    };
    let step = |mark: &MarkReport| mark.ordinal.map_or_else(String::new, |at| at.to_string());
    let op = |(_, op): &Row<'_>| op.map_or_else(String::new, named);
    let mut table = Table::titled("Marks")
        .text("when", text(&|mark| figures::instant(mark.at_us)))
        .text("mark", text(&label))
        .column("step", Align::Right, text(&step))
        .text_if_any("op", rows.iter().map(op).collect());
    let by_bytes = rows.iter().filter_map(|(_, op)| *op).any(is_bulk);
    let rate: (&str, fn(&MarkedSpan) -> Option<f64>) = match by_bytes {
        true => ("MiB/s", |span| span.mib_per_s),
        false => ("ops/s", |span| span.ops_per_s),
    };
    if rows.iter().any(|(_, op)| op.is_some()) {
        for (band, figure, shown) in [
            (
                rate.0,
                rate.1,
                figures::maybe_rate as fn(Option<f64>) -> String,
            ),
            (
                "p99 ms",
                |span: &MarkedSpan| span.p99_ms,
                figures::maybe_millis,
            ),
        ] {
            let spans: [(&str, SpanOf); 3] = [
                ("before", |op| &op.before),
                ("during", |op| &op.during),
                ("after", |op| &op.after),
            ];
            for (title, span) in spans {
                let cell = |(_, op): &Row<'_>| shown(op.and_then(|op| figure(span(op))));
                table = table.banded(band, title, rows.iter().map(cell).collect());
            }
        }
        let outage = |cell: &dyn Fn(&Outage) -> String| -> Vec<String> {
            let of = |(_, op): &Row<'_>| op.and_then(|op| op.outage.as_ref()).map(cell);
            rows.iter()
                .map(|row| of(row).unwrap_or_else(|| NONE.to_owned()))
                .collect()
        };
        const BAND: &str = "from the mark on";
        table = table
            .banded(
                BAND,
                "gap ms",
                outage(&|one| figures::millis(one.longest_gap_ms)),
            )
            .banded(
                BAND,
                "back after s",
                outage(&|one| match one.recovered_s {
                    Some(0.0) => "-".to_owned(),
                    Some(seconds) => figures::rate(seconds),
                    None => "not back".to_owned(),
                }),
            )
            .banded(BAND, "ops lost", outage(&|one| figures::rate(one.ops_lost)));
        let responses = outage(&|one| figures::maybe_millis(one.response_max_ms));
        if responses.iter().any(|cell| cell != NONE) {
            table = table.banded(BAND, "response max ms", responses);
        }
        table = table.note(
            "Gap: the longest time without progress, in seconds in which nothing completed or within one operation; \
             back after: until the last second below half of the rate before had ended; lost: against the rate \
             before, until then.",
        );
        table = table.note(
            "Before: the 30 s before the mark; during: the 10 s from it on; after: the 30 s after those; all within the step.",
        );
    }
    let more = report.marks.len() - shown.len();
    Some(table.note_where(
        more > 0,
        &format!(
            "{more} more: benchmesh query \"SELECT * FROM v_marks WHERE run_id = {}\"",
            report.run.id
        ),
    ))
}

/// The text as far as a table has room for it; JSON and `v_marks` have all of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn named(op: &MarkedOp) -> String {
    match op.group.as_str() {
        "" => op.op.clone(),
        group => format!("{group} {}", op.op),
    }
}

/// Whether its operations move so much that they are judged by their bytes, as in the tables of results.
fn is_bulk(op: &MarkedOp) -> bool {
    let spans = [&op.before, &op.during, &op.after];
    spans.iter().any(|span| {
        let rates = span.mib_per_s.zip(span.ops_per_s);
        rates.is_some_and(|(mib, ops)| ops > 0.0 && mib / ops >= 0.0625)
    })
}
