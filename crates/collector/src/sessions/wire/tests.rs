//! Property tests: any message converts into types within their bounds, or into an error that names the field.

use super::*;
use proptest::{option, prelude::*};
use prost::Message;
use v1::{agent_message::Body, reply};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        (0_usize..10_000).prop_map(|length| "ä".repeat(length)),
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
    (text(), any::<(bool, bool)>(), text(), any::<(i64, i64)>()).prop_map(
        |(path, (allowed, exists), problem, (free_bytes, free_files))| v1::PathFacts {
            path,
            allowed,
            exists,
            problem,
            free_bytes,
            free_files,
            ..v1::PathFacts::default()
        },
    )
}

fn reply_body() -> impl Strategy<Value = reply::Body> {
    prop_oneof![
        (
            prop::collection::vec(path_facts(), 0..4),
            any::<(i64, i64)>()
        )
            .prop_map(|(paths, (scratch_free_bytes, link_bytes_per_s))| {
                reply::Body::Survey(v1::SurveyReply {
                    paths,
                    scratch_free_bytes,
                    link_bytes_per_s,
                    ..v1::SurveyReply::default()
                })
            }),
        (text(), any::<i64>()).prop_map(|(nonce, free_bytes)| {
            reply::Body::RunDirectory(v1::RunDirectoryReply {
                nonce,
                free_bytes,
                ..v1::RunDirectoryReply::default()
            })
        }),
        any::<u32>().prop_map(|port| reply::Body::Listen(v1::ListenReply { port })),
        any::<i64>().prop_map(|lead_us| reply::Body::Arm(v1::ArmReply { lead_us })),
        (text(), text(), any::<(u64, bool)>()).prop_map(|(state, error, (sequence, stalled))| {
            reply::Body::End(v1::EndReply {
                state,
                error,
                sequence,
                stalled,
                ..v1::EndReply::default()
            })
        }),
        prop::collection::vec(text(), 0..40).prop_map(|drops| {
            reply::Body::DropCaches(v1::DropCachesReply {
                drops: drops
                    .into_iter()
                    .map(|what| v1::CacheDrop {
                        what,
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

fn message() -> impl Strategy<Value = v1::AgentMessage> {
    let body = prop_oneof![
        hello().prop_map(Body::Hello),
        any::<i64>().prop_map(|agent_sent_ns| Body::ClockProbe(v1::ClockProbe { agent_sent_ns })),
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

fn check(message: v1::AgentMessage) -> Result<(), TestCaseError> {
    let sent = message.clone();
    match Incoming::try_from(message) {
        Err(error) => prop_assert!(!error.field.is_empty()),
        Ok(Incoming::Hello(hello)) => {
            if hello.check().is_ok() {
                prop_assert!(!hello.name.is_empty() && hello.memory_bytes >= 0);
                prop_assert!(hello.allowed.iter().all(|path| path.is_absolute()));
            }
        }
        Ok(Incoming::Probe { agent_sent_ns }) => {
            prop_assert_eq!(
                sent.body,
                Some(Body::ClockProbe(v1::ClockProbe { agent_sent_ns }))
            );
        }
        Ok(Incoming::Progress { progress, .. }) => {
            prop_assert!(progress.unit.chars().count() <= 32)
        }
        Ok(Incoming::Reply {
            reply: Err((_, message)),
            ..
        }) => {
            prop_assert!((1..=MAX_ERROR_CHARS).contains(&message.chars().count()));
        }
        Ok(Incoming::Reply {
            reply: Ok(answer), ..
        }) => match answer {
            Answer::End(end) => {
                prop_assert!(end.error.chars().count() <= MAX_ERROR_CHARS);
                prop_assert!(end.state != TaskState::Lost && end.state != TaskState::Running);
            }
            Answer::Listening { port } => prop_assert!(port > 0),
            Answer::Dropped(drops) => prop_assert!(drops.len() <= 16),
            _ => {}
        },
    }
    Ok(())
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
