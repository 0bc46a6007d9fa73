//! Fuzzing: valid input that is damaged on purpose, with bounds on a reader's time and memory.
//!
//! Pure noise fails a reader's first check, while almost valid input gets further. Each case therefore begins with
//! something valid and changes it a few times: bits flip, parts are removed, repeated or moved, numbers become absurd,
//! and bytes that are not text are inserted.
//!
//! By default each target has the same few cases on every machine, so that all tests take a few seconds and no
//! unrelated change fails on a new case. With `BENCHMESH_HOSTILE_SECONDS` it generates new ones for that time.

use crate::memory;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Cases between two checks of the time, and the number of cases without the variable. A damaged plan may have tens of
/// thousands of steps, which take a debug build a second.
const CASES: u32 = 16;
/// Maximum CPU time of one case, in a debug build: far above the usual, and far below a hang.
const MAX_CPU: Duration = Duration::from_secs(20);

/// One change of some bytes. Positions are shares of the length, so that they apply to any length.
#[derive(Debug, Clone)]
pub enum ByteChange {
    /// Flips a bit.
    Flip(u16, u8),
    /// Removes everything after a position.
    Cut(u16),
    /// Removes a part.
    Remove(u16, u16),
    /// Repeats a part several times.
    Repeat(u16, u16, u8),
    /// Moves a part to another position.
    Move(u16, u16, u16),
    /// Inserts bytes.
    Insert(u16, Vec<u8>),
    /// Replaces a run of digits.
    Number(u16, &'static str),
}

/// Numbers at or beyond the bounds of a type, and invalid ones.
const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "99999999999999999999999999999999999999999999999999",
    "1e308",
    "1e309",
    "-1e309",
    "4.9e-324",
    "NaN",
    "inf",
    "",
];

/// Bytes that are difficult for text parsers.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let odd: Vec<&[u8]> = vec![
        b"\0",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        "\u{feff}".as_bytes(),
        "\u{202e}".as_bytes(),
        "٣".as_bytes(),
        b"\n",
        b"\r",
        b"\t",
        b" ",
        b"\"",
        b"\\",
        b"\\u0000",
        b",",
        b":",
        b"=",
        b"{",
        b"}",
        b"]",
        b"-",
        b"#",
        b"%",
        b"../",
        b"null",
        b"true",
        b"1e999",
    ];
    let nested: Vec<&[u8]> = vec![
        b"[", b"{\"a\":", b"{a=", b"(", b"a.", b"[[", b"x", b" ", b"\n",
    ];
    prop_oneof![
        4 => prop::sample::select(odd).prop_map(<[u8]>::to_vec),
        2 => prop::collection::vec(any::<u8>(), 1..12),
        1 => (prop::sample::select(nested), 1_usize..4000)
            .prop_map(|(one, times)| one.repeat(times)),
    ]
}

fn change() -> impl Strategy<Value = ByteChange> {
    prop_oneof![
        3 => (any::<u16>(), 0_u8..8).prop_map(|(at, bit)| ByteChange::Flip(at, bit)),
        1 => any::<u16>().prop_map(ByteChange::Cut),
        2 => any::<(u16, u16)>().prop_map(|(a, b)| ByteChange::Remove(a, b)),
        2 => (any::<u16>(), any::<u16>(), 1_u8..40).prop_map(|(a, b, times)| ByteChange::Repeat(a, b, times)),
        1 => any::<(u16, u16, u16)>().prop_map(|(a, b, to)| ByteChange::Move(a, b, to)),
        3 => (any::<u16>(), bytes()).prop_map(|(at, bytes)| ByteChange::Insert(at, bytes)),
        4 => (any::<u16>(), prop::sample::select(&NUMBERS[..]))
            .prop_map(|(at, number)| ByteChange::Number(at, number)),
    ]
}

/// One of these, changed up to six times, and truncated to `most` bytes.
pub fn damaged(valid: Vec<Vec<u8>>, most: usize) -> impl Strategy<Value = Vec<u8>> {
    (
        prop::sample::select(valid),
        prop::collection::vec(change(), 0..7),
    )
        .prop_map(move |(mut bytes, changes)| {
            for change in &changes {
                change.apply(&mut bytes);
                bytes.truncate(most);
            }
            bytes
        })
}

/// As [`damaged`], for text.
pub fn damaged_text(valid: Vec<String>, most: usize) -> impl Strategy<Value = String> {
    let valid = valid.into_iter().map(String::into_bytes).collect();
    damaged(valid, most).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

impl ByteChange {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |share: u16| usize::from(share) * bytes.len() / (usize::from(u16::MAX) + 1);
        let part = |a: u16, b: u16| {
            let (a, b) = (place(a), place(b));
            a.min(b)..a.max(b)
        };
        match self {
            Self::Flip(at, bit) => {
                let at = place(*at);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Cut(at) => bytes.truncate(place(*at)),
            Self::Remove(a, b) => drop(bytes.drain(part(*a, *b))),
            Self::Repeat(a, b, times) => {
                let part = part(*a, *b);
                let end = part.end;
                let again = bytes
                    .get(part)
                    .unwrap_or_default()
                    .repeat(usize::from(*times));
                bytes.splice(end..end, again);
            }
            Self::Move(a, b, to) => {
                let part: Vec<u8> = bytes.drain(part(*a, *b)).collect();
                let to = usize::from(*to) * bytes.len() / (usize::from(u16::MAX) + 1);
                bytes.splice(to..to, part);
            }
            Self::Insert(at, what) => {
                let at = place(*at);
                bytes.splice(at..at, what.iter().copied());
            }
            Self::Number(at, number) => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                let from = place(*at);
                let Some(found) = bytes.iter().skip(from).position(digits) else {
                    return;
                };
                let start = from + found;
                let rest = bytes.iter().skip(start);
                let end = start + rest.take_while(|byte| digits(byte)).count();
                bytes.splice(start..end, number.bytes());
            }
        }
    }
}

/// How long this target is tried with new cases.
fn span() -> Option<Duration> {
    let seconds = std::env::var("BENCHMESH_HOSTILE_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Tests `read` with inputs, the same few or new ones until the time is over. It may neither panic, nor fail, nor hang,
/// nor take more than `most_bytes` of memory at once (if the program counts it, see [`memory`]).
///
/// # Panics
///
/// With the smallest input found that violates one of these.
pub fn withstands<S: Strategy>(
    inputs: S,
    most_bytes: usize,
    mut read: impl FnMut(S::Value) -> Result<(), TestCaseError>,
) where
    S::Value: Debug,
{
    let began = Instant::now();
    let span = span();
    let mut cases = 0_u64;
    loop {
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..Config::default()
        };
        let read = std::cell::RefCell::new(&mut read);
        let mut runner = match span {
            Some(_) => TestRunner::new(config),
            None => {
                let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
                TestRunner::new_with_rng(config, always_the_same)
            }
        };
        let tried = runner.run(&inputs, |input| {
            let cpu = thread_cpu();
            let (result, peak) = memory::peak_of(|| (read.borrow_mut())(input));
            result?;
            prop_assert!(peak <= most_bytes, "it took {peak} bytes of memory");
            let cpu = thread_cpu().saturating_sub(cpu);
            prop_assert!(cpu <= MAX_CPU, "it took {cpu:?} of CPU time");
            Ok(())
        });
        match tried {
            Ok(()) => cases += u64::from(CASES),
            Err(TestError::Fail(why, input)) => panic!("{why}\nwith the input {input:?}"),
            Err(TestError::Abort(why)) => panic!("no inputs: {why}"),
        }
        if span.is_none_or(|span| began.elapsed() >= span) {
            break;
        }
    }
    if span.is_some() {
        let thread = std::thread::current();
        let target = thread.name().unwrap_or_default().to_owned();
        crate::say(&format!("hostile input: {cases} cases of {target}"));
    }
}

/// CPU time of this thread, which excludes time used by other processes.
fn thread_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(change: &ByteChange, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        change.apply(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn changes_are_what_they_are_called() {
        let half = 1 << 15;
        assert_eq!(after(&ByteChange::Flip(0, 5), "abcd"), "Abcd");
        assert_eq!(after(&ByteChange::Cut(half), "abcd"), "ab");
        assert_eq!(after(&ByteChange::Remove(half, 0), "abcd"), "cd");
        assert_eq!(after(&ByteChange::Repeat(0, half, 2), "abcd"), "abababcd");
        assert_eq!(
            after(&ByteChange::Move(0, half / 2, u16::MAX), "abcd"),
            "bcad"
        );
        assert_eq!(
            after(&ByteChange::Insert(half, b"-".to_vec()), "abcd"),
            "ab-cd"
        );
        assert_eq!(
            after(&ByteChange::Number(0, "NaN"), "a=12 b=3"),
            "a=NaN b=3"
        );
        for change in [
            ByteChange::Flip(9, 1),
            ByteChange::Cut(9),
            ByteChange::Number(9, "1"),
        ] {
            assert_eq!(after(&change, ""), "");
        }
    }

    #[test]
    #[should_panic(expected = "with the input")]
    fn a_reader_that_fails_is_found() {
        let inputs = damaged(vec![b"rate 100".to_vec()], 1000);
        withstands(inputs, usize::MAX, |bytes| {
            prop_assert_eq!(bytes, b"rate 100");
            Ok(())
        });
    }
}
