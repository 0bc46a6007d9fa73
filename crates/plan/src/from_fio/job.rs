//! One job of fio as a phase: each option is taken by the part that has a word for it; what is left is named.

use super::job_file::{JobOption, JobSection};
use super::values::{flag, micros, pattern, shown_size, shown_time, size};
use super::{JobLine, Remark, RemarkKind, SOMEWHERE};
use crate::toml_text::{array, quoted};
use benchmesh_model::fio::{FioRole, fio_option};
use benchmesh_model::targets::{Locator, POOL_NAME};

/// The size where a job has none: fio then takes that of the file or device.
const ASSUMED_SIZE: u64 = 1 << 30;
const NO_WORD: &str = "a plan has no word for it";

/// A phase made of a job.
#[derive(Clone, Debug)]
pub(super) struct FioPhase {
    /// The job's section.
    pub job: String,
    pub line: JobLine,
    /// The lines of its own options.
    pub own_lines: Vec<JobLine>,
    pub name: String,
    pub description: Option<String>,
    pub target: Locator,
    pub keys: Vec<PhaseKey>,
    pub order: Order,
}

/// A key of the phase, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct PhaseKey {
    pub name: &'static str,
    /// As TOML.
    pub value: String,
    /// The line and the text of the option.
    pub from: (JobLine, String),
}

/// When fio starts a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AtOnce,
    AfterOthers,
}

impl FioPhase {
    /// Removes a key that the workload refuses. `None` if it has no such key, or is nothing without it.
    pub fn take(&mut self, name: &str) -> Option<(JobLine, String)> {
        if ["workload", "modes", "size"].contains(&name) {
            return None;
        }
        let at = self.keys.iter().position(|key| key.name == name)?;
        Some(self.keys.remove(at).from)
    }
}

/// The phase of a job; `None` if benchmesh has no such load.
pub(super) fn phase(section: &JobSection, remarks: &mut Vec<Remark>) -> Option<FioPhase> {
    let mut job = FioJob {
        section,
        options: section.options.clone(),
        kb_base: 1024,
        keys: Vec::new(),
        remarks,
    };
    if let Some(base) = job.take("kb_base") {
        job.kb_base = base.value.parse().unwrap_or(1024);
    }
    let name = job.take("name").map(|option| option.value);
    let description = job.take("description").map(|option| option.value);
    let waits = [job.take("stonewall"), job.take("wait_for")];
    let waits = waits.into_iter().flatten();
    let waits =
        waits.filter(|option| option.name == "wait_for" || flag(&option.value) != Some(false));
    let order = match waits.count() {
        0 => Order::AtOnce,
        _ => Order::AfterOthers,
    };
    let engine = job.engine()?;
    let target = match engine {
        Engine::Files(modes) => {
            job.files(modes);
            job.place()
        }
        engine => job.load(engine)?,
    };
    job.name_the_rest();
    let mut keys = job.keys;
    let first = ["workload", "modes"];
    keys.sort_by_key(|key| {
        first
            .iter()
            .position(|name| *name == key.name)
            .unwrap_or(first.len())
    });
    Some(FioPhase {
        job: section.name.clone(),
        line: section.line.clone(),
        own_lines: (section.options.iter())
            .filter(|option| option.is_own)
            .map(|option| option.line.clone())
            .collect(),
        name: name.unwrap_or_else(|| section.name.clone()),
        description,
        target,
        keys,
        order,
    })
}

/// What issues the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Psync,
    IoUring,
    Rbd,
    /// The workload `files` in this mode.
    Files(&'static str),
}

/// What a job does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    mode: &'static str,
    is_random: bool,
    reads: bool,
    writes: bool,
}

struct FioJob<'j> {
    section: &'j JobSection,
    /// Those that nothing has taken yet.
    options: Vec<JobOption>,
    kb_base: u64,
    keys: Vec<PhaseKey>,
    remarks: &'j mut Vec<Remark>,
}

impl FioJob<'_> {
    fn take(&mut self, name: &str) -> Option<JobOption> {
        let at = self.options.iter().position(|option| option.name == name)?;
        Some(self.options.remove(at))
    }

    /// Takes a flag; false if it is not there.
    fn take_flag(&mut self, name: &str) -> Option<(JobOption, bool)> {
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
    fn take_number(&mut self, name: &str) -> Option<(JobOption, u64)> {
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
    fn take_size(&mut self, name: &str, access: Access) -> Option<(JobOption, u64)> {
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

    fn take_time(&mut self, name: &str) -> Option<(JobOption, u64)> {
        let option = self.take(name)?;
        match micros(&option.value) {
            Some(time) => Some((option, time)),
            None => {
                self.remark(&option, RemarkKind::LeftOut, "it is not a time");
                None
            }
        }
    }

    /// `4k,64k`: for reads and for writes.
    fn of_direction(&mut self, option: &JobOption, access: Access) -> Option<String> {
        let mut parts = option.value.split(',').map(str::trim);
        let read = parts.next().unwrap_or_default();
        let write = parts.next().filter(|part| !part.is_empty()).unwrap_or(read);
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

    fn key(&mut self, name: &'static str, value: impl Into<String>, option: &JobOption) {
        self.keys.push(PhaseKey {
            name,
            value: value.into(),
            from: (option.line.clone(), option.written.clone()),
        });
    }

    /// A key that no option says.
    fn own_key(&mut self, name: &'static str, value: impl Into<String>) {
        let header = format!("[{}]", self.section.name);
        self.keys.push(PhaseKey {
            name,
            value: value.into(),
            from: (self.section.line.clone(), header),
        });
    }

    fn remark(&mut self, option: &JobOption, kind: RemarkKind, why: &str) {
        self.remarks.push(Remark {
            line: option.line.clone(),
            what: option.written.clone(),
            kind,
            why: why.to_owned(),
        });
    }

    fn remark_job(&mut self, kind: RemarkKind, why: &str) {
        self.remarks.push(Remark {
            line: self.section.line.clone(),
            what: format!("[{}]", self.section.name),
            kind,
            why: why.to_owned(),
        });
    }

    /// The engine; `None` if benchmesh has no such load.
    fn engine(&mut self) -> Option<Engine> {
        let Some(option) = self.take("ioengine") else {
            return Some(Engine::Psync);
        };
        let engine = match option.value.as_str() {
            "psync" | "pvsync" | "pvsync2" => Engine::Psync,
            "sync" | "vsync" => {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "psync: pread and pwrite, without lseek",
                );
                Engine::Psync
            }
            "io_uring" => Engine::IoUring,
            "libaio" | "posixaio" => {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "io_uring, with the same number of operations in flight",
                );
                Engine::IoUring
            }
            "mmap" | "splice" => {
                self.remark(&option, RemarkKind::LeftOut, "psync instead");
                Engine::Psync
            }
            "rbd" => Engine::Rbd,
            "filecreate" => Engine::Files("create"),
            "filestat" => Engine::Files("stat"),
            "filedelete" => Engine::Files("delete"),
            "dircreate" => Engine::Files("mkdir"),
            "dirdelete" => Engine::Files("rmdir"),
            other => {
                let why = match other {
                    "net" | "rdma" | "netsplice" => "the workload `network` measures links",
                    "rados" => "the workload `objects` measures pools",
                    "null" => "the workload `null` measures the tool itself",
                    _ => "benchmesh has no such engine",
                };
                self.remark(&option, RemarkKind::LeftOut, why);
                self.remark_job(
                    RemarkKind::LeftOut,
                    &format!("the whole job, because of ioengine={other}"),
                );
                return None;
            }
        };
        match engine {
            Engine::Psync => self.key("ioengine", "\"psync\"", &option),
            Engine::IoUring => self.key("ioengine", "\"io_uring\"", &option),
            Engine::Rbd | Engine::Files(_) => {}
        }
        Some(engine)
    }

    /// The workload `files`, for the engines that only work on names.
    fn files(&mut self, mode: &'static str) {
        self.own_key("workload", "\"files\"");
        self.own_key("modes", array(&[mode]));
        if let Some((option, files)) = self.take_number("nrfiles") {
            self.key("files", files.to_string(), &option);
        }
        let access = Access {
            mode: "write",
            is_random: false,
            reads: false,
            writes: true,
        };
        let filesize = self.take_size("filesize", access);
        let whole = self.take_size("size", access);
        if let Some((option, bytes)) = filesize.or(whole) {
            self.key("size", quoted(&shown_size(bytes)), &option);
        }
        if let Some((option, jobs)) = self.take_number("numjobs") {
            self.key("numjobs", jobs.to_string(), &option);
        }
        for name in ["bs", "rw", "iodepth", "direct", "buffered"] {
            if let Some(option) = self.take(name) {
                self.remark(
                    &option,
                    RemarkKind::NoMeaning,
                    "this engine transfers no data in fio",
                );
            }
        }
    }

    /// The workload `io`, and its target.
    fn load(&mut self, engine: Engine) -> Option<Locator> {
        let access = self.access()?;
        self.own_key("workload", "\"io\"");
        let mut modes = vec![access.mode];
        self.verification(access, &mut modes);
        self.own_key("modes", array(&modes));
        let access = Access {
            reads: access.reads || modes.len() > 1,
            ..access
        };
        self.blocks(access);
        self.amounts(access);
        let (target, is_shared) = match engine {
            Engine::Rbd => (self.pool(), false),
            _ => self.place_of_files(),
        };
        self.workers(is_shared, access);
        self.depth(engine);
        self.caches(access, engine);
        self.durability(access);
        self.randomness(access);
        self.pace(access);
        self.content();
        self.steadiness();
        Some(target)
    }

    fn access(&mut self) -> Option<Access> {
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
    fn verification(&mut self, access: Access, modes: &mut Vec<&'static str>) {
        let Some(option) = self.take("verify") else {
            return;
        };
        if ["0", "none"].contains(&option.value.as_str()) {
            return;
        }
        let reads_back = self.take_flag("do_verify").is_none_or(|(_, is_set)| is_set);
        if !access.reads {
            if !reads_back {
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

    fn blocks(&mut self, access: Access) {
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
        if let Some((option, bytes)) = self.take_size("bs", access) {
            match is_mixed {
                true => self.remark(&option, RemarkKind::NoMeaning, "bssplit comes first"),
                false => self.key("bs", quoted(&shown_size(bytes)), &option),
            }
        }
    }

    /// How much data, and how long.
    fn amounts(&mut self, access: Access) {
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
        let mut amount = self.take_size("io_size", access);
        if let Some((option, ops)) = self.take_number("number_ios") {
            let block = self.keys.iter().find(|key| key.name == "bs");
            let block = block.and_then(|key| size(key.value.trim_matches('"'), 1024));
            amount = ops
                .checked_mul(block.unwrap_or(4096))
                .map(|bytes| (option, bytes));
        }
        match (file, whole) {
            (Some((option, bytes)), whole) => {
                self.key("size", quoted(&shown_size(bytes)), &option);
                if amount.is_none() {
                    amount = whole.filter(|(_, all)| *all != bytes);
                }
            }
            (None, Some((option, bytes))) => {
                self.key("size", quoted(&shown_size(bytes)), &option);
            }
            (None, None) => {
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
        let is_timed = self.take_flag("time_based");
        let loops = self.take_number("loops");
        let runtime = self.take_time("runtime").filter(|(_, time)| *time > 0);
        match (&runtime, is_timed) {
            (Some((option, time)), timed) => {
                self.key("runtime", quoted(&shown_time(*time)), option);
                // Without time_based, the work ends the load too.
                let is_timed = timed.is_some_and(|(_, is_set)| is_set);
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

    /// The directory or device, where a plan's target is; and whether the workers share a file.
    fn place_of_files(&mut self) -> (Locator, bool) {
        let names = self
            .options
            .iter()
            .find(|option| option.name == "filename")
            .cloned();
        let target = self.place();
        let is_device = target.value.starts_with("/dev/") && !target.value.starts_with("/dev/shm");
        (target, names.is_some() && !is_device)
    }

    fn place(&mut self) -> Locator {
        let directory = self.take("directory");
        let first = |text: &str| {
            let mut names = text.split(':');
            let first = names.next().unwrap_or_default().trim().to_owned();
            (first, names.next().is_some())
        };
        let mut path = None;
        if let Some(option) = &directory {
            let (name, has_others) = first(&option.value);
            if has_others {
                self.remark(
                    option,
                    RemarkKind::LeftOut,
                    "only the first directory is a target",
                );
            }
            path = Some(name).filter(|name| name.starts_with('/'));
        }
        if let Some(option) = self.take("filename") {
            let (name, has_others) = first(&option.value);
            let is_device = name.starts_with("/dev/") && !name.starts_with("/dev/shm/");
            if has_others {
                let why = match is_device {
                    true => "only the first device is a target",
                    false => "a worker has one file",
                };
                self.remark(&option, RemarkKind::LeftOut, why);
            }
            if is_device {
                path = Some(name);
            } else {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "benchmesh makes files of its own in the target, and removes them",
                );
                let parent = name.rsplit_once('/').filter(|_| name.starts_with('/'));
                let parent = parent.map(|(parent, _)| if parent.is_empty() { "/" } else { parent });
                path = parent.map(str::to_owned).or(path);
            }
        }
        Locator::path(path.unwrap_or_else(|| {
            let why = format!(
                "it works in fio's own directory: the plan has {SOMEWHERE}, change it to the storage under test"
            );
            match &directory {
                Some(option) => self.remark(option, RemarkKind::Changed, &why),
                None => self.remark_job(RemarkKind::Changed, &why),
            }
            SOMEWHERE.to_owned()
        }))
    }

    fn pool(&mut self) -> Locator {
        let pool = self.take("pool");
        let user = self.take("clientname");
        if let Some(option) = self.take("rbdname") {
            self.remark(
                &option,
                RemarkKind::Changed,
                "benchmesh makes images of its own, and removes them",
            );
        }
        let name = pool.map_or_else(|| String::from("rbd"), |option| option.value);
        let user = user.map(|option| option.value);
        let user = user.as_deref().map(|user| ("user", user));
        Locator::with_parts(&POOL_NAME, &name, user)
    }

    fn workers(&mut self, is_shared: bool, access: Access) {
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

    fn depth(&mut self, engine: Engine) {
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

    fn caches(&mut self, access: Access, engine: Engine) {
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
            access.reads && engine != Engine::Rbd && !is_direct.is_some_and(|(_, is_set)| is_set);
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

    fn durability(&mut self, access: Access) {
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

    fn randomness(&mut self, access: Access) {
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

    fn pace(&mut self, access: Access) {
        if let Some((option, bytes)) = self.take_size("rate", access)
            && bytes > 0
        {
            self.key("rate", quoted(&shown_size(bytes)), &option);
        }
        if let Some((option, ops)) = self.take_size("rate_iops", access)
            && ops > 0
        {
            self.key("rate_iops", ops.to_string(), &option);
        }
        if let Some(option) = self.take("rate_process") {
            self.key("rate_process", quoted(&option.value), &option);
        }
    }

    /// What is written.
    fn content(&mut self) {
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

    fn steadiness(&mut self) {
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

    /// Names every option that nothing has taken.
    fn name_the_rest(&mut self) {
        for option in std::mem::take(&mut self.options) {
            let (kind, why) = match fio_option(&option.name).map(|known| known.role) {
                Some(FioRole::NotTheLoad(why)) => (RemarkKind::NoMeaning, why.to_owned()),
                Some(FioRole::Unknown(near)) if !near.is_empty() => {
                    (RemarkKind::LeftOut, format!("{NO_WORD}; {near}"))
                }
                _ => (RemarkKind::LeftOut, NO_WORD.to_owned()),
            };
            self.remark(&option, kind, &why);
        }
    }
}
