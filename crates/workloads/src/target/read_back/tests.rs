#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::measure::clock::{sleep_until, spin_until};
use crate::target::data::DataSpec;
use crate::testing::flip;
use benchmesh_testing::{measured, timing};
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const UNIT: usize = 16 << 10;

fn content() -> Content {
    let spec = DataSpec {
        verify: true,
        ..DataSpec::default()
    };
    Content::new(spec, 1)
}

/// A directory with a file of `bytes` bytes, written a unit at a time.
fn written(bytes: usize) -> (TempDir, PathBuf) {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("f");
    let mut all = vec![0; bytes];
    let mut at = 0;
    for block in all.chunks_mut(UNIT) {
        content().place(block, 9, at, 0);
        at += block.len() as u64;
    }
    fs::write(&path, all).unwrap();
    (top, path)
}

fn read(top: &TempDir, bytes: u64) -> Result<Moved, Fault> {
    let content = content();
    let dir = fs::File::open(top.path()).unwrap();
    let mut blocks = Blocks::new(&content, 9, bytes);
    read_back(
        dir.as_fd(),
        c"f",
        &mut vec![1; UNIT],
        &mut blocks,
        |_, wanted| Ok(wanted),
    )
}

fn offsets(fault: &Fault) -> Vec<u64> {
    fault
        .mismatches
        .first()
        .iter()
        .map(|it| it.offset)
        .collect()
}

#[test]
fn every_wrong_sector_of_the_file_is_told_once() {
    let (top, path) = written(100_000);
    assert_eq!(read(&top, 100_000).unwrap().bytes, 100_000);
    // Two of them in one sector, three in one block, and one in the last, short one.
    flip(&path, &[700, 701, 5000, 9000, 40_000, 99_999]);
    let fault = read(&top, 100_000).unwrap_err();
    assert_eq!((fault.failed, fault.mismatches.count()), (None, 5));
    assert_eq!(offsets(&fault), [700, 5000, 9000]);
}

#[test]
fn a_file_that_ends_early_is_an_error_and_what_it_had_is_checked() {
    let (top, path) = written(100_000);
    flip(&path, &[5000, 34_000, 40_100]);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(40_123).unwrap();
    let fault = read(&top, 100_000).unwrap_err();
    assert_eq!(fault.failed, Some(CallError::at(Errno::NODATA, 40_123)));
    assert_eq!(fault.mismatches.count(), 3);
    assert_eq!(offsets(&fault), [5000, 34_000, 40_100]);
}

#[test]
fn a_file_that_goes_on_is_wrong_where_it_has_to_end() {
    let (top, _) = written(20_000);
    let fault = read(&top, 16_384).unwrap_err();
    assert_eq!(fault.mismatches.first()[0].found, FoundData::More);
    assert_eq!(offsets(&fault), [16_384]);
}

/// Adds a delay to each call.
struct Slow<'a>(Blocks<'a>);

const SLOW: Duration = Duration::from_millis(4);

impl Original for Slow<'_> {
    fn next(&mut self, offset: u64, room: usize) -> Result<usize, CallError> {
        spin_until(MonoNanos::now().saturating_add(SLOW));
        self.0.next(offset, room)
    }

    fn check(&mut self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        spin_until(MonoNanos::now().saturating_add(SLOW));
        self.0.check(found, offset, wrong);
    }
}

#[test]
fn what_checking_takes_is_no_part_of_the_operation() {
    let (top, _) = written(40_000);
    let dir = fs::File::open(top.path()).unwrap();
    let content = content();
    let mut slow = Slow(Blocks::new(&content, 9, 40_000));
    let began = Began::at(MonoNanos::now());
    let buffer = &mut vec![1; UNIT];
    let moved = read_back(dir.as_fd(), c"f", buffer, &mut slow, |_, wanted| Ok(wanted)).unwrap();
    let took = MonoNanos::now().since(began.at);
    // Three pieces, and the end.
    assert!(
        moved.excluded >= 7 * SLOW && moved.excluded <= took,
        "{moved:?}"
    );
    let shorter = moved.minus_excluded(began);
    assert_eq!(shorter.at.since(began.at), moved.excluded);
    assert_eq!(shorter.intended, shorter.at);
}

/// Reads from a pipe, which ends when its writer closes it.
#[test]
fn to_see_that_a_file_ends_is_no_part_of_reading_it() {
    measured(|| {
        const WAIT: Duration = Duration::from_millis(60);
        let (_top, path) = written(20_000);
        let bytes = fs::read(&path).unwrap();
        let (pipe, mut end) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            std::io::Write::write_all(&mut end, &bytes).unwrap();
            sleep_until(MonoNanos::now().saturating_add(WAIT));
        });
        let content = content();
        let mut blocks = Blocks::new(&content, 9, 20_000);
        let buffer = &mut vec![1; UNIT];
        let moved = read_open(pipe.into(), buffer, &mut blocks, |_, wanted| Ok(wanted)).unwrap();
        writer.join().unwrap();
        assert_eq!(moved.bytes, 20_000);
        timing!(moved.excluded >= WAIT * 9 / 10, "{:?}", moved.excluded);
        Ok(())
    });
}
