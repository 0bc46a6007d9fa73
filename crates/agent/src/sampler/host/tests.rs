#![allow(clippy::unwrap_used)]
use std::num::NonZeroU32;

use benchmesh_testing::hostile::{damaged, withstands};
use proptest::prelude::*;

use super::*;

const STAT: &str = "cpu  32735 7 8182 306203 2505 3 118 39 11 5\ncpu0 1 2 3\nintr 402623 0 0\n";
const MEMINFO: &str = "MemTotal:       24684084 kB\nMemFree:        22165928 kB\nMemAvailable:   24193476 kB\n\
    Buffers: 26412 kB\nCached:          2107224 kB\nSwapCached: 5 kB\nSwapTotal:        2048 kB\nSwapFree:         \
    1024 kB\nDirty:               260 kB\nWriteback:             4 kB\nWritebackTmp: 9 kB\n";
const IO_PRESSURE: &str = "some avg10=0.00 avg60=0.37 avg300=2.21 total=21833485\n\
    full avg10=0.00 avg60=0.36 avg300=2.16 total=20610656\n";

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("pressure")).unwrap();
    for (name, text) in files {
        std::fs::write(root.path().join(name), text).unwrap();
    }
    root
}

fn hundred() -> TickLength {
    TickLength::from_rate(NonZeroU32::new(100).unwrap())
}

fn sample(root: &tempfile::TempDir) -> Option<HostSample> {
    Host::open(root.path(), hundred()).sample(MonoNanos(3), &mut Buffer::new())
}

#[test]
fn a_recorded_host() {
    let root = tree(&[
        ("stat", STAT),
        ("meminfo", MEMINFO),
        ("loadavg", "0.35 0.21 0.10 1/123 4567\n"),
        (
            "pressure/cpu",
            "some avg10=0.00 avg60=0.05 avg300=0.48 total=24490053\n",
        ),
        ("pressure/io", IO_PRESSURE),
    ]);
    let figures = HostFigures {
        user_us: 327_350_000,
        nice_us: 70_000,
        system_us: 81_820_000,
        idle_us: 3_062_030_000,
        iowait_us: 25_050_000,
        irq_us: 30_000,
        softirq_us: 1_180_000,
        steal_us: 390_000,
        memory_total_bytes: 24_684_084 * 1024,
        memory_available_bytes: 24_193_476 * 1024,
        memory_free_bytes: 22_165_928 * 1024,
        cached_bytes: 2_107_224 * 1024,
        dirty_bytes: 260 * 1024,
        writeback_bytes: 4 * 1024,
        swap_used_bytes: 1024 * 1024,
        load1: 35,
        cpu_some_us: 24_490_053,
        io_some_us: 21_833_485,
        io_full_us: 20_610_656,
        memory_some_us: -1,
        memory_full_us: -1,
        skipped_ticks: 0,
        sampler_cpu_us: 0,
    };
    let expected = HostSample {
        at: MonoNanos(3),
        figures,
        others: None,
    };
    assert_eq!(sample(&root), Some(expected));
}

#[test]
fn an_old_kernel_has_less() {
    let root = tree(&[
        ("stat", "cpu  1 2 3 4\n"),
        ("meminfo", "MemTotal: 8 kB\n"),
        ("loadavg", "x\n"),
    ]);
    let host = sample(&root).unwrap().figures;
    assert_eq!(
        (host.idle_us, host.iowait_us, host.steal_us),
        (40_000, 0, 0)
    );
    assert_eq!(
        (
            host.memory_total_bytes,
            host.memory_available_bytes,
            host.swap_used_bytes
        ),
        (8192, -1, -1)
    );
    assert_eq!(host.load1, -1);
    assert_eq!((host.cpu_some_us, host.io_full_us), (-1, -1));
}

#[test]
fn what_falls_stands_still() {
    let root = tree(&[
        ("stat", "cpu  9 9 9 90 20\n"),
        ("meminfo", "MemTotal: 8 kB\n"),
        ("loadavg", "0 0 0\n"),
    ]);
    let mut host = Host::open(root.path(), hundred());
    let mut iowait_us = || {
        host.sample(MonoNanos(1), &mut Buffer::new())
            .unwrap()
            .figures
            .iowait_us
    };
    let write = |text: &str| std::fs::write(root.path().join("stat"), text).unwrap();
    assert_eq!(iowait_us(), 200_000);
    write("cpu  9 9 9 91 19\n");
    assert_eq!(iowait_us(), 200_000);
    write("cpu  9 9 9 91 21\n");
    assert_eq!(iowait_us(), 210_000);
}

#[test]
fn this_host() {
    let host = Host::open(Path::new("/proc"), TickLength::of_this_kernel());
    let host = { host }.sample(MonoNanos(1), &mut Buffer::new()).unwrap();
    let host = host.figures;
    assert!(
        host.idle_us > 0 && host.user_us > 0 && host.memory_total_bytes > host.memory_free_bytes
    );
}

#[test]
fn damaged_texts_are_a_sample_that_can_be_or_none() {
    let texts = [STAT, MEMINFO, IO_PRESSURE, "0.05 0.10 0.15 1/234 5678\n"];
    let texts = texts.map(|text| text.as_bytes().to_vec()).to_vec();
    withstands(damaged(texts, 16 << 10), 1 << 20, |text| {
        let _ = (cpu_states(&text), pressure(&text));
        if let Ok(load) = load1(&text) {
            prop_assert!(load >= 0, "{load}");
        }
        if let Ok(memory) = memory(&text) {
            prop_assert!(memory.total >= -1 && memory.swap_used >= -1, "{memory:?}");
        }
        Ok(())
    });
}

proptest! {
    #[test]
    fn garbage_is_no_sample(text in prop::collection::vec(any::<u8>(), 0..600)) {
        let root = tree(&[]);
        for name in ["stat", "meminfo", "loadavg", "pressure/cpu", "pressure/io", "pressure/memory"] {
            std::fs::write(root.path().join(name), &text).unwrap();
        }
        let _ = sample(&root);
        let _ = (cpu_states(&text), memory(&text), load1(&text), pressure(&text));
    }
}
