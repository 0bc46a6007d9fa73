//! The load of a job as the workload `io`: its mode, blocks, amounts and workers.

use super::RemarkKind;
use super::job::Engine;
use super::job_file::JobOption;
use super::options::{Access, FioJob};
use super::values::{shown_size, shown_time, size};
use crate::toml_text::{array, quoted};
use benchmesh_model::targets::Locator;

/// The size where a job has none: fio then takes that of the file or device.
const ASSUMED_SIZE: u64 = 1 << 30;

const ONLY_TIME: &str = "with time_based, only the runtime ends the job";

impl FioJob<'_> {
    /// The workload `io`, and its target.
    pub(super) fn load(&mut self, engine: Engine) -> Option<Locator> {
        let access = self.access()?;
        self.own_key("workload", "\"io\"");
        let mut modes = vec![access.mode];
        self.verification(access, &mut modes);
        self.own_key("modes", array(&modes));
        let reads_back = modes.len() > 1;
        self.blocks(access);
        self.amounts(access);
        let (target, is_shared) = match engine {
            Engine::Rbd => (self.pool(), false),
            _ => self.place_of_files(),
        };
        self.workers(is_shared, access);
        self.depth(engine);
        let reads = access.reads || reads_back;
        self.caches(reads, engine);
        self.durability(access);
        self.randomness(access);
        self.rates(access);
        self.content();
        self.steadiness();
        Some(target)
    }

    pub(super) fn access(&mut self) -> Option<Access> {
        let option = self.take("rw");
        let text = option
            .as_ref()
            .map_or("read", |option| option.value.as_str());
        let (mode, shift) = match text.split_once(':') {
            Some((mode, shift)) => (mode.trim().to_owned(), Some(shift.trim().to_owned())),
            None => (text.trim().to_owned(), None),
        };
        let (mode, is_random, reads, writes) = match mode.as_str() {
            "read" => ("read", false, true, false),
            "write" => ("write", false, false, true),
            "randread" => ("randread", true, true, false),
            "randwrite" => ("randwrite", true, false, true),
            "rw" | "readwrite" => ("rw", false, true, true),
            "randrw" => ("randrw", true, true, true),
            other => {
                let why = format!("the whole job: benchmesh has no `{other}`");
                match &option {
                    Some(option) => self.remark(option, RemarkKind::LeftOut, &why),
                    None => self.remark_job(RemarkKind::LeftOut, &why),
                }
                return None;
            }
        };
        let mut access = Access {
            mode,
            is_random,
            reads,
            writes,
        };
        if let (Some(option), Some(shift)) = (&option, shift) {
            // After each block of `bs`, two blocks back: the file backwards.
            let block = self.options.iter().find(|option| option.name == "bs");
            let block = block.map_or(Some(4096), |option| size(&option.value, self.kb_base));
            let back = shift
                .strip_prefix('-')
                .and_then(|back| size(back, self.kb_base));
            if mode == "read" && back.is_some() && back == block.and_then(|bs| bs.checked_mul(2)) {
                access.mode = "backread";
            } else {
                self.remark(
                    option,
                    RemarkKind::LeftOut,
                    &format!("`:{shift}`: a plan has no word for it"),
                );
            }
        }
        let overwrites = self.take_flag("overwrite");
        if overwrites.is_some_and(|(_, is_set)| is_set) && access.mode == "write" {
            access.mode = "rewrite";
        }
        Some(access)
    }

    /// A job that writes with `verify` reads its data back, in a mode of its own.
    pub(super) fn verification(&mut self, access: Access, modes: &mut Vec<&'static str>) {
        let Some(option) = self.take("verify") else {
            return;
        };
        if ["0", "none"].contains(&option.value.as_str()) {
            return;
        }
        let read_back = self.take_flag("do_verify");
        if access.reads {
            match read_back {
                Some((option, true)) if access.writes => self.remark(
                    &option,
                    RemarkKind::LeftOut,
                    "a load that mixes compares what it reads, and reads nothing back afterwards",
                ),
                Some((option, _)) => self.remark(
                    &option,
                    RemarkKind::NoMeaning,
                    "a load that reads compares what it reads",
                ),
                None => {}
            }
        } else {
            if read_back.is_some_and(|(_, is_set)| !is_set) {
                self.remark(
                    &option,
                    RemarkKind::LeftOut,
                    "nothing reads the data before they are removed with the phase",
                );
                return;
            }
            modes.push(if access.is_random { "randread" } else { "read" });
        }
        self.key("verify", "true", &option);
        if option.value != "1" {
            self.remark(
                &option,
                RemarkKind::Changed,
                "verify = true: every 4 KiB have their own content, which is compared bit by bit",
            );
        }
    }

    pub(super) fn blocks(&mut self, access: Access) {
        let mix = self.take("bssplit");
        let is_mixed = mix.is_some();
        if let Some(option) = mix
            && let Some(text) = self.of_direction(&option, access)
        {
            let sizes: Option<Vec<String>> = (text.split(':'))
                .map(|part| {
                    let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
                    let bytes = shown_size(size(bytes, self.kb_base)?);
                    Some(match percent {
                        "" => bytes,
                        percent => format!("{bytes}/{percent}"),
                    })
                })
                .collect();
            match sizes {
                Some(sizes) => self.key("bssplit", quoted(&sizes.join(":")), &option),
                None => self.remark(&option, RemarkKind::LeftOut, "it is not a list of sizes"),
            }
        }
        // A range of one size.
        let is_one = |option: &JobOption| {
            let ends = option.value.split_once('-');
            option.name == "bsrange" && ends.is_some_and(|(from, to)| from.trim() == to.trim())
        };
        if let Some(option) = self.options.iter_mut().find(|option| is_one(option)) {
            option.name = String::from("bs");
            option.value = option
                .value
                .split('-')
                .next()
                .unwrap_or_default()
                .to_owned();
        }
        if let Some((option, bytes)) = self.take_size("bs", access) {
            match is_mixed {
                true => self.remark(&option, RemarkKind::NoMeaning, "bssplit comes first"),
                false => self.key("bs", quoted(&shown_size(bytes)), &option),
            }
        }
    }

    /// How much data, and how long.
    pub(super) fn amounts(&mut self, access: Access) {
        if let Some((option, files)) = self.take_number("nrfiles")
            && files > 1
        {
            self.remark(
                &option,
                RemarkKind::LeftOut,
                "a worker has one file, of the whole size",
            );
        }
        let whole = self.take_size("size", access);
        let file = self.take_size("filesize", access);
        let beside = file
            .as_ref()
            .and_then(|(_, bytes)| whole.clone().filter(|(_, all)| all != bytes));
        let runtime = self.take_time("runtime").filter(|(_, time)| *time > 0);
        let timed = self.take_flag("time_based");
        let is_timed = runtime.is_some() && timed.as_ref().is_some_and(|(_, is_set)| *is_set);
        let mut amount = self.amount(beside, is_timed, access);
        match file.or(whole) {
            Some((option, bytes)) => {
                self.key("size", quoted(&shown_size(bytes)), &option);
            }
            None => {
                let bytes = amount.as_ref().map(|(_, bytes)| *bytes);
                self.own_key("size", quoted(&shown_size(bytes.unwrap_or(ASSUMED_SIZE))));
                if bytes.is_none() {
                    self.remark_job(
                        RemarkKind::LeftOut,
                        "it has no size of its own: fio takes that of the file or device, the plan has 1g",
                    );
                }
            }
        }
        if let Some((option, bytes)) = self.take_size("offset", access)
            && bytes > 0
        {
            self.key("offset", quoted(&shown_size(bytes)), &option);
        }
        let mut loops = self.take_number("loops");
        if is_timed {
            let ends = [amount.take(), loops.take()];
            for (option, _) in ends.into_iter().flatten() {
                self.remark(&option, RemarkKind::NoMeaning, ONLY_TIME);
            }
        }
        match (&runtime, timed) {
            (Some((option, time)), _) => {
                self.key("runtime", quoted(&shown_time(*time)), option);
                // Without time_based, the work ends the load too.
                if !is_timed && amount.is_none() && loops.is_none() {
                    self.key("loops", "1", option);
                }
            }
            (None, Some((option, true))) => {
                self.remark(&option, RemarkKind::NoMeaning, "there is no runtime");
            }
            (None, _) => {}
        }
        if let Some((option, loops)) = loops {
            self.key("loops", loops.to_string(), &option);
        }
        if let Some((option, bytes)) = amount {
            self.key("io_size", quoted(&shown_size(bytes)), &option);
        }
        if let Some((option, time)) = self.take_time("ramp_time")
            && time > 0
        {
            self.key("ramp_time", quoted(&shown_time(time)), &option);
        }
    }

    /// The amount of data that ends the job: that of `io_size`, otherwise of a `size` beside `filesize`, unless
    /// `number_ios` ends it earlier. The others are named.
    fn amount(
        &mut self,
        beside: Option<(JobOption, u64)>,
        is_timed: bool,
        access: Access,
    ) -> Option<(JobOption, u64)> {
        let remark =
            |job: &mut Self, option: &JobOption, kind: RemarkKind, why: &str| match is_timed {
                true => job.remark(option, RemarkKind::NoMeaning, ONLY_TIME),
                false => job.remark(option, kind, why),
            };
        let io_size = self.take_size("io_size", access);
        let data = match (io_size.filter(|(_, bytes)| *bytes > 0), beside) {
            (Some(io_size), Some((option, _))) => {
                let why = "a load uses its whole file, and `io_size` ends it";
                remark(self, &option, RemarkKind::LeftOut, why);
                Some(io_size)
            }
            (io_size, beside) => io_size.or(beside),
        };
        let operations = self.operations();
        let (first, later) = match (data, operations) {
            (Some(data), Some(operations)) if operations.1 < data.1 => (operations, data),
            (Some(data), Some(operations)) => (data, operations),
            (data, operations) => return data.or(operations),
        };
        let why = format!("{} ends the job earlier", first.0.written);
        remark(self, &later.0, RemarkKind::NoMeaning, &why);
        Some(first)
    }

    /// `number_ios` as an amount of data.
    fn operations(&mut self) -> Option<(JobOption, u64)> {
        let number = self.take_number("number_ios");
        let (option, number) = number.filter(|(_, number)| *number > 0)?;
        let is_mixed = self.keys.iter().any(|key| key.name == "bssplit");
        let block = self.keys.iter().find(|key| key.name == "bs");
        let block = block.map_or(Some(4096), |key| size(key.value.trim_matches('"'), 1024));
        let bytes = block.and_then(|block| number.checked_mul(block));
        match bytes.filter(|_| !is_mixed) {
            Some(bytes) => Some((option, bytes)),
            None => {
                let why = "a plan has amounts of data only, and this is none that is known";
                self.remark(&option, RemarkKind::LeftOut, why);
                None
            }
        }
    }

    pub(super) fn workers(&mut self, is_shared: bool, access: Access) {
        let jobs = self.take_number("numjobs");
        let apart = self.take_size("offset_increment", access);
        let number = jobs.as_ref().map_or(1, |(_, jobs)| *jobs);
        if let Some((option, jobs)) = jobs {
            self.key("numjobs", jobs.to_string(), &option);
            if is_shared && number > 1 {
                self.key("file-per", "\"task\"", &option);
            }
        }
        let own_size = self.keys.iter().find(|key| key.name == "size");
        let own_size = own_size.and_then(|key| size(key.value.trim_matches('"'), 1024));
        match apart {
            Some((option, bytes)) if is_shared && number > 1 && Some(bytes) == own_size => {
                self.key("ranges", "\"segmented\"", &option);
            }
            Some((option, bytes)) if bytes > 0 && number > 1 => self.remark(
                &option,
                RemarkKind::LeftOut,
                "workers that share a file use all of it, or parts of `size` one after the other (`ranges`)",
            ),
            _ if is_shared && number > 1 => self.own_key("ranges", "\"whole\""),
            _ => {}
        }
    }

    pub(super) fn depth(&mut self, engine: Engine) {
        let Some((option, depth)) = self.take_number("iodepth") else {
            return;
        };
        match (engine, depth) {
            (_, 0 | 1) => {}
            (Engine::Psync, _) => self.remark(
                &option,
                RemarkKind::NoMeaning,
                "synchronous engines have one operation in flight, in fio too",
            ),
            _ => self.key("iodepth", depth.to_string(), &option),
        }
    }
}
