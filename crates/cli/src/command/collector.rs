//! `benchmesh collector`.

use super::{end_with_parent, until_told};
use crate::args::daemons::CollectorArguments;
use crate::failure::Outcome;
use anyhow::Context;
use benchmesh_collector::{Collector, CollectorConfig};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

pub async fn collector(arguments: CollectorArguments) -> anyhow::Result<Outcome> {
    if arguments.end_with_parent {
        end_with_parent()?;
    }
    until_told(|cancel| async move {
        let what = format!(
            "start the collector on {} with {}",
            arguments.listen,
            arguments.db.display()
        );
        let config = CollectorConfig {
            listen: arguments.listen,
            db: arguments.db,
            insecure: arguments.insecure,
            clock_ppm: arguments.clock_ppm,
        };
        let collector = Collector::bind(config).await.context(what)?;
        if let Some(file) = &arguments.address_file {
            write_address(file, collector.address())
                .with_context(|| format!("write the collector's address to {}", file.display()))?;
        }
        collector
            .serve(cancel)
            .await
            .context("serve agents and commands")
    })
    .await
}

/// Whole or not at all: whoever waits for the file finds an address in it.
fn write_address(file: &Path, address: SocketAddr) -> std::io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(draft, "{address}")?;
    draft.persist(file)?;
    Ok(())
}
