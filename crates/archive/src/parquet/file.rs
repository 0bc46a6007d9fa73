//! One Parquet file: the rows of one table of one run.
//!
//! It is written under a temporary name beside its place, synced, and gets its name by `publish`. Dropped before that,
//! it is removed. Memory is bounded by that of one row group.

use super::access::Access;
use super::columns::{Columns, RUN_UID, WrongType};
use crate::tables::Table;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rusqlite::types::ValueRef;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Small enough that an engine skips most of a run by its statistics, and large enough to compress well.
const GROUP_ROWS: usize = 64 * 1024;
/// Histograms reach it first. The values of a row group and the compressed chunk of one of its columns are in memory.
const GROUP_BYTES: usize = 16 << 20;
/// 3 is zstd's own default.
const ZSTD_LEVEL: i32 = 3;

#[derive(Debug)]
pub enum FileError {
    Io(io::Error),
    Parquet(ParquetError),
    WrongType(WrongType),
}

impl From<ParquetError> for FileError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(cause) => Self::Io(*cause),
                Err(cause) => Self::Parquet(ParquetError::External(cause)),
            },
            error => Self::Parquet(error),
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct TableFile {
    unpublished: Unpublished,
    writer: SerializedFileWriter<File>,
    columns: Columns,
}

/// A complete file under its temporary name, which is removed on drop.
#[derive(Debug)]
pub struct Unpublished {
    temporary: PathBuf,
    path: PathBuf,
    bytes: u64,
    is_published: bool,
}

/// The temporary name of a file. Engines ignore names that begin with a dot.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(TEMPORARY_SUFFIX);
    path.with_file_name(name)
}

pub const TEMPORARY_SUFFIX: &str = ".tmp";

impl TableFile {
    /// Begins the file that will be at `path`. `facts` are stored in its footer.
    pub fn create(
        path: &Path,
        access: Access,
        table: &Table,
        run_uid: &str,
        facts: &[(&str, &str)],
    ) -> Result<Self, FileError> {
        let columns = Columns::new(table, run_uid);
        let schema = columns.schema(&table.name)?;
        let properties = properties(table, &columns, facts)?;
        if let Some(directory) = path.parent() {
            access.create_folders(directory).map_err(FileError::Io)?;
        }
        let unpublished = Unpublished {
            temporary: temporary(path),
            path: path.to_owned(),
            bytes: 0,
            is_published: false,
        };
        let file = access
            .create_file(&unpublished.temporary)
            .map_err(FileError::Io)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        Ok(Self {
            unpublished,
            writer,
            columns,
        })
    }

    pub fn push(&mut self, row: &[ValueRef<'_>]) -> Result<(), FileError> {
        self.columns.push(row).map_err(FileError::WrongType)?;
        if self.columns.rows() >= GROUP_ROWS || self.columns.bytes() >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), FileError> {
        let mut group = self.writer.next_row_group()?;
        let mut at = 0;
        while let Some(mut column) = group.next_column()? {
            self.columns.write(at, &mut column)?;
            column.close()?;
            at += 1;
        }
        group.close()?;
        self.columns.next_group();
        Ok(())
    }

    /// Completes the file and syncs it.
    pub fn finish(mut self) -> Result<Unpublished, FileError> {
        if self.columns.rows() > 0 {
            self.write_group()?;
        }
        self.writer.finish()?;
        let file = self.writer.inner();
        file.sync_all().map_err(FileError::Io)?;
        self.unpublished.bytes = file.metadata().map_err(FileError::Io)?.len();
        Ok(self.unpublished)
    }
}

impl Unpublished {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the file its name, in place of an earlier one of that name.
    pub fn publish(mut self) -> io::Result<()> {
        std::fs::rename(&self.temporary, &self.path)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if !self.is_published {
            // The next export removes what cannot be removed now.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

fn properties(
    table: &Table,
    columns: &Columns,
    facts: &[(&str, &str)],
) -> Result<WriterProperties, FileError> {
    let path = |name: &str| ColumnPath::from(name);
    let facts = facts
        .iter()
        .map(|(key, value)| KeyValue::new(format!("benchmesh.{key}"), (*value).to_owned()));
    let order = [RUN_UID].into_iter().chain(table.order());
    let order = order
        .filter_map(|name| i32::try_from(columns.position(name)?).ok())
        .map(|column_idx| SortingColumn {
            column_idx,
            descending: false,
            nulls_first: false,
        });
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(facts.collect()))
        .set_sorting_columns(Some(order.collect()))
        // Row groups are small enough; an index of pages would only make the many short files longer.
        .set_offset_index_disabled(true);
    for name in columns.integers() {
        // Instants and counters grow: their differences are short. What is constant takes no bits.
        properties = properties
            .set_column_dictionary_enabled(path(name), false)
            .set_column_encoding(path(name), Encoding::DELTA_BINARY_PACKED);
    }
    for name in columns.blobs() {
        properties = properties
            .set_column_dictionary_enabled(path(name), false)
            .set_column_statistics_enabled(path(name), EnabledStatistics::None);
    }
    Ok(properties.build())
}
