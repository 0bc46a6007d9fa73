//! The details of a load as keys of the workload `io`: caches, durability, order, pace, content and steady state.

use super::RemarkKind;
use super::job::Engine;
use super::job_file::JobOption;
use super::options::{Access, FioJob};
use super::values::{pattern, shown_size, shown_time, size};
use crate::toml_text::quoted;

impl FioJob<'_> {
    pub(super) fn caches(&mut self, reads: bool, engine: Engine) {
        let direct = self.take_flag("direct");
        let buffered = self
            .take_flag("buffered")
            .map(|(option, is_set)| (option, !is_set));
        let is_direct = direct.or(buffered);
        if let Some((option, true)) = &is_direct {
            if engine == Engine::Rbd {
                self.remark(option, RemarkKind::NoMeaning, "librbd's cache is off");
            } else {
                self.key("direct", "true", option);
            }
        }
        let goes_through_cache =
            reads && engine != Engine::Rbd && !is_direct.is_some_and(|(_, is_set)| is_set);
        const COLD: &str = "fio drops its file's cached pages before it starts; `cache = \"cold\"` drops the caches \
                            of the hosts";
        match self.take_flag("invalidate") {
            Some((option, true)) if goes_through_cache => {
                self.remark(&option, RemarkKind::Changed, COLD);
            }
            Some(_) => {}
            None if goes_through_cache => self.remark_job(RemarkKind::Changed, COLD),
            None => {}
        }
    }

    pub(super) fn durability(&mut self, access: Access) {
        let no_writes = "the job only reads";
        if let Some(option) = self.take("sync") {
            let word = match option.value.as_str() {
                "" | "1" | "sync" => Some("sync"),
                "dsync" => Some("dsync"),
                "0" | "none" => Some("none"),
                _ => None,
            };
            match (word, access.writes) {
                (Some("none"), _) => {}
                (None, _) => self.remark(
                    &option,
                    RemarkKind::LeftOut,
                    "a plan has `none`, `sync` and `dsync`",
                ),
                (Some(_), false) => self.remark(&option, RemarkKind::NoMeaning, no_writes),
                (Some(word), true) => self.key("sync", quoted(word), &option),
            }
        }
        if let Some((option, count)) = self.take_number("fsync")
            && count > 0
        {
            match access.writes {
                true => self.key("fsync", count.to_string(), &option),
                false => self.remark(&option, RemarkKind::NoMeaning, no_writes),
            }
        }
        for name in ["end_fsync", "fsync_on_close"] {
            if let Some((option, true)) = self.take_flag(name) {
                let is_known = self.keys.iter().any(|key| key.name == "end_fsync");
                match access.writes {
                    false => self.remark(&option, RemarkKind::NoMeaning, no_writes),
                    true if is_known => {}
                    true => self.key("end_fsync", "true", &option),
                }
            }
        }
    }

    pub(super) fn randomness(&mut self, access: Access) {
        let is_mixed = access.reads && access.writes && ["rw", "randrw"].contains(&access.mode);
        for (name, is_write) in [("rwmixread", false), ("rwmixwrite", true)] {
            let Some((option, percent)) = self.take_number(name) else {
                continue;
            };
            let reads = match is_write {
                true => 100_u64.saturating_sub(percent),
                false => percent,
            };
            let is_known = self.keys.iter().any(|key| key.name == "rwmixread");
            match is_mixed {
                true if is_known => {}
                true => self.key("rwmixread", reads.to_string(), &option),
                false => self.remark(&option, RemarkKind::NoMeaning, "the job does not mix"),
            }
        }
        let sequential = "the job is sequential";
        if let Some(option) = self.take("random_distribution")
            && option.value != "random"
        {
            match (option.value.starts_with("zipf:"), access.is_random) {
                (_, false) => self.remark(&option, RemarkKind::NoMeaning, sequential),
                (true, true) => self.key("random_distribution", quoted(&option.value), &option),
                (false, true) => self.remark(
                    &option,
                    RemarkKind::LeftOut,
                    "a plan has `random` and `zipf:THETA`",
                ),
            }
        }
        if let Some((option, true)) = self.take_flag("norandommap") {
            match access.is_random {
                true => self.key("norandommap", "true", &option),
                false => self.remark(&option, RemarkKind::NoMeaning, sequential),
            }
        }
        if let Some((option, seed)) = self.take_number("randseed") {
            self.key("randseed", seed.to_string(), &option);
        }
    }

    pub(super) fn rates(&mut self, access: Access) {
        for name in ["rate", "rate_iops"] {
            let paced = self.rate(name, access);
            if let Some((option, rate)) = paced.filter(|(_, rate)| *rate > 0) {
                match name {
                    "rate" => self.key("rate", quoted(&shown_size(rate)), &option),
                    _ => self.key("rate_iops", rate.to_string(), &option),
                }
            }
        }
        if let Some(option) = self.take("rate_process") {
            self.key("rate_process", quoted(&option.value), &option);
        }
    }

    /// The rate of the job's direction. fio paces reads and writes each, a plan both together: the sum, if as many are
    /// read as written. An empty part of `500k,` is a direction without a limit.
    fn rate(&mut self, name: &str, access: Access) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        let mut parts = option.value.split(',').map(str::trim);
        let read = parts.next().unwrap_or_default();
        let write = parts.next().unwrap_or(read);
        let limit = |part: &str| match part {
            "" => Some(0),
            part => size(part, self.kb_base),
        };
        let mix = self.keys.iter().find(|key| key.name == "rwmixread");
        let is_even = mix.is_none_or(|key| key.value == "50");
        let (kind, why, rate) = match (access.reads, access.writes, limit(read), limit(write)) {
            (true, true, Some(0), Some(0)) => return None,
            (true, true, Some(read @ 1..), Some(write @ 1..))
                if is_even && read.checked_add(write).is_some() =>
            {
                (
                    RemarkKind::Changed,
                    "fio paces reads and writes each, a plan both together: the sum",
                    read.checked_add(write),
                )
            }
            (true, true, _, _) => (
                RemarkKind::LeftOut,
                "fio paces reads and writes each, a plan both together",
                None,
            ),
            (true, false, Some(0), Some(1..)) | (false, true, Some(1..), Some(0)) => (
                RemarkKind::NoMeaning,
                "it paces the direction that the job does not have",
                None,
            ),
            (true, _, Some(rate), _) | (false, _, _, Some(rate)) => return Some((option, rate)),
            _ => (RemarkKind::LeftOut, "it is not one rate", None),
        };
        self.remark(&option, kind, why);
        Some((option, rate?))
    }

    /// What is written. fio prefers shares to a pattern, and a pattern to zeros.
    pub(super) fn content(&mut self) {
        let zero = self.take_flag("zero_buffers").filter(|(_, is_set)| *is_set);
        let repeated = self.take("buffer_pattern");
        let is_share = |(_, share): &(JobOption, u64)| *share > 0;
        let compress = self.take_number("buffer_compress_percentage");
        let compress = compress.filter(is_share);
        let dedupe = self.take_number("dedupe_percentage").filter(is_share);
        let zero = zero.map(|(option, _)| option);
        let unused = if let Some((option, _)) = compress.as_ref().or(dedupe.as_ref()) {
            let percent =
                |of: &Option<(JobOption, u64)>| of.as_ref().map_or(0, |(_, share)| *share);
            let value = format!(
                "{{ compress = {}, dedupe = {} }}",
                percent(&compress),
                percent(&dedupe)
            );
            self.key("data", value, option);
            [repeated, zero]
        } else if let Some(option) = repeated {
            match pattern(&option.value) {
                Some(bytes) => {
                    let value = format!("{{ pattern = {} }}", quoted(&bytes));
                    self.key("data", value, &option);
                }
                None => self.remark(
                    &option,
                    RemarkKind::LeftOut,
                    "a plan repeats 1, 2, 4 or 8 bytes, such as \"0x55\"",
                ),
            }
            [zero, None]
        } else {
            if let Some(option) = zero {
                self.key("data", "\"zero\"", &option);
            }
            [None, None]
        };
        for option in unused.into_iter().flatten() {
            self.remark(
                &option,
                RemarkKind::LeftOut,
                "a plan has one kind of content, and another option of the job says it",
            );
        }
    }

    pub(super) fn steadiness(&mut self) {
        let criterion = self.take("steadystate");
        let lasting = self.take_time("steadystate_duration");
        let ramp = self.take_time("steadystate_ramp_time");
        let Some(option) = criterion else {
            for (option, _) in [lasting, ramp].into_iter().flatten() {
                self.remark(&option, RemarkKind::NoMeaning, "there is no steadystate");
            }
            return;
        };
        self.key("until", "\"steady\"", &option);
        self.key("ss", quoted(&option.value), &option);
        if let Some((option, time)) = lasting {
            self.key("ss_dur", quoted(&shown_time(time)), &option);
        }
        if let Some((option, time)) = ramp.filter(|(_, time)| *time > 0) {
            self.key("ss_ramp", quoted(&shown_time(time)), &option);
        }
    }
}
