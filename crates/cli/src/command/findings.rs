//! `benchmesh findings`: anomalies of a run, with the SQL that shows them.

use super::report::from_file;
use super::source::Asked;
use crate::args::{FindingsArguments, FindingsFormat};
use crate::client::{CallError, Client};
use crate::failure::Outcome;
use crate::{output, terminal};
use benchmesh_answers::report::{self, Report};

pub async fn findings(arguments: FindingsArguments) -> anyhow::Result<Outcome> {
    let report = match arguments.source.asked()? {
        Asked::Database(path) => from_file(&path, &arguments.run).await?,
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            client.report(&arguments.run).await?
        }
    };
    match arguments.format {
        FindingsFormat::Json => output::document(&report.findings)?,
        FindingsFormat::Text => output::result(&text(&report))?,
    }
    Ok(Outcome::Done)
}

/// The anomalies first, then the examined kinds without one.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(&terminal::clean(text));
        out.push('\n');
    };
    for heading in report::heading(report) {
        line(&heading);
    }
    let (found, judged): (Vec<_>, Vec<_>) = report.findings.iter().partition(|one| one.is_found());
    if found.is_empty() {
        line("");
        line("No anomalies found.");
    }
    for finding in found {
        line("");
        line(&format!(
            "{} {}: {}.",
            finding.severity, finding.kind, finding.sentence
        ));
        if let Some(sql) = &finding.sql {
            line(&format!("    {sql}"));
        }
    }
    if !judged.is_empty() {
        line("");
        line("Judged");
    }
    for finding in judged {
        line(&format!("  {}: {}.", finding.kind, finding.sentence));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::history::{History, wait};

    #[test]
    fn findings_with_their_sql() {
        let history = History::of_soak();
        insta::assert_snapshot!(text(&wait(from_file(&history.path(), "last")).unwrap()));
    }
}
