//! One connection of a simulated agent: handles commands in their order, and waiting answers concurrently.

use super::{Inner, commands::answer, message};
use benchmesh_proto::v1;
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::sleep};
use tonic::Streaming;
use v1::{agent_message::Body as AgentBody, command::Body as Asked, reply::Body as Answer};

pub(super) type Outcome = Result<Option<Answer>, (String, String)>;

pub(super) async fn serve(
    agent: Arc<Inner>,
    heard: &mut Streaming<v1::CollectorMessage>,
    said: mpsc::Sender<v1::AgentMessage>,
) {
    // The waits end with the connection.
    let mut waits = tokio::task::JoinSet::new();
    waits.spawn(probe(said.clone()));
    while let Ok(Some(message_heard)) = heard.message().await {
        let Some(v1::collector_message::Body::Command(command)) = message_heard.body else {
            continue;
        };
        let (agent, said) = (Arc::clone(&agent), said.clone());
        let id = command.id;
        let Some(body) = command.body else { continue };
        // Waiting answers have tasks of their own; all others come in the order of the commands.
        if let Asked::AwaitEnd(asked) = body {
            waits.spawn(async move {
                let reply = await_end(&agent, asked.task_id).await;
                let _ = said
                    .send(message(AgentBody::Reply(with_id(id, reply))))
                    .await;
            });
            continue;
        }
        let script = agent.script.lock().unwrap().clone();
        let removing = matches!(body, Asked::RemoveCell(_) | Asked::RemoveRunDirectory(_));
        if script.deaf_to_surveys && matches!(body, Asked::Survey(_)) {
            agent.note(String::from("survey without an answer"));
            continue;
        }
        let reply = answer(&agent, body);
        for done in (1..=script.removes).filter(|_| removing) {
            let progress = v1::Progress {
                command_id: id,
                done,
                total: 0,
                unit: String::from("files"),
            };
            let _ = said.send(message(AgentBody::Progress(progress))).await;
            sleep(Duration::from_millis(300)).await;
        }
        let _ = said
            .send(message(AgentBody::Reply(with_id(id, reply))))
            .await;
    }
}

/// Sends a clock probe every second, like a real agent.
async fn probe(said: mpsc::Sender<v1::AgentMessage>) {
    let mut beats = tokio::time::interval(Duration::from_secs(1));
    loop {
        beats.tick().await;
        let probe = v1::ClockProbe { agent_sent_ns: 0 };
        if said
            .send(message(AgentBody::ClockProbe(probe)))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn with_id(id: u64, outcome: Outcome) -> v1::Reply {
    match outcome {
        Ok(body) => v1::Reply {
            id,
            body,
            ..v1::Reply::default()
        },
        Err((error_kind, error)) => v1::Reply {
            id,
            error,
            error_kind,
            body: None,
        },
    }
}

async fn await_end(agent: &Inner, id: i64) -> Outcome {
    let mut changes = agent.changes.subscribe();
    loop {
        match agent.tasks.lock().unwrap().get(&id) {
            None => {
                return Err((
                    String::from("unknown-task"),
                    format!("task {id} is not known"),
                ));
            }
            Some(task) if task.start_us.is_none() => {
                return Err((String::from("failed"), String::from("not armed")));
            }
            Some(task) => {
                if let Some(ended) = &task.ended {
                    return Ok(Some(Answer::End(ended.clone())));
                }
            }
        }
        changes.changed().await.unwrap();
    }
}
