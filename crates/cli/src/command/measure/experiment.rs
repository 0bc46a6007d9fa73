//! What is measured: the plan of `measure` as a pure function of the directories, the loads and the sizes.
//!
//! Every directory gets the same loads and sizes; otherwise they could not be compared. The sizes of an earlier run of
//! the same experiment are read from its plan, so that both runs can be compared.

use super::places::{MAX_SHARE, MIN_BYTES, Place};
use super::probe::{FILE_WORKERS, Probe};
use crate::args::measure::Load;
use benchmesh_answers::report::figures;
use std::time::Duration;

/// Duration of a step: enough that the rate covers the time in which all workers were active.
const STEP: Duration = Duration::from_secs(3);
/// Duration of a step if the whole time is too short for several loops of longer ones.
const SHORT_STEP: Duration = Duration::from_secs(1);
/// How many loops of long steps the time must allow.
const LOOPS: u32 = 3;
/// Workers of random blocks.
const RANDOM_WORKERS: u64 = 4;
const SMALL_FILE_BYTES: u64 = 4096;
const MIN_FILES: u64 = 64;
const MAX_FILES: u64 = 200_000;
const MAX_BYTES: u64 = 1 << 30;
/// Size of a copied file, unless that would be fewer than [`MIN_COPIES`].
const COPY_BYTES: u64 = 16 << 20;
const MIN_COPIES: u64 = 4;
const MIB: u64 = 1 << 20;

/// How the names of all measurements begin.
pub const RUN_PREFIX: &str = "measure ";

/// The sizes of the loads for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub files: u64,
    /// Sum over all workers.
    pub random_bytes: u64,
    pub sequential_bytes: u64,
    /// Sum over all copied files.
    pub copy_bytes: u64,
}

impl Sizes {
    /// The same amount of data for each load.
    pub fn of(bytes: u64) -> Self {
        Self {
            files: (bytes / SMALL_FILE_BYTES).clamp(MIN_FILES, MAX_FILES),
            random_bytes: bytes,
            sequential_bytes: bytes,
            copy_bytes: bytes,
        }
    }

    /// For directories that were not probed.
    pub fn default_of_mesh() -> Self {
        Self {
            files: 10_000,
            ..Self::of(MAX_BYTES / 4)
        }
    }

    /// Sizes with which a step lasts for about `step` on the geometric mean of the directories, and not much longer on
    /// the slowest one.
    pub fn suited(probes: &[Probe], experiment: &Experiment, limits: Limits) -> Self {
        let clients = f64::from(experiment.clients.unwrap_or(1));
        let seconds = experiment.step.as_secs_f64();
        let bandwidths = || probes.iter().map(|probe| probe.bytes_per_s);
        let slowest = bandwidths().fold(f64::INFINITY, f64::min);
        let middle = geometric_mean(bandwidths());
        let files = geometric_mean(probes.iter().map(|probe| probe.files_per_s));
        let bytes = |per_s: f64, seconds: f64| -> u64 {
            let wanted = whole(per_s * seconds / clients).min(MAX_BYTES);
            // At least 1 MiB for each worker.
            wanted.clamp(MIN_BYTES, limits.bytes.max(MIN_BYTES))
        };
        Self {
            files: whole(files * seconds / clients)
                .clamp(MIN_FILES, MAX_FILES)
                .min(limits.small_files().max(1)),
            random_bytes: bytes(slowest, 1.0),
            sequential_bytes: match experiment.direct {
                // The load passes over the file until its time is over.
                true => bytes(slowest, seconds),
                // A second pass would read from the cache.
                false => bytes(middle, seconds),
            },
            copy_bytes: bytes(middle.min(slowest * CUT_OFF), seconds).min(limits.copy_bytes),
        }
    }

    /// The sizes in the plan of a measurement; 0 for loads that it does not have. `None` if it is another plan.
    pub fn of_plan(text: &str) -> Option<Self> {
        let plan: toml::Table = text.parse().ok()?;
        let mut sizes = Self::default();
        for phase in plan.get("phase")?.as_array()? {
            let number =
                |key: &str| -> Option<u64> { u64::try_from(phase.get(key)?.as_integer()?).ok() };
            match phase.get("name")?.as_str()? {
                "small-files" => sizes.files = number("files")?,
                "rand-4k" => sizes.random_bytes = number("size")?.checked_mul(RANDOM_WORKERS)?,
                "seq-1m" => sizes.sequential_bytes = number("size")?,
                "copy" => sizes.copy_bytes = number("size")?.checked_mul(number("files")?)?,
                _ => return None,
            }
        }
        Some(sizes)
    }
}

/// A step ends after this multiple of its intended duration, whatever is left of its data.
const CUT_OFF: f64 = 3.0;

/// What a client may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub bytes: u64,
    pub files: u64,
    /// Copies have their sources in another place, which may be memory.
    pub copy_bytes: u64,
}

impl Limits {
    /// For directories of which nothing is known.
    pub const NONE: Self = Self {
        bytes: u64::MAX,
        files: u64::MAX,
        copy_bytes: u64::MAX,
    };

    /// Whether the sizes are within them.
    pub fn allow(self, sizes: &Sizes) -> bool {
        let most = sizes.random_bytes.max(sizes.sequential_bytes);
        most.max(sizes.copy_bytes) <= self.bytes
            && sizes.files <= self.small_files()
            && sizes.copy_bytes <= self.copy_bytes
    }

    /// How many small files there may be. Their data count too.
    fn small_files(self) -> u64 {
        self.files.min(self.bytes / SMALL_FILE_BYTES)
    }

    /// A share of the free space of the directory with the least.
    pub fn of(places: &[Place], clients: u32, copy_bytes: u64) -> Self {
        let share = MAX_SHARE * u64::from(clients);
        let least =
            |values: &mut dyn Iterator<Item = u64>| values.min().unwrap_or(u64::MAX) / share;
        Self {
            bytes: least(&mut places.iter().map(|place| place.free_bytes)),
            files: least(&mut places.iter().filter_map(|place| place.free_files)),
            copy_bytes: copy_bytes.max(MIN_BYTES),
        }
    }
}

/// An experiment without its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Name, system and path.
    pub targets: Vec<(String, String, String)>,
    pub loads: Vec<Load>,
    /// `None`: every client that can.
    pub clients: Option<u32>,
    /// Whether blocks bypass the cache; otherwise they are flushed.
    pub direct: bool,
    /// Whether caches can be dropped before loads that cannot bypass them.
    pub cold: bool,
    pub step: Duration,
    /// Of all directories together.
    pub time: Duration,
}

impl Experiment {
    /// The duration of the steps of these loads if each directory is measured for `time`.
    pub fn step_within(time: Duration, loads: &[Load]) -> Duration {
        // Deleting and looking up files takes far less time than creating them.
        let steps = u32::try_from(loads.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(2);
        match STEP * steps * LOOPS > time.mul_f64(0.7) {
            true => SHORT_STEP,
            false => STEP,
        }
    }

    /// The name of its runs.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self
            .targets
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect();
        format!("{RUN_PREFIX}{}", names.join(" "))
    }

    /// Whether a plan has the same steps. Its duration may differ, and so may the file systems of its directories: that
    /// may be the change whose effect is asked for.
    pub fn is_of_plan(&self, text: &str, sizes: &Sizes) -> bool {
        let is_of_steps =
            |line: &&str| !line.starts_with("loop-for") && !line.starts_with("system");
        let wanted = self.plan(sizes);
        let wanted = wanted.lines().filter(is_of_steps);
        wanted.eq(text.lines().filter(is_of_steps))
    }

    /// `2m 00s`, or `2m 00s for each of 2 directories`.
    pub fn time_in_words(&self) -> String {
        match u32::try_from(self.targets.len()) {
            Ok(count @ 2..) => format!(
                "{} for each of {count} directories",
                figures::span(self.time / count)
            ),
            _ => figures::span(self.time),
        }
    }

    /// How the loads get past the client's cache, in one sentence.
    pub fn method(&self) -> String {
        let has_files = self.loads.contains(&Load::SmallFiles);
        let has_blocks = self.loads.iter().any(|load| *load != Load::SmallFiles);
        let mut parts = Vec::new();
        if has_blocks {
            parts.push(match self.direct {
                true => "blocks and copies bypass the client's cache (O_DIRECT)",
                false => "not every directory supports O_DIRECT, so blocks and copies are flushed (fsync)",
            });
        }
        if has_files {
            parts.push("each small file is flushed (fsync)");
        }
        if has_files || !self.direct {
            parts.push(match self.cold {
                true => "caches are dropped before other reads",
                false => {
                    "other reads may be served from the client's cache, which only root can drop"
                }
            });
        }
        parts.join("; ")
    }

    /// The plan as TOML.
    pub fn plan(&self, sizes: &Sizes) -> String {
        let mut out = String::from(
            "# Made by `benchmesh measure`. Each loop measures the targets in turns, every second one in reverse.\n",
        );
        out.push_str(&format!(
            "name     = {}\norder    = \"alternate\"\nloop-for = \"{}s\"\n",
            quoted(&self.name()),
            self.time.as_secs().max(1)
        ));
        for (name, system, path) in &self.targets {
            out.push_str(&format!(
                "\n[targets.{name}]\nsystem = {}\npath   = {}\n",
                quoted(system),
                quoted(path)
            ));
        }
        for load in &self.loads {
            out.push_str("\n[[phase]]\n");
            for (key, value) in self.phase(*load, sizes) {
                out.push_str(&format!("{key:13} = {value}\n"));
            }
            if let Some(clients) = self.clients {
                out.push_str(&format!("{:13} = {clients}\n", "clients"));
            }
        }
        out
    }

    fn phase(&self, load: Load, sizes: &Sizes) -> Vec<(&'static str, String)> {
        let seconds = |time: Duration| format!("\"{}s\"", time.as_secs());
        let cut_off = seconds(self.step.mul_f64(CUT_OFF));
        let yes = || String::from("true");
        let mut keys: Vec<(&'static str, String)> = match load {
            Load::SmallFiles => vec![
                ("name", quoted("small-files")),
                ("workload", quoted("files")),
                (
                    "modes",
                    String::from(r#"["create", "stat", "read", "delete"]"#),
                ),
                ("files", sizes.files.to_string()),
                ("size", SMALL_FILE_BYTES.to_string()),
                ("numjobs", FILE_WORKERS.to_string()),
                ("fsync", yes()),
                ("runtime", cut_off),
                ("loops", String::from("1")),
                ("only-existing", yes()),
            ],
            Load::Rand4k => vec![
                ("name", quoted("rand-4k")),
                ("workload", quoted("io")),
                ("modes", String::from(r#"["randwrite", "randread"]"#)),
                ("bs", quoted("4k")),
                (
                    "size",
                    whole_mib(sizes.random_bytes / RANDOM_WORKERS).to_string(),
                ),
                ("numjobs", RANDOM_WORKERS.to_string()),
                ("runtime", seconds(self.step)),
            ],
            Load::Seq1m => vec![
                ("name", quoted("seq-1m")),
                ("workload", quoted("io")),
                ("modes", String::from(r#"["write", "read"]"#)),
                ("bs", quoted("1m")),
                ("size", whole_mib(sizes.sequential_bytes).to_string()),
                ("runtime", seconds(self.step)),
            ],
            Load::Copy => {
                let files = (sizes.copy_bytes / COPY_BYTES).max(MIN_COPIES);
                vec![
                    ("name", quoted("copy")),
                    ("workload", quoted("copy")),
                    ("modes", String::from(r#"["in", "out"]"#)),
                    ("files", files.to_string()),
                    ("size", whole_mib(sizes.copy_bytes / files).to_string()),
                    ("fsync", yes()),
                    ("runtime", cut_off),
                ]
            }
        };
        match (load, self.direct) {
            (Load::SmallFiles, _) => {}
            (Load::Copy, true) => keys.push(("way", quoted("direct"))),
            (Load::Copy, false) => {}
            (_, true) => keys.push(("direct", yes())),
            (Load::Rand4k, false) => {
                keys.extend([("fsync", String::from("1")), ("loops", String::from("1"))]);
            }
            (Load::Seq1m, false) => {
                keys.extend([("fsync", String::from("16")), ("loops", String::from("1"))]);
            }
        }
        if self.cold && (load == Load::SmallFiles || !self.direct) {
            keys.push(("cache", quoted("cold")));
        }
        keys
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn whole_mib(bytes: u64) -> u64 {
    (bytes / MIB).max(1) * MIB
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a saturating conversion of an amount that is not negative"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| {
        (sum + value.max(f64::MIN_POSITIVE).ln(), count + 1.0)
    });
    if count > 0.0 {
        (sum / count).exp()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_plan as plan;

    const ALL: [Load; 4] = [Load::SmallFiles, Load::Rand4k, Load::Seq1m, Load::Copy];

    fn experiment(direct: bool, cold: bool) -> Experiment {
        let target = |name: &str, path: &str| (name.to_owned(), "ext4".to_owned(), path.to_owned());
        Experiment {
            targets: vec![
                target("old", "/mnt/old"),
                target("new", "/mnt/a \"new\" disk"),
            ],
            loads: ALL.to_vec(),
            clients: None,
            direct,
            cold,
            step: STEP,
            time: Duration::from_secs(240),
        }
    }

    #[test]
    fn every_plan_is_good_and_gives_its_sizes_back() {
        let sizes = Sizes {
            files: 3000,
            random_bytes: 64 * MIB,
            sequential_bytes: 300 * MIB,
            copy_bytes: 160 * MIB,
        };
        for (direct, cold) in [(true, true), (true, false), (false, true), (false, false)] {
            for clients in [None, Some(3)] {
                let experiment = Experiment {
                    clients,
                    ..experiment(direct, cold)
                };
                let text = experiment.plan(&sizes);
                let parsed = plan::parse(&text, "measure.toml")
                    .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
                let agents = plan::assumed_agents(&parsed, 3);
                let steps = plan::expand(&parsed, &agents).unwrap().steps;
                assert_eq!(steps.len(), 2 * (4 + 2 + 2 + 2), "{text}");
                assert_eq!(Sizes::of_plan(&text), Some(sizes), "{text}");
                let mut reformatted = Experiment {
                    time: Duration::from_secs(10),
                    ..experiment.clone()
                };
                if let Some((_, system, _)) = reformatted.targets.first_mut() {
                    *system = String::from("xfs");
                }
                assert!(reformatted.is_of_plan(&text, &sizes));
                let other = Experiment {
                    loads: vec![Load::Copy],
                    ..experiment
                };
                assert!(!other.is_of_plan(&text, &sizes));
            }
        }
        assert_eq!(
            Sizes::of_plan("name = \"x\"\n[[phase]]\nname = \"y\"\n"),
            None
        );
    }

    #[test]
    fn the_sizes_of_each_load_are_read_from_its_own_plan() {
        let sizes = Sizes {
            files: 3000,
            random_bytes: 64 * MIB,
            sequential_bytes: 32 * MIB,
            copy_bytes: 48 * MIB,
        };
        // Far less than the sizes of a mesh.
        let limits = Limits {
            bytes: 64 * MIB,
            files: 3000,
            copy_bytes: 48 * MIB,
        };
        for (load, expected) in [
            (Load::SmallFiles, (3000, 0, 0, 0)),
            (Load::Rand4k, (0, 64 * MIB, 0, 0)),
            (Load::Seq1m, (0, 0, 32 * MIB, 0)),
            (Load::Copy, (0, 0, 0, 48 * MIB)),
        ] {
            let experiment = Experiment {
                loads: vec![load],
                ..experiment(true, true)
            };
            let text = experiment.plan(&sizes);
            let found = Sizes::of_plan(&text).unwrap();
            let parts = (
                found.files,
                found.random_bytes,
                found.sequential_bytes,
                found.copy_bytes,
            );
            assert_eq!(parts, expected, "{text}");
            assert!(limits.allow(&found), "{text}");
            assert!(experiment.is_of_plan(&text, &found), "{text}");
        }
    }

    #[test]
    fn sizes_suit_all_directories() {
        let probe = |files_per_s, mib_per_s: f64| Probe {
            files_per_s,
            bytes_per_s: mib_per_s * 1_048_576.0,
            takes_direct: true,
        };
        let wide = Limits::NONE;
        let check = |probes: &[Probe], limits, expected: (u64, u64, u64, u64)| {
            let sizes = Sizes::suited(probes, &experiment(true, true), limits);
            let mib = |bytes: u64| bytes / MIB;
            let found = (
                sizes.files,
                mib(sizes.random_bytes),
                mib(sizes.sequential_bytes),
                mib(sizes.copy_bytes),
            );
            assert_eq!(found, expected);
            assert!(limits.allow(&sizes), "{found:?}");
        };
        check(&[probe(1000.0, 100.0)], wide, (3000, 100, 300, 300));
        // In the middle between both; no step of the slow one lasts for more than three times as long.
        check(
            &[probe(4000.0, 1600.0), probe(250.0, 16.0)],
            wide,
            (3000, 16, 48, 144),
        );
        let narrow = Limits {
            bytes: 20 * MIB,
            files: 500,
            copy_bytes: 10 * MIB,
        };
        check(&[probe(1000.0, 100.0)], narrow, (500, 20, 20, 10));
        // The data of small files are bounded as those of other loads.
        let few_bytes = Limits {
            bytes: 8 * MIB,
            ..wide
        };
        check(&[probe(1000.0, 100.0)], few_bytes, (2048, 8, 8, 8));
        assert!(!few_bytes.allow(&Sizes {
            files: 2049,
            ..Sizes::default()
        }));
        check(&[probe(0.1, 0.1)], wide, (64, 8, 8, 8));
        check(&[probe(1e9, 1e9)], wide, (200_000, 1024, 1024, 1024));
    }

    #[test]
    fn short_times_have_short_steps() {
        let seconds = Duration::from_secs;
        assert_eq!(Experiment::step_within(seconds(120), &ALL), STEP);
        assert_eq!(Experiment::step_within(seconds(30), &ALL), SHORT_STEP);
        assert_eq!(Experiment::step_within(seconds(30), &[Load::Rand4k]), STEP);
    }

    #[test]
    fn the_time_is_that_of_each_directory() {
        let mut both = experiment(true, true);
        assert_eq!(both.time_in_words(), "2m 00s for each of 2 directories");
        both.targets.truncate(1);
        assert_eq!(both.time_in_words(), "4m 00s");
    }

    #[test]
    fn the_method_names_what_the_loads_do() {
        let check = |loads: &[Load], direct, cold, expected: &str| {
            let experiment = Experiment {
                loads: loads.to_vec(),
                ..experiment(direct, cold)
            };
            assert_eq!(experiment.method(), expected);
        };
        let direct = "blocks and copies bypass the client's cache (O_DIRECT)";
        check(&[Load::Rand4k], true, true, direct);
        check(
            &[Load::SmallFiles],
            true,
            true,
            "each small file is flushed (fsync); caches are dropped before other reads",
        );
        check(
            &ALL,
            true,
            false,
            &format!(
                "{direct}; each small file is flushed (fsync); other reads may be served from the client's cache, \
                 which only root can drop"
            ),
        );
        check(
            &[Load::Copy],
            false,
            true,
            "not every directory supports O_DIRECT, so blocks and copies are flushed (fsync); caches are dropped \
             before other reads",
        );
    }
}
