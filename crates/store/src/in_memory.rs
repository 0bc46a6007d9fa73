//! A database in memory, for simulations of its users: the same statements on one connection.
//!
//! Each write is committed before it returns, and nothing runs concurrently with the caller: neither the writer's
//! thread nor the tasks that compute figures of late data. The same calls give the same rows. The schema is created
//! once per process, and each database begins with a copy of it.

use super::writer::WriterHandle;
use super::{Doing, Readers, Shared, Store, StoreError, open, schema};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteOwnedBuf, SqlitePoolOptions};
use std::sync::Arc;
use tokio::sync::{OnceCell, mpsc};

/// A database without rows, and the uid of its mesh.
static EMPTY: OnceCell<(Vec<u8>, String)> = OnceCell::const_new();
const PATH: &str = ":memory:";
/// Each statement is prepared once.
const STATEMENTS: usize = 256;
const DOING: &str = "make a database in memory";

impl Store {
    /// Creates one, which is deleted when it is dropped.
    pub async fn in_memory() -> Result<Self, StoreError> {
        let (empty, mesh_uid) = EMPTY.get_or_try_init(empty).await?;
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .after_connect(|connection, _| {
                Box::pin(async {
                    let copy = SqliteOwnedBuf::try_from(empty.as_slice())?;
                    connection.deserialize(None, copy, false).await
                })
            })
            .connect_lazy_with(options());
        let readers = [pool.clone(), pool.clone()];
        let start = |ingest, _| Ok((WriterHandle::inline(pool, ingest), Vec::new()));
        let refresh = mpsc::channel(1).0;
        let shared = Shared::new(PATH.into(), mesh_uid.clone(), readers, refresh, start)?;
        Ok(Self {
            shared: Arc::new(shared),
            readers: Readers::Shared,
        })
    }
}

fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging()
}

async fn empty() -> Result<(Vec<u8>, String), StoreError> {
    let mut connection = options().connect().await.doing(DOING)?;
    schema::create(&mut connection).await.doing(DOING)?;
    let mesh_uid = open::mesh_uid(&mut connection).await.doing(DOING)?;
    let bytes = connection.serialize(None).await.doing(DOING)?;
    Ok((bytes.to_vec(), mesh_uid))
}
