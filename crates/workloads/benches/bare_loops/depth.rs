//! Random 4 KiB blocks at depth, direct on the disk or through tmpfs, against fio's io_uring with registered buffers
//! and files on the same file: in operations per second and in user CPU per operation.

use crate::disk::Field;
use crate::ours;
use crate::peers::Direction;
use crate::table::{Baseline, Row, Unit};
use serde_json::json;
use std::path::Path;
use std::rc::Rc;

const SECONDS: u64 = 2;

/// The figure of a run that is compared.
#[derive(Clone, Copy, PartialEq)]
enum Figure {
    OpsPerSecond,
    UserCpu,
    /// User and system CPU.
    AllCpu,
}

/// Location of the file, and whether it bypasses the page cache.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Disk,
    Tmpfs,
}

pub fn randread_1() -> Row {
    row(
        "depth 1 randread 4 KiB direct",
        On::Disk,
        "randread",
        1,
        Figure::OpsPerSecond,
    )
}

pub fn randwrite_1() -> Row {
    row(
        "depth 1 randwrite 4 KiB direct",
        On::Disk,
        "randwrite",
        1,
        Figure::OpsPerSecond,
    )
}

pub fn randread_32() -> Row {
    row(
        "depth 32 randread 4 KiB direct",
        On::Disk,
        "randread",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randwrite_32() -> Row {
    row(
        "depth 32 randwrite 4 KiB direct",
        On::Disk,
        "randwrite",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randread_1_cpu() -> Row {
    row(
        "depth 1 randread, user CPU",
        On::Disk,
        "randread",
        1,
        Figure::UserCpu,
    )
}

pub fn randwrite_1_cpu() -> Row {
    row(
        "depth 1 randwrite, user CPU",
        On::Disk,
        "randwrite",
        1,
        Figure::UserCpu,
    )
}

pub fn randread_32_cpu() -> Row {
    row(
        "depth 32 randread, user CPU",
        On::Disk,
        "randread",
        32,
        Figure::UserCpu,
    )
}

pub fn randwrite_32_cpu() -> Row {
    row(
        "depth 32 randwrite, user CPU",
        On::Disk,
        "randwrite",
        32,
        Figure::UserCpu,
    )
}

pub fn randread_32_tmpfs() -> Row {
    row(
        "depth 32 randread 4 KiB, tmpfs",
        On::Tmpfs,
        "randread",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randwrite_32_tmpfs() -> Row {
    row(
        "depth 32 randwrite 4 KiB, tmpfs",
        On::Tmpfs,
        "randwrite",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randread_32_all_cpu() -> Row {
    row(
        "depth 32 randread, CPU",
        On::Disk,
        "randread",
        32,
        Figure::AllCpu,
    )
}

pub fn randwrite_32_all_cpu() -> Row {
    row(
        "depth 32 randwrite, CPU",
        On::Disk,
        "randwrite",
        32,
        Figure::AllCpu,
    )
}

fn row(name: &'static str, on: On, mode: &'static str, depth: u32, figure: Figure) -> Row {
    let field = match on {
        On::Disk => Field::new(),
        On::Tmpfs => Field::beneath(Path::new("/dev/shm")),
    };
    let direct = on == On::Disk;
    let runtime = format!("{SECONDS}s");
    let spec = field.spec(
        mode,
        json!({"bs": "4k", "direct": direct, "iodepth": depth, "runtime": runtime, "norandommap": true}),
    );
    let direction = match mode {
        "randread" => Direction::Read,
        _ => Direction::Write,
    };
    let theirs = Rc::clone(&field);
    let fio = move || {
        let (rw, iodepth) = (format!("--rw={mode}"), format!("--iodepth={depth}"));
        let runtime = format!("--runtime={SECONDS}");
        let direct = format!("--direct={}", u8::from(direct));
        let fio = theirs.fio_with(
            "io_uring",
            &[
                &rw,
                "--bs=4k",
                &direct,
                &iodepth,
                "--fixedbufs=1",
                "--registerfiles=1",
                "--time_based",
                &runtime,
                "--norandommap=1",
                "--overwrite=1",
            ],
        )?;
        Some(match figure {
            Figure::OpsPerSecond => fio.ops_per_second(direction) / 1000.0,
            Figure::UserCpu => fio.user_nanos_per_op(direction),
            Figure::AllCpu => fio.cpu_nanos_per_op(direction),
        })
    };
    Row {
        name,
        unit: match figure {
            Figure::OpsPerSecond => Unit::KiloOpsPerSecond,
            Figure::UserCpu | Figure::AllCpu => Unit::NanosPerOp,
        },
        ours: Box::new(move || {
            let _keep = &field;
            let outcome = ours::run(&spec);
            Some(match figure {
                Figure::OpsPerSecond => outcome.kilo_ops_per_second(),
                Figure::UserCpu => outcome.user_nanos_per_op(),
                Figure::AllCpu => outcome.cpu_nanos_per_op(),
            })
        }),
        baselines: vec![Baseline {
            name: "fio io_uring, fixedbufs, registerfiles",
            bar: match figure {
                Figure::OpsPerSecond => "equal",
                Figure::UserCpu | Figure::AllCpu => "1.00",
            },
            measure: Box::new(fio),
        }],
    }
}
