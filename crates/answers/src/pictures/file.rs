//! A report or a comparison as one self-contained HTML file with its data, style and script.
//!
//! Names from plans, agents and hosts are data in a JSON block, never markup; the script shows them as text. A
//! content security policy in the file forbids other scripts and all requests.

use super::{Overlays, Pictures};
use crate::compare::{CompareAnswer, FigureName};
use crate::report::card::{self, Card};
use crate::report::{self, Align, Detail, Report, Table};
use serde_json::{Value, json};
use uuid::Uuid;

/// Style and scripts of the file, which the live page also loads.
pub static STYLE: &str = include_str!("assets/page.css");
pub static CHARTS: &str = include_str!("assets/charts.js");
pub static REPORT: &str = include_str!("assets/report.js");
pub static COMPARE: &str = include_str!("assets/compare.js");

/// The document that the script shows: the report's tables as text, and the pictures. The live page requests the same.
pub fn report_document(report: &Report, pictures: &Pictures) -> Value {
    let tables = report::tables(report, Detail::All);
    json!({
        "card": card_document(&report.card),
        "tables": tables.into_iter().map(table).collect::<Vec<_>>(),
        "pictures": pictures,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// The same for a comparison: the answer itself, the figures' titles by name, its tables as text, and its curves.
pub fn comparison_document(answer: &CompareAnswer, overlays: &Overlays) -> Value {
    let tables = report::comparison_tables(answer);
    let figures = FigureName::ROWS.iter().map(|row| [row.name, row.title]);
    json!({
        "answer": answer,
        "figures": figures.collect::<Vec<_>>(),
        "card": card_document(&card::of_comparison(answer)),
        "tables": tables.into_iter().map(table).collect::<Vec<_>>(),
        "overlays": overlays,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// The card with its lists by title, so that the script needs no names of its own.
pub fn card_document(card: &Card) -> Value {
    let loads: Vec<Value> = card
        .loads
        .iter()
        .map(|load| {
            let steps: Vec<i64> = load
                .sides
                .iter()
                .flat_map(|side| side.steps.clone())
                .collect();
            json!({
                "load": load.load,
                "answer": load.text,
                "trust": load.trust,
                "why": load.why,
                "unit": load.unit,
                "steps": steps,
            })
        })
        .collect();
    let lists: Vec<Value> = card
        .lists()
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(title, list)| json!({ "title": title, "lines": list.lines, "more": list.more, "command": list.command }))
        .collect();
    json!({
        "title": card.title,
        "objectives": card.objectives,
        "loads": loads,
        "loads_left_out": card.loads_left_out,
        "lists": lists,
        "next": card.next,
    })
}

fn table(table: Table) -> Value {
    let columns: Vec<Value> = table
        .columns
        .iter()
        .map(|column| {
            json!({
                "title": column.title,
                "right": column.align == Align::Right,
                "band": column.band,
            })
        })
        .collect();
    json!({ "title": table.title, "columns": columns, "rows": table.rows, "notes": table.notes })
}

/// The report as a file.
pub fn html(report: &Report, pictures: &Pictures) -> String {
    let title = format!("benchmesh: run {} {}", report.run.id, report.run.name);
    let mut document = report_document(report, pictures);
    // A reader of the file has no database to type the next command against.
    if let Some(next) = document.pointer_mut("/card/next") {
        *next = json!("");
    }
    file(&title, &document, &[CHARTS, REPORT], "BenchmeshReport")
}

/// The comparison as a file.
pub fn comparison_html(answer: &CompareAnswer, overlays: &Overlays) -> String {
    let names: Vec<String> = answer
        .comparisons
        .iter()
        .map(|one| format!("{} against {}", one.a.label, one.b.label))
        .chain(answer.trend.iter().map(|trend| trend.plan.clone()))
        .collect();
    let title = format!("benchmesh: {}", names.join(", "));
    let document = comparison_document(answer, overlays);
    let scripts = [CHARTS, REPORT, COMPARE];
    file(&title, &document, &scripts, "BenchmeshCompare")
}

/// The HTML with its data, style and scripts. `shows`: the script's object with the `show` function for the document.
fn file(title: &str, document: &Value, scripts: &[&str], shows: &str) -> String {
    let nonce = Uuid::new_v4().simple();
    // Every `<` is escaped, so that no text in the data can end the block around it.
    let data = document.to_string().replace('<', "\\u003c");
    let (title, scripts) = (escaped(title), scripts.join("\n"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n<body class=\"file\">\n\
         <main id=\"report\"><noscript>This report draws itself with a script of its own, which this viewer does not run. Open the file in a browser.</noscript></main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script nonce=\"{nonce}\">\n{scripts}\n\
         {shows}.show(document.getElementById('report'), JSON.parse(document.getElementById('data').textContent));\n\
         </script>\n</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            c if c.is_control() => String::from("\u{fffd}"),
            c => c.to_string(),
        })
        .collect()
}
