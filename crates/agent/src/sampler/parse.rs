//! Parses the kernel's texts: numbers and names out of bytes, without allocating and without trusting them.
//!
//! It knows the formats of proc(5) and does not access files. Every text must end with a newline, as the kernel's do,
//! so that a truncated number is an error and not a smaller number.

use thiserror::Error;

#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParseError {
    #[error("the text is cut off")]
    CutOff,
    #[error("no process name in brackets")]
    NoName,
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    #[error("`{field}` is not a number")]
    NotANumber { field: &'static str },
}

/// The fields of `/proc/PID/stat` that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// As in `ps`: `Z` means ended and not reaped.
    pub(crate) state: u8,
    pub(crate) parent: u64,
    /// A kernel thread, which never has memory of its own.
    pub(crate) is_kernel: bool,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// CPU time of ended children that it has waited for, with that of theirs.
    pub(crate) children_user_ticks: u64,
    pub(crate) children_system_ticks: u64,
    pub(crate) threads: u64,
    pub(crate) start_ticks: u64,
}

/// `PF_KTHREAD` of the kernel's flags of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A pid of 10 digits and a kernel thread's name of at most 63 characters end within this many bytes.
const STAT_HEAD: usize = 80;

/// Parses `stat`. The name is in parentheses and may itself contain parentheses, spaces and newlines: the fields begin
/// after the last closing one.
pub(crate) fn stat(text: &[u8]) -> Result<Stat, ParseError> {
    let text = whole(text)?;
    let head = text.get(..STAT_HEAD).unwrap_or(text);
    let name_end = head
        .iter()
        .rposition(|byte| *byte == b')')
        .ok_or(ParseError::NoName)?;
    let rest = text.get(name_end.saturating_add(1)..).unwrap_or_default();
    // The first word of the rest is field 3 of proc(5), the state.
    let mut words = Words::new(rest);
    let state = words
        .next()
        .and_then(|word| word.first().copied())
        .ok_or(ParseError::Missing { field: "state" })?;
    let parent = words.number(0, "ppid")?;
    let flags = words.number(9 - 4 - 1, "flags")?;
    let minor_faults = words.number(0, "minflt")?;
    let major_faults = words.number(12 - 10 - 1, "majflt")?;
    let user_ticks = words.number(14 - 12 - 1, "utime")?;
    let system_ticks = words.number(0, "stime")?;
    let children_user_ticks = words.number(0, "cutime")?;
    let children_system_ticks = words.number(0, "cstime")?;
    let threads = words.number(20 - 17 - 1, "num_threads")?;
    let start_ticks = words.number(22 - 20 - 1, "starttime")?;
    Ok(Stat {
        state,
        parent,
        is_kernel: flags & KERNEL_THREAD != 0,
        minor_faults,
        major_faults,
        user_ticks,
        system_ticks,
        children_user_ticks,
        children_system_ticks,
        threads,
        start_ticks,
    })
}

/// Addresses of a program's stack and arguments. The kernel randomizes them when it executes a program, and forked
/// processes inherit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressLayout {
    pub(crate) stack: u64,
    pub(crate) arguments: u64,
}

/// Parses `/proc/PID/stat`; `None` without the right to read the addresses, which the kernel then shows as zeros.
pub(crate) fn layout(text: &[u8]) -> Option<AddressLayout> {
    let text = whole(text).ok()?;
    let head = text.get(..STAT_HEAD).unwrap_or(text);
    let name_end = head.iter().rposition(|byte| *byte == b')')?;
    let mut words = Words::new(text.get(name_end.saturating_add(1)..)?);
    let stack = words.number(28 - 3, "startstack").ok()?;
    let arguments = words.number(48 - 28 - 1, "arg_start").ok()?;
    (stack > 1 && arguments > 1).then_some(AddressLayout { stack, arguments })
}

/// Pages: the whole address space and its resident part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statm {
    pub(crate) size_pages: u64,
    pub(crate) resident_pages: u64,
}

pub(crate) fn statm(text: &[u8]) -> Result<Statm, ParseError> {
    let mut words = Words::new(whole(text)?);
    let size_pages = words.number(0, "size")?;
    let resident_pages = words.number(0, "resident")?;
    Ok(Statm {
        size_pages,
        resident_pages,
    })
}

/// Bytes moved to and from the storage layer, from `/proc/PID/io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

pub(crate) fn io(text: &[u8]) -> Result<Io, ParseError> {
    let mut lines = lines(whole(text)?);
    // In this order on every kernel.
    Ok(Io {
        read_bytes: keyed_in(&mut lines, b"read_bytes:", "read_bytes")?,
        write_bytes: keyed_in(&mut lines, b"write_bytes:", "write_bytes")?,
    })
}

/// Memory in bytes, from `/proc/PID/status`. Kernel threads lack these lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusMemory {
    /// Peak resident memory.
    pub(crate) peak: u64,
    /// Missing in some kernels.
    pub(crate) swapped: Option<u64>,
}

pub(crate) fn status_memory(text: &[u8]) -> Result<StatusMemory, ParseError> {
    let mut lines = lines(whole(text)?);
    // In this order on every kernel.
    Ok(StatusMemory {
        peak: keyed_in(&mut lines, b"VmHWM:", "VmHWM")?.saturating_mul(1024),
        swapped: keyed_in(&mut lines, b"VmSwap:", "VmSwap")
            .ok()
            .map(|kib| kib.saturating_mul(1024)),
    })
}

/// Context switches of one thread, from `/proc/PID/status`: voluntary, involuntary.
pub(crate) fn switches(text: &[u8]) -> Result<(u64, u64), ParseError> {
    let text = whole(text)?;
    Ok((
        keyed(text, b"voluntary_ctxt_switches:", "voluntary_ctxt_switches")?,
        keyed(
            text,
            b"nonvoluntary_ctxt_switches:",
            "nonvoluntary_ctxt_switches",
        )?,
    ))
}

/// The text, if it is not truncated.
pub(crate) fn whole(text: &[u8]) -> Result<&[u8], ParseError> {
    if text.ends_with(b"\n") {
        Ok(text)
    } else {
        Err(ParseError::CutOff)
    }
}

/// The number after `key` at the beginning of a line.
pub(crate) fn keyed(text: &[u8], key: &[u8], field: &'static str) -> Result<u64, ParseError> {
    keyed_in(&mut lines(text), key, field)
}

/// The same, starting at the current line; leaves `lines` after the match.
fn keyed_in<'text>(
    lines: &mut impl Iterator<Item = &'text [u8]>,
    key: &[u8],
    field: &'static str,
) -> Result<u64, ParseError> {
    let value = lines
        .find_map(|line| line.strip_prefix(key))
        .ok_or(ParseError::Missing { field })?;
    Words::new(value).number(0, field)
}

pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Words separated by whitespace.
#[derive(Debug, Clone)]
pub(crate) struct Words<'text> {
    rest: &'text [u8],
}

impl<'text> Words<'text> {
    pub(crate) fn new(text: &'text [u8]) -> Self {
        Words { rest: text }
    }

    /// The number after `skip` words.
    pub(crate) fn number(&mut self, skip: usize, field: &'static str) -> Result<u64, ParseError> {
        let word = self.nth(skip).ok_or(ParseError::Missing { field })?;
        number(word).ok_or(ParseError::NotANumber { field })
    }

    /// The next number, or zero if this kernel prints fewer.
    pub(crate) fn number_or_zero(&mut self, field: &'static str) -> Result<u64, ParseError> {
        self.next().map_or(Ok(0), |word| {
            number(word).ok_or(ParseError::NotANumber { field })
        })
    }
}

impl<'text> Iterator for Words<'text> {
    type Item = &'text [u8];

    fn next(&mut self) -> Option<&'text [u8]> {
        let begin = self
            .rest
            .iter()
            .position(|byte| !byte.is_ascii_whitespace())?;
        let (_, rest) = self.rest.split_at_checked(begin)?;
        let end = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        Some(word)
    }
}

/// A plain decimal number; `None` for anything else or on overflow.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A decimal fraction such as a load average, in hundredths.
pub(crate) fn hundredths(word: &[u8]) -> Option<i64> {
    let value: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
    let hundredths = (value * 100.0).round() as i64;
    (value.is_finite() && value >= 0.0).then_some(hundredths)
}

/// The database's integers are signed; no real value reaches this limit.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use benchmesh_testing::hostile::{damaged, withstands};
    use proptest::prelude::*;

    use super::*;

    /// A line as Linux 6.18 writes it, with the given name.
    fn stat_line(name: &str) -> String {
        format!(
            "812 ({name}) S 1 812 812 0 -1 4194560 104857 0 42 0 65210 31975 0 0 20 0 57 0 4711 1073741824 27000 \
             18446744073709551615 1 1 0 0 0 0 0 4096 1260 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    const WANTED: Stat = Stat {
        state: b'S',
        parent: 1,
        is_kernel: false,
        minor_faults: 104_857,
        major_faults: 42,
        user_ticks: 65_210,
        system_ticks: 31_975,
        children_user_ticks: 0,
        children_system_ticks: 0,
        threads: 57,
        start_ticks: 4_711,
    };

    #[test]
    fn stat_survives_any_name() {
        for name in [
            "ceph-osd",
            "",
            ") (",
            "a) R 1 2 3 (b",
            "((()))",
            "two words",
            "new\nline",
            "\u{fc}ml",
        ] {
            assert_eq!(
                stat(stat_line(name).as_bytes()),
                Ok(WANTED),
                "name {name:?}"
            );
        }
    }

    #[test]
    fn stat_says_what_is_wrong() {
        let check =
            |text: &str, expected| assert_eq!(stat(text.as_bytes()), Err(expected), "{text:?}");
        check("", ParseError::CutOff);
        check("812 (x) S 1 2 3 4 5 6 7", ParseError::CutOff);
        check("812 x S 1\n", ParseError::NoName);
        check("812 (x)\n", ParseError::Missing { field: "state" });
        check(
            "812 (x) S 1 812 812 0 -1 4194560 1 0 2 0 3\n",
            ParseError::Missing { field: "stime" },
        );
        check(
            "812 (x) S 1 812 812 0 -1 4194560 1 0 2 0 -3 4 5\n",
            ParseError::NotANumber { field: "utime" },
        );
        check(
            "812 (x) S 1 812 812 0 -1 4194560 1 0 2 0 99999999999999999999 4 5\n",
            ParseError::NotANumber { field: "utime" },
        );
    }

    #[test]
    fn a_cut_number_is_not_a_smaller_one() {
        let line = stat_line("sheep");
        for cut in 0..line.len() {
            assert!(stat(&line.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(
            io(b"read_bytes: 40\nwrite_bytes: 40"),
            Err(ParseError::CutOff)
        );
    }

    #[test]
    fn io_takes_the_storage_layer() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\n\
            cancelled_write_bytes: 77\n";
        assert_eq!(
            io(text),
            Ok(Io {
                read_bytes: 4096,
                write_bytes: 8192
            })
        );
        assert_eq!(
            io(b"rchar: 1\n"),
            Err(ParseError::Missing {
                field: "read_bytes"
            })
        );
    }

    #[test]
    fn statm_and_switches() {
        assert_eq!(
            statm(b"262144 27136 5000 1 0 9000 0\n"),
            Ok(Statm {
                size_pages: 262_144,
                resident_pages: 27_136
            })
        );
        assert_eq!(
            statm(b"262144\n"),
            Err(ParseError::Missing { field: "resident" })
        );
        assert_eq!(
            status_memory(
                b"Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  353300 kB\nVmSwap:\t      12 kB\n"
            ),
            Ok(StatusMemory {
                peak: 353_300 << 10,
                swapped: Some(12 << 10),
            })
        );
        assert_eq!(
            status_memory(b"Name:\tkworker\n"),
            Err(ParseError::Missing { field: "VmHWM" })
        );
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches(status), Ok((150, 545)));
    }

    #[test]
    fn damaged_texts_of_a_process_are_errors_or_values() {
        let texts: [&[u8]; 5] = [
            b"7 (ceph-osd) S 1 7 7 0 -1 0 11 0 5 0 17 9 0 0 20 0 3 0 99 1000 200 18446744073709551615 1 2 140735 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 5 6 7 140736 8 9 10 0\n",
            b"8 (a) b) (c) R 1 7 7 0 -1 0 18446744073709551615 0 5 0 17 9 0 0 20 0 3 0 99\n",
            b"34512 1234 456 7 0 890 0\n",
            b"rchar: 5\nwchar: 6\nsyscr: 7\nsyscw: 8\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n",
            b"Name:\tx\nVmHWM:\t 9 kB\nVmSwap:\t 7 kB\nThreads:\t3\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n",
        ];
        let texts = texts.map(<[u8]>::to_vec).to_vec();
        withstands(damaged(texts, 16 << 10), 64 << 10, |text| {
            let _ = (
                stat(&text),
                layout(&text),
                statm(&text),
                io(&text),
                switches(&text),
                status_memory(&text),
            );
            if let Some(value) = hundredths(&text) {
                prop_assert!(value >= 0);
            }
            prop_assert!(
                stat(text.strip_suffix(b"\n").unwrap_or(b"")).is_err() || text.ends_with(b"\n\n")
            );
            Ok(())
        });
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_or_a_value(text in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (stat(&text), statm(&text), io(&text), switches(&text), hundredths(&text), number(&text));
        }

        #[test]
        fn numbers_come_back(value in any::<u64>()) {
            prop_assert_eq!(number(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn stat_reads_what_was_written(
            name in "[ -~\n]{0,15}", faults in any::<u64>(), user in any::<u64>(), start in any::<u64>()
        ) {
            let text = format!("7 ({name}) R 1 7 7 0 -1 0 {faults} 0 5 0 {user} 9 0 0 20 0 3 0 {start} 1 2 3\n");
            let stat = stat(text.as_bytes()).unwrap();
            prop_assert_eq!((stat.minor_faults, stat.user_ticks, stat.start_ticks), (faults, user, start));
        }
    }
}
