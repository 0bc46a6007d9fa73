//! Writes a generated database: `synthetic FILE [week|day|soak|small|RUNS]`.

use anyhow::{Context, bail};
use benchmesh_synthetic::{Shape, generate};
use std::path::PathBuf;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a command for developers")]
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next().map(PathBuf::from) else {
        bail!("usage: synthetic FILE [week|day|soak|small|RUNS]");
    };
    let wanted = arguments
        .next()
        .and_then(|wanted| wanted.into_string().ok());
    let shape = match wanted.as_deref() {
        None | Some("small") => Shape::small(),
        Some("week") => Shape::week(),
        Some("soak") => Shape::soak(),
        Some("day") => Shape {
            runs: 2,
            ..Shape::week()
        },
        Some(runs) => Shape {
            runs: runs.parse().context("RUNS is a number")?,
            ..Shape::small()
        },
    };
    let began = Instant::now();
    let made = generate(&path, &shape)?;
    println!(
        "{}: {} MiB, {} rows, {} runs, in {:.0} s",
        path.display(),
        made.bytes >> 20,
        made.rows.values().sum::<i64>(),
        made.rows.get("runs").copied().unwrap_or(0),
        began.elapsed().as_secs_f64()
    );
    for (table, rows) in &made.rows {
        println!("{rows:>12}  {table}");
    }
    Ok(())
}
