//! Random blocks of 4 KiB on the disk, direct, at depth: against fio's io_uring with registered buffers and files, on the
//! same file, in operations per second and in user CPU per operation.

use crate::disk::Field;
use crate::ours;
use crate::peers::Way;
use crate::table::{Baseline, Row, Unit};
use serde_json::json;
use std::rc::Rc;

const SECONDS: u64 = 2;

/// What of a run is compared.
#[derive(Clone, Copy, PartialEq)]
enum Figure {
    OpsPerSecond,
    UserCpu,
}

pub fn randread_1() -> Row {
    row(
        "depth 1 randread 4 KiB direct",
        "randread",
        1,
        Figure::OpsPerSecond,
    )
}

pub fn randwrite_1() -> Row {
    row(
        "depth 1 randwrite 4 KiB direct",
        "randwrite",
        1,
        Figure::OpsPerSecond,
    )
}

pub fn randread_32() -> Row {
    row(
        "depth 32 randread 4 KiB direct",
        "randread",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randwrite_32() -> Row {
    row(
        "depth 32 randwrite 4 KiB direct",
        "randwrite",
        32,
        Figure::OpsPerSecond,
    )
}

pub fn randread_1_cpu() -> Row {
    row("depth 1 randread, user CPU", "randread", 1, Figure::UserCpu)
}

pub fn randwrite_1_cpu() -> Row {
    row(
        "depth 1 randwrite, user CPU",
        "randwrite",
        1,
        Figure::UserCpu,
    )
}

pub fn randread_32_cpu() -> Row {
    row(
        "depth 32 randread, user CPU",
        "randread",
        32,
        Figure::UserCpu,
    )
}

pub fn randwrite_32_cpu() -> Row {
    row(
        "depth 32 randwrite, user CPU",
        "randwrite",
        32,
        Figure::UserCpu,
    )
}

fn row(name: &'static str, mode: &'static str, depth: u32, figure: Figure) -> Row {
    let field = Field::new();
    let runtime = format!("{SECONDS}s");
    let spec = field.spec(
        mode,
        json!({"bs": "4k", "direct": true, "iodepth": depth, "runtime": runtime, "norandommap": true}),
    );
    let way = match mode {
        "randread" => Way::Read,
        _ => Way::Write,
    };
    let theirs = Rc::clone(&field);
    let fio = move || {
        let (rw, iodepth) = (format!("--rw={mode}"), format!("--iodepth={depth}"));
        let runtime = format!("--runtime={SECONDS}");
        let fio = theirs.fio_with(
            "io_uring",
            &[
                &rw,
                "--bs=4k",
                "--direct=1",
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
            Figure::OpsPerSecond => fio.ops_per_second(way) / 1000.0,
            Figure::UserCpu => fio.user_nanos_per_op(way),
        })
    };
    Row {
        name,
        unit: match figure {
            Figure::OpsPerSecond => Unit::KiloOpsPerSecond,
            Figure::UserCpu => Unit::NanosPerOp,
        },
        ours: Box::new(move || {
            let _keep = &field;
            let outcome = ours::run(&spec);
            Some(match figure {
                Figure::OpsPerSecond => outcome.kilo_ops_per_second(),
                Figure::UserCpu => outcome.user_nanos_per_op(),
            })
        }),
        baselines: vec![Baseline {
            name: "fio io_uring, fixedbufs, registerfiles",
            bar: match figure {
                Figure::OpsPerSecond => "equal",
                Figure::UserCpu => "1.00",
            },
            measure: Box::new(fio),
        }],
    }
}
