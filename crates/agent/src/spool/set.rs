//! All spools of an agent: the one being written, and older ones that are drained before it.
//!
//! The rows of a spool belong to one mesh (their tasks are rows of its database). When the agent attaches to another
//! mesh, the old mesh's spools are kept aside and a new one is created. Batches that the collector will never have,
//! because it refuses them or another database has them, are replaced by an explicit record.

mod room;

use super::SpoolError;
use super::file::{SpoolFile, Stored};
use super::gap::{GapReason, gap};
use super::old::{Old, OldSpools, find};
use crate::envelope::{Announced, Envelope, Sequence, SpoolId};
use crate::state::StateDir;
use crate::telemetry::MeshMicros;
use benchmesh_workloads::error_chain;
use room::GivenUp;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// The spools, and how far they have been read.
#[derive(Debug)]
pub(super) struct SpoolSet {
    state: Arc<StateDir>,
    limit_bytes: u64,
    current: SpoolFile,
    old: VecDeque<Old>,
    /// The old spool that is being drained.
    draining: Option<SpoolFile>,
    /// The collector's last sequences, as it reported them when the agent attached.
    stored: HashMap<SpoolId, Sequence>,
    /// The last sequence read from the spool that is being drained.
    read: Sequence,
    /// Unreadable spools of earlier starts that were not reported yet.
    unreadable: Vec<Uuid>,
    /// Size after a full round of merging, while it is above the limit.
    merged_to: Option<u64>,
    given_up: GivenUp,
    /// Size limit of the written spool's file.
    limited_to: u64,
    appends: u32,
}

impl SpoolSet {
    /// Creates a spool, and finds those of earlier starts.
    pub(super) async fn open(state: Arc<StateDir>, limit_bytes: u64) -> Result<Self, SpoolError> {
        let OldSpools {
            mut old,
            unreadable,
        } = find(&state, limit_bytes / 8).await;
        old.sort_by_key(|spool| spool.ordinal);
        let ordinal = old.last().map_or(1, |last| last.ordinal.saturating_add(1));
        let current = create(&state, ordinal).await?;
        let mut set = Self {
            state,
            limit_bytes,
            current,
            old: old.into(),
            draining: None,
            stored: HashMap::new(),
            read: Sequence(0),
            unreadable,
            merged_to: None,
            given_up: GivenUp::default(),
            limited_to: 0,
            appends: 0,
        };
        set.shrink_old().await;
        set.limit_current().await?;
        Ok(set)
    }

    /// Their ids, oldest first; the one being written is last.
    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<SpoolId> {
        self.old
            .iter()
            .map(|old| old.id)
            .chain([self.current.id()])
            .collect()
    }

    /// The id of the spool being written.
    pub(super) fn current(&self) -> SpoolId {
        self.current.id()
    }

    /// All of them, oldest first. `acked` holds acks that are newer than those in the spools' files.
    pub(super) fn announced(&self, acked: &HashMap<SpoolId, Sequence>) -> Vec<Announced> {
        let old = self.old.iter();
        old.map(|old| (old.id, old.mesh.as_deref(), old.acked))
            .chain([(self.current.id(), self.current.mesh(), self.current.acked())])
            .map(|(id, mesh, written)| Announced {
                id,
                mesh: mesh.map(str::to_owned),
                acked: acked.get(&id).copied().unwrap_or_default().max(written),
            })
            .collect()
    }

    /// Number of batches that the collector had acked and no longer has, because its database was restored from an
    /// older copy.
    pub(super) fn vanished(
        &self,
        mesh: &str,
        stored: &HashMap<SpoolId, Sequence>,
        acked: &HashMap<SpoolId, Sequence>,
    ) -> u64 {
        let spools = self.announced(acked).into_iter();
        spools
            .filter(|spool| spool.mesh.as_deref() == Some(mesh))
            .map(|spool| {
                let stored = stored.get(&spool.id).copied().unwrap_or_default();
                spool.acked.0.saturating_sub(stored.0)
            })
            .sum()
    }

    /// Keeps all spools of this mesh aside and creates a new one, because their database is gone. Returns the
    /// undelivered part.
    pub(super) async fn retire_mesh(
        &mut self,
        mesh: &str,
        acked: &HashMap<SpoolId, Sequence>,
    ) -> Result<Undelivered, SpoolError> {
        self.stop_draining().await;
        let lost = format!("{mesh} before it was restored");
        let mut sum = Undelivered::default();
        for old in &mut self.old {
            if old.mesh.as_deref() != Some(mesh) {
                continue;
            }
            old.mesh = Some(lost.clone());
            match SpoolFile::open(&old.path).await {
                Ok(mut file) => {
                    sum.add(&mut file, acked).await?;
                    file.bind(&lost).await?;
                    file.close().await?;
                }
                Err(error) => {
                    tracing::error!(error = %error_chain(&error), "an old spool cannot be read and is left alone");
                }
            }
        }
        sum.add(&mut self.current, acked).await?;
        self.current.bind(&lost).await?;
        self.roll().await?;
        Ok(sum)
    }

    /// Spools of earlier starts that are partly or wholly unreadable. Each is reported once.
    pub(super) fn take_unreadable(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.unreadable)
    }

    /// Continues from the collector's positions. `false` if the mesh differs from the written spool's: then a new spool
    /// was created, and the agent has to attach again to announce it.
    pub(super) async fn attach(
        &mut self,
        mesh: &str,
        stored: HashMap<SpoolId, Sequence>,
    ) -> Result<bool, SpoolError> {
        self.stop_draining().await;
        match self.current.mesh() {
            None => self.current.bind(mesh).await?,
            Some(bound) if bound == mesh => {}
            Some(bound) => {
                tracing::warn!(
                    was = %bound, now = %mesh,
                    "the collector has another database than before: measurements for the old one are kept in {}",
                    self.state.path().display()
                );
                self.roll().await?;
                return Ok(false);
            }
        }
        let position = |id: &SpoolId| stored.get(id).copied().unwrap_or_default();
        self.current.skip_to(position(&self.current.id()));
        self.stored = stored;
        self.begin_next(mesh).await;
        Ok(true)
    }

    /// Appends batches to the written spool and deletes the acked ones. Returns the first new sequence.
    pub(super) async fn append(
        &mut self,
        bodies: &[Vec<u8>],
        acked: Option<Sequence>,
    ) -> Result<Sequence, SpoolError> {
        self.current.append(bodies, acked).await
    }

    /// The next batch to send, in the order of the spools; `None` if all have been read, or if the spool that is being
    /// drained waits for its acks.
    pub(super) async fn next(&mut self, now: MeshMicros) -> Result<Option<Envelope>, SpoolError> {
        let file = self.draining.as_mut().unwrap_or(&mut self.current);
        let (spool, expected) = (file.id(), self.read.next());
        let stored = match file.after(self.read).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(None),
            Err(error) if self.draining.is_some() && error.is_damage() => {
                self.abandon(&error).await;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match stored {
            Stored::Intact(envelope) if envelope.first > expected => {
                let last = Sequence(envelope.first.0.saturating_sub(1));
                let reason = match file.was_set_aside(expected, last).await {
                    Ok(true) => GapReason::SetAside,
                    Ok(false) | Err(_) => GapReason::Missing,
                };
                let span = file.span_of_lost(self.read, last, now).await;
                self.read = last;
                Ok(Some(gap((spool, expected, last), now, span, reason)))
            }
            Stored::Intact(envelope) => {
                file.reserve(envelope.sequence).await?;
                self.read = envelope.sequence;
                Ok(Some(envelope))
            }
            Stored::Lost { upto, why, damaged } => {
                tracing::error!(%spool, first = %expected, last = %upto, reason = why.as_str(), "spooled batches are lost");
                for key in damaged {
                    if let Err(error) = file.set_aside(key, "damaged on the disk").await {
                        tracing::warn!(error = %error_chain(&error), "a damaged batch cannot be kept");
                    }
                }
                let span = file.span_of_lost(self.read, upto, now).await;
                self.read = upto;
                let reason = GapReason::Lost(why);
                Ok(Some(gap((spool, expected, upto), now, span, reason)))
            }
        }
    }

    /// Abandons the spool that is being drained, without changing it, and continues with the next.
    async fn abandon(&mut self, error: &SpoolError) {
        let Some(file) = self.draining.take() else {
            return;
        };
        let (id, mesh) = (file.id(), file.mesh().map(str::to_owned));
        tracing::error!(spool = %id, error = %error_chain(error), "the rest of an old spool cannot be read and is left alone");
        self.unreadable.push(id.0);
        self.old.retain(|old| old.id != id);
        if let Some(mesh) = mesh {
            self.begin_next(&mesh).await;
        }
    }

    /// Called when every read batch is acked. Removes an old spool that is fully read and begins the next one. Returns
    /// whether there may be more to read now.
    pub(super) async fn all_acked(&mut self, mesh: &str) -> bool {
        let Some(mut file) = self.draining.take() else {
            return false;
        };
        let id = file.id();
        match file.after(self.read).await {
            Ok(None) => {
                if let Err(error) = retire(file).await {
                    tracing::warn!(spool = %id, error = %error_chain(&error), "a drained spool cannot be removed");
                }
                self.old.retain(|old| old.id != id);
                self.begin_next(mesh).await;
            }
            Ok(Some(_)) => self.draining = Some(file),
            Err(error) => {
                self.draining = Some(file);
                self.abandon(&error).await;
            }
        }
        true
    }

    /// Sets aside a batch that the collector refuses permanently.
    pub(super) async fn set_aside(
        &mut self,
        spool: SpoolId,
        sequence: Sequence,
        reason: &str,
    ) -> Result<(), SpoolError> {
        match &mut self.draining {
            Some(file) if file.id() == spool => file.set_aside(sequence, reason).await,
            _ if self.current.id() == spool => self.current.set_aside(sequence, reason).await,
            _ => Ok(()),
        }
    }

    /// Merges one group, even below the limit.
    #[cfg(test)]
    pub(super) async fn compact(&mut self) -> Result<Option<u64>, SpoolError> {
        self.current.compact().await
    }

    /// Every batch in the written spool.
    #[cfg(test)]
    pub(super) async fn all(&mut self) -> Vec<(SpoolId, Sequence, Sequence, Vec<u8>)> {
        let mut batches = Vec::new();
        let mut last = Sequence(0);
        while let Ok(Some(Stored::Intact(envelope))) = self.current.after(last).await {
            last = envelope.sequence;
            batches.push((envelope.spool, envelope.first, last, envelope.body));
        }
        batches
    }

    /// Whether the written spool is being read, and has been read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.draining.is_none() && self.read >= self.current.last()
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> u64 {
        self.current.bytes()
    }

    #[cfg(test)]
    pub(super) async fn used_bytes(&mut self) -> u64 {
        self.current.used_bytes().await.expect("a look at the file")
    }

    /// Makes the disk appear full at this number of pages.
    #[cfg(test)]
    pub(super) async fn limit_pages(&mut self, pages: u32) {
        self.current.limit_pages(pages).await;
    }

    /// Closes all spools; an empty written spool is removed.
    pub(super) async fn close(mut self) -> Result<(), SpoolError> {
        self.stop_draining().await;
        let empty =
            self.current.after(Sequence(0)).await?.is_none() && !self.current.has_refused().await?;
        match empty {
            true => self.current.remove().await,
            false => self.current.close().await,
        }
    }

    /// Opens the oldest spool of this mesh, or else the written one.
    async fn begin_next(&mut self, mesh: &str) {
        let mut unreadable = Vec::new();
        for old in &self.old {
            if old.mesh.as_deref() != Some(mesh) {
                continue;
            }
            match SpoolFile::open(&old.path).await {
                Ok(file) => {
                    self.read = self.stored.get(&file.id()).copied().unwrap_or_default();
                    self.draining = Some(file);
                    break;
                }
                Err(error) => {
                    tracing::error!(error = %error_chain(&error), "an old spool cannot be read and is left alone");
                    unreadable.push(old.id);
                }
            }
        }
        self.old.retain(|old| !unreadable.contains(&old.id));
        self.unreadable.extend(unreadable.iter().map(|id| id.0));
        if self.draining.is_none() {
            self.read = self
                .stored
                .get(&self.current.id())
                .copied()
                .unwrap_or_default();
        }
    }

    async fn stop_draining(&mut self) {
        if let Some(file) = self.draining.take()
            && let Err(error) = file.close().await
        {
            tracing::warn!(error = %error_chain(&error), "a spool was not closed cleanly");
        }
    }

    /// Creates a new written spool; the previous one becomes an old one.
    pub(super) async fn roll(&mut self) -> Result<(), SpoolError> {
        let ordinal = self.current.ordinal().saturating_add(1);
        let new = create(&self.state, ordinal).await?;
        let mut file = std::mem::replace(&mut self.current, new);
        let is_empty = matches!(file.after(Sequence(0)).await, Ok(None))
            && matches!(file.has_refused().await, Ok(false));
        if is_empty {
            self.limited_to = 0;
            file.remove().await?;
            return self.limit_current().await;
        }
        self.old.push_back(Old {
            id: file.id(),
            path: self.state.spool_path(file.id().0),
            mesh: file.mesh().map(str::to_owned),
            ordinal: file.ordinal(),
            bytes: file.used_bytes().await.unwrap_or_else(|_| file.bytes()),
            acked: file.acked(),
        });
        if let Err(error) = file.close().await {
            tracing::warn!(error = %error_chain(&error), "a spool was not closed cleanly");
        }
        self.limited_to = 0;
        if self.draining.is_none() {
            self.shrink_old().await;
        }
        self.limit_current().await
    }
}

/// Removes a drained spool, unless it contains refused batches that a user may want to inspect.
async fn retire(mut file: SpoolFile) -> Result<(), SpoolError> {
    if file.has_refused().await? {
        tracing::warn!(spool = %file.id(), "a drained spool is kept: the collector has refused some of its batches");
        return file.close().await;
    }
    file.remove().await
}

async fn create(state: &StateDir, ordinal: i64) -> Result<SpoolFile, SpoolError> {
    let id = SpoolId(Uuid::new_v4());
    SpoolFile::create(&state.spool_path(id.0), id, ordinal).await
}

/// Spooled and undelivered data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undelivered {
    pub(super) spools: u64,
    pub(super) batches: u64,
    pub(super) bytes: u64,
}

impl Undelivered {
    async fn add(
        &mut self,
        file: &mut SpoolFile,
        acked: &HashMap<SpoolId, Sequence>,
    ) -> Result<(), SpoolError> {
        let acked = acked.get(&file.id()).copied().unwrap_or_default();
        let (batches, bytes) = file.undelivered(acked).await?;
        self.spools += u64::from(batches > 0);
        self.batches += batches;
        self.bytes += bytes;
        Ok(())
    }
}
