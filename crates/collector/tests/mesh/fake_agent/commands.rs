//! The answers of a simulated agent to each command.

use super::{Inner, Script, connection::Outcome, now_us};
use benchmesh_proto::v1;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::sleep_until;
use v1::{command::Body as Asked, reply::Body as Answer};

/// Run directories by file system and run.
type Disks = Arc<Mutex<HashMap<(String, String), String>>>;

/// Shared by all agents of the test process; keys contain the run's uid.
static DISKS: std::sync::LazyLock<Disks> = std::sync::LazyLock::new(Disks::default);

pub(super) fn answer(agent: &Arc<Inner>, asked: Asked) -> Outcome {
    let script = agent.script.lock().unwrap().clone();
    match asked {
        Asked::Sampling(sampling) => {
            let period_us = sampling.period_us;
            *agent.sampling.lock().unwrap() = sampling;
            agent.note(format!("sampling {period_us}"));
            Ok(None)
        }
        Asked::Survey(survey) => {
            let paths = survey.paths.into_iter().map(|path| v1::PathFacts {
                allowed: path.starts_with("/mnt"),
                exists: true,
                path,
                free_bytes: script.free_bytes,
                free_files: -1,
                file_system: script.file_system_type.clone(),
                device: script.file_system.clone(),
                ..v1::PathFacts::default()
            });
            Ok(Some(Answer::Survey(v1::SurveyReply {
                paths: paths.collect(),
                ..v1::SurveyReply::default()
            })))
        }
        Asked::OpenRunDirectory(open) => {
            agent.note(format!("open {} make={}", open.path, open.make));
            let mut disks = DISKS.lock().unwrap();
            let key = (
                script.file_system.clone(),
                format!("{}{}", open.run_uid, open.path),
            );
            let there = disks.get(&key).cloned();
            let made = there.is_none() && open.make;
            let nonce = there
                .clone()
                .unwrap_or_else(|| format!("nonce-{}", agent.name));
            if made {
                disks.insert(key, nonce.clone());
            }
            Ok(Some(Answer::RunDirectory(v1::RunDirectoryReply {
                found: there.is_some() || made,
                made,
                nonce: script.nonce.unwrap_or(nonce),
                free_bytes: script.free_bytes,
            })))
        }
        Asked::RemoveRunDirectory(remove) => {
            agent.note(format!("remove {}", remove.path));
            let key = (
                script.file_system.clone(),
                format!("{}{}", remove.run_uid, remove.path),
            );
            DISKS.lock().unwrap().remove(&key);
            Ok(None)
        }
        Asked::RemoveCell(remove) => {
            agent.note(format!("clean {} {}", remove.cell, remove.task_index));
            Ok(None)
        }
        Asked::Listen(listen) => {
            agent.note(format!("listen from {}", listen.from_address));
            Ok(Some(Answer::Listen(v1::ListenReply { port: 4242 })))
        }
        Asked::Prepare(prepare) => {
            agent.note(format!(
                "prepare {} {} {}/{} {}",
                prepare.cell, prepare.mode, prepare.task_index, prepare.tasks, prepare.peer_address
            ));
            agent
                .tasks
                .lock()
                .unwrap()
                .entry(prepare.task_id)
                .or_default()
                .op = operation_of(&prepare.workload);
            Ok(None)
        }
        Asked::DropCaches(_) => {
            agent.note(String::from("drop"));
            if script.no_root {
                return Ok(Some(Answer::DropCaches(v1::DropCachesReply {
                    drops: vec![v1::CacheDrop {
                        what: String::from("page-cache"),
                        dropped: false,
                        error: String::from("run it as root"),
                    }],
                })));
            }
            let drop = |what: &str, dropped: bool| v1::CacheDrop {
                what: what.to_owned(),
                dropped,
                error: if dropped {
                    String::new()
                } else {
                    String::from("not permitted")
                },
            };
            Ok(Some(Answer::DropCaches(v1::DropCachesReply {
                drops: vec![drop("page-cache", true), drop("dentries-inodes", false)],
            })))
        }
        Asked::Arm(arm) => {
            agent.note(String::from("arm"));
            arm_task(agent, &script, &arm)
        }
        Asked::StopTask(stop) => {
            agent.note(format!("stop {}", stop.reason));
            agent.end(stop.task_id, "stopped");
            Ok(None)
        }
        Asked::ForgetTask(forget) => {
            agent.note(String::from("forget"));
            agent.tasks.lock().unwrap().remove(&forget.task_id);
            Ok(None)
        }
        Asked::ShareRate(share) => {
            agent.note(format!("share {} of {}", share.task_index, share.tasks));
            Ok(None)
        }
        Asked::Mark(_) => {
            agent.note(String::from("mark"));
            Ok(None)
        }
        Asked::AwaitEnd(_) => Ok(None),
    }
}

/// An operation of the workload's tasks.
fn operation_of(workload: &str) -> &'static str {
    match workload {
        "io" => "write",
        "network" => "ping",
        "files" => "create",
        _ => "null",
    }
}

fn arm_task(agent: &Arc<Inner>, script: &Script, arm: &v1::Arm) -> Outcome {
    let lead_us = arm.start_us - now_us();
    let mut tasks = agent.tasks.lock().unwrap();
    let Some(task) = tasks.get_mut(&arm.task_id) else {
        return Err((String::from("unknown-task"), String::from("not known")));
    };
    if lead_us < 0 {
        return Err((
            String::from("too-late"),
            String::from("the start has passed"),
        ));
    }
    task.start_us = Some(arm.start_us);
    let until = Duration::from_micros(lead_us.unsigned_abs()) + script.runs_for;
    let (agent, id) = (Arc::clone(agent), arm.task_id);
    let seconds = if script.row_per_second {
        script.runs_for.as_secs()
    } else {
        0
    };
    let (start_us, lead) = (arm.start_us, Duration::from_micros(lead_us.unsigned_abs()));
    tokio::spawn(async move {
        let armed = tokio::time::Instant::now();
        for second in 0..seconds {
            sleep_until(armed + lead + Duration::from_secs(second + 1)).await;
            agent.publish_second(id, start_us + i64::try_from(second).unwrap() * 1_000_000);
        }
        sleep_until(armed + until).await;
        agent.end(id, "done");
    });
    Ok(Some(Answer::Arm(v1::ArmReply { lead_us })))
}
