//! `benchmesh doctor`: checks whether this host can run an agent.

use super::agent;
use crate::args::ListFormat;
use crate::args::daemons::DoctorArguments;
use crate::failure::Outcome;
use crate::output;
use anyhow::Context;
use benchmesh_agent::doctor::{self, DoctorVerdict, Finding};
use std::fmt::Write;

/// Width of the columns before the findings.
const CHECK_WIDTH: usize = 15;

pub async fn doctor(arguments: DoctorArguments, insecure: bool) -> anyhow::Result<Outcome> {
    let config = agent::checked(arguments.agent, insecure)?;
    let looked = config.clone();
    let host = tokio::task::spawn_blocking(move || doctor::examine_host(&looked));
    let mut findings = host.await.context("check this host")?;
    findings.extend(doctor::examine_collector(&config).await);
    match arguments.format {
        ListFormat::Table => output::result(&lines(&findings))?,
        ListFormat::Json => {
            let text = serde_json::to_string_pretty(&document(&findings));
            output::result(&format!("{}\n", text.context("write JSON")?))?;
        }
    }
    match worst(&findings) {
        DoctorVerdict::Fail => Ok(Outcome::Unfit),
        DoctorVerdict::Ok | DoctorVerdict::Warn => Ok(Outcome::Done),
    }
}

fn worst(findings: &[Finding]) -> DoctorVerdict {
    let verdicts = findings.iter().map(|finding| finding.verdict);
    verdicts.max().unwrap_or(DoctorVerdict::Ok)
}

fn document(findings: &[Finding]) -> serde_json::Value {
    serde_json::json!({ "verdict": worst(findings), "findings": findings })
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let verdict = match finding.verdict {
            DoctorVerdict::Ok => "ok",
            DoctorVerdict::Warn => "warn",
            DoctorVerdict::Fail => "FAIL",
        };
        let check = finding.check;
        let _ = write!(text, "{verdict:<5} {check:<CHECK_WIDTH$} {}", finding.found);
        if let Some(remedy) = &finding.remedy {
            let _ = write!(text, " -> {remedy}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: DoctorVerdict, remedy: Option<&str>) -> Finding {
        Finding {
            check: "clock",
            verdict,
            found: "is late".to_owned(),
            remedy: remedy.map(str::to_owned),
        }
    }

    #[test]
    fn one_line_each_and_the_worst_counts() {
        let findings = [
            finding(DoctorVerdict::Ok, None),
            finding(DoctorVerdict::Warn, Some("wind it")),
        ];
        assert_eq!(
            lines(&findings),
            "ok    clock           is late\nwarn  clock           is late -> wind it\n"
        );
        assert_eq!(worst(&findings), DoctorVerdict::Warn);
        assert_eq!(worst(&[]), DoctorVerdict::Ok);
        assert_eq!(document(&findings).get("verdict"), Some(&"warn".into()));
    }
}
