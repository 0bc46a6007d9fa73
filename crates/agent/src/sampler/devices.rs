//! Disks and network interfaces, as the kernel lists them.
//!
//! Only whole disks are sampled, because a partition's work is also its disk's. Stacked devices are listed and marked,
//! so that their traffic is not counted twice. Pseudo devices (loop, ram, ...) are left out until their first I/O.
//! Interfaces are those of the network namespace of the thread that opened the list, including `lo`. The kernel prints
//! disk times as 32 bits of milliseconds, which a deep queue overflows within a day: the counters here continue beyond
//! that.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use benchmesh_model::figures::{DiskFigures, Figures, NetFigures};
use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use tracing::warn;

use super::counter::{Counter, advance_all};
use super::parse::{self, ParseError, Words};
use super::proc_file::{Buffer, Keeping, ProcFile};
use super::sampled::{DiskSample, NetSample};
use super::stacked::Stacking;

/// The unit of `/proc/diskstats`, whatever the device's own.
const SECTOR_BYTES: u64 = 512;

/// Devices with these names exist unused on every host, so they are sampled only after their first I/O.
const PSEUDO: [&[u8]; 6] = [b"loop", b"ram", b"zram", b"nbd", b"sr", b"fd"];

/// A kept list of devices, with the state of each by name.
#[derive(Debug)]
struct List<Known> {
    file: ProcFile,
    known: Vec<(Arc<str>, Known)>,
    complained: bool,
}

impl<Known: Default> List<Known> {
    /// The state of `name`, looked up first at its last position.
    fn known(&mut self, expected: &mut usize, name: &[u8]) -> Option<(Arc<str>, &mut Known)> {
        let name = std::str::from_utf8(name).ok()?;
        let here = |index: &usize| {
            self.known
                .get(*index)
                .is_some_and(|(known, _)| known.as_ref() == name)
        };
        let found = Some(*expected)
            .filter(here)
            .or_else(|| (0..self.known.len()).find(here));
        let index = found.unwrap_or_else(|| {
            self.known.push((Arc::from(name), Known::default()));
            self.known.len().saturating_sub(1)
        });
        *expected = index.saturating_add(1);
        let (name, known) = self.known.get_mut(index)?;
        Some((Arc::clone(name), known))
    }
}

/// Interval between checks of which disks are stacked on others.
const STACKING_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of remembered devices: containers create interfaces without limit.
const KNOWN_MAX: usize = 4096;

fn complain(list: &'static str, complained: &mut bool, problem: &dyn std::fmt::Display) {
    if !std::mem::replace(complained, true) {
        warn!(file = list, %problem, "this list of the host cannot be parsed: some of its rows are missing");
    }
}

#[derive(Debug)]
pub(crate) struct Disks {
    list: List<DiskCounters>,
    stacking: Stacking,
}

/// Counters of one disk, continued when the kernel's overflow.
#[derive(Debug, Default)]
struct DiskCounters {
    /// Reads, bytes read, writes, bytes written, discards, flushes.
    plain: [Counter; 6],
    read_ms: Milliseconds32,
    write_ms: Milliseconds32,
    busy_ms: Milliseconds32,
    queue_ms: Milliseconds32,
    /// Whether it is stacked on other disks, and when that was checked.
    stacked: Option<(MonoNanos, bool)>,
}

impl DiskCounters {
    /// Whether the disk is stacked. Checked again periodically, because devices are rarely set up or removed.
    fn is_stacked(&mut self, disk: &str, stacking: &Stacking, at: MonoNanos) -> bool {
        match self.stacked {
            Some((looked, stacked)) if at.since(looked) < STACKING_EVERY => stacked,
            _ => self.stacked.insert((at, stacking.is_stacked(disk))).1,
        }
    }
}

impl Disks {
    pub(crate) fn open(proc_root: &Path, sys_root: &Path) -> Result<Disks, Errno> {
        let file = ProcFile::open(&proc_root.join("diskstats"), Keeping::Open)?;
        Ok(Disks {
            list: List {
                file,
                known: Vec::new(),
                complained: false,
            },
            stacking: Stacking::new(proc_root, sys_root),
        })
    }

    pub(crate) fn sample(&mut self, at: MonoNanos, buffer: &mut Buffer) -> Vec<DiskSample> {
        let mut rows = Vec::with_capacity(self.list.known.len());
        if self.list.known.len() > KNOWN_MAX {
            self.list.known.clear();
        }
        let text = match self.list.file.read_whole(buffer) {
            Ok(text) => text,
            Err(errno) => {
                complain("diskstats", &mut self.list.complained, &errno);
                return rows;
            }
        };
        let mut whole_disk: &[u8] = b"";
        let mut expected = 0;
        for line in parse::lines(text).filter(|line| !line.is_empty()) {
            let line = match DiskLine::parse(line) {
                Ok(line) => line,
                Err(problem) => {
                    complain("diskstats", &mut self.list.complained, &problem);
                    continue;
                }
            };
            if is_partition_of(line.name, whole_disk) {
                continue;
            }
            whole_disk = line.name;
            if is_pseudo(line.name) && line.reads == 0 && line.writes == 0 {
                continue;
            }
            if let Some((disk, counters)) = self.list.known(&mut expected, line.name) {
                let stacked = counters.is_stacked(&disk, &self.stacking, at);
                rows.push(line.row(at, disk, stacked, counters));
            }
        }
        rows
    }
}

/// A partition's name is its disk's name and a number, with a `p` in between if the disk's name ends in a digit. The
/// kernel lists partitions right after their disk.
fn is_partition_of(name: &[u8], disk: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(disk).filter(|_| !disk.is_empty()) else {
        return false;
    };
    let number = if disk.last().is_some_and(u8::is_ascii_digit) {
        rest.strip_prefix(b"p")
    } else {
        Some(rest)
    };
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

fn is_pseudo(name: &[u8]) -> bool {
    PSEUDO.iter().any(|pseudo| {
        name.strip_prefix(*pseudo)
            .is_some_and(|rest| rest.iter().all(u8::is_ascii_digit))
    })
}

/// One line of `/proc/diskstats`; times in milliseconds, sizes in sectors.
#[derive(Debug)]
struct DiskLine<'text> {
    name: &'text [u8],
    reads: u64,
    read_sectors: u64,
    read_ms: u64,
    writes: u64,
    write_sectors: u64,
    write_ms: u64,
    in_flight: u64,
    busy_ms: u64,
    queue_ms: u64,
    discards: u64,
    flushes: u64,
}

impl<'text> DiskLine<'text> {
    fn parse(line: &'text [u8]) -> Result<Self, ParseError> {
        let mut words = Words::new(line);
        let name = words.nth(2).ok_or(ParseError::Missing { field: "name" })?;
        Ok(DiskLine {
            name,
            reads: words.number(0, "reads")?,
            read_sectors: words.number(1, "sectors read")?,
            read_ms: words.number(0, "time reading")?,
            writes: words.number(0, "writes")?,
            write_sectors: words.number(1, "sectors written")?,
            write_ms: words.number(0, "time writing")?,
            in_flight: words.number(0, "in flight")?,
            busy_ms: words.number(0, "time busy")?,
            queue_ms: words.number(0, "time queued")?,
            // Linux 4.18 added discards, Linux 5.5 flushes.
            discards: words.number_or_zero("discards")?,
            flushes: words
                .nth(3)
                .map_or(Some(0), parse::number)
                .ok_or(ParseError::NotANumber { field: "flushes" })?,
        })
    }

    fn row(
        &self,
        at: MonoNanos,
        disk: Arc<str>,
        stacked: bool,
        counters: &mut DiskCounters,
    ) -> DiskSample {
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        let raw = [
            self.reads,
            bytes(self.read_sectors),
            self.writes,
            bytes(self.write_sectors),
            self.discards,
            self.flushes,
        ];
        let [reads, read_bytes, writes, write_bytes, discards, flushes] =
            advance_all(&mut counters.plain, raw);
        let figures = DiskFigures {
            reads,
            read_bytes,
            read_us: counters.read_ms.advance_us(self.read_ms),
            writes,
            write_bytes,
            write_us: counters.write_ms.advance_us(self.write_ms),
            in_flight: parse::signed(self.in_flight),
            busy_us: counters.busy_ms.advance_us(self.busy_ms),
            queue_us: counters.queue_ms.advance_us(self.queue_ms),
            discards,
            flushes,
        };
        DiskSample {
            at,
            disk,
            stacked,
            figures,
        }
    }
}

/// A count of milliseconds that the kernel truncates to 32 bits.
#[derive(Debug, Default)]
struct Milliseconds32 {
    wraps: u64,
    last: u64,
    counter: Counter,
}

impl Milliseconds32 {
    /// Microseconds. Continues after a wrap of the kernel's count, and stays constant after a reset.
    fn advance_us(&mut self, raw_ms: u64) -> i64 {
        const HALF: u64 = 1 << 31;
        let wrapped = raw_ms < self.last
            && self.last.saturating_sub(raw_ms) > HALF
            && self.last <= u64::from(u32::MAX);
        if wrapped {
            self.wraps = self.wraps.saturating_add(1);
        }
        self.last = raw_ms;
        let ms = raw_ms.saturating_add(self.wraps.saturating_mul(1 << 32));
        parse::signed(self.counter.advance(ms).saturating_mul(1000))
    }
}

#[derive(Debug)]
pub(crate) struct Interfaces {
    list: List<[Counter; 8]>,
}

impl Interfaces {
    /// Opens the list of the calling thread's network namespace, which stays the same as long as this is kept.
    pub(crate) fn open(proc_root: &Path) -> Result<Interfaces, Errno> {
        // `/proc/net` is the process's namespace, which may differ from the thread's. Kernels before 3.17 have only
        // that.
        let file = ProcFile::open(&proc_root.join("thread-self/net/dev"), Keeping::Open)
            .or_else(|_| ProcFile::open(&proc_root.join("net/dev"), Keeping::Open))?;
        Ok(Interfaces {
            list: List {
                file,
                known: Vec::new(),
                complained: false,
            },
        })
    }

    pub(crate) fn sample(&mut self, at: MonoNanos, buffer: &mut Buffer) -> Vec<NetSample> {
        let mut rows = Vec::with_capacity(self.list.known.len());
        if self.list.known.len() > KNOWN_MAX {
            self.list.known.clear();
        }
        let text = match self.list.file.read_whole(buffer) {
            Ok(text) => text,
            Err(errno) => {
                complain("net/dev", &mut self.list.complained, &errno);
                return rows;
            }
        };
        let mut expected = 0;
        // Two lines of headings, in which no name ends in a colon.
        for line in parse::lines(text).skip(2).filter(|line| !line.is_empty()) {
            match interface(line) {
                Ok((name, traffic)) => {
                    if let Some((interface, counters)) = self.list.known(&mut expected, name) {
                        rows.push(traffic_row(at, interface, counters, traffic));
                    }
                }
                Err(problem) => complain("net/dev", &mut self.list.complained, &problem),
            }
        }
        rows
    }
}

/// Bytes, packets, errors and drops received, then the same sent: in the order of [`NetFigures`].
type Traffic = [u64; 8];

fn traffic_row(
    at: MonoNanos,
    interface: Arc<str>,
    counters: &mut [Counter; 8],
    traffic: Traffic,
) -> NetSample {
    NetSample {
        at,
        interface,
        figures: NetFigures::from_values(advance_all(counters, traffic)),
    }
}

/// The name ends at the first colon, because names contain none.
fn interface(line: &[u8]) -> Result<(&[u8], Traffic), ParseError> {
    let colon = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(ParseError::Missing { field: "name" })?;
    let (name, rest) = line
        .split_at_checked(colon)
        .ok_or(ParseError::Missing { field: "name" })?;
    let mut words = Words::new(rest.strip_prefix(b":").unwrap_or_default());
    let traffic = [
        words.number(0, "rx bytes")?,
        words.number(0, "rx packets")?,
        words.number(0, "rx errors")?,
        words.number(0, "rx dropped")?,
        words.number(4, "tx bytes")?,
        words.number(0, "tx packets")?,
        words.number(0, "tx errors")?,
        words.number(0, "tx dropped")?,
    ];
    Ok((name.trim_ascii(), traffic))
}

#[cfg(test)]
mod tests;
