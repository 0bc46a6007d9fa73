//! Commands on the run's directories of a simulated agent: one after the other per path, some slow, some never done.

use super::{DEAD, Disks, Faults, Later, Replies, Reply, SimAgent};
use crate::sessions::command::{AgentAnswer, Command, Make, RefusalKind, RunDirectory};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_workloads::random::Random;

impl SimAgent {
    /// Carries out the oldest command on a directory and schedules the next one.
    pub fn directory(
        &mut self,
        path: &str,
        now: MeshMicros,
        disks: &mut Disks,
        faults: &Faults,
        random: &mut Random,
    ) -> (Replies, Vec<(i64, Later)>) {
        let queue = self.directories.entry(path.to_owned()).or_default();
        let Some((token, command)) = queue.pop_front() else {
            return (Vec::new(), Vec::new());
        };
        let next = queue.front().map(|(_, next)| next.clone());
        let key = (path.to_owned(), self.file_system);
        let reply: Reply = match command {
            Command::OpenRunDirectory { .. } if self.target_is_dead => {
                Err((RefusalKind::TargetLost, DEAD.to_owned()))
            }
            Command::OpenRunDirectory { .. } if random.below(1000) < faults.refuses_directory => {
                Err((
                    RefusalKind::Failed,
                    String::from("the target does not answer"),
                ))
            }
            Command::OpenRunDirectory { make, .. } => {
                let there = disks.contains_key(&key);
                let made = !there && make == Make::IfMissing;
                if made {
                    disks.insert(key.clone(), format!("nonce-{}-{}", self.id, now.0));
                }
                Ok(AgentAnswer::RunDirectory(RunDirectory {
                    found: there,
                    made,
                    nonce: disks.get(&key).cloned().unwrap_or_default(),
                    free_bytes: 1 << 40,
                }))
            }
            _ => {
                disks.remove(&key);
                Ok(AgentAnswer::Done)
            }
        };
        let later = next.and_then(|next| directory_takes(&next, faults, random));
        let replies = token.map(|token| (token, reply));
        (replies.into_iter().collect(), later.into_iter().collect())
    }
}

/// When a command on a directory is done: some targets are slow. `None`: never.
pub(super) fn directory_takes(
    command: &Command,
    faults: &Faults,
    random: &mut Random,
) -> Option<(i64, Later)> {
    let (Command::OpenRunDirectory { path, .. } | Command::RemoveRunDirectory { path, .. }) =
        command
    else {
        return None;
    };
    let removes = matches!(command, Command::RemoveRunDirectory { .. });
    if removes && faults.hangs_on == Some(path.as_str()) {
        return None;
    }
    let most = match random.below(10) {
        0 => 3_000_000,
        _ => 2000,
    };
    let takes = i64::try_from(random.below(most)).unwrap();
    Some((takes, Later::Directory(path.clone())))
}
