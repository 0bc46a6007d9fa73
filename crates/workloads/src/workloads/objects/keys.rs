//! The modes and keys of `objects`.

use super::{ModeKind, ObjectAction, ObjectsJob};
use crate::engine::author::*;

const LAID: Data = Data::Laid("`objects` objects of `size` bytes per worker");

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
        leaves: LAID,
        ops,
    }
}

pub(super) const MODES: &[ModeInfo] = &[
    mode(
        "write",
        "writes new objects, one after the other, `bs` at a time: rados_aio_write_full of whole objects, \
         rados_aio_write of parts",
        Data::Nothing,
        &[Op::Write],
    ),
    mode(
        "seq",
        "reads the objects in the order in which they were written, `bs` at a time: rados_aio_read",
        LAID,
        &[Op::Read],
    ),
    mode(
        "rand",
        "reads independently drawn objects and blocks of them, as `rados bench rand` does: rados_aio_read",
        LAID,
        &[Op::Read],
    ),
    mode(
        "stat",
        "queries size and time of the objects, one after the other: rados_aio_stat",
        LAID,
        &[Op::Stat],
    ),
    mode(
        "omap",
        "sets `omap-keys` keys of the object maps, one object after the other: rados_aio_write_op_operate with one \
         rados_write_op_omap_set",
        LAID,
        &[Op::Omap],
    ),
    mode(
        "mix",
        "operations drawn by their weights (`mix`), each on an independently drawn object; writes do not change the \
         content: rados_aio_read, rados_aio_write_full or rados_aio_write, rados_aio_stat, rados_write_op_omap_set",
        LAID,
        &[Op::Read, Op::Write, Op::Stat, Op::Omap],
    ),
    ModeInfo {
        leaves: Data::Nothing,
        ..mode(
            "delete",
            "removes the objects, one after the other: rados_aio_remove",
            LAID,
            &[Op::Delete],
        )
    },
];

const BLOCKS: &[&str] = &["write", "seq", "rand", "mix"];
const READING: &[&str] = &["seq", "rand", "stat"];
const OMAPS: &[&str] = &["omap", "mix"];

declare_keys! {
    #[derive(Debug)]
    pub(super) struct ObjectsKeys {
        /// Bytes of each object.
        "size" size: Bytes = "4m", min 1, max "128m";
        /// Bytes of each write and read: the whole object, or a part that divides it evenly.
        "bs" bs: Option<Bytes> = none("`size`"), min 1, max "128m", in BLOCKS;
        /// Objects of each worker. Without this key, `write` creates new ones until `runtime` is over; the following
        /// modes use these.
        "objects" objects: Option<u64> = none("as many as `write` creates within `runtime`"), min 1, max 100000000;
        /// Workers per task, each with its own objects.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Operations that each worker keeps in flight, like `rados bench -t`.
        "iodepth" iodepth: u32 = 16, min 1, max 1024;
        /// Relative frequency of each operation.
        "mix" mix: Option<Weighted<ObjectAction>> = none("{ read = 70, write = 30 }"), in ["mix"];
        /// Keys set by one operation.
        "omap-keys" omap_keys: u32 = 16, min 1, max 1024, in OMAPS;
        /// Bytes of the value of each key.
        "omap-bytes" omap_bytes: Bytes = 64, max "64k", in OMAPS;
        #[doc = passes::LOOPS]
        "loops" loops: Option<u64> = none("1, or no limit with `runtime`"), min 1, in ["write", "seq", "rand", "stat", "omap", "mix"];
        /// Repeats passes over the objects for this time. `write` without `objects` creates new ones for this time.
        "runtime" runtime: Option<Span> = none("one pass over the objects");
        /// An operation without an answer of the cluster for this time fails with errno 110 (rados_osd_op_timeout).
        "op-timeout" op_timeout: Span = "60s", min "1s", max "24h";
        #[doc = others::REORDER_TASKS]
        "reorder-tasks" reorder_tasks: u32 = 0, max 100000, in READING;
        /// Seed of the random order and of the data.
        "randseed" randseed: u64 = 1;
        #[doc = data::VERIFY]
        "verify" verify: bool = false, in ["seq", "rand", "mix"],
            because "no mode reads the data before they are removed with the cell";
        include ramp: RampKeys;
        include data: DataKeys;
    }
}

/// Default weights.
fn ordinary() -> Weighted<ObjectAction> {
    Weighted::of(&[(ObjectAction::Read, 70), (ObjectAction::Write, 30)])
}

pub(super) fn read(mode: &ModeInfo, keys: &ObjectsKeys) -> Result<ObjectsJob, ParamError> {
    let (kind, mix) = match mode.name {
        "write" => (ModeKind::Write, Weighted::only(ObjectAction::Write)),
        "seq" => (ModeKind::ReadInOrder, Weighted::only(ObjectAction::Read)),
        "rand" => (ModeKind::ReadAtRandom, Weighted::only(ObjectAction::Read)),
        "stat" => (ModeKind::Stat, Weighted::only(ObjectAction::Stat)),
        "omap" => (ModeKind::Omap, Weighted::only(ObjectAction::Omap)),
        "mix" => (ModeKind::Mix, keys.mix.clone().unwrap_or_else(ordinary)),
        "delete" => (ModeKind::Delete, Weighted::only(ObjectAction::Delete)),
        _ => return Err(mode.unknown()),
    };
    let block = keys.bs.unwrap_or(keys.size);
    if block.0 > keys.size.0 || !keys.size.0.is_multiple_of(block.0) {
        let message = "must divide `size` evenly";
        return Err(ParamError::of("bs", message));
    }
    if kind == ModeKind::Write && keys.objects.is_none() && keys.runtime.is_none() {
        let message = "is missing, and `write` needs an end: set `objects` or `runtime`";
        return Err(ParamError::of("objects", message));
    }
    let value_bytes = check_unit("omap-bytes", keys.omap_bytes)?;
    Ok(ObjectsJob {
        mode: mode.name,
        kind,
        object_bytes: keys.size.0,
        block: check_unit("bs", block)?,
        objects: keys.objects,
        passes: Passes::of(keys.loops, keys.runtime),
        workers: keys.numjobs,
        depth: u16::try_from(keys.iodepth).unwrap_or(u16::MAX),
        omap: match mix.has(ObjectAction::Omap) {
            true => OmapShape {
                keys: keys.omap_keys,
                value_bytes,
            },
            false => OmapShape::default(),
        },
        mix,
        op_timeout: keys.op_timeout.0,
        reorder_tasks: match kind {
            ModeKind::ReadInOrder | ModeKind::ReadAtRandom | ModeKind::Stat => keys.reorder_tasks,
            ModeKind::Write | ModeKind::Omap | ModeKind::Mix | ModeKind::Delete => 0,
        },
        seed: keys.randseed,
        data: DataSpec::new(&keys.data, keys.verify)?,
        threads: Threads::of(keys.numjobs, &keys.ramp, keys.runtime)?,
    })
}
