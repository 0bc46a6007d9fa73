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
                "" | "1" | "sync" => "sync",
                "dsync" => "dsync",
                _ => "none",
            };
            match (word, access.writes) {
                ("none", _) => {}
                (_, false) => self.remark(&option, RemarkKind::NoMeaning, no_writes),
                (word, true) => self.key("sync", quoted(word), &option),
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

    pub(super) fn pace(&mut self, access: Access) {
        for name in ["rate", "rate_iops"] {
            let paced = match access.reads && access.writes {
                true => self.rate_of_both(name),
                false => self.take_size(name, access),
            };
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

    /// fio paces reads and writes each, a plan both together: the sum, if as many are read as written.
    pub(super) fn rate_of_both(&mut self, name: &str) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        let mut parts = option.value.split(',').map(str::trim);
        let read = parts.next().unwrap_or_default();
        let write = parts.next().filter(|part| !part.is_empty()).unwrap_or(read);
        let rates = size(read, self.kb_base).zip(size(write, self.kb_base));
        let mix = self.keys.iter().find(|key| key.name == "rwmixread");
        let is_even = mix.is_none_or(|key| key.value == "50");
        match rates.and_then(|(read, write)| read.checked_add(write)) {
            Some(sum) if is_even => {
                let why = "fio paces reads and writes each, a plan both together: the sum";
                self.remark(&option, RemarkKind::Changed, why);
                Some((option, sum))
            }
            _ => {
                let why = "fio paces reads and writes each, a plan both together";
                self.remark(&option, RemarkKind::LeftOut, why);
                None
            }
        }
    }

    /// What is written.
    pub(super) fn content(&mut self) {
        let zero = self.take_flag("zero_buffers");
        let repeated = self.take("buffer_pattern");
        let compress = self.take_number("buffer_compress_percentage");
        let dedupe = self.take_number("dedupe_percentage");
        if let Some((option, true)) = zero {
            self.key("data", "\"zero\"", &option);
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
        } else if let Some((option, _)) = compress.as_ref().or(dedupe.as_ref()).cloned() {
            let percent =
                |of: &Option<(JobOption, u64)>| of.as_ref().map_or(0, |(_, share)| *share);
            let value = format!(
                "{{ compress = {}, dedupe = {} }}",
                percent(&compress),
                percent(&dedupe)
            );
            self.key("data", value, &option);
        }
    }

    pub(super) fn steadiness(&mut self) {
        let criterion = self.take("steadystate");
        let lasting = self.take_time("steadystate_duration");
        let ramp = self.take_time("steadystate_ramp_time");
        let Some(option) = criterion else { return };
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
