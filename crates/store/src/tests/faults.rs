//! A full disk and a read-only one: nothing is acknowledged before it is stored, and nothing is lost once there is
//! space again.
//!
//! The disk is a small tmpfs in a mount namespace of the test's own, so the test runs itself again inside `unshare`.

use super::maintained::with_runs;
use super::{Mesh, S, T0, batch, sample, seen};
use crate::maintain::{check, merge};
use crate::{Publisher, Store, StoreError};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const INSIDE: &str = "BENCHMESH_TEST_TMPFS";
const NAME: &str = "tests::faults::a_full_disk_delays_and_loses_nothing";

#[test]
fn a_full_disk_delays_and_loses_nothing() {
    if let Some(directory) = std::env::var_os(INSIDE) {
        let directory = PathBuf::from(directory);
        mount(&["-t", "tmpfs", "-o", "size=6m", "tmpfs"], &directory);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            full_while_writing(&directory).await;
            full_while_opening(&directory).await;
            full_while_merging(&directory).await;
            read_only(&directory).await;
        });
        return;
    }
    let directory = TempDir::new().unwrap();
    let namespaces = if rustix::process::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    // Some machines allow the namespace but not a mount in it.
    let script = "mount -t tmpfs -o size=1m tmpfs \"$0\" && mount --options-mode ignore -o remount,ro \"$0\"";
    let works = Command::new("unshare")
        .args([namespaces, "sh", "-c", script])
        .arg(directory.path())
        .output();
    let works = works.map_err(|error| error.to_string()).and_then(|tried| {
        let refused = String::from_utf8_lossy(&tried.stderr).into_owned();
        if tried.status.success() {
            Ok(())
        } else {
            Err(refused)
        }
    });
    if let Err(why) = works {
        let why = format!("no tmpfs in a mount namespace of its own: {}", why.trim());
        benchmesh_testing::skip("root", &why);
        return;
    }
    let inside = Command::new("unshare")
        .arg(namespaces)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, directory.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&inside.stdout).into_owned()
        + &String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

fn mount(arguments: &[&str], directory: &Path) {
    let status = Command::new("mount")
        .args(arguments)
        .arg(directory)
        .status();
    assert!(status.unwrap().success(), "mount {arguments:?}");
}

/// Uses up the remaining space.
fn fill(path: &Path) {
    use std::io::Write;
    let mut ballast = std::fs::File::create(path).unwrap();
    let block = [0; 4096];
    while ballast.write_all(&block).is_ok() {}
}

async fn full_while_writing(directory: &Path) {
    let path = directory.join("mesh.db");
    let store = Store::open(&path).await.unwrap();
    let (agent, host) = store.attach_agent(super::new_agent("a")).await.unwrap();
    let publisher = store.publisher(agent, host, String::new());
    // Too many rows to fit into the space that SQLite has already allocated.
    let sent = |sequence: u64| {
        let mut one = batch("s", sequence);
        one.daemons = vec![seen(1, "ceph-osd", T0)];
        let first = i64::try_from(sequence).unwrap() * 2000;
        one.daemon_samples = (first..first + 2000)
            .map(|at| sample(1, T0 + at * S, 1, 1))
            .collect();
        one
    };
    submit_and_wait(&publisher, sent(1)).await;
    fill(&directory.join("ballast"));
    let mut receipts = Vec::new();
    for sequence in 2..=6 {
        receipts.push(publisher.submit(sent(sequence)).await.unwrap());
    }
    let last = receipts.pop().unwrap();
    // If a commit is long overdue, the writer has met the full disk. Only rows that fit are acknowledged.
    let overdue = std::time::Duration::from_secs(2);
    let mut last = std::pin::pin!(last);
    assert!(
        tokio::time::timeout(overdue, &mut last).await.is_err(),
        "acknowledged on a full disk"
    );
    let stored = stored_rows(&store).await;
    assert_eq!(stored % 2000, 0, "a batch was stored in part");
    let position = store.spool_positions(agent).await.unwrap()[0].1;
    assert_eq!(u64::try_from(stored).unwrap(), position * 2000);
    std::fs::remove_file(directory.join("ballast")).unwrap();
    assert_eq!(last.await.unwrap().sequence, 6);
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(stored_rows(&store).await, 6 * 2000);
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!(stored_rows(&store).await, 6 * 2000);
    store.close().await;
    std::fs::remove_file(path).unwrap();
}

async fn submit_and_wait(publisher: &Publisher, batch: crate::ingest::Batch) {
    publisher.submit(batch).await.unwrap().await.unwrap();
}

/// Samples that are stored, or counted as lost because the disk was almost full.
async fn stored_rows(store: &Store) -> i64 {
    sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM daemon_samples) + (SELECT coalesce(sum(rows), 0) FROM losses)",
    )
        .fetch_one(store.reader())
        .await
        .unwrap()
}

async fn full_while_opening(directory: &Path) {
    let ballast = directory.join("ballast");
    fill(&ballast);
    let error = Store::open(&directory.join("new.db")).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some"), "{error}");
    std::fs::remove_file(ballast).unwrap();
    let store = Store::open(&directory.join("new.db")).await.unwrap();
    store.close().await;
}

async fn full_while_merging(directory: &Path) {
    let (path, ballast) = (directory.join("merged.db"), directory.join("ballast"));
    Store::open(&path).await.unwrap().close().await;
    let other = with_runs(&["other"]).await;
    fill(&ballast);
    let error = merge(&path, &other.path(), &mut |_, _| {})
        .await
        .unwrap_err();
    assert!(!error.is_request(), "{error}");
    assert!(error.to_string().contains("free some"), "{error}");
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(check(&path).unwrap(), [] as [String; 0]);
    assert_eq!(
        merge(&path, &other.path(), &mut |_, _| {})
            .await
            .unwrap()
            .runs,
        1
    );
    std::fs::remove_file(path).unwrap();
}

async fn read_only(directory: &Path) {
    // Without the options of the first mount, because their uid and gid have another meaning in a user namespace.
    mount(&["--options-mode", "ignore", "-o", "remount,ro"], directory);
    for name in ["new.db", "other.db"] {
        let error = Store::open(&directory.join(name)).await.unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}

/// A collector that closes while the disk is full answers all callers instead of waiting for space.
#[tokio::test]
async fn queued_writes_are_done_at_the_end() {
    let mesh = Mesh::new().await;
    let (publisher, ..) = mesh.publisher("a").await;
    let mut receipts = Vec::new();
    for sequence in 1..=50 {
        receipts.push(publisher.submit(batch("s", sequence)).await.unwrap());
    }
    mesh.store.close().await;
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let refused = publisher.submit(batch("s", 51)).await;
    assert_eq!(refused.unwrap_err(), crate::ingest::IngestError::Closed);
}
