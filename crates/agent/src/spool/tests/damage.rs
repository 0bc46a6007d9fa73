//! Spools that the disk has damaged, batches that are set aside, and databases restored from older copies.

use super::*;
use crate::spool::file::{PAGE_BYTES, SpoolFile};
use crate::telemetry::Batch;
use benchmesh_model::events::WireKind;
use std::path::Path;

fn body(nth: u64) -> Vec<u8> {
    let mut batch = Batch::default();
    batch.push(noise(nth));
    wire::batch::encode(&batch)
}

/// A unique batch of about this size.
pub(super) fn text_batch(nth: u64, bytes: usize) -> Vec<u8> {
    let mut batch = Batch::default();
    batch.push(TelemetryRow::Event(Event {
        at: MeshMicros(1),
        scope: RunScope::default(),
        kind: WireKind::received("test".to_owned(), "info"),
        message: format!("{nth} {}", "x".repeat(bytes)),
        detail: String::new(),
    }));
    wire::batch::encode(&batch)
}

pub(super) fn state(home: &TempDir) -> Arc<StateDir> {
    Arc::new(StateDir::open(&home.path().join("state"), &[]).unwrap())
}

/// Changes one byte of a batch's body in the middle of the file, as a bad sector does.
fn damage(path: &Path, nth: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    let text = format!("{nth} xxxxxxxx");
    let found = bytes
        .windows(text.len())
        .position(|window| window == text.as_bytes())
        .unwrap();
    bytes[found + 4] = b'y';
    std::fs::write(path, bytes).unwrap();
}

/// Everything that a set sends; gaps as their message.
async fn drain(set: &mut SpoolSet) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let Some(envelope) = set.next(MeshMicros(0)).await.unwrap() else {
            if set.all_acked("mesh-1").await {
                continue;
            }
            return texts;
        };
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        for event in batch.events {
            texts.push(event.message.split(" x").next().unwrap().to_owned());
        }
    }
}

#[tokio::test]
async fn a_damaged_batch_is_a_gap_and_the_others_arrive() {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    let bodies: Vec<Vec<u8>> = (1..=5).map(body).collect();
    set.append(&bodies, None).await.unwrap();
    let path = state.spool_path(set.current().0);
    set.close().await.unwrap();
    damage(&path, 3);

    let mut set = SpoolSet::open(state, 1 << 30).await.unwrap();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    let texts = drain(&mut set).await;
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert_eq!(
        [&*texts[0], &*texts[1], &*texts[3], &*texts[4]],
        ["1", "2", "4", "5"]
    );
    assert!(
        texts[2].contains("1 batches (3 to 3") && texts[2].contains("damaged"),
        "{}",
        texts[2]
    );
    assert!(
        path.exists(),
        "the damaged batch is kept for a person to see"
    );
}

#[tokio::test]
async fn a_damaged_batch_does_not_stop_the_merging() {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    let intervals = |first: u64| {
        let mut batch = Batch::default();
        (0..50).for_each(|_| batch.push(TelemetryRow::OpInterval(interval(&[first]))));
        wire::batch::encode(&batch)
    };
    // The second cannot be decoded, the third is damaged; both are in the middle of mergeable batches.
    let mut bodies: Vec<Vec<u8>> = (1..=20).map(intervals).collect();
    bodies[1] = b"not a batch".to_vec();
    bodies[2] = body(3);
    set.append(&bodies, None).await.unwrap();
    let (path, before) = (state.spool_path(set.current().0), set.held_bytes());
    set.close().await.unwrap();
    damage(&path, 3);
    let mut file = SpoolFile::open(&path).await.unwrap();
    let mut freed = 0;
    let mut steps = 0;
    while let Some(bytes) = file.compact().await.unwrap() {
        freed += bytes;
        steps += 1;
        assert!(steps < 100, "it never comes to the end of a round");
    }
    assert!(
        freed > 0 && file.bytes() + freed == before,
        "{freed} of {before}"
    );
}

/// SQLite drops the damaged end of its log without an error.
#[tokio::test]
async fn a_lost_tail_is_counted() {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    for nth in 1..=9 {
        set.append(&[body(nth)], None).await.unwrap();
    }
    let path = state.spool_path(set.current().0);
    // As after a kill: no file is closed, and the log's end is lost.
    let left = home.path().join("left");
    let copy = |suffix: &str| {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(&path), name(&left)).unwrap();
    };
    ["", "-wal", "-mark"].into_iter().for_each(copy);
    set.close().await.unwrap();
    for (suffix, cut) in [("", 0), ("-wal", 40_000), ("-mark", 0)] {
        let bytes = std::fs::read(format!("{}{suffix}", left.display())).unwrap();
        let kept = bytes.len() - cut;
        std::fs::write(format!("{}{suffix}", path.display()), &bytes[..kept]).unwrap();
    }

    let mut set = SpoolSet::open(state, 1 << 30).await.unwrap();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    let texts = drain(&mut set).await;
    let (gap, arrived) = texts.split_last().unwrap();
    let lost = 9 - arrived.len();
    assert!((1..9).contains(&lost), "{texts:?}");
    let range = format!("{lost} batches ({} to 9 ", arrived.len() + 1);
    assert!(gap.starts_with(&range) && gap.contains("lost"), "{gap}");
    assert!(!path.exists(), "a drained spool is removed");
}

#[tokio::test]
async fn what_is_set_aside_frees_its_room_and_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    let bodies: Vec<Vec<u8>> = (1..=10).map(body).collect();
    let one = bodies[0].len() as u64;
    set.append(&bodies, None).await.unwrap();
    let spool = set.current();
    for sequence in 1..=9 {
        set.set_aside(spool, Sequence(sequence), "a test")
            .await
            .unwrap();
    }
    assert!(set.held_bytes() <= one + 8, "{} of {one}", set.held_bytes());
    set.close().await.unwrap();
    let file = std::fs::read(state.spool_path(spool.0)).unwrap();
    let kept = |nth: u64| {
        let text = format!("{nth} xxxxxxxx");
        file.windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    // The limit is 64 KiB in tests: two bodies of about 30 kB.
    assert!(kept(9) && kept(8), "the newest are kept");
    let mut file = SpoolFile::open(&state.spool_path(spool.0)).await.unwrap();
    let held = file.refused_bytes().await;
    assert!(held <= 64 << 10, "{held}");
}

#[tokio::test]
async fn a_stub_of_a_start_on_a_full_disk_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    // With a page of this version's size, and with 4096 bytes, as in earlier versions.
    let mut earlier = vec![0; 4096];
    earlier[16] = 16;
    let stubs = [Vec::new(), vec![0; PAGE_BYTES as usize], earlier].map(|bytes| {
        let path = state.spool_path(uuid::Uuid::new_v4());
        std::fs::write(&path, bytes).unwrap();
        path
    });
    let set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    assert!(stubs.iter().all(|path| !path.exists()));
    set.close().await.unwrap();
    assert!(state.spools().unwrap().is_empty());
}

#[tokio::test]
async fn a_database_that_went_back_costs_one_loss_with_its_count() {
    let mut rig = rig().await;
    for nth in 1..=3 {
        spooled(&rig, nth).await;
    }
    let first = rig.envelopes.recv().await.unwrap();
    let second = rig.envelopes.recv().await.unwrap();
    rig.spool.ack(first.spool, second.sequence).await.unwrap();
    let stored = HashMap::from([(first.spool, first.sequence)]);
    let mesh = || "mesh-1".to_owned();
    let restored = rig.spool.is_ahead_of(mesh(), stored.clone()).await.unwrap();
    assert_eq!(restored, Some(first.sequence));
    assert_eq!(rig.spool.acked().last(), second.sequence);
    let announced = rig.spool.announce().await.unwrap();
    assert_eq!(announced.len(), 1);
    assert_eq!(announced[0].mesh.as_deref(), Some("mesh-1"));
    assert_eq!(announced[0].acked, second.sequence);
    let (out, _) = mpsc::channel(WINDOW_BATCHES);
    let attached = rig.spool.attach(mesh(), stored, out).await.unwrap();
    assert_eq!(attached, Attached::Again);

    // The next announcement: a new spool, without any batch at the collector.
    let ids = ids(&rig).await;
    assert!(ids.len() == 2 && ids[0] == first.spool, "{ids:?}");
    let stored = HashMap::from([(first.spool, first.sequence)]);
    let restored = rig.spool.is_ahead_of(mesh(), stored.clone()).await.unwrap();
    assert_eq!(restored, None);
    let (out, mut envelopes) = mpsc::channel(WINDOW_BATCHES);
    let attached = rig.spool.attach(mesh(), stored, out).await.unwrap();
    assert_eq!(attached, Attached::Sending);
    let envelope = envelopes.recv().await.unwrap();
    assert_eq!((envelope.spool, envelope.first), (ids[1], Sequence(1)));
    let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
    let event = &batch.events[0];
    assert_eq!(event.kind, "database-restored");
    let detail: serde_json::Value = serde_json::from_str(&event.detail_json).unwrap();
    assert_eq!(
        (&detail["batches"], &detail["spools"]),
        (&1.into(), &1.into())
    );
    assert_eq!(detail["vanished_batches"], 1);
    rig.spool.close().await.unwrap();
}

/// The written spool's file loses its pages while the agent runs: later rows go into a new spool.
#[tokio::test]
async fn a_written_spool_that_is_damaged_is_replaced() {
    let mut rig = rig().await;
    let damaged = spooled(&rig, 0).await.spool;
    // More than SQLite keeps in memory.
    for nth in 1..60 {
        spooled(&rig, nth).await;
    }
    let sent = rig.envelopes.recv().await.unwrap();
    let path = rig
        ._home
        .path()
        .join(format!("state/spool-{}.db", damaged.0));
    for suffix in ["", "-wal"] {
        let path = format!("{}{suffix}", path.display());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.fill(0x5a);
        // Written in place, because a file with another inode would not be noticed.
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
    }
    rig.spool.ack(sent.spool, sent.sequence).await.unwrap();
    let mut last = damaged;
    for nth in 60..260 {
        last = spooled(&rig, nth).await.spool;
        if last != damaged {
            break;
        }
    }
    assert_ne!(last, damaged, "it is written as if nothing had happened");
    while rig.envelopes.recv().await.is_some() {}
    let ids = ids(&rig).await;
    assert_eq!(ids, [damaged, last], "the old one is drained first");
    let (out, mut envelopes) = mpsc::channel(WINDOW_BATCHES);
    let stored = HashMap::from([(damaged, sent.sequence)]);
    let attached = rig.spool.attach("mesh-1".to_owned(), stored, out).await;
    assert_eq!(attached.unwrap(), Attached::Sending);
    let arrives = tokio::time::timeout(Duration::from_secs(300), async {
        while let Some(envelope) = envelopes.recv().await {
            rig.spool
                .ack(envelope.spool, envelope.sequence)
                .await
                .unwrap();
            if envelope.spool == last {
                return;
            }
        }
        panic!("the session ends again");
    });
    arrives.await.expect("the new spool is held up");
    rig.spool.close().await.unwrap();
}

pub(super) const SUFFIXES: [&str; 3] = ["", "-wal", "-mark"];
const BATCHES: u64 = 9;

/// A spool of nine batches: its id and its files.
async fn spool_files() -> (uuid::Uuid, [Vec<u8>; 3]) {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 1 << 30).await.unwrap();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    for nth in 1..=BATCHES {
        set.append(&[body(nth)], None).await.unwrap();
    }
    let id = set.current().0;
    set.close().await.unwrap();
    let files = SUFFIXES.map(|suffix| {
        std::fs::read(format!("{}{suffix}", state.spool_path(id).display())).unwrap_or_default()
    });
    (id, files)
}

/// Opens and drains the rest of a damaged spool. Each batch arrives unchanged, or is within a counted gap, or its whole
/// spool is reported as unreadable; batches appended afterwards arrive.
async fn check_recovery(id: uuid::Uuid, files: &[Vec<u8>; 3]) {
    let home = tempfile::tempdir().unwrap();
    let state = state(&home);
    let path = state.spool_path(id);
    for (suffix, bytes) in SUFFIXES.iter().zip(files) {
        if !bytes.is_empty() || suffix.is_empty() {
            std::fs::write(format!("{}{suffix}", path.display()), bytes).unwrap();
        }
    }
    let mut set = SpoolSet::open(state, 1 << 30).await.unwrap();
    let is_unreadable = !set.take_unreadable().is_empty();
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    let current = set.current();
    set.append(&[body(100)], None).await.unwrap();
    let mut upto = 0;
    let mut is_new_here = false;
    for _ in 0..100 {
        let Some(envelope) = set.next(MeshMicros(0)).await.unwrap() else {
            match set.all_acked("mesh-1").await {
                true => continue,
                false => break,
            }
        };
        if envelope.spool == current {
            assert!(!is_new_here, "it arrives twice");
            assert_eq!(envelope.body, body(100));
            is_new_here = true;
            continue;
        }
        assert_eq!(
            envelope.first.0,
            upto + 1,
            "nothing is left out or comes twice"
        );
        upto = envelope.sequence.0;
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        if batch.events[0].kind != "spool-gap" {
            assert_eq!(envelope.first, envelope.sequence);
            assert_eq!(envelope.body, body(upto));
        }
    }
    assert!(is_new_here, "an old spool holds up the new one");
    assert!(
        upto == BATCHES || is_unreadable,
        "batches after {upto} are lost without a word"
    );
    set.close().await.unwrap();
}

/// A batch's body is a chain of pages, which is broken here.
#[tokio::test]
async fn a_batch_whose_pages_cannot_be_read_is_a_gap() {
    let (id, mut files) = spool_files().await;
    let text = b"3 xxxxxxxx";
    let mut windows = files[0].windows(text.len());
    let found = windows.position(|window| window == text).unwrap();
    let page = PAGE_BYTES as usize;
    let next_page = (found / page + 1) * page;
    files[0][next_page..next_page + 4].fill(0xff);
    check_recovery(id, &files).await;
}

/// The mark beside the file records that it had batches.
#[tokio::test]
async fn a_spool_that_was_cut_to_nothing_is_unreadable() {
    let (id, mut files) = spool_files().await;
    files[0].clear();
    check_recovery(id, &files).await;
}
