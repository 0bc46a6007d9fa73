#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use benchmesh_testing::hostile::{damaged, withstands};
use proptest::prelude::*;

use super::*;

const DISKSTATS: &str = "\
   7       0 loop0 1862 1 411826 303 138 81 254896 77 0 36 383 2 0 1048584 0 17 2
   7       1 loop1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0
   8       0 sda 100 5 2000 40 200 6 4000 80 3 90 120 7 0 9 0 11 5
   8       1 sda1 90 5 1900 40 190 6 3900 80 0 90 120
   8      16 sdaa 1 0 8 1 1 0 8 1 0 1 1
 259       0 nvme0n1 10 0 80 4 20 0 160 8 0 9 12 0 0 0 0 0 0
 259       1 nvme0n1p1 10 0 80 4 20 0 160 8 0 9 12 0 0 0 0 0 0
 253       0 dm-0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 253       1 dm-1 4 0 32 1 0 0 0 0 0 1 1 0 0 0 0 0 0
   9       1 md1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
   9      10 md10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 126117 11675 8363188 110531 19890 79908 23316544 108076 0 14864 219635 5871 19 706608 948 1595 78
";

fn fake(name: &str, text: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    root
}

#[test]
fn whole_disks_and_devices_in_use() {
    let root = fake("diskstats", DISKSTATS);
    let rows = Disks::open(root.path(), root.path())
        .unwrap()
        .sample(MonoNanos(5), &mut Buffer::new());
    let names: Vec<&str> = rows.iter().map(|row| row.disk.as_ref()).collect();
    assert_eq!(
        names,
        [
            "loop0", "sda", "sdaa", "nvme0n1", "dm-0", "dm-1", "md1", "md10", "vda"
        ]
    );
    assert_eq!(
        rows[1],
        DiskSample {
            at: MonoNanos(5),
            disk: "sda".into(),
            stacked: false,
            figures: DiskFigures {
                reads: 100,
                read_bytes: 2000 * 512,
                read_us: 40_000,
                writes: 200,
                write_bytes: 4000 * 512,
                write_us: 80_000,
                in_flight: 3,
                busy_us: 90_000,
                queue_us: 120_000,
                discards: 7,
                flushes: 11,
            },
        }
    );
    // A kernel before 4.18.
    assert_eq!((rows[2].figures.discards, rows[2].figures.flushes), (0, 0));
}

#[test]
fn a_bad_line_costs_that_line() {
    let root = fake(
        "diskstats",
        "   8 0 sda 1 2 3\n   8 16 sdb x\n\n   8 32 sdc 1 0 8 1 1 0 8 1 0 1 1\n",
    );
    let rows = Disks::open(root.path(), root.path())
        .unwrap()
        .sample(MonoNanos(5), &mut Buffer::new());
    assert_eq!(
        rows.iter().map(|row| row.disk.as_ref()).collect::<Vec<_>>(),
        ["sdc"]
    );
}

#[test]
fn milliseconds_are_carried_on_over_32_bits() {
    let mut ms = Milliseconds32::default();
    let near_end = u64::from(u32::MAX) - 9;
    let us: Vec<i64> = [near_end, 10, 30, 20]
        .into_iter()
        .map(|raw| ms.advance_us(raw))
        .collect();
    let first = i64::from(u32::MAX - 9) * 1000;
    assert_eq!(
        us,
        [first, first + 20_000, first + 40_000, first + 40_000],
        "20 after 30 is a reset, not a wrap"
    );
}

const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
br-0a1b:179173650    7093    1    2    3     4          5         6   365880    3518    7    8    9     10       11          12
";

#[test]
fn interfaces_of_the_list() {
    let root = fake("net/dev", NET_DEV);
    let mut interfaces = Interfaces::open(root.path()).unwrap();
    let mut buffer = Buffer::new();
    let rows = interfaces.sample(MonoNanos(9), &mut buffer);
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (
            rows[0].interface.as_ref(),
            rows[0].figures.rx_bytes,
            rows[0].figures.tx_packets
        ),
        ("lo", 3193, 29)
    );
    assert_eq!(
        rows[1],
        NetSample {
            at: MonoNanos(9),
            interface: "br-0a1b".into(),
            figures: NetFigures {
                rx_bytes: 179_173_650,
                rx_packets: 7093,
                rx_errors: 1,
                rx_dropped: 2,
                tx_bytes: 365_880,
                tx_packets: 3518,
                tx_errors: 7,
                tx_dropped: 8,
            },
        }
    );
    let again = interfaces.sample(MonoNanos(10), &mut buffer);
    assert!(
        Arc::ptr_eq(&again[1].interface, &rows[1].interface),
        "names are made once"
    );
}

#[test]
fn an_interface_that_is_made_again_counts_on() {
    let root = fake("net/dev", NET_DEV);
    let mut interfaces = Interfaces::open(root.path()).unwrap();
    let mut buffer = Buffer::new();
    interfaces.sample(MonoNanos(9), &mut buffer);
    let again = NET_DEV.replace("179173650    7093", "40 2");
    std::fs::write(root.path().join("net/dev"), again).unwrap();
    let first = interfaces.sample(MonoNanos(10), &mut buffer);
    assert_eq!(first[1].figures.rx_bytes, 179_173_650);
    let more = NET_DEV.replace("179173650    7093", "100 2");
    std::fs::write(root.path().join("net/dev"), more).unwrap();
    assert_eq!(
        interfaces.sample(MonoNanos(11), &mut buffer)[1]
            .figures
            .rx_bytes,
        179_173_650 + 60
    );
}

/// The second sample reads a text that differs from the first one's, as when devices come and go.
#[test]
fn damaged_lists_cost_rows_only() {
    let texts = vec![DISKSTATS.as_bytes().to_vec(), NET_DEV.as_bytes().to_vec()];
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("net")).unwrap();
    let write = |text: &[u8]| {
        std::fs::write(root.path().join("diskstats"), text).unwrap();
        std::fs::write(root.path().join("net/dev"), text).unwrap();
    };
    let inputs = (damaged(texts.clone(), 16 << 10), damaged(texts, 16 << 10));
    withstands(inputs, 8 << 20, |(first, second)| {
        write(&first);
        let mut buffer = Buffer::new();
        let mut disks = Disks::open(root.path(), root.path()).unwrap();
        let mut interfaces = Interfaces::open(root.path()).unwrap();
        for (at, text) in [(1, &first), (2, &second)] {
            write(text);
            for row in disks.sample(MonoNanos(at), &mut buffer) {
                prop_assert!(
                    row.figures.read_bytes >= 0
                        && row.figures.write_bytes >= 0
                        && row.figures.in_flight >= 0,
                    "{row:?}"
                );
            }
            for row in interfaces.sample(MonoNanos(at), &mut buffer) {
                prop_assert!(
                    row.figures.rx_bytes >= 0 && row.figures.tx_packets >= 0,
                    "{row:?}"
                );
            }
        }
        Ok(())
    });
}

proptest! {
    #[test]
    fn garbage_costs_rows_only(text in prop::collection::vec(any::<u8>(), 0..600)) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("net")).unwrap();
        std::fs::write(root.path().join("diskstats"), &text).unwrap();
        std::fs::write(root.path().join("net/dev"), &text).unwrap();
        let mut buffer = Buffer::new();
        Disks::open(root.path(), root.path()).unwrap().sample(MonoNanos(1), &mut buffer);
        Interfaces::open(root.path()).unwrap().sample(MonoNanos(1), &mut buffer);
    }

    #[test]
    fn any_numbers_fit(numbers in prop::collection::vec(any::<u64>(), 17)) {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let root = fake("diskstats", &format!("8 0 sda {}\n", numbers.join(" ")));
        let mut disks = Disks::open(root.path(), root.path()).unwrap();
        let rows = disks.sample(MonoNanos(1), &mut Buffer::new());
        prop_assert_eq!(rows.len(), 1);
        prop_assert!(rows[0].figures.read_bytes >= 0 && rows[0].figures.queue_us >= 0);
    }
}
