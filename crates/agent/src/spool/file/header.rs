//! The row that identifies a spool's owner and its sent and stored positions.
//!
//! A checksum covers all columns: with a damaged mesh, rows would go to another database, and with a damaged position,
//! batches that must stay would be given up or merged. Every change of a column writes the checksum too.

use crate::envelope::{Sequence, SpoolId};
use crate::spool::SpoolError;
use sqlx::{Row, SqliteConnection};
use std::path::Path;
use uuid::Uuid;

use super::{number_of, sequence_of};

/// Version of the format.
const VERSION: i64 = 1;

/// Identity and positions of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: SpoolId,
    /// Number of this start of the agent: the order in which spools are drained.
    pub(super) ordinal: i64,
    /// The mesh that its rows belong to; `None` until the agent has attached.
    pub(super) mesh: Option<String>,
    /// Batches up to this sequence may have been sent, and must not change.
    pub(super) reserved: Sequence,
    /// The last stored sequence that the collector has acked, as far as it is written to the file.
    pub(super) acked: Sequence,
}

impl Header {
    pub(super) fn new(id: SpoolId, ordinal: i64) -> Self {
        Self {
            id,
            ordinal,
            mesh: None,
            reserved: Sequence(0),
            acked: Sequence(0),
        }
    }

    /// CRC-32 of all columns, each with its length.
    pub(super) fn checksum(&self) -> i64 {
        let mut sum = crc32fast::Hasher::new();
        let mut field = |bytes: &[u8]| {
            sum.update(&(bytes.len() as u64).to_le_bytes());
            sum.update(bytes);
        };
        field(&VERSION.to_le_bytes());
        field(self.id.0.as_bytes());
        field(&self.ordinal.to_le_bytes());
        field(&[u8::from(self.mesh.is_some())]);
        field(self.mesh.as_deref().unwrap_or_default().as_bytes());
        for position in [self.reserved, self.acked] {
            field(&position.0.to_le_bytes());
        }
        i64::from(sum.finalize())
    }

    /// The row of a new spool.
    pub(super) async fn insert(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO spool VALUES (1, ?, ?, ?, ?, ?, ?, ?)")
            .bind(VERSION)
            .bind(self.id.to_string())
            .bind(self.ordinal)
            .bind(self.mesh.as_deref())
            .bind(number_of(self.reserved))
            .bind(number_of(self.acked))
            .bind(self.checksum())
            .execute(connection)
            .await
            .map(drop)
    }

    /// Writes the columns that can change: the mesh and the acked position.
    pub(super) async fn update(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE spool SET mesh_uid = ?, acked = ?, checksum = ?")
            .bind(self.mesh.as_deref())
            .bind(number_of(self.acked))
            .bind(self.checksum())
            .execute(connection)
            .await
            .map(drop)
    }

    /// Reads the header of an earlier start's spool.
    pub(super) async fn open(
        connection: &mut SqliteConnection,
        path: &Path,
    ) -> Result<Self, SpoolError> {
        let error = || SpoolError::sql("read the spool", path);
        let version: i64 = sqlx::query("SELECT version FROM spool")
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(error())?;
        if version != VERSION {
            return Err(SpoolError::NotASpool {
                path: path.to_owned(),
                why: format!("its version is {version}, this agent writes {VERSION}"),
            });
        }
        let (header, checksum) = Self::read(connection).await.map_err(error())?;
        if checksum != header.checksum() {
            return Err(SpoolError::DamagedHeader {
                path: path.to_owned(),
            });
        }
        Ok(header)
    }

    async fn read(connection: &mut SqliteConnection) -> Result<(Self, i64), sqlx::Error> {
        let row =
            sqlx::query("SELECT spool_id, ordinal, mesh_uid, reserved, acked, checksum FROM spool")
                .fetch_one(connection)
                .await?;
        let id: String = row.try_get(0)?;
        let id = Uuid::parse_str(&id).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let header = Self {
            id: SpoolId(id),
            ordinal: row.try_get(1)?,
            mesh: row.try_get(2)?,
            reserved: sequence_of(row.try_get(3)?),
            acked: sequence_of(row.try_get(4)?),
        };
        Ok((header, row.try_get(5)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_in_the_checksum() {
        let header = Header::new(SpoolId(Uuid::from_u128(7)), 3);
        let changes: [fn(&mut Header); 7] = [
            |header| header.id = SpoolId(Uuid::from_u128(8)),
            |header| header.ordinal = 4,
            |header| header.mesh = Some(String::new()),
            |header| header.mesh = Some("mesh-1".to_owned()),
            |header| header.reserved = Sequence(1),
            |header| header.acked = Sequence(1),
            |header| header.acked = Sequence(1 << 32),
        ];
        let mut sums = vec![header.checksum()];
        for change in changes {
            let mut changed = header.clone();
            change(&mut changed);
            sums.push(changed.checksum());
        }
        let all = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), all);
    }
}
