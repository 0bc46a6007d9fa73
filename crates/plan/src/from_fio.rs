//! A fio job file as a plan. What a plan has no word for is named with its line, never dropped silently.
//!
//! Pure: the caller reads files and the environment. `job_file` reads the lines, `values` fio's numbers, `job` turns
//! one job into a phase, and this module makes the plan of them. The plan is parsed as any other before it is returned;
//! a key that the workload refuses is left out and named.

mod io_details;
mod io_load;
mod job;
mod job_file;
mod options;
mod place;
mod values;

use super::one_workload::{free_name, short_name};
use super::toml_text::quoted;
use benchmesh_model::targets::Locator;
use job::{FioPhase, Order};
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

/// Maximum number of keys and phases that are left out because the workload refuses them.
const MAX_REFUSED: usize = 1000;
/// Stands for a directory that the job file does not name.
const SOMEWHERE: &str = "/mnt/storage";

/// What a job file refers to outside of itself.
pub struct JobContext<'a> {
    /// The text of an included file.
    pub read: &'a dyn Fn(&Path) -> Result<String, String>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub cpus: u64,
    pub page_bytes: u64,
    pub memory_bytes: u64,
}

impl fmt::Debug for JobContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("JobContext");
        shown.field("cpus", &self.cpus);
        shown.field("page_bytes", &self.page_bytes);
        shown.field("memory_bytes", &self.memory_bytes);
        shown.finish_non_exhaustive()
    }
}

/// A plan made of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The plan's text. `parse` accepts it.
    pub plan: String,
    /// In the order of the job file.
    pub remarks: Vec<Remark>,
}

impl Converted {
    /// Whether something of the job file is not in the plan.
    pub fn is_partial(&self) -> bool {
        let mut remarks = self.remarks.iter();
        remarks.any(|remark| remark.kind == RemarkKind::LeftOut)
    }
}

/// A difference between a job file and its plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    pub line: JobLine,
    /// The option as written, or the section's header.
    pub what: String,
    pub kind: RemarkKind,
    pub why: String,
}

/// A line of the job file or of a file that it includes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobLine {
    /// The number of the file, in the order in which they are read.
    pub order: usize,
    pub line: usize,
    pub file: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemarkKind {
    /// The plan has no word for it.
    LeftOut,
    /// The plan says it in another way.
    Changed,
    /// It says nothing about the load.
    NoMeaning,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RemarkKind::LeftOut => "left out",
            RemarkKind::Changed => "changed",
            RemarkKind::NoMeaning => "not needed",
        };
        let JobLine { file, line, .. } = &self.line;
        write!(f, "{file}:{line}: {kind}: {}", self.what)?;
        if !self.why.is_empty() {
            write!(f, " ({})", self.why)?;
        }
        Ok(())
    }
}

/// Why a job file cannot be converted: all of its mistakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct JobErrors(pub Vec<JobError>);

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// `None` if it concerns the file as a whole.
    pub line: Option<JobLine>,
    pub reason: String,
    /// Empty if there is none.
    pub remedy: String,
}

impl fmt::Display for JobErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            if let Some(JobLine { file, line, .. }) = &error.line {
                write!(f, "{file}:{line}: ")?;
            }
            f.write_str(&error.reason)?;
            if !error.remedy.is_empty() {
                write!(f, "\n  help: {}", error.remedy)?;
            }
        }
        Ok(())
    }
}

/// The plan of a job file. `file` is its name for messages, relative to which it includes others.
///
/// # Errors
/// If the file cannot be read as fio reads it, or nothing in it can be measured.
pub fn from_fio(text: &str, file: &str, context: &JobContext<'_>) -> Result<Converted, JobErrors> {
    let sections = job_file::read(text, file, context)?;
    let mut remarks = sections.remarks;
    let mut phases: Vec<FioPhase> = Vec::new();
    for section in &sections.jobs {
        let made = job::phase(section, &mut remarks);
        let at_once = made.as_ref().filter(|one| one.order == Order::AtOnce);
        if let Some((made, last)) = at_once.zip(phases.last_mut()) {
            if last.merge(made) {
                remarks.push(Remark {
                    line: section.line.clone(),
                    what: format!("[{}]", section.name),
                    kind: RemarkKind::Changed,
                    why: format!(
                        "the same load as [{}] at the same time: more of its `numjobs`",
                        last.job
                    ),
                });
                continue;
            }
            remarks.push(Remark {
                line: section.line.clone(),
                what: format!("[{}] at the same time as the job before it", section.name),
                kind: RemarkKind::LeftOut,
                why: String::from(
                    "the phases run one after the other; to run them at once on different agents, make them groups \
                     of one phase, docs/plan.md",
                ),
            });
        }
        phases.extend(made);
    }
    let plan = valid_plan(file, &mut phases, &mut remarks)?;
    remarks.sort();
    remarks.dedup();
    let plan = with_remarks(file, &phases, &remarks, &plan);
    Ok(Converted { plan, remarks })
}

/// Writes the plan, and takes out what its parser refuses until it accepts the rest.
fn valid_plan(
    file: &str,
    phases: &mut Vec<FioPhase>,
    remarks: &mut Vec<Remark>,
) -> Result<Vec<String>, JobErrors> {
    for _ in 0..MAX_REFUSED {
        if phases.is_empty() {
            remarks.sort();
            remarks.dedup();
            let reasons: Vec<String> = (remarks.iter())
                .filter(|remark| remark.kind == RemarkKind::LeftOut)
                .map(|remark| format!("\n  {remark}"))
                .collect();
            return Err(JobErrors(vec![JobError {
                line: None,
                reason: format!("{file}: no job of it can be measured{}", reasons.concat()),
                remedy: String::from("write a plan: docs/plan.md, plans/examples"),
            }]));
        }
        let parts = parts(file, phases);
        let Err(errors) = crate::parse(&parts.concat(), file) else {
            return Ok(parts);
        };
        // The first mistake may be the cause of the others.
        let Some(error) = errors.errors.into_iter().next() else {
            break;
        };
        let mut path = error.key.split('.');
        let number = path.next().filter(|first| *first == "phase");
        let number = number.and_then(|_| path.next()?.parse::<usize>().ok());
        let Some(phase) = number.and_then(|number| phases.get_mut(number.checked_sub(1)?)) else {
            return Err(JobErrors(vec![JobError {
                line: None,
                reason: format!("{file}: the plan made of it is not valid: {}", error.reason),
                remedy: error.remedy,
            }]));
        };
        let why = match error.remedy.is_empty() {
            true => error.reason,
            false => format!("{}; {}", error.reason, error.remedy),
        };
        let key = path.next().unwrap_or_default();
        match phase.take(key) {
            Some((line, what)) => remarks.push(Remark {
                line,
                what,
                kind: RemarkKind::LeftOut,
                why,
            }),
            None => {
                let phase = phases.remove(number.unwrap_or(1).saturating_sub(1));
                remarks.push(Remark {
                    line: phase.line,
                    what: format!("[{}]", phase.job),
                    kind: RemarkKind::LeftOut,
                    why,
                });
            }
        }
    }
    Err(JobErrors(vec![JobError {
        line: None,
        reason: format!("{file}: the plan made of it is not valid"),
        remedy: String::new(),
    }]))
}

/// The text of the plan: its head with the targets, then one text for each phase.
fn parts(file: &str, phases: &[FioPhase]) -> Vec<String> {
    let mut targets: Vec<(&Locator, String)> = Vec::new();
    let mut taken = BTreeSet::new();
    let mut names = BTreeSet::new();
    for phase in phases {
        if !targets.iter().any(|(known, _)| **known == phase.target) {
            targets.push((
                &phase.target,
                free_name(&short_name(&phase.target), &mut taken),
            ));
        }
    }
    let stem = Path::new(file).file_stem();
    let stem = stem.map_or_else(|| String::from("fio"), |stem| stem.to_string_lossy().into());
    let mut head = format!("name = {}\n", quoted(&stem));
    for (target, name) in &targets {
        let _ = write!(
            head,
            "\n[targets.{}]\nsystem = {}\n{} = {}\n",
            quoted(name),
            quoted(name),
            target.key.name,
            quoted(target.name())
        );
        for part in target.key.parts {
            if let Some(value) = target.part(part) {
                let _ = writeln!(head, "{} = {}", part.name, quoted(value));
            }
        }
    }
    let mut parts = vec![head];
    for phase in phases {
        let mut text = String::from("[[phase]]\n");
        let name = free_name(&phase.name, &mut names);
        let _ = writeln!(text, "name = {}", quoted(&name));
        if targets.len() > 1 {
            let own = targets.iter().find(|(known, _)| **known == phase.target);
            let own = own.map_or("", |(_, name)| name.as_str());
            let _ = writeln!(text, "targets = [{}]", quoted(own));
        }
        for key in &phase.keys {
            let _ = writeln!(text, "{} = {}", key.name, key.value);
        }
        parts.push(text);
    }
    parts
}

/// The plan with each remark as a comment: at its phase, or at the top if it concerns several.
fn with_remarks(file: &str, phases: &[FioPhase], remarks: &[Remark], parts: &[String]) -> String {
    let of = |remark: &Remark, phase: &FioPhase| {
        remark.line == phase.line || phase.own_lines.contains(&remark.line)
    };
    let mut text = format!(
        "# Made of {} by `benchmesh plan from-fio`.\n",
        one_line(file)
    );
    let is_common = |remark: &&Remark| !phases.iter().any(|phase| of(remark, phase));
    for remark in remarks.iter().filter(is_common) {
        let _ = writeln!(text, "# {}", comment(remark));
    }
    let mut parts = parts.iter();
    text.push('\n');
    text.push_str(parts.next().map_or("", String::as_str));
    for (phase, part) in phases.iter().zip(parts) {
        text.push('\n');
        if let Some(description) = &phase.description {
            let _ = writeln!(text, "# {}", one_line(description));
        }
        for remark in remarks.iter().filter(|remark| of(remark, phase)) {
            let _ = writeln!(text, "# {}", comment(remark));
        }
        text.push_str(part);
    }
    text
}

/// The remark, without the directory of its file.
fn comment(remark: &Remark) -> String {
    let mut remark = remark.clone();
    if let Some(name) = Path::new(&remark.line.file).file_name() {
        remark.line.file = name.to_string_lossy().into_owned();
    }
    one_line(&remark.to_string())
}

/// Text of others within a comment.
fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests;
