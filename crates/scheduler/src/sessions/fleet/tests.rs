#![allow(clippy::unwrap_used)]
use super::*;
use crate::sessions::{hello::AckedSpool, hourly_bytes::HourlyBytes, recent::MAX_CHANGES};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::TaskId;
use benchmesh_store::rows::Anchor;
use tempfile::TempDir;

fn hello() -> Hello {
    Hello {
        wire_version: WIRE_VERSION,
        uid: String::from("u"),
        name: String::from("a"),
        version: String::from("0.1.0"),
        boot_id: String::from("b"),
        spool_ids: vec![String::from("s")],
        ..Hello::default()
    }
}

/// A fleet with its own database, which is removed with the directory.
async fn fleet() -> (TempDir, Store, Fleet) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("mesh.db"))
        .await
        .unwrap();
    let clock = MeshClock::new(Anchor {
        boot_id: String::from("b"),
        boottime_ns: 0,
        mesh_us: MeshMicros(1_000_000),
    });
    let fleet = Fleet::new(&store, Arc::new(clock));
    (directory, store, fleet)
}

async fn attach(fleet: &Fleet, hello: &Hello) -> Result<AgentId, AttachError> {
    let proof = NameProof::Certificate;
    let attached = fleet.attach(hello.clone(), None, proof).await?;
    Ok(attached.welcome.agent)
}

#[tokio::test]
async fn an_agent_that_is_another_one_each_time_is_turned_away() {
    let (_directory, store, fleet) = fleet().await;
    attach(&fleet, &hello()).await.unwrap();
    for number in 1..MAX_CHANGES {
        let mut changed = hello();
        // Every other time only a label differs.
        match number % 2 {
            0 => changed.uid = format!("u{number}"),
            _ => drop(changed.labels.insert(String::from("n"), number.to_string())),
        }
        attach(&fleet, &changed).await.unwrap();
    }
    let mut other = hello();
    other.uid = String::from("new");
    let refused = attach(&fleet, &other).await;
    assert!(
        matches!(refused, Err(AttachError::ChangesTooOften { .. })),
        "{refused:?}"
    );
    // The current description is accepted, and other agents have their own count.
    let mut last = hello();
    last.labels
        .insert(String::from("n"), (MAX_CHANGES - 1).to_string());
    attach(&fleet, &last).await.unwrap();
    other.name = String::from("b");
    attach(&fleet, &other).await.unwrap();
    let rows = "SELECT count(*) FROM agents";
    let rows: i64 = sqlx::query_scalar(rows)
        .fetch_one(store.reader())
        .await
        .unwrap();
    assert!(rows <= i64::from(MAX_CHANGES) + 1, "{rows}");
    store.close().await;
}

#[tokio::test]
async fn an_agent_over_its_hourly_bytes_is_refused_with_one_event() {
    let (_directory, store, fleet) = fleet().await;
    fleet.state().hourly_bytes = HourlyBytes::new(1000);
    let rogue = attach(&fleet, &hello()).await.unwrap();
    fleet.spend(rogue, "a", 1000).unwrap();
    for _ in 0..3 {
        let flood = fleet.spend(rogue, "a", 100).unwrap_err();
        assert!(flood.to_string().contains("wait in its spool"), "{flood}");
        let refused = attach(&fleet, &hello()).await;
        assert!(matches!(refused, Err(AttachError::Flood(_))), "{refused:?}");
    }
    let mut other = hello();
    other.uid = String::from("v");
    other.name = String::from("b");
    let other = attach(&fleet, &other).await.unwrap();
    fleet.spend(other, "b", 1000).unwrap();
    let events = "SELECT count(*) FROM events WHERE kind = 'agent-flood'";
    let count = || async {
        sqlx::query_scalar::<_, i64>(events)
            .fetch_one(store.reader())
            .await
            .unwrap()
    };
    let stored = async {
        while count().await == 0 {
            tokio::task::yield_now().await;
        }
    };
    let stored = tokio::time::timeout(Duration::from_secs(60), stored).await;
    stored.expect("the flood is an event");
    assert_eq!(count().await, 1);
    store.close().await;
}

/// A copied state directory under a supervisor that restarts its agent: each refusal names the remedy, and the agent is
/// admitted once the remedy is applied.
#[tokio::test]
async fn a_refused_uid_does_not_use_up_changes() {
    let (_directory, store, fleet) = fleet().await;
    let original = attach(&fleet, &hello()).await.unwrap();
    fleet.detach(original, 1);
    let mut copy = hello();
    copy.name = String::from("b");
    for _ in 0..=MAX_CHANGES {
        let refused = attach(&fleet, &copy).await;
        assert!(
            matches!(refused, Err(AttachError::UidBound { .. })),
            "{refused:?}"
        );
    }
    copy.uid = String::from("own");
    attach(&fleet, &copy).await.unwrap();
    store.close().await;
}

/// Agents share the row of their host: two agents with different descriptions change it each time.
#[tokio::test]
async fn agents_that_disagree_about_their_host_change_it_each_time() {
    let (_directory, store, fleet) = fleet().await;
    let mut taken = 0;
    let refused = loop {
        let mut next = hello();
        next.uid = format!("u{}", taken % 2);
        next.host_name = format!("host-{}", taken % 2);
        match attach(&fleet, &next).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, AttachError::ChangesTooOften { .. }),
        "{refused:?}"
    );
    assert_eq!(taken, MAX_CHANGES);
    store.close().await;
}

/// The kernel of a killed agent's host may still send data of its last writes, so that the session of the earlier start
/// looks alive.
#[tokio::test]
async fn a_restarted_agent_takes_over_at_once() {
    let (_directory, store, fleet) = fleet().await;
    let start = |directory: &str, spool: &str, started_ns| Hello {
        state_directory: String::from(directory),
        spool_ids: vec![String::from(spool)],
        started_ns,
        ..hello()
    };
    let proof = NameProof::Certificate;
    let first = fleet.attach(start("1:2", "s1", 100), None, proof).await;
    let first = first.unwrap();
    let second = fleet.attach(start("1:2", "s2", 200), None, proof).await;
    let second = second.unwrap();
    assert_eq!(first.welcome.agent, second.welcome.agent);
    assert!(fleet.session(&first.welcome.session).is_none());
    assert!(fleet.session(&second.welcome.session).is_some());
    // A late attachment of the earlier start is refused, and so is one of a copied directory.
    let late = fleet.attach(start("1:2", "s1", 100), None, proof).await;
    assert!(
        matches!(late, Err(AttachError::EarlierStart { .. })),
        "{late:?}"
    );
    let copy = fleet.attach(start("1:9", "s3", 300), None, proof).await;
    assert!(
        matches!(copy, Err(AttachError::IdentityInUse { .. })),
        "{copy:?}"
    );
    assert!(fleet.session(&second.welcome.session).is_some());
    drop((first, second));
    store.close().await;
}

/// The database was restored from an older copy: the agent's data belong to the lost database, and the ids that the
/// agent has seen are not assigned again.
#[tokio::test]
async fn an_agent_that_is_ahead_of_the_database_holds_nothing_and_raises_ids() {
    let (_directory, store, fleet) = fleet().await;
    let newest = async || -> i64 {
        sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'runs'")
            .fetch_one(store.reader())
            .await
            .unwrap()
    };
    let ahead = |mesh: &str, last_sequence, run| Hello {
        held_tasks: vec![7],
        acked: vec![AckedSpool {
            spool_id: String::from("s"),
            mesh_uid: mesh.to_owned(),
            last_sequence,
        }],
        newest_run: Some((mesh.to_owned(), run)),
        ..hello()
    };
    let own = store.mesh_uid().to_owned();
    // In the last case it has begun a new spool, and `was_ahead` is kept.
    for (mesh, last_sequence, run, held, was_ahead, expected) in [
        ("another mesh", 9, 40, vec![TaskId(7)], false, 0..=0),
        (&*own, 9, 40, vec![], true, 40..=40),
        (&*own, 0, 12, vec![TaskId(7)], true, 40..=40),
        (&*own, 0, i64::MAX, vec![TaskId(7)], true, 1000..=1000),
        (&*own, 0, i64::MAX, vec![TaskId(7)], true, 1000..=1000),
    ] {
        let hello = ahead(mesh, last_sequence, run);
        let _attached = fleet
            .attach(hello, None, NameProof::Certificate)
            .await
            .unwrap();
        let presence = fleet.presences().pop().unwrap();
        assert_eq!((presence.held_tasks, presence.was_ahead), (held, was_ahead));
        let newest = newest().await;
        assert!(expected.contains(&newest), "{newest}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_one_event_for_each_time() {
    let (_directory, store, fleet) = fleet().await;
    let proof = NameProof::Certificate;
    let first = fleet.attach(hello(), None, proof).await.unwrap();
    for (since_ns, for_ns) in [(5_000, 0), (5_000, 2_000_000), (9_000, 0)] {
        first.handle.note_spool_blocked(since_ns, for_ns);
    }
    // The next session reports it again.
    let second = fleet.attach(hello(), None, proof).await.unwrap();
    second.handle.note_spool_blocked(9_000, 3_000_000);
    first.handle.note_spool_blocked(11_000, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let told: i64 =
            sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'spool-blocked'")
                .fetch_one(store.reader())
                .await
                .unwrap();
        if told == 2 {
            break;
        }
        assert!(told < 2 && Instant::now() < deadline, "{told}");
        tokio::task::yield_now().await;
    }
    store.close().await;
}

/// Attaches an agent of one host from an address, with a rule of its own.
async fn attach_from(fleet: &Fleet, name: &str, from: [u8; 4]) -> Attached {
    let rule = crate::sessions::command::DaemonRule {
        name: name.to_owned(),
        comm: name.to_owned(),
        ..Default::default()
    };
    let hello = Hello {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        pid: i32::from(from[3]),
        daemon_rules: vec![rule],
        sample_always: name == "rogue",
        net_namespace: String::from("net:1"),
        host_name: format!("host of {name}"),
        ..hello()
    };
    let from = Some(IpAddr::from(from));
    let attached = fleet.attach(hello, from, NameProof::Certificate).await;
    attached.unwrap()
}

/// An agent's sampling: the host, for which run, and how often between runs.
fn sampling(fleet: &Fleet, agent: &Attached) -> (bool, bool, Vec<String>, Vec<i32>, i64) {
    let sampling = fleet.member(agent.welcome.agent).unwrap().sampling;
    let rules = sampling.host.daemon_rules.iter();
    (
        sampling.host_wide,
        sampling.interfaces,
        rules.map(|rule| rule.name.clone()).collect(),
        sampling.host.mesh_pids.iter().copied().collect(),
        sampling.period_us,
    )
}

fn away_for(fleet: &Fleet, agent: &Attached, seconds: u64) {
    let mut state = fleet.state();
    let member = state.members.get_mut(&agent.welcome.agent).unwrap();
    member.last_contact = Instant::now()
        .checked_sub(Duration::from_secs(seconds))
        .unwrap();
}

#[tokio::test]
async fn rules_and_pids_come_from_where_the_sampler_connects_from() {
    let (_directory, store, fleet) = fleet().await;
    let first = attach_from(&fleet, "first", [10, 0, 0, 1]).await;
    let _rogue = attach_from(&fleet, "rogue", [10, 0, 0, 66]).await;
    let _beside = attach_from(&fleet, "beside", [10, 0, 0, 1]).await;
    let rules = ["beside", "first"].map(String::from).to_vec();
    assert_eq!(sampling(&fleet, &first), (true, true, rules, vec![1], 0));
    store.close().await;
}

#[tokio::test]
async fn a_host_stays_its_first_agents_own() {
    let (_directory, store, fleet) = fleet().await;
    let first = attach_from(&fleet, "first", [10, 0, 0, 1]).await;
    let other = attach_from(&fleet, "other", [10, 0, 0, 2]).await;
    let parts = |agent| {
        let (host, interfaces, ..) = sampling(&fleet, agent);
        (host, interfaces)
    };
    let is_waiting = || {
        fleet.appoint_waiting();
        fleet.state().is_sampler_awaited
    };
    assert_eq!(
        (parts(&first), parts(&other)),
        ((true, true), (false, false))
    );
    let at = |seconds: i64| MeshMicros(fleet.clock().now().0 + seconds * 1_000_000);
    let holds = |agent: &Attached, seconds: i64| {
        let at = at(seconds);
        let mut batch = benchmesh_store::ingest::Batch::default();
        batch
            .events
            .push(benchmesh_store::ingest::batch::AgentEvent {
                at,
                run_uid: String::new(),
                run: None,
                step: None,
                kind: EventKind::DaemonEnded.into(),
                message: String::new(),
                detail_json: None,
            });
        fleet.take_out_of_others(agent.welcome.agent, &mut batch);
        (!batch.events.is_empty(), batch.stands_in_since.is_some())
    };
    assert_eq!(holds(&other, 0), (false, false));
    assert_eq!(holds(&first, 0), (true, false));
    assert_eq!(holds(&first, -60), (false, false));
    // A short absence changes nothing.
    fleet.detach(first.welcome.agent, 1);
    away_for(&fleet, &first, 9);
    assert!(is_waiting());
    assert_eq!(parts(&other), (false, false));
    away_for(&fleet, &first, 11);
    assert!(!is_waiting());
    assert_eq!(parts(&other), (true, true));
    assert_eq!(holds(&other, 30), (true, true));
    assert_eq!(holds(&other, -30), (false, true));
    // Its own agent is back, with a new uid, and its spool of the meantime counts.
    let hello = Hello {
        uid: String::from("anew"),
        name: String::from("first"),
        net_namespace: String::from("net:1"),
        ..hello()
    };
    let again = fleet.attach(hello, None, NameProof::Certificate);
    let again = again.await.unwrap();
    assert_eq!(
        (parts(&again), parts(&other)),
        ((true, true), (false, false))
    );
    assert_eq!(holds(&other, 30), (false, true));
    assert_eq!(holds(&other, 0), (true, true));
    assert_eq!(holds(&again, 0), (true, false));
    let changes =
        "SELECT a.name || ' for ' || (e.detail ->> 'former') FROM events AS e JOIN agents AS a
        ON a.id = e.agent_id WHERE e.kind = 'sampler-changed' ORDER BY e.id";
    let changed = async || -> Vec<String> {
        let changed = sqlx::query_scalar(changes).fetch_all(store.reader());
        changed.await.unwrap()
    };
    while changed().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(changed().await, ["other for first", "first for other"]);
    // The host's name comes from its own agent.
    let name = "SELECT name FROM hosts";
    let name: String = sqlx::query_scalar(name)
        .fetch_one(store.reader())
        .await
        .unwrap();
    assert_eq!(name, "");
    store.close().await;
}

#[tokio::test]
async fn whose_a_host_is_outlives_the_collector() {
    let (_directory, store, fleet) = fleet().await;
    let first = attach_from(&fleet, "first", [10, 0, 0, 1]).await;
    let samplers = async || {
        while store.samplers().await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        store.samplers().await.unwrap()
    };
    let stored = samplers().await;
    let clock = Arc::clone(&fleet.0.clock);
    let fleet = Fleet::new(&store, clock);
    fleet.add_known(store.agents().await.unwrap());
    fleet.add_samplers(stored);
    let other = attach_from(&fleet, "other", [10, 0, 0, 1]).await;
    assert!(!sampling(&fleet, &other).0);
    away_for(&fleet, &first, 11);
    fleet.appoint_waiting();
    assert!(sampling(&fleet, &other).0);
    // A forgotten agent gives up its place.
    fleet.forget("first").await.unwrap();
    let first = attach_from(&fleet, "first", [10, 0, 0, 1]).await;
    assert!(!sampling(&fleet, &first).0);
    assert!(sampling(&fleet, &other).0);
    store.close().await;
}
