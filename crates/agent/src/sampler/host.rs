//! The host as a whole: CPU by state, memory, load and pressure.
//!
//! Each file is kept open and read once per sample. Figures that this kernel lacks are -1 (pressure) or 0 (a CPU state
//! missing in old kernels). An unreadable file is logged once, and its figures keep these values.

use std::path::Path;

use benchmesh_model::figures::{HostFigures, UNKNOWN};
use benchmesh_workloads::clock::MonoNanos;
use rustix::io::Errno;
use tracing::warn;

use super::cpu::TickLength;
use super::parse::{self, ParseError, Words};
use super::proc_file::{Buffer, Keeping, ProcFile};
use super::sampled::HostSample;

/// Enough for the line of all CPUs in `/proc/stat`; the lines of single CPUs and interrupts are not needed.
const CPU_LINE: usize = 512;

#[derive(Debug)]
pub(crate) struct Host {
    stat: ProcSource,
    meminfo: ProcSource,
    loadavg: ProcSource,
    cpu_pressure: ProcSource,
    io_pressure: ProcSource,
    memory_pressure: ProcSource,
    /// Idle and iowait sometimes decrease and then rise to their old values.
    highest: CpuStates,
    tick: TickLength,
}

impl Host {
    pub(crate) fn open(proc_root: &Path, tick: TickLength) -> Host {
        let pressure = |name| ProcSource::optional(proc_root, name);
        Host {
            stat: ProcSource::required(proc_root, "stat"),
            meminfo: ProcSource::required(proc_root, "meminfo"),
            loadavg: ProcSource::required(proc_root, "loadavg"),
            cpu_pressure: pressure("pressure/cpu"),
            io_pressure: pressure("pressure/io"),
            memory_pressure: pressure("pressure/memory"),
            highest: CpuStates::default(),
            tick,
        }
    }

    /// `None` if neither CPU nor memory is readable.
    pub(crate) fn sample(&mut self, at: MonoNanos, buffer: &mut Buffer) -> Option<HostSample> {
        let cpu = self.stat.read(buffer, Extent::Head(CPU_LINE), cpu_states)?;
        let cpu = self.highest.raise(cpu);
        let memory = self.meminfo.read(buffer, Extent::All, memory)?;
        let load1 = self
            .loadavg
            .read(buffer, Extent::All, load1)
            .unwrap_or(UNKNOWN);
        let cpu_pressure = self
            .cpu_pressure
            .read(buffer, Extent::All, pressure)
            .unwrap_or(Pressure::NONE);
        let io_pressure = self
            .io_pressure
            .read(buffer, Extent::All, pressure)
            .unwrap_or(Pressure::NONE);
        let memory_pressure = self
            .memory_pressure
            .read(buffer, Extent::All, pressure)
            .unwrap_or(Pressure::NONE);
        let us = |state: CpuState| parse::signed(self.tick.us(cpu.of(state)));
        let figures = HostFigures {
            user_us: us(CpuState::User),
            nice_us: us(CpuState::Nice),
            system_us: us(CpuState::System),
            idle_us: us(CpuState::Idle),
            iowait_us: us(CpuState::Iowait),
            irq_us: us(CpuState::Irq),
            softirq_us: us(CpuState::Softirq),
            steal_us: us(CpuState::Steal),
            memory_total_bytes: memory.total,
            memory_available_bytes: memory.available,
            memory_free_bytes: memory.free,
            cached_bytes: memory.cached,
            dirty_bytes: memory.dirty,
            writeback_bytes: memory.writeback,
            swap_used_bytes: memory.swap_used,
            load1,
            cpu_some_us: cpu_pressure.some_us,
            io_some_us: io_pressure.some_us,
            io_full_us: io_pressure.full_us,
            memory_some_us: memory_pressure.some_us,
            memory_full_us: memory_pressure.full_us,
            skipped_ticks: 0,
            sampler_cpu_us: 0,
        };
        Some(HostSample {
            at,
            figures,
            others: None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Extent {
    All,
    Head(usize),
}

/// One kept file, and whether its failure was already logged.
#[derive(Debug)]
struct ProcSource {
    name: &'static str,
    file: Option<ProcFile>,
    complained: bool,
}

impl ProcSource {
    fn required(proc_root: &Path, name: &'static str) -> ProcSource {
        match ProcFile::open(&proc_root.join(name), Keeping::Open) {
            Ok(file) => ProcSource {
                name,
                file: Some(file),
                complained: false,
            },
            Err(errno) => {
                warn!(file = name, error = %errno, "this file of the host cannot be opened: its figures will be missing");
                ProcSource {
                    name,
                    file: None,
                    complained: true,
                }
            }
        }
    }

    fn optional(proc_root: &Path, name: &'static str) -> ProcSource {
        ProcSource {
            name,
            file: ProcFile::open(&proc_root.join(name), Keeping::Open).ok(),
            complained: false,
        }
    }

    fn read<T>(
        &mut self,
        buffer: &mut Buffer,
        extent: Extent,
        parse: fn(&[u8]) -> Result<T, ParseError>,
    ) -> Option<T> {
        let file = self.file.as_ref()?;
        let text = match extent {
            Extent::All => file.read_once(buffer),
            Extent::Head(head) => file.read_head(buffer, head),
        };
        let problem = match text.map(parse) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(problem)) => problem.to_string(),
            // Pressure that is compiled in but disabled can be opened and not read.
            Err(Errno::OPNOTSUPP) => {
                self.file = None;
                return None;
            }
            Err(errno) => errno.to_string(),
        };
        if !self.complained {
            self.complained = true;
            warn!(
                file = self.name,
                problem, "this file of the host cannot be read: its figures are missing"
            );
        }
        None
    }
}

#[derive(Debug, Clone, Copy)]
enum CpuState {
    User,
    Nice,
    System,
    Idle,
    Iowait,
    Irq,
    Softirq,
    Steal,
}

/// Ticks by state. The kernel includes guest time in user and nice, so no time is counted twice or left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CpuStates {
    ticks: [u64; 8],
}

impl CpuStates {
    /// The highest of each state so far.
    fn raise(&mut self, now: CpuStates) -> CpuStates {
        for (highest, now) in self.ticks.iter_mut().zip(now.ticks) {
            *highest = now.max(*highest);
        }
        *self
    }

    fn of(&self, state: CpuState) -> u64 {
        self.ticks.get(state as usize).copied().unwrap_or(0)
    }
}

fn cpu_states(text: &[u8]) -> Result<CpuStates, ParseError> {
    let end = text
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(ParseError::CutOff)?;
    let line = text.get(..end).unwrap_or_default();
    let rest = line
        .strip_prefix(b"cpu ")
        .ok_or(ParseError::Missing { field: "cpu" })?;
    let mut words = Words::new(rest);
    let mut states = CpuStates::default();
    for (place, ticks) in states.ticks.iter_mut().enumerate() {
        // user, nice, system and idle exist in every kernel.
        *ticks = if place < 4 {
            words.number(0, "cpu")?
        } else {
            words.number_or_zero("cpu")?
        };
    }
    Ok(states)
}

/// Bytes; -1 if this kernel lacks the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: i64,
    available: i64,
    free: i64,
    cached: i64,
    dirty: i64,
    writeback: i64,
    swap_used: i64,
}

fn memory(text: &[u8]) -> Result<Memory, ParseError> {
    let text = parse::whole(text)?;
    let (mut total, mut available, mut free, mut cached) = (None, None, None, None);
    let (mut dirty, mut writeback, mut swap_total, mut swap_free) = (None, None, None, None);
    for line in parse::lines(text) {
        let mut words = Words::new(line);
        let place = match words.next() {
            Some(b"MemTotal:") => &mut total,
            Some(b"MemAvailable:") => &mut available,
            Some(b"MemFree:") => &mut free,
            Some(b"Cached:") => &mut cached,
            Some(b"Dirty:") => &mut dirty,
            Some(b"Writeback:") => &mut writeback,
            Some(b"SwapTotal:") => &mut swap_total,
            Some(b"SwapFree:") => &mut swap_free,
            _ => continue,
        };
        *place = Some(words.number(0, "meminfo")?.saturating_mul(1024));
    }
    let known = |value: Option<u64>| value.map_or(-1, parse::signed);
    Ok(Memory {
        total: parse::signed(total.ok_or(ParseError::Missing { field: "MemTotal" })?),
        available: known(available),
        free: known(free),
        cached: known(cached),
        dirty: known(dirty),
        writeback: known(writeback),
        swap_used: known(
            swap_total
                .zip(swap_free)
                .map(|(total, free)| total.saturating_sub(free)),
        ),
    })
}

fn load1(text: &[u8]) -> Result<i64, ParseError> {
    let word = Words::new(parse::whole(text)?)
        .next()
        .ok_or(ParseError::Missing { field: "load" })?;
    parse::hundredths(word).ok_or(ParseError::NotANumber { field: "load" })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pressure {
    some_us: i64,
    full_us: i64,
}

impl Pressure {
    const NONE: Pressure = Pressure {
        some_us: -1,
        full_us: -1,
    };
}

fn pressure(text: &[u8]) -> Result<Pressure, ParseError> {
    let mut pressure = Pressure::NONE;
    for line in parse::lines(parse::whole(text)?) {
        let mut words = Words::new(line);
        let place = match words.next() {
            Some(b"some") => &mut pressure.some_us,
            Some(b"full") => &mut pressure.full_us,
            _ => continue,
        };
        let total = words
            .find_map(|word| word.strip_prefix(b"total="))
            .ok_or(ParseError::Missing { field: "total" })?;
        *place =
            parse::signed(parse::number(total).ok_or(ParseError::NotANumber { field: "total" })?);
    }
    Ok(pressure)
}

#[cfg(test)]
mod tests;
