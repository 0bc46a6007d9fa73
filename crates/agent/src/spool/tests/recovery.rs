//! Spools of earlier starts with random damage: every batch that is read back is identical to a written one and is in
//! order, and every other batch is counted as lost.

use super::damage::{SUFFIXES, state};
use super::*;
use crate::envelope::SpoolId;
use crate::spool::tests::damage::text_batch;
use benchmesh_testing::hostile::withstands;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

const MESH: &str = "mesh-1";
const PAGE: usize = 4096;
/// Longer than any recovery of such small spools; only a hang takes this long.
const HANGS: Duration = Duration::from_secs(600);

/// One start of the agent.
#[derive(Clone, Debug)]
struct Start {
    /// Transactions, each with batches of these sizes in bytes.
    appends: Vec<Vec<usize>>,
    merges: u8,
    /// Percentage of batches that have arrived and are acked.
    acked: u8,
    ends: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Closed,
    /// The write-ahead log is not checkpointed.
    Killed,
}

/// Damage of one file of one spool; positions are taken modulo its length.
#[derive(Clone, Debug)]
enum Damage {
    FlipBit(usize),
    Cut(usize),
    ZeroPage(usize),
    FillPage(usize, u8),
    CopyPage { from: usize, to: usize },
    FillBytes { at: usize, count: usize, byte: u8 },
}

fn starts() -> impl Strategy<Value = Vec<Start>> {
    let size = prop_oneof![3 => 1..400_usize, 2 => 400..6000_usize, 1 => 6000..60_000_usize];
    let append = prop::collection::vec(size, 1..6);
    let start = (
        prop::collection::vec(append, 1..20),
        0..4_u8,
        prop_oneof![Just(0_u8), 0..100_u8],
        prop_oneof![Just(Ending::Closed), Just(Ending::Killed)],
    );
    let start = start.prop_map(|(appends, merges, acked, ends)| Start {
        appends,
        merges,
        acked,
        ends,
    });
    prop::collection::vec(start, 1..4)
}

fn damages() -> impl Strategy<Value = Vec<(usize, usize, Damage)>> {
    let place = any::<usize>;
    let damage = prop_oneof![
        4 => place().prop_map(Damage::FlipBit),
        1 => place().prop_map(Damage::Cut),
        3 => place().prop_map(Damage::ZeroPage),
        2 => (place(), any::<u8>()).prop_map(|(at, byte)| Damage::FillPage(at, byte)),
        1 => (place(), place()).prop_map(|(from, to)| Damage::CopyPage { from, to }),
        3 => (place(), 1..64_usize, any::<u8>())
            .prop_map(|(at, count, byte)| Damage::FillBytes { at, count, byte }),
    ];
    // Mostly in the main file, sometimes in its log, rarely in the mark.
    let file = prop_oneof![8 => Just(0_usize), 3 => Just(1_usize), 1 => Just(2_usize)];
    prop::collection::vec((place(), file, damage), 1..6)
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        let page = |at: usize| at % len.div_ceil(PAGE) * PAGE;
        let until = |at: usize, count: usize| (at + count).min(len);
        match *self {
            Self::FlipBit(at) => bytes[at / 8 % len] ^= 1 << (at % 8),
            Self::Cut(at) => bytes.truncate(at % len),
            Self::ZeroPage(at) => bytes[page(at)..until(page(at), PAGE)].fill(0),
            Self::FillPage(at, byte) => bytes[page(at)..until(page(at), PAGE)].fill(byte),
            Self::CopyPage { from, to } => {
                let (from, to) = (page(from), page(to));
                let count = PAGE.min(len - from).min(len - to);
                bytes.copy_within(from..from + count, to);
            }
            Self::FillBytes { at, count, byte } => {
                bytes[at % len..until(at % len, count)].fill(byte);
            }
        }
    }
}

/// In memory if possible: hundreds of small databases are created, and none needs an fsync.
fn home() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn copy_state(from: &TempDir) -> TempDir {
    let to = home();
    let target = to.path().join("state");
    drop(StateDir::open(&target, &[]).unwrap());
    for entry in std::fs::read_dir(from.path().join("state")).unwrap() {
        let entry = entry.unwrap();
        // SQLite rebuilds the index of a log.
        let is_index = entry.file_name().to_string_lossy().ends_with("-shm");
        if !is_index {
            std::fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
        }
    }
    to
}

/// Spools as several starts have left them.
struct Left {
    home: TempDir,
    /// The collector's positions.
    stored: HashMap<SpoolId, Sequence>,
    /// Every batch that was ever in a file; a truncated log restores the state before a merge.
    batches: HashSet<(SpoolId, Sequence, Sequence, Vec<u8>)>,
}

async fn spools(starts: &[Start]) -> Left {
    let mut home = home();
    let mut stored = HashMap::new();
    let mut batches = HashSet::new();
    let mut nth = 0;
    for start in starts {
        let mut set = SpoolSet::open(state(&home), 1 << 30).await.unwrap();
        assert!(set.attach(MESH, stored.clone()).await.unwrap());
        let mut last = Sequence(0);
        for sizes in &start.appends {
            let bodies: Vec<Vec<u8>> = sizes
                .iter()
                .map(|size| {
                    nth += 1;
                    text_batch(nth, *size)
                })
                .collect();
            let first = set.append(&bodies, None).await.unwrap();
            last = Sequence(first.0 + bodies.len() as u64 - 1);
            batches.extend(set.all().await);
        }
        for _ in 0..start.merges {
            set.compact().await.unwrap();
            batches.extend(set.all().await);
        }
        let acked = Sequence(last.0 * u64::from(start.acked) / 100);
        let ends = set.all().await.into_iter().map(|(_, _, last, _)| last);
        if let Some(last) = ends.filter(|last| *last <= acked).max() {
            set.append(&[], Some(last)).await.unwrap();
            stored.insert(set.current(), last);
        }
        match start.ends {
            Ending::Closed => set.close().await.unwrap(),
            Ending::Killed => {
                let left = copy_state(&home);
                set.close().await.unwrap();
                home = left;
            }
        }
    }
    Left {
        home,
        stored,
        batches,
    }
}

/// The batches of each spool that arrive: gaps have no body.
type Arrived = BTreeMap<uuid::Uuid, Vec<(u64, u64, Option<Vec<u8>>)>>;

struct Recovered {
    arrived: Arrived,
    unreadable: Vec<uuid::Uuid>,
}

/// Starts on these files, delivers everything, and then a new batch.
async fn recover(home: &TempDir, left: &Left) -> Recovered {
    let stored = &left.stored;
    let mut set = SpoolSet::open(state(home), 1 << 30).await.unwrap();
    assert!(set.attach(MESH, stored.clone()).await.unwrap());
    let new = text_batch(u64::MAX, 100);
    set.append(std::slice::from_ref(&new), None).await.unwrap();
    let current = set.current();
    let mut arrived = Arrived::new();
    let mut upto = stored.clone();
    let mut news = 0;
    let mut calls = 0;
    loop {
        calls += 1;
        assert!(calls < 5000, "it goes on for ever");
        let Some(envelope) = set.next(MeshMicros(0)).await.unwrap() else {
            match set.all_acked(MESH).await {
                true => continue,
                false => break,
            }
        };
        if envelope.spool == current {
            assert_eq!(envelope.body, new);
            news += 1;
            continue;
        }
        let upto = upto.entry(envelope.spool).or_default();
        assert_eq!(envelope.first, upto.next(), "a hole or an overlap");
        assert!(envelope.sequence >= envelope.first);
        *upto = envelope.sequence;
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        let is_gap = batch.events.iter().any(|event| event.kind == "spool-gap");
        let arrived = arrived.entry(envelope.spool.0).or_default();
        arrived.push((
            envelope.first.0,
            envelope.sequence.0,
            (!is_gap).then_some(envelope.body),
        ));
    }
    assert_eq!(news, 1, "an old spool holds up the new one");
    let unreadable = set.take_unreadable();
    set.close().await.unwrap();
    Recovered {
        arrived,
        unreadable,
    }
}

/// The files of the spools in a state directory, by spool.
fn files(home: &TempDir) -> Vec<(uuid::Uuid, PathBuf)> {
    let state = state(home);
    let mut ids = state.spools().unwrap();
    ids.sort_unstable();
    ids.into_iter()
        .map(|id| (id, state.spool_path(id)))
        .collect()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Checks the recovered batches. `whole` is what arrives without the damage.
fn check(left: &Left, whole: &Arrived, damaged: &Recovered, has_mark: impl Fn(uuid::Uuid) -> bool) {
    for (spool, arrived) in &damaged.arrived {
        for (first, last, body) in arrived {
            let Some(body) = body else { continue };
            let batch = (
                SpoolId(*spool),
                Sequence(*first),
                Sequence(*last),
                body.clone(),
            );
            assert!(
                left.batches.contains(&batch),
                "{first} to {last} of {spool} is not what was written"
            );
        }
    }
    for (spool, whole) in whole {
        // Without its mark, the end of a spool is unknown.
        if damaged.unreadable.contains(spool) || !has_mark(*spool) {
            continue;
        }
        let last = |arrived: &Vec<(u64, u64, _)>| arrived.last().map(|(_, last, _)| *last);
        let arrived_last = damaged.arrived.get(spool).and_then(last);
        assert_eq!(
            arrived_last,
            last(whole),
            "a loss that nobody counts, or one that is none"
        );
    }
}

async fn play(starts: Vec<Start>, damages: Vec<(usize, usize, Damage)>) {
    let left = spools(&starts).await;
    let whole = recover(&copy_state(&left.home), &left).await;
    assert!(whole.unreadable.is_empty());
    let files = files(&left.home);
    let mut without_mark = Vec::new();
    for (nth, file, damage) in damages {
        let Some((spool, path)) = files.get(nth % files.len().max(1)) else {
            return;
        };
        let path = beside(path, SUFFIXES[file]);
        let Ok(mut bytes) = std::fs::read(&path) else {
            continue;
        };
        damage.apply(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        if file == 2 {
            without_mark.push(*spool);
        }
    }
    let damaged = recover(&left.home, &left).await;
    check(&left, &whole.arrived, &damaged, |spool| {
        !without_mark.contains(&spool)
    });
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ended = tokio::time::timeout(HANGS, future).await;
        assert!(ended.is_ok(), "it hangs");
    });
}

#[test]
fn damaged_spools_give_back_what_was_written_and_count_each_loss() {
    withstands((starts(), damages()), usize::MAX, |(starts, damages)| {
        block_on(play(starts, damages));
        Ok(())
    });
}

/// Zeroing any page loses only its own content: a few batches, or the file if the page identifies the file.
#[test]
fn a_page_of_zeros_holds_back_nothing_else() {
    block_on(async {
        let start = Start {
            appends: (0..40).map(|nth| vec![300 + nth * 40; 5]).collect(),
            merges: 0,
            acked: 0,
            ends: Ending::Closed,
        };
        let left = spools(&[start]).await;
        let undamaged = recover(&copy_state(&left.home), &left).await.arrived;
        let (spool, path) = files(&left.home).remove(0);
        let whole = std::fs::read(&path).unwrap();
        let (mut unreadable, mut emptied, mut most_lost) = (0, 0, 0);
        let pages = whole.len() / PAGE;
        for page in 0..pages {
            let home = copy_state(&left.home);
            let mut bytes = whole.clone();
            bytes[page * PAGE..(page + 1) * PAGE].fill(0);
            let path = files(&home).remove(0).1;
            std::fs::write(path, bytes).unwrap();
            let recovered = recover(&home, &left).await;
            check(&left, &undamaged, &recovered, |_| true);
            if recovered.unreadable.contains(&spool) {
                unreadable += 1;
                continue;
            }
            let arrived = &recovered.arrived[&spool];
            let whole = arrived.iter().filter(|(.., body)| body.is_some()).count();
            match 200 - whole {
                200 => emptied += 1,
                lost => most_lost = most_lost.max(lost),
            }
        }
        // Unreadable without the first page or that of the spool's row; empty without the root page of the batches.
        assert!(unreadable <= 3, "{unreadable} of {pages} pages");
        assert!(emptied <= 1, "{emptied} of {pages} pages");
        assert!((1..16).contains(&most_lost), "{most_lost} of 200 batches");
    });
}

/// A flipped bit in a batch's first sequence, which would claim wrong sequences to the collector.
#[test]
fn a_damaged_first_sequence_is_no_batch() {
    block_on(async {
        let left = spools(&[Start {
            appends: vec![vec![100], vec![100], vec![100]],
            merges: 0,
            acked: 0,
            ends: Ending::Closed,
        }])
        .await;
        let (spool, path) = files(&left.home).remove(0);
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut file = sqlx::ConnectOptions::connect(&file).await.unwrap();
        let sql = "UPDATE batches SET first_sequence = 3 WHERE sequence = 3; \
                   UPDATE batches SET first_sequence = 1 WHERE sequence = 2";
        sqlx::raw_sql(sql).execute(&mut file).await.unwrap();
        sqlx::Connection::close(file).await.unwrap();
        let recovered = recover(&left.home, &left).await;
        let arrived: Vec<(u64, u64, bool)> = recovered.arrived[&spool]
            .iter()
            .map(|(first, last, body)| (*first, *last, body.is_some()))
            .collect();
        assert_eq!(arrived, [(1, 1, true), (2, 2, false), (3, 3, true)]);
    });
}

/// With a damaged mesh, rows would go to another database.
#[test]
fn a_spool_whose_mesh_is_damaged_is_unreadable() {
    block_on(async {
        let left = spools(&[Start {
            appends: vec![vec![100]],
            merges: 0,
            acked: 0,
            ends: Ending::Closed,
        }])
        .await;
        let (spool, path) = files(&left.home).remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut windows = bytes.windows(MESH.len());
        let at = windows
            .position(|window| window == MESH.as_bytes())
            .unwrap();
        bytes[at + MESH.len() - 1] = b'2';
        std::fs::write(&path, bytes).unwrap();
        let recovered = recover(&left.home, &left).await;
        assert_eq!(recovered.unreadable, [spool]);
        assert!(recovered.arrived.is_empty());
        assert!(path.exists(), "it is left for a person to see");
    });
}

#[test]
fn a_spool_of_another_version_is_unreadable_and_left_alone() {
    block_on(async {
        let left = spools(&[Start {
            appends: vec![vec![100]],
            merges: 0,
            acked: 0,
            ends: Ending::Closed,
        }])
        .await;
        let (spool, path) = files(&left.home).remove(0);
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut file = sqlx::ConnectOptions::connect(&file).await.unwrap();
        sqlx::raw_sql("UPDATE spool SET version = version + 1")
            .execute(&mut file)
            .await
            .unwrap();
        sqlx::Connection::close(file).await.unwrap();
        let recovered = recover(&left.home, &left).await;
        assert_eq!(recovered.unreadable, [spool]);
        assert!(recovered.arrived.is_empty());
        assert!(path.exists(), "it is left for a person to see");
    });
}
