//! The lines of a job file: sections, includes, comments and variables, as fio reads them.
//!
//! `[global]` changes the defaults of all jobs after it, and may come again. An included file continues the section
//! that includes it and has none of its own. Text from `;` or `#` on is a comment.

use super::{JobContext, JobError, JobErrors, JobLine, Remark, RemarkKind};
use benchmesh_model::fio::fio_option;
use std::path::{Path, PathBuf};

/// Files within files, as deep as fio's.
const MAX_DEPTH: usize = 16;
/// Included files altogether.
const MAX_FILES: usize = 256;
const MAX_JOBS: usize = 1000;
/// Mistakes that are listed.
const MAX_ERRORS: usize = 100;

/// The jobs of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub jobs: Vec<JobSection>,
    pub remarks: Vec<Remark>,
}

/// A job with the options that apply to it, each once.
#[derive(Clone, Debug)]
pub(super) struct JobSection {
    pub name: String,
    pub line: JobLine,
    pub options: Vec<JobOption>,
}

/// An option of a job.
#[derive(Clone, Debug)]
pub(super) struct JobOption {
    /// As fio's reference spells it.
    pub name: String,
    pub value: String,
    /// As the file has it.
    pub written: String,
    pub line: JobLine,
    /// It is in the job's own section.
    pub is_own: bool,
}

/// Reads the whole file.
pub(super) fn read(
    text: &str,
    file: &str,
    context: &JobContext<'_>,
) -> Result<Sections, JobErrors> {
    let mut reader = JobReader {
        context,
        sections: Sections::default(),
        defaults: Vec::new(),
        place: None,
        files: 0,
        errors: Vec::new(),
    };
    reader.file(text, file, 0);
    if reader.errors.is_empty() && reader.sections.jobs.is_empty() {
        reader.errors.push(JobError {
            line: None,
            reason: format!("{file}: there is no job"),
            remedy: String::from("a job is a section, such as [job1], with rw=, bs= and size="),
        });
    }
    let variables = Variables {
        cpus: context.cpus,
        page_bytes: context.page_bytes,
        memory_bytes: context.memory_bytes,
    };
    let mut sections = reader.sections;
    for job in &mut sections.jobs {
        for option in &mut job.options {
            variables.replace(&job.name, option, &mut sections.remarks);
        }
    }
    match reader.errors.is_empty() {
        true => Ok(sections),
        false => Err(JobErrors(reader.errors)),
    }
}

/// Where options go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Global,
    /// The last job.
    Job,
}

struct JobReader<'a> {
    context: &'a JobContext<'a>,
    sections: Sections,
    defaults: Vec<JobOption>,
    /// `None` before the first section.
    place: Option<Section>,
    /// Files read so far.
    files: usize,
    errors: Vec<JobError>,
}

impl JobReader<'_> {
    fn refuse(&mut self, line: &JobLine, reason: impl Into<String>, remedy: &str) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(JobError {
                line: Some(line.clone()),
                reason: reason.into(),
                remedy: remedy.to_owned(),
            });
        }
    }

    fn file(&mut self, text: &str, file: &str, depth: usize) {
        let order = self.files;
        self.files += 1;
        for (at, whole) in text.lines().enumerate() {
            let line = JobLine {
                order,
                line: at + 1,
                file: file.to_owned(),
            };
            let content = whole.split([';', '#']).next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            if let Some(header) = content.strip_prefix('[') {
                self.section(header, &line, depth);
                continue;
            }
            let include = content.strip_prefix("include");
            let include = include.filter(|rest| rest.starts_with([' ', '\t']));
            match include {
                Some(name) => self.include(name.trim(), file, &line, depth),
                None => self.option(content, &line),
            }
        }
    }

    fn section(&mut self, header: &str, line: &JobLine, depth: usize) {
        let Some((name, _)) = header.split_once(']') else {
            self.refuse(line, "the section has no closing bracket", "write [NAME]");
            return;
        };
        let name = name.trim();
        if depth > 0 {
            self.refuse(
                line,
                format!(
                    "[{name}] is in an included file, which continues the section that includes it"
                ),
                "move the section to the job file",
            );
            return;
        }
        if name.is_empty() {
            self.refuse(line, "the section has no name", "write [NAME]");
            return;
        }
        if name.eq_ignore_ascii_case("global") {
            self.place = Some(Section::Global);
            return;
        }
        if self.sections.jobs.len() >= MAX_JOBS {
            self.refuse(
                line,
                format!("there are more than {MAX_JOBS} jobs"),
                "split the file",
            );
            return;
        }
        self.place = Some(Section::Job);
        self.sections.jobs.push(JobSection {
            name: name.to_owned(),
            line: line.clone(),
            options: self.defaults.clone(),
        });
    }

    fn include(&mut self, name: &str, file: &str, line: &JobLine, depth: usize) {
        if depth >= MAX_DEPTH || self.files >= MAX_FILES {
            let reason = match depth >= MAX_DEPTH {
                true => format!("`{name}` is included {MAX_DEPTH} files deep"),
                false => format!("there are more than {MAX_FILES} included files"),
            };
            self.refuse(line, reason, "does a file include itself?");
            return;
        }
        let Some(name) = self.expanded(name, line) else {
            return;
        };
        let directory = Path::new(file).parent().unwrap_or_else(|| Path::new(""));
        let path: PathBuf = directory.join(&name);
        match (self.context.read)(&path) {
            Ok(text) => self.file(&text, &path.display().to_string(), depth + 1),
            Err(why) => self.refuse(
                line,
                format!("`{}` cannot be included: {why}", path.display()),
                "a relative name is relative to the file that includes it",
            ),
        }
    }

    fn option(&mut self, content: &str, line: &JobLine) {
        let (name, value) = content.split_once('=').unwrap_or((content, ""));
        let name = name.trim().to_ascii_lowercase();
        let Some(value) = self.expanded(value.trim(), line) else {
            return;
        };
        let known = fio_option(&name).map(|option| option.name.to_owned());
        let option = JobOption {
            name: known.unwrap_or(name),
            value,
            written: content.to_owned(),
            line: line.clone(),
            is_own: self.place == Some(Section::Job),
        };
        let into = match (self.place, self.sections.jobs.last_mut()) {
            (Some(Section::Global), _) => &mut self.defaults,
            (Some(Section::Job), Some(job)) => &mut job.options,
            _ => {
                self.sections.remarks.push(Remark {
                    line: line.clone(),
                    what: content.to_owned(),
                    kind: RemarkKind::NoMeaning,
                    why: String::from("it is before the first section, where fio reads nothing"),
                });
                return;
            }
        };
        // The last one counts.
        into.retain(|known| known.name != option.name);
        into.push(option);
    }

    /// Replaces `${NAME}` by the environment's value. `None` if one is not set.
    fn expanded(&mut self, text: &str, line: &JobLine) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                self.refuse(
                    line,
                    format!("`{text}` has ${{ without }}"),
                    "write ${NAME}",
                );
                return None;
            };
            let Some(value) = (self.context.variable)(name) else {
                self.refuse(
                    line,
                    format!("the environment variable `{name}` is not set"),
                    &format!("set it: {name}=VALUE benchmesh plan from-fio ..."),
                );
                return None;
            };
            out.push_str(&value);
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }
}

/// The words that fio replaces in values.
struct Variables {
    cpus: u64,
    page_bytes: u64,
    memory_bytes: u64,
}

impl Variables {
    fn replace(&self, job: &str, option: &mut JobOption, remarks: &mut Vec<Remark>) {
        if !option.value.contains('$') {
            return;
        }
        let mut value = option.value.replace("$jobname", job);
        let numbers = [
            (
                "$ncpus",
                self.cpus,
                "the CPUs of this machine; those of the clients may differ",
            ),
            (
                "$pagesize",
                self.page_bytes,
                "the page size of this machine",
            ),
            (
                "$mb_memory",
                self.memory_bytes >> 20,
                "the memory of this machine; size = \"2 x ram\" in a plan is that of the clients",
            ),
        ];
        let mut has_number = false;
        for (word, number, why) in numbers {
            if value.contains(word) {
                value = value.replace(word, &number.to_string());
                has_number = true;
                remarks.push(Remark {
                    line: option.line.clone(),
                    what: option.written.clone(),
                    kind: RemarkKind::Changed,
                    why: format!("{word} is {number}: {why}"),
                });
            }
        }
        if has_number && let Some(result) = calculated(&value) {
            value = result.to_string();
        }
        option.value = value;
    }
}

/// The result of whole numbers with `*`, `/`, `+` and `-` between them, from left to right.
fn calculated(text: &str) -> Option<u64> {
    let end = |text: &str| {
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let first = end(text.trim());
    let (number, mut rest) = text.trim().split_at(first);
    let mut sum: u64 = number.parse().ok()?;
    while !rest.trim().is_empty() {
        rest = rest.trim_start();
        let (operator, after) = rest.split_at_checked(1)?;
        let after = after.trim_start();
        let (number, after) = after.split_at(end(after));
        let number: u64 = number.parse().ok()?;
        sum = match operator {
            "*" => sum.checked_mul(number)?,
            "/" => sum.checked_div(number)?,
            "+" => sum.checked_add(number)?,
            "-" => sum.checked_sub(number)?,
            _ => return None,
        };
        rest = after;
    }
    Some(sum)
}
