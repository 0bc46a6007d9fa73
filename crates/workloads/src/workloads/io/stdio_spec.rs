//! A mode of the engine `stdio` with its parameters, read and checked.

use super::keys::{IoKeys, RmwChange};
use crate::engine::author::*;

const DEFAULT_BUFFER: Bytes = Bytes(4096);

/// What an operation does with its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdioAction {
    Putc,
    Getc,
    Fwrite,
    Fread,
    /// Reads, changes and writes back.
    Rmw(RmwChange),
    /// Seeks and reads; some blocks are written back.
    Seek,
}

/// A mode of this engine, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StdioSpec {
    pub action: StdioAction,
    pub buffer: usize,
    /// Bytes per call.
    pub record: usize,
    /// Bytes per operation, except the last one of a file.
    pub operation_bytes: u64,
}

impl StdioSpec {
    /// `None` for a mode of another engine.
    pub(super) fn of(mode: &str, keys: &IoKeys) -> Result<Option<StdioSpec>, ParamError> {
        let action = match mode {
            "putc" => StdioAction::Putc,
            "getc" => StdioAction::Getc,
            "fwrite" | "frewrite" => StdioAction::Fwrite,
            "fread" => StdioAction::Fread,
            "rmw" => StdioAction::Rmw(keys.change),
            "seek" => StdioAction::Seek,
            _ => return Ok(None),
        };
        let DataSize(size) = keys.size;
        if size == Bytes(0) {
            return Err(ParamError::of("size", "is 0: there is nothing to do"));
        }
        if keys.bssplit.is_some() {
            let message = format!("mode `{mode}` has records of one size; use `bs`");
            return Err(ParamError::of("bssplit", message));
        }
        if keys.direct {
            let message = format!(
                "mode `{mode}` uses a buffer, which O_DIRECT does not allow; use cache = \"cold\""
            );
            return Err(ParamError::of("direct", message));
        }
        if action == StdioAction::Rmw(RmwChange::One) && keys.verify {
            let message = "verified data are rewritten completely; use change = \"each\"";
            return Err(ParamError::of("verify", message));
        }
        if keys.buffer.is_some_and(|given| given > size) {
            let message = "is larger than the file: it is never full";
            return Err(ParamError::of("buffer", message));
        }
        let is_in_records = matches!(
            action,
            StdioAction::Fwrite | StdioAction::Fread | StdioAction::Seek
        );
        if is_in_records && keys.bs.is_some_and(|given| given > size) {
            let message = "is larger than the file: there is no record in it";
            return Err(ParamError::of("bs", message));
        }
        let bs = keys.block().min(size);
        let buffer = check_unit("buffer", keys.buffer.unwrap_or(DEFAULT_BUFFER))?;
        let record = check_unit("bs", bs)?;
        let operation = match action {
            StdioAction::Putc | StdioAction::Getc | StdioAction::Rmw(_) => buffer,
            StdioAction::Fwrite | StdioAction::Fread => {
                record.saturating_mul(buffer.div_ceil(record))
            }
            StdioAction::Seek => record,
        };
        let operation_bytes = u64::try_from(operation).unwrap_or(u64::MAX);
        Ok(Some(StdioSpec {
            action,
            buffer,
            record,
            operation_bytes: operation_bytes.min(size.0),
        }))
    }

    pub(super) fn op(&self) -> Op {
        match self.action {
            StdioAction::Putc => Op::Putc,
            StdioAction::Getc => Op::Getc,
            StdioAction::Fwrite => Op::Fwrite,
            StdioAction::Fread => Op::Fread,
            StdioAction::Rmw(_) => Op::Rewrite,
            StdioAction::Seek => Op::Seek,
        }
    }

    pub(super) fn buffer_bytes(&self) -> u64 {
        u64::try_from(self.buffer).unwrap_or(u64::MAX)
    }
}
