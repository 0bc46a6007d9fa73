//! The options of a job while it is converted: each is taken once, and becomes a key of the phase or a remark.

use super::job::PhaseKey;
use super::job_file::{JobOption, JobSection};
use super::values::{flag, micros, size};
use super::{Remark, RemarkKind};

/// What a job does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub mode: &'static str,
    pub is_random: bool,
    pub reads: bool,
    pub writes: bool,
}

pub(super) struct FioJob<'j> {
    pub section: &'j JobSection,
    /// Those that nothing has taken yet.
    pub options: Vec<JobOption>,
    pub kb_base: u64,
    pub keys: Vec<PhaseKey>,
    pub remarks: &'j mut Vec<Remark>,
}

impl FioJob<'_> {
    pub(super) fn take(&mut self, name: &str) -> Option<JobOption> {
        let at = self.options.iter().position(|option| option.name == name)?;
        Some(self.options.remove(at))
    }

    /// Takes a flag; false if it is not there.
    pub(super) fn take_flag(&mut self, name: &str) -> Option<(JobOption, bool)> {
        let option = self.take(name)?;
        match flag(&option.value) {
            Some(is_set) => Some((option, is_set)),
            None => {
                self.remark(&option, RemarkKind::LeftOut, "it is not a flag");
                None
            }
        }
    }

    /// Takes a whole number.
    pub(super) fn take_number(&mut self, name: &str) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        match size(&option.value, self.kb_base) {
            Some(number) => Some((option, number)),
            None => {
                self.remark(&option, RemarkKind::LeftOut, "it is not one whole number");
                None
            }
        }
    }

    /// Takes a size; with several, the one of the job's direction.
    pub(super) fn take_size(&mut self, name: &str, access: Access) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        match self.of_direction(&option, access) {
            Some(text) => match size(&text, self.kb_base) {
                Some(bytes) => Some((option, bytes)),
                None => {
                    self.remark(&option, RemarkKind::LeftOut, "it is not one size");
                    None
                }
            },
            None => None,
        }
    }

    pub(super) fn take_time(&mut self, name: &str) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        match micros(&option.value) {
            Some(time) => Some((option, time)),
            None => {
                self.remark(&option, RemarkKind::LeftOut, "it is not a time");
                None
            }
        }
    }

    /// `4k,64k`: for reads and for writes. An empty part says nothing of its direction.
    pub(super) fn of_direction(&mut self, option: &JobOption, access: Access) -> Option<String> {
        let mut parts = option.value.split(',').map(str::trim);
        let read = parts.next().unwrap_or_default();
        let write = parts.next().unwrap_or(read);
        let text = match (access.reads, access.writes) {
            (true, true) if read != write => {
                self.remark(
                    option,
                    RemarkKind::LeftOut,
                    "a plan has one value for reads and writes",
                );
                return None;
            }
            (true, _) => read,
            (false, _) => write,
        };
        Some(text.to_owned())
    }

    pub(super) fn key(&mut self, name: &'static str, value: impl Into<String>, option: &JobOption) {
        self.keys.push(PhaseKey {
            name,
            value: value.into(),
            from: (option.line.clone(), option.written.clone()),
        });
    }

    /// A key that no option says.
    pub(super) fn own_key(&mut self, name: &'static str, value: impl Into<String>) {
        let header = format!("[{}]", self.section.name);
        self.keys.push(PhaseKey {
            name,
            value: value.into(),
            from: (self.section.line.clone(), header),
        });
    }

    pub(super) fn remark(&mut self, option: &JobOption, kind: RemarkKind, why: &str) {
        self.remarks.push(Remark {
            line: option.line.clone(),
            what: option.written.clone(),
            kind,
            why: why.to_owned(),
        });
    }

    pub(super) fn remark_job(&mut self, kind: RemarkKind, why: &str) {
        self.remarks.push(Remark {
            line: self.section.line.clone(),
            what: format!("[{}]", self.section.name),
            kind,
            why: why.to_owned(),
        });
    }
}
