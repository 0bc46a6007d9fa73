//! `benchmesh plan from-fio`: a fio job file as a plan, on standard output or in a file.

use crate::args::plan::FromFioArguments;
use crate::failure::{Outcome, wrong_usage};
use crate::input_file::{self, Accept};
use crate::{output, terminal};
use benchmesh_plan::{JobContext, from_fio};
use std::path::Path;

/// Maximum size of a job file, and of each file that it includes.
const MAX_JOB_BYTES: u64 = 1 << 20;

/// Prints the plan. What it could not say is listed on standard error, and makes the outcome partial.
pub fn convert(arguments: &FromFioArguments) -> anyhow::Result<Outcome> {
    let path = &arguments.job;
    let name = match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    };
    let text = input_file::read_text(path, MAX_JOB_BYTES, Accept::AnyFile)
        .map_err(|error| wrong_usage(format!("read the job file {name}: {error}")))?;
    let file = if name == "standard input" {
        "fio"
    } else {
        &name
    };
    let included = |path: &Path| {
        input_file::read_text(path, MAX_JOB_BYTES, Accept::RegularFile)
            .map_err(|error| error.to_string())
    };
    let context = JobContext {
        read: &included,
        variable: &|name| std::env::var(name).ok(),
        cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|cpus| u64::try_from(cpus.get()).ok())
            .unwrap_or(1),
        page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
        memory_bytes: memory_bytes(),
    };
    let converted =
        from_fio(&text, file, &context).map_err(|errors| wrong_usage(errors.to_string()))?;
    output::result_to(arguments.out.as_deref(), &converted.plan)?;
    for remark in &converted.remarks {
        output::print_notice(&terminal::clean(&remark.to_string()));
    }
    Ok(match converted.is_partial() {
        true => Outcome::Partial,
        false => Outcome::Done,
    })
}

/// The memory of this machine; 0 if unknown.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
