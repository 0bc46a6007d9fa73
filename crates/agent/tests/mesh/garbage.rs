//! Invalid commands.

use crate::agent::{Agent, Home};
use crate::collector::Collector;
use crate::commands::{null_task, ready};
use benchmesh_proto::v1;
use benchmesh_proto::v1::command::Body;

#[test]
fn what_is_no_command_is_answered_and_the_session_goes_on() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let garbage = [
        None,
        Some(Body::Prepare(v1::Prepare::default())),
        Some(Body::Prepare(v1::Prepare {
            task_id: -1,
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            tasks: 0,
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            task_index: 9,
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            lease_us: i64::MIN,
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            cache: "lukewarm".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            workload: "none".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            mode: "none".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            peer_address: "?".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(null_task(1, "not json"))),
        Some(Body::Prepare(null_task(1, "[1]"))),
        Some(Body::Prepare(null_task(1, r#"{"numjobs": 999999999}"#))),
        Some(Body::Prepare(v1::Prepare {
            path: "../..".to_owned(),
            cell: "c".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::Prepare(v1::Prepare {
            path: "\0".to_owned(),
            cell: "c".to_owned(),
            ..null_task(1, "{}")
        })),
        Some(Body::OpenRunDirectory(v1::OpenRunDirectory::default())),
        Some(Body::OpenRunDirectory(v1::OpenRunDirectory {
            run_uid: "../../etc".to_owned(),
            path: home.target().to_str().unwrap().to_owned(),
            make: true,
        })),
        Some(Body::RemoveCell(v1::RemoveCell::default())),
        Some(Body::Listen(v1::Listen {
            task_id: 1,
            workload: "null".to_owned(),
            mode: "run".to_owned(),
            token: "t".to_owned(),
            ..v1::Listen::default()
        })),
        Some(Body::Listen(v1::Listen {
            task_id: 1,
            from_address: "nobody".to_owned(),
            ..v1::Listen::default()
        })),
        Some(Body::Arm(v1::Arm {
            task_id: 404,
            start_us: 1,
            end_us: 0,
        })),
        Some(Body::AwaitEnd(v1::AwaitEnd { task_id: 0 })),
        Some(Body::Sampling(v1::Sampling {
            period_us: -1,
            ..v1::Sampling::default()
        })),
        Some(Body::Survey(v1::Survey {
            paths: vec![String::new()],
            sources: Vec::new(),
        })),
    ];
    for body in garbage {
        let text = format!("{body:?}");
        let reply = collector.reply(collector.ask(body));
        assert!(
            !reply.error.is_empty() && !reply.error_kind.is_empty(),
            "{text}: {reply:?}"
        );
    }
    collector.send(v1::CollectorMessage { body: None });
    collector.send(v1::CollectorMessage {
        body: Some(v1::collector_message::Body::ClockReply(v1::ClockReply {
            agent_sent_ns: -7,
            mesh_received_ns: i64::MAX,
            mesh_sent_ns: i64::MIN,
        })),
    });
    collector.send(v1::CollectorMessage {
        body: Some(v1::collector_message::Body::Welcome(v1::Welcome::default())),
    });
    let survey = v1::Survey {
        paths: vec![home.target().to_str().unwrap().to_owned()],
        sources: Vec::new(),
    };
    let reply = collector.done(Body::Survey(survey));
    let Some(v1::reply::Body::Survey(survey)) = reply.body else {
        panic!("{reply:?}")
    };
    assert!(
        survey.paths[0].allowed && survey.paths[0].problem.is_empty(),
        "{survey:?}"
    );
    assert_eq!(
        collector.with(|state| state.hellos.len()),
        1,
        "one session all along"
    );
    assert_eq!(std::fs::read_dir(home.target()).unwrap().count(), 0);
    agent.stop();
    collector.assert_no_violation();
}
