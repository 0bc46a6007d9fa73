//! Pushes that are cut short on either side, and servers that cannot take them.

use super::lab::{DATABASE, Lab, push, watched};
use benchmesh_archive::postgres::push::PushEvent;
use benchmesh_archive::postgres::{Archive, ArchiveError};
use benchmesh_testing::postgres::PostgresServer;
use std::hash::{BuildHasher, Hasher};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// A number below `limit`, another one in each run of the test.
fn any_below(limit: u64) -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
        % limit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_was_killed_goes_on() {
    let Some(lab) = Lab::new() else { return };
    let mut kept = 0;
    for kill in 0..8 {
        let cancel = CancellationToken::new();
        let at = any_below(60_000);
        let mut sent_before = 0;
        let pushed = watched(&lab.request(), &cancel, |event| match event {
            PushEvent::Rows { sent, .. } if sent_before + sent > at => cancel.cancel(),
            PushEvent::Pushed { rows, .. } => sent_before += rows,
            _ => {}
        })
        .await;
        // Each run is there or not; runs that were there stay.
        let there = match pushed {
            Ok(_) => 3,
            Err(ArchiveError::Cancelled) => match lab
                .server
                .sql(
                    DATABASE,
                    "SELECT to_regclass('benchmesh.pushes') IS NOT NULL",
                )
                .as_str()
            {
                "t" => lab.archived("pushes", "true"),
                _ => 0,
            },
            Err(error) => panic!("kill {kill} at row {at}: {error}"),
        };
        assert!(there >= kept, "kill {kill} at row {at}");
        kept = there;
        if there > 0 {
            // A transaction that was cut off may still be rolling back.
            assert_eq!(
                lab.archived("runs", "true"),
                there,
                "kill {kill} at row {at}"
            );
        }
    }
    let pushed = lab.push().await;
    assert_eq!(pushed.new + pushed.unchanged, 3);
    lab.assert_same_counts();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_ends_is_made_again() {
    let Some(lab) = Lab::new() else { return };
    let at = any_below(20_000);
    let ended = AtomicBool::new(false);
    let (request, cancel) = (lab.request(), CancellationToken::new());
    let pushed = watched(&request, &cancel, |event| {
        if let PushEvent::Rows { sent, .. } = event
            && *sent >= at
            && !ended.swap(true, Ordering::Relaxed)
        {
            lab.server.sql(
                DATABASE,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'benchmesh archive'",
            );
        }
    });
    let pushed = pushed.await.unwrap();
    assert!(ended.load(Ordering::Relaxed));
    assert!(pushed.retries >= 1, "{pushed:?}");
    assert_eq!(pushed.new, 3);
    lab.assert_same_counts();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_in_the_middle_of_a_copy_gets_all() {
    let Some(lab) = Lab::new() else { return };
    let request = lab.request();
    let lab = Arc::new(Mutex::new(lab));
    let (restart, mut wanted) = tokio::sync::mpsc::channel(1);
    let restarting = {
        let lab = Arc::clone(&lab);
        tokio::task::spawn_blocking(move || {
            wanted.blocking_recv().unwrap();
            let mut lab = lab.lock().unwrap();
            lab.server.crash();
            lab.server.again();
        })
    };
    let mut is_asked = false;
    let pushed = watched(&request, &CancellationToken::new(), |event| {
        if matches!(event, PushEvent::Rows { sent, .. } if *sent > 0) && !is_asked {
            is_asked = true;
            restart.try_send(()).unwrap();
            // Until it is down; the push would be over before.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while lab.try_lock().is_ok() && std::time::Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
    })
    .await
    .unwrap();
    restarting.await.unwrap();
    assert_eq!(pushed.new, 3, "{pushed:?}");
    assert!(pushed.retries >= 1, "{pushed:?}");
    lab.lock().unwrap().assert_same_counts();
}

#[tokio::test]
async fn a_server_that_stays_away_is_given_up() {
    let Some(mut lab) = Lab::new() else { return };
    lab.push().await;
    lab.server.crash();
    let mut request = lab.request();
    request.patience.give_up_after = std::time::Duration::from_millis(300);
    let error = push(&request).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("could not be made"),
        "{error}"
    );
}

#[tokio::test]
async fn a_full_disk_at_the_server_is_said_and_a_later_push_goes_on() {
    if !rustix::process::geteuid().is_root() {
        return benchmesh_testing::skip("root", "only root may mount the server's small disk");
    }
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let small = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(small.path());
        mount.output().is_ok_and(|done| done.status.success())
    };
    if !mount("size=128m,mode=777") {
        return benchmesh_testing::skip("root", "a tmpfs cannot be mounted");
    }
    let unmount = Unmount(small.path().to_owned());
    let space = small.path().join("space");
    std::fs::create_dir(&space).unwrap();
    server.give(&space, 0o700);
    server.sql(
        "postgres",
        &format!("CREATE TABLESPACE small LOCATION '{}'", space.display()),
    );
    let lab = Lab::on(server).unwrap();
    lab.server
        .sql("postgres", "ALTER DATABASE bench SET TABLESPACE small");
    let mut archive = Archive::connect(&lab.to("postgres"), &super::lab::patience())
        .await
        .unwrap();
    archive.prepare().await.unwrap();
    archive.close().await;
    let free = rustix::fs::statvfs(small.path()).unwrap();
    let free = free.f_bavail * free.f_frsize;
    let ballast = small.path().join("ballast");
    let file = std::fs::File::create(&ballast).unwrap();
    let size = free.saturating_sub(4 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
    let error = push(&lab.request()).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("the server's disk is full"),
        "{}",
        super::lab::chain(&error)
    );
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let pushed = lab.push().await;
    assert_eq!(pushed.new + pushed.unchanged, 3);
    lab.assert_same_counts();
    drop(lab);
    drop(unmount);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn collectors_and_readers_need_only_their_roles() {
    let Some(lab) = Lab::new() else { return };
    let mut archive =
        benchmesh_archive::postgres::Archive::connect(&lab.to("postgres"), &super::lab::patience())
            .await
            .unwrap();
    assert_eq!(archive.prepare().await.unwrap(), Vec::<String>::new());
    lab.server.sql(
        DATABASE,
        "CREATE ROLE collector LOGIN IN ROLE benchmesh_writer; CREATE ROLE grafana LOGIN IN ROLE benchmesh_reader",
    );
    let mut request = lab.request();
    request.server = lab.to("collector");
    request.runs = vec![String::from("1")];
    assert_eq!(push(&request).await.unwrap().new, 1);
    request.server = lab.to("grafana");
    request.runs = vec![String::from("2")];
    let error = push(&request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("GRANT benchmesh_writer TO \"grafana\""),
        "{error}"
    );
    let mut reader =
        benchmesh_archive::postgres::Archive::connect(&lab.to("grafana"), &super::lab::patience())
            .await
            .unwrap();
    reader.require().await.unwrap();
    assert_eq!(reader.find("1").await.unwrap().site, "lab");

    lab.server
        .sql(DATABASE, "REVOKE benchmesh_writer FROM collector");
    request.server = lab.to("collector");
    let error = push(&request).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(
        error
            .to_string()
            .contains("GRANT benchmesh_writer TO \"collector\""),
        "{error}"
    );
    assert_eq!(lab.archived("runs", "true"), 1);
}
