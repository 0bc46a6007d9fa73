//! The modes, keys and parameters of `bytes`.

use crate::engine::author::*;

const WHOLE: Data = Data::Laid("each worker's file, whole");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BytesMode {
    Putc,
    Rewrite,
    Getc,
    Fwrite,
    Frewrite,
    Fread,
    Seek,
}

impl BytesMode {
    const ALL: [Self; 7] = [
        Self::Putc,
        Self::Rewrite,
        Self::Getc,
        Self::Fwrite,
        Self::Frewrite,
        Self::Fread,
        Self::Seek,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Frewrite => "frewrite",
            other => other.op().as_str(),
        }
    }

    pub(super) const fn op(self) -> Op {
        match self {
            Self::Putc => Op::Putc,
            Self::Rewrite => Op::Rewrite,
            Self::Getc => Op::Getc,
            Self::Fwrite | Self::Frewrite => Op::Fwrite,
            Self::Fread => Op::Fread,
            Self::Seek => Op::Seek,
        }
    }

    /// Whether it only writes, through the buffer: what was put and not written is written at the end.
    pub(super) fn only_writes(self) -> bool {
        matches!(self, Self::Putc | Self::Fwrite | Self::Frewrite)
    }

    /// Whether it begins with an empty file.
    pub(super) fn makes_file(self) -> bool {
        matches!(self, Self::Putc | Self::Fwrite)
    }
}

const fn mode(
    name: &'static str,
    meaning: &'static str,
    needs: Data,
    ops: &'static [Op],
) -> ModeInfo {
    ModeInfo {
        name,
        meaning,
        needs,
        leaves: WHOLE,
        ops,
    }
}

pub(super) const MODES: &[ModeInfo] = &[
    mode(
        "putc",
        "writes an empty file a byte at a time: each byte is put into the buffer by a call, and a full buffer is written; \
         an operation is one buffer",
        Data::Nothing,
        &[Op::Putc],
    ),
    mode(
        "rewrite",
        "goes through the file a buffer at a time: read, each byte taken, changed and put back by calls, lseek, written \
         back; an operation is one buffer",
        WHOLE,
        &[Op::Rewrite],
    ),
    mode(
        "getc",
        "reads the file a byte at a time: an empty buffer is filled by one read, and each byte is taken by a call; an \
         operation is one buffer",
        WHOLE,
        &[Op::Getc],
    ),
    mode(
        "fwrite",
        "writes an empty file in records of `bs` through the buffer, whole buffers of a larger record past it; an \
         operation is one record, or as many as fill the buffer",
        Data::Nothing,
        &[Op::Fwrite],
    ),
    mode(
        "frewrite",
        "writes over the whole existing file in records of `bs` through the buffer, as iozone's frewrite does; an operation is \
         that of fwrite",
        WHOLE,
        &[Op::Fwrite],
    ),
    mode(
        "fread",
        "reads the file in records of `bs` through the buffer, whole buffers of a larger record past it; an operation is \
         one record, or as many as fill the buffer",
        WHOLE,
        &[Op::Fread],
    ),
    mode(
        "seek",
        "goes to random places of the file, multiples of `bs`: lseek, read; some are changed, sought again and written \
         back at once",
        WHOLE,
        &[Op::Seek],
    ),
];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct BytesKeys {
        /// Bytes of each worker's file.
        "size" size: Bytes = "256m", min 1, max "1024p";
        /// Bytes of the buffer, which stands for that of stdio.
        "buffer" buffer: Option<Bytes> = none("4k"), min 1, max "1g", in ["putc", "rewrite", "getc", "fwrite", "frewrite", "fread"];
        /// What `rewrite` changes of each buffer. `each`: every byte is taken, changed and put back by a call. `one`: one byte of
        /// it is changed in place, as bonnie++ rewrites blocks.
        "change" change: Change = "each", in ["rewrite"];
        /// `fwrite`, `frewrite`, `fread`: bytes of a record. `seek`: bytes that are read at each place.
        "bs" bs: Option<Bytes> = none("8k, or the file"), min 1, max "1g", in ["fwrite", "frewrite", "fread", "seek"];
        /// Places per worker. With `runtime`, until whichever comes first.
        "seeks" seeks: Option<u64> = none("8000, or no limit with `runtime`"), min 1, in ["seek"];
        /// Workers on each file in `seek`, each with its own `seeks`. bonnie++ has 3 up to 1.03 and 5 after that, and 8000 places
        /// for all of them together.
        "seekers" seekers: u32 = 1, min 1, max 64, in ["seek"];
        /// Percentage of the places that are written back.
        "rewrite-share" rewrite_share: u8 = 10, min 0, max 100, in ["seek"];
        /// Files per task, each with a worker of its own (`seek`: with its `seekers`).
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Fsync at the end of the file, as a part of the last operation.
        "fsync" fsync: bool = false, in ["putc", "rewrite", "fwrite", "frewrite"];
        /// Seed of the content and the places.
        "seed" seed: u64 = 1;
        /// `rewrite`, `getc`, `frewrite` and `fread`: over and over until then, or until `loops` are done. `seek` ends after its
        /// `seeks`, `putc` and `fwrite` with the file, or then.
        "runtime" runtime: Option<Span> = none("one pass over the file, or all `seeks`");
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1, in ["rewrite", "getc", "frewrite", "fread"];
        #[doc = data::VERIFY]
        "verify" verify: bool = false, in ["rewrite", "getc", "fread", "seek"],
            because "nothing reads what it checks before the cell's data are removed";
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

declare_words! {
    /// What a rewrite changes of a buffer.
    pub(super) enum Change {
        Each = "each",
        One = "one",
    }
}

/// Of a task.
const MOST_WORKERS: u32 = 4096;
const DEFAULT_SEEKS: u64 = 8000;
const DEFAULT_BUFFER: Bytes = Bytes(4096);
const DEFAULT_RECORD: Bytes = Bytes(8192);

/// The parameters of one mode, read and checked.
#[derive(Clone, Debug)]
pub(super) struct BytesOptions {
    pub mode: BytesMode,
    pub size: u64,
    pub buffer: usize,
    pub record: usize,
    /// Places of each worker; beyond all numbers where time alone ends them.
    pub seeks: u64,
    pub rewrite_share: u8,
    pub change: Change,
    pub workers: u32,
    /// Each has one worker, or several seekers.
    pub files: u32,
    pub fsync: bool,
    pub seed: u64,
    pub data: DataSpec,
    pub timing: Timing,
    pub passes: Passes,
}

/// What is written of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Nothing,
    Some,
    /// Over what is there.
    AllAgain,
    /// Into an empty file.
    All,
}

/// What is read is checked by whole sectors, whatever mode wrote them.
fn check_sectors(size: Bytes, buffer: Bytes, bs: Bytes) -> Result<(), ParamError> {
    let sector = u64::try_from(data::SECTOR_BYTES).unwrap_or(u64::MAX);
    for (key, bytes) in [("size", size), ("buffer", buffer), ("bs", bs)] {
        if !bytes.0.is_multiple_of(sector) {
            let message = format!(
                "every 4 KiB know their place, and `{key}` = {bytes} is no multiple of that"
            );
            return Err(ParamError::of("verify", message));
        }
    }
    Ok(())
}

impl BytesOptions {
    /// `mode` is one of `MODES`.
    pub(super) fn of(mode: &ModeInfo, keys: &BytesKeys) -> Result<Self, ParamError> {
        let data = DataSpec::new(&keys.data, keys.verify)?;
        let mode = BytesMode::ALL
            .into_iter()
            .find(|known| known.name() == mode.name)
            .ok_or_else(|| mode.unknown())?;
        let passes = Passes::of(keys.loops, keys.runtime);
        let refuse = |key, message: &str| Err(ParamError::of(key, message));
        let stdio = keys.buffer.unwrap_or(DEFAULT_BUFFER);
        let buffer = check_unit("buffer", stdio)?;
        let bs = keys.bs.unwrap_or(Bytes(DEFAULT_RECORD.0.min(keys.size.0)));
        let record = check_unit("bs", bs)?;
        if bs.0 > keys.size.0 {
            return refuse("bs", "is larger than the file: there is no record in it");
        }
        if keys.buffer.is_some_and(|given| given > keys.size) {
            return refuse("buffer", "is larger than the file: it is never full");
        }
        let seekers = match mode {
            BytesMode::Seek => keys.seekers,
            _ => 1,
        };
        let workers = keys.numjobs.saturating_mul(seekers);
        if workers > MOST_WORKERS {
            return refuse(
                "seekers",
                "times `numjobs` is more than the 4096 workers of a task",
            );
        }
        if data.verify {
            if seekers > 1 && keys.rewrite_share > 0 {
                let message = "a seeker may read what another one writes at that moment; use rewrite-share = 0, or one seeker";
                return refuse("verify", message);
            }
            if mode == BytesMode::Rewrite && keys.change == Change::One {
                let message = "what is checked is rewritten whole; use change = \"each\"";
                return refuse("verify", message);
            }
            check_sectors(keys.size, stdio, bs)?;
        }
        Ok(Self {
            mode,
            size: keys.size.0,
            buffer,
            record,
            seeks: keys.seeks.unwrap_or(match keys.runtime {
                Some(_) => u64::MAX,
                None => DEFAULT_SEEKS,
            }),
            rewrite_share: keys.rewrite_share,
            change: keys.change,
            workers,
            files: keys.numjobs,
            fsync: keys.fsync,
            seed: keys.seed,
            data,
            timing: Timing::of(keys.ramp.ramp_time, keys.runtime)?,
            passes: match mode {
                BytesMode::Rewrite | BytesMode::Getc | BytesMode::Frewrite | BytesMode::Fread => {
                    passes
                }
                BytesMode::Putc | BytesMode::Fwrite | BytesMode::Seek => Passes::ONE,
            },
        })
    }

    /// What a mode does to what stands in the file.
    pub(super) fn writes(&self) -> Writes {
        match self.mode {
            BytesMode::Putc | BytesMode::Fwrite => Writes::All,
            BytesMode::Rewrite | BytesMode::Frewrite => Writes::AllAgain,
            BytesMode::Seek if self.rewrite_share > 0 => Writes::Some,
            BytesMode::Seek | BytesMode::Getc | BytesMode::Fread => Writes::Nothing,
        }
    }

    pub(super) fn record_bytes(&self) -> u64 {
        u64::try_from(self.record).unwrap_or(u64::MAX)
    }

    /// Bytes of one operation, but for the last one of a file and for seeks.
    pub(super) fn operation_bytes(&self) -> u64 {
        let bytes = match self.mode {
            BytesMode::Putc | BytesMode::Rewrite | BytesMode::Getc => self.buffer,
            BytesMode::Fwrite | BytesMode::Frewrite | BytesMode::Fread => {
                self.record * self.buffer.div_ceil(self.record)
            }
            BytesMode::Seek => self.record,
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
