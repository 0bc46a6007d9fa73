//! Property tests: any message converts into types within their bounds, or into an error that names the field.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::cut::MAX_TEXT_BYTES;
use crate::sessions::hello::is_locator;
use benchmesh_proto::bounded::{Bounded, MAX_ENTRIES, holds_at_most};
use benchmesh_testing::hostile::{damaged, withstands};
use proptest::{option, prelude::*};
use prost::Message;
use v1::{agent_message::Body, reply};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        (0_usize..10_000).prop_map(|length| "ä".repeat(length)),
        Just(String::from("a\nWARN b\u{1b}[2J\0")),
        prop::sample::select(vec![
            "done",
            "failed",
            "stopped",
            "lost",
            "unknown-task",
            "/mnt",
            ""
        ])
        .prop_map(str::to_owned),
    ]
}

fn path_facts() -> impl Strategy<Value = v1::PathFacts> {
    (
        [text(), text(), text(), text(), text(), text()],
        any::<(bool, bool)>(),
        any::<(i64, i64)>(),
    )
        .prop_map(
            |(
                [
                    path,
                    problem,
                    file_system,
                    device,
                    mount_source,
                    mount_options,
                ],
                (allowed, exists),
                (free_bytes, free_files),
            )| v1::PathFacts {
                path,
                allowed,
                exists,
                problem,
                free_bytes,
                free_files,
                file_system,
                device,
                mount_source,
                mount_options,
                ..v1::PathFacts::default()
            },
        )
}

fn reply_body() -> impl Strategy<Value = reply::Body> {
    prop_oneof![
        (
            prop::collection::vec(path_facts(), 0..4),
            (-1_i64..4, -1_i64..4),
            [text(), text()],
        )
            .prop_map(
                |(paths, (scratch_free_bytes, link_bytes_per_s), [model, version])| {
                    let inventory = serde_json::json!({
                        "distribution": &model, "cpu_model": model, "packages": { version.as_str(): version },
                    });
                    reply::Body::Survey(v1::SurveyReply {
                        sources: paths.clone(),
                        paths,
                        scratch_free_bytes,
                        link_bytes_per_s,
                        inventory_json: inventory.to_string(),
                    })
                }
            ),
        (text(), any::<(bool, bool)>(), -1_i64..4).prop_map(|(nonce, (found, made), free_bytes)| {
            reply::Body::RunDirectory(v1::RunDirectoryReply {
                nonce,
                found,
                made,
                free_bytes,
            })
        }),
        any::<u32>().prop_map(|port| reply::Body::Listen(v1::ListenReply { port })),
        any::<i64>().prop_map(|lead_us| reply::Body::Arm(v1::ArmReply { lead_us })),
        ([text(), text()], any::<(u64, bool)>()).prop_map(
            |([state, spool_id], (sequence, stalled))| {
                reply::Body::End(v1::EndReply {
                    state,
                    spool_id,
                    sequence,
                    stalled,
                })
            }
        ),
        prop::collection::vec([text(), text()], 0..40).prop_map(|drops| {
            reply::Body::DropCaches(v1::DropCachesReply {
                drops: drops
                    .into_iter()
                    .map(|[what, error]| v1::CacheDrop {
                        what,
                        error,
                        ..v1::CacheDrop::default()
                    })
                    .collect(),
            })
        }),
    ]
}

fn hello() -> impl Strategy<Value = v1::Hello> {
    (
        (text(), text(), text()),
        option::of((text(), any::<(u32, i64)>())),
        prop::collection::vec(text(), 0..4),
        prop::collection::vec(any::<i64>(), 0..4),
    )
        .prop_map(
            |((agent_uid, name, label), host, paths, held_tasks)| v1::Hello {
                wire_version: WIRE_VERSION,
                agent_uid,
                name,
                labels: [(label.clone(), label)].into(),
                host: host.map(|(boot_id, (cpus, memory_bytes))| v1::Host {
                    boot_id,
                    cpus,
                    memory_bytes,
                    ..v1::Host::default()
                }),
                allowed_paths: paths.clone(),
                spool_ids: paths,
                held_tasks,
                ..v1::Hello::default()
            },
        )
}

/// Valid and invalid messages of an agent.
pub(crate) fn message() -> impl Strategy<Value = v1::AgentMessage> {
    let body = prop_oneof![
        hello().prop_map(Body::Hello),
        any::<i64>().prop_map(|agent_sent_ns| Body::ClockProbe(v1::ClockProbe { agent_sent_ns })),
        any::<(i64, i64)>().prop_map(|(since_ns, sent_ns)| Body::SpoolBlocked(v1::SpoolBlocked {
            since_ns,
            sent_ns
        })),
        (any::<u64>(), text(), text(), option::of(reply_body())).prop_map(
            |(id, error, error_kind, body)| Body::Reply(v1::Reply {
                id,
                error,
                error_kind,
                body
            })
        ),
        (any::<(u64, u64, u64)>(), text()).prop_map(|((command_id, done, total), unit)| {
            Body::Progress(v1::Progress {
                command_id,
                done,
                total,
                unit,
            })
        }),
    ];
    option::of(body).prop_map(|body| v1::AgentMessage { body })
}

/// A single line, short enough for a column and the log.
fn fits(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
}

fn is_name(text: &str, most: usize) -> bool {
    !text.is_empty() && text.len() <= most && fits(text)
}

fn check_survey(survey: &Survey) -> Result<(), TestCaseError> {
    for (_, facts) in survey.paths.iter().chain(&survey.sources) {
        for text in [
            &facts.problem,
            &facts.file_system,
            &facts.device,
            &facts.mount_source,
            &facts.mount_options,
        ] {
            prop_assert!(fits(text));
        }
    }
    let inventory = &survey.inventory;
    prop_assert!(fits(&inventory.distribution) && fits(&inventory.cpu_model));
    let mut packages = inventory.packages.iter();
    prop_assert!(packages.all(|(package, version)| fits(package) && fits(version)));
    Ok(())
}

fn check(message: v1::AgentMessage) -> Result<(), TestCaseError> {
    let sent = message.clone();
    match Incoming::try_from(message) {
        Err(error) => prop_assert!(!error.field.is_empty() && fits(&error.problem)),
        Ok(Incoming::Hello(hello)) => {
            if hello.check().is_ok() {
                prop_assert!(!hello.name.is_empty() && hello.memory_bytes >= 0);
                prop_assert!(
                    hello
                        .allowed
                        .iter()
                        .all(|path| path.is_absolute() || is_locator(path))
                );
            }
        }
        Ok(Incoming::Probe { agent_sent_ns }) => {
            prop_assert_eq!(
                sent.body,
                Some(Body::ClockProbe(v1::ClockProbe { agent_sent_ns }))
            );
        }
        Ok(Incoming::SpoolBlocked { for_ns, .. }) => prop_assert!(for_ns >= 0),
        Ok(Incoming::Progress { progress, .. }) => {
            prop_assert!(progress.unit.chars().count() <= 32 && fits(&progress.unit));
        }
        Ok(Incoming::Reply {
            reply: Err((_, message)),
            ..
        }) => {
            prop_assert!(!message.is_empty() && fits(&message));
        }
        Ok(Incoming::Reply {
            reply: Ok(answer), ..
        }) => match answer {
            AgentAnswer::End(end) => {
                prop_assert!(
                    end.last_batch
                        .is_none_or(|last| is_name(&last.spool_id, MAX_NAME_BYTES))
                );
                prop_assert!(end.state != TaskState::Lost && end.state != TaskState::Running);
            }
            AgentAnswer::Listening { port } => prop_assert!(port > 0),
            AgentAnswer::Dropped(drops) => {
                prop_assert!(drops.len() <= MAX_CACHE_DROPS);
                prop_assert!(
                    drops
                        .iter()
                        .all(|drop| fits(&drop.what) && fits(&drop.error))
                );
            }
            AgentAnswer::RunDirectory(directory) => {
                let is_there = directory.found || directory.made;
                prop_assert!(!is_there || is_name(&directory.nonce, MAX_NONCE_BYTES));
            }
            AgentAnswer::Survey(survey) => check_survey(&survey)?,
            _ => {}
        },
    }
    Ok(())
}

/// Messages of agents, as whole byte strings.
fn fixture_messages() -> Vec<Vec<u8>> {
    let hello = v1::Hello {
        wire_version: WIRE_VERSION,
        agent_uid: "uid".to_owned(),
        name: "agent-1".to_owned(),
        version: "0.1.0".to_owned(),
        host: Some(v1::Host {
            boot_id: "boot".to_owned(),
            cpus: 4,
            memory_bytes: 1 << 33,
            ..v1::Host::default()
        }),
        labels: [("role".to_owned(), "client".to_owned())].into(),
        allowed_paths: vec!["/mnt/a".to_owned(), "/mnt/b".to_owned()],
        spool_ids: vec!["spool".to_owned()],
        held_tasks: vec![1, 2, 300],
        policy: Some(v1::AgentPolicy {
            limits: [(
                "memory".to_owned(),
                v1::Limit {
                    amount: 1 << 30,
                    percent: 0,
                },
            )]
            .into(),
            networks: vec!["10.0.0.0/8".to_owned()],
            ..v1::AgentPolicy::default()
        }),
        daemon_rules: vec![v1::DaemonRule {
            name: "osd".to_owned(),
            ..v1::DaemonRule::default()
        }],
        acked: vec![v1::AckedSpool {
            spool_id: "spool".to_owned(),
            mesh_uid: "mesh".to_owned(),
            last_sequence: 300,
        }],
        newest_run: Some(v1::NewestRun {
            mesh_uid: "mesh".to_owned(),
            run_id: 12,
        }),
        ..v1::Hello::default()
    };
    let reply = |body| {
        Body::Reply(v1::Reply {
            id: 7,
            body: Some(body),
            ..v1::Reply::default()
        })
    };
    let survey = v1::SurveyReply {
        paths: vec![v1::PathFacts {
            path: "/mnt/a".to_owned(),
            allowed: true,
            exists: true,
            free_bytes: 1 << 40,
            ..v1::PathFacts::default()
        }],
        inventory_json: "{\"cpu\": \"x\", \"nics\": []}".to_owned(),
        ..v1::SurveyReply::default()
    };
    let end = v1::EndReply {
        state: "done".to_owned(),
        spool_id: "spool".to_owned(),
        sequence: 99,
        ..v1::EndReply::default()
    };
    [
        Body::Hello(hello),
        reply(reply::Body::Survey(survey)),
        reply(reply::Body::End(end)),
        reply(reply::Body::Arm(v1::ArmReply { lead_us: 5000 })),
        reply(reply::Body::Listen(v1::ListenReply { port: 4750 })),
        Body::SpoolBlocked(v1::SpoolBlocked {
            since_ns: 5,
            sent_ns: 9,
        }),
        Body::Progress(v1::Progress {
            command_id: 7,
            done: 1,
            total: 2,
            unit: "files".to_owned(),
        }),
    ]
    .map(|body| v1::AgentMessage { body: Some(body) }.encode_to_vec())
    .to_vec()
}

#[test]
fn damaged_messages_are_converted_or_their_field_named() {
    let shape = <v1::AgentMessage as Bounded>::SHAPE.unwrap();
    withstands(damaged(fixture_messages(), 64 << 10), 32 << 20, |bytes| {
        match v1::AgentMessage::decode(bytes.as_slice()) {
            Ok(message) if holds_at_most(MAX_ENTRIES, shape, &bytes) => check(message),
            _ => Ok(()),
        }
    });
}

proptest! {
    #[test]
    fn any_message_is_converted_or_its_field_named(message in message()) {
        check(message)?;
    }

    #[test]
    fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = v1::AgentMessage::decode(bytes.as_slice()) {
            check(message)?;
        }
    }
}
