//! Attaching, being refused, and attaching again.

use crate::agent::{Agent, Home};
use crate::collector::Collector;
use benchmesh_agent::{AgentError, SessionError};
use tonic::Code;

#[test]
fn an_agent_says_what_it_is() {
    let (home, collector) = (Home::new(), Collector::start());
    let mut config = home.config(&collector);
    config.labels.insert("role".to_owned(), "client".to_owned());
    config.advertise = Some("10.1.2.3".to_owned());
    let agent = Agent::start(config);
    let hello = collector.attached(1);
    assert_eq!(hello.name, "agent-1");
    assert_eq!(hello.wire_version, benchmesh_proto::WIRE_VERSION);
    assert_eq!(hello.labels["role"], "client");
    assert_eq!(hello.advertised_address, "10.1.2.3");
    assert_eq!(hello.allowed_paths, [home.target().to_str().unwrap()]);
    assert!(
        hello
            .workloads
            .iter()
            .any(|it| it.name == "null" && it.revision > 0)
    );
    assert_eq!(hello.spool_ids.len(), 1);
    assert!(hello.agent_uid.len() == 36 && hello.host.unwrap().cpus > 0);
    collector.wait("a burst of probes", |state| {
        (state.probes >= 8).then_some(())
    });
    agent.stop();
    assert_eq!(
        home.spool_files(),
        0,
        "an empty spool leaves nothing behind"
    );
    collector.assert_no_violation();
}

#[test]
fn it_keeps_its_uid_and_comes_again_for_as_long_as_it_lives() {
    let (home, mut collector) = (Home::new(), Collector::start());
    collector.kill();
    let agent = Agent::start(home.config(&collector));
    collector.restart();
    let first = collector.attached(1);
    for times in 2..5 {
        collector.kill();
        collector.restart();
        assert_eq!(collector.attached(times).agent_uid, first.agent_uid);
    }
    agent.stop();
    let again = Agent::start(home.config(&collector));
    let hello = collector.attached(5);
    assert_eq!(hello.agent_uid, first.agent_uid);
    assert_ne!(
        hello.spool_ids, first.spool_ids,
        "each start has its own spool"
    );
    again.stop();
}

#[test]
fn a_name_in_use_ends_the_first_attach_and_only_that() {
    let (home, collector) = (Home::new(), Collector::start());
    let refuse = |fault| collector.with(|state| state.faults.refuse = fault);
    refuse(Some((
        Code::AlreadyExists,
        "agent `agent-1` is attached from node-7",
    )));
    let error = Agent::start(home.config(&collector)).ended().unwrap_err();
    let AgentError::Session {
        source: error @ SessionError::AlreadyThere { .. },
    } = error
    else {
        panic!("{error:?}");
    };
    let text = error.to_string();
    assert!(text.contains("node-7") && text.contains("--name"), "{text}");

    refuse(None);
    let agent = Agent::start(home.config(&collector));
    collector.attached(1);
    refuse(Some((Code::AlreadyExists, "the old session lingers")));
    let mut collector = collector;
    collector.kill();
    collector.restart();
    collector.with(|state| state.faults.refuse = None);
    collector.attached(2);
    agent.stop();
}

#[test]
fn another_wire_is_refused_with_both_versions() {
    let (home, collector) = (Home::new(), Collector::start());
    collector.with(|state| state.wire_version = 77);
    let error = Agent::start(home.config(&collector)).ended().unwrap_err();
    let AgentError::Session { source } = error else {
        panic!("{error:?}")
    };
    let text = source.to_string();
    assert!(
        text.contains("version 77") && text.contains("install the same"),
        "{text}"
    );
    assert_eq!(home.spool_files(), 0);
}

#[test]
fn another_database_gets_a_spool_of_its_own() {
    let (home, mut collector) = (Home::new(), Collector::start());
    collector.with(|state| state.sampling = crate::telemetry::host_sampling());
    let agent = Agent::start(home.config(&collector));
    let first = collector.attached(1);
    collector.wait("samples", |state| (state.batches.len() > 2).then_some(()));
    collector.kill();
    collector.with(|state| {
        state.mesh_uid = "mesh-2".to_owned();
        state.positions.clear();
        state.batches.clear();
    });
    collector.restart();
    let second = collector.wait("an attach with a new spool", |state| {
        state
            .hellos
            .iter()
            .find(|hello| hello.spool_ids.last() != first.spool_ids.last())
            .cloned()
    });
    assert_ne!(second.spool_ids.last(), first.spool_ids.last());
    collector.wait("samples for the new database", |state| {
        state
            .batches
            .iter()
            .any(|batch| !batch.host_samples.is_empty())
            .then_some(())
    });
    agent.stop();
    collector.assert_no_violation();
    collector.with(|state| {
        let strangers = state
            .batches
            .iter()
            .filter(|batch| first.spool_ids.contains(&batch.spool_id));
        assert_eq!(
            strangers.count(),
            0,
            "the old mesh's rows stay where they are"
        );
    });
}
