//! A spool that is over its limit.

use super::*;

/// Appends a batch after making room for it, as the actor does.
async fn append(set: &mut SpoolSet, batch: &Batch) -> u64 {
    let body = wire::batch::encode(batch);
    let bytes = body.len() as u64;
    if !set.has_room(bytes).await.unwrap() {
        set.make_room(bytes).await.unwrap();
    }
    set.append(&[body], None).await.unwrap();
    bytes
}

/// Counts of a collector's view of a spool: operations that have arrived, and those that are counted as lost with their
/// batches.
async fn deliver(set: &mut SpoolSet) -> (u64, u64, u64) {
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    let (mut arrived, mut lost, mut batches) = (0, 0, 0);
    let mut expected = Sequence(1);
    while let Some(envelope) = set.next(MeshMicros(1)).await.unwrap() {
        assert_eq!(envelope.first, expected);
        expected = envelope.sequence.next();
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        arrived += batch.op_intervals.iter().map(|row| row.ops).sum::<u64>();
        for loss in batch.losses {
            assert!(loss.from_us > 0 && loss.from_us <= loss.until_us);
            match loss.what.as_str() {
                "batches" => batches += loss.rows,
                "operations" => lost += loss.rows,
                other => panic!("{other}"),
            }
        }
    }
    (arrived, lost, batches)
}

fn new_set_state(home: &TempDir) -> Arc<StateDir> {
    Arc::new(StateDir::open(&home.path().join("state"), &[]).unwrap())
}

#[tokio::test]
async fn over_its_limit_a_spool_merges_what_was_not_sent() {
    let home = tempfile::tempdir().unwrap();
    let mut set = SpoolSet::open(new_set_state(&home), 0).await.unwrap();
    let (mut ops, mut bytes) = (0, 0);
    // The limit is never below 1 MiB; this is three times as much.
    let values: Vec<u64> = (0..3000).map(|nth| 1000 + nth * nth * 37).collect();
    let row = interval(&values);
    while bytes < 3 << 20 {
        let mut batch = Batch::default();
        for task in 0..10 {
            ops += row.ops;
            batch.push(TelemetryRow::OpInterval(OpInterval {
                run_uid: RunUid::default(),
                task: TaskId(task),
                ..row.clone()
            }));
        }
        bytes += append(&mut set, &batch).await;
        let used = set.used_bytes().await;
        assert!(used <= 1 << 20, "{used}");
    }
    assert_eq!(set.take_full(), None);
    assert_eq!(deliver(&mut set).await, (ops, 0, 0));
}

/// A row for each of the next 20 tasks after `last`, so that the rows cannot be merged.
fn of_new_tasks(row: &OpInterval, last: &mut i64) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..20 {
        *last += 1;
        batch.push(TelemetryRow::OpInterval(OpInterval {
            task: TaskId(*last),
            ..row.clone()
        }));
    }
    batch
}

/// Samples contain other users' daemons and command lines, so the files must be private.
#[tokio::test]
async fn the_files_of_a_spool_are_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let state = new_set_state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 0).await.unwrap();
    append(&mut set, &of_new_tasks(&interval(&[1000]), &mut 0)).await;
    let spool = state.spool_path(set.current().0);
    let name = spool.file_name().unwrap().to_str().unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(spool.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with(name) {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
            files += 1;
        }
    }
    assert!(files >= 2, "{files}");
}

#[tokio::test]
async fn what_cannot_be_merged_is_given_up_and_counted() {
    let home = tempfile::tempdir().unwrap();
    let state = new_set_state(&home);
    let mut set = SpoolSet::open(Arc::clone(&state), 0).await.unwrap();
    let (mut ops, mut bytes, mut task) = (0, 0, 0);
    let values: Vec<u64> = (0..3000).map(|nth| 1000 + nth * nth * 37).collect();
    let row = interval(&values);
    while bytes < 3 << 20 {
        bytes += append(&mut set, &of_new_tasks(&row, &mut task)).await;
        ops += 20 * row.ops;
        let used = set.used_bytes().await;
        assert!(used <= 1 << 20, "{used}");
    }
    let file = std::fs::metadata(state.spool_path(set.current().0)).unwrap();
    assert!(file.len() <= 1 << 20, "{}", file.len());
    assert!(set.take_full().is_some());
    assert_eq!(set.take_full(), None, "told once");
    let (arrived, lost, batches) = deliver(&mut set).await;
    assert!(arrived > 0 && lost > 0 && batches > 0);
    assert_eq!(arrived + lost, ops);
}

/// Sent batches that are not acked are given up last, and keep their sequence.
#[tokio::test]
async fn batches_on_their_way_are_given_up_in_their_place() {
    let home = tempfile::tempdir().unwrap();
    let mut set = SpoolSet::open(new_set_state(&home), 0).await.unwrap();
    let row = interval(
        &(0..3000)
            .map(|nth| 1000 + nth * nth * 37)
            .collect::<Vec<_>>(),
    );
    let mut ops = 0;
    let mut task = 0;
    let mut batch = || {
        ops += 20 * row.ops;
        of_new_tasks(&row, &mut task)
    };
    assert!(set.attach("mesh-1", HashMap::new()).await.unwrap());
    for nth in 1..200 {
        append(&mut set, &batch()).await;
        // Each of them may have been sent.
        let sent = set.next(MeshMicros(1)).await.unwrap().unwrap();
        assert_eq!(sent.sequence, Sequence(nth));
        let used = set.used_bytes().await;
        assert!(used <= 1 << 20, "{used}");
        if set.take_full().is_some() {
            break;
        }
    }
    let (arrived, lost, batches) = deliver(&mut set).await;
    assert!(batches > 0);
    assert_eq!(arrived + lost, ops);
}
