//! `benchmesh tag`, `note`, `mark`, and `compare --save`: through a collector, or in a file that no collector has open.

use super::lists;
use super::source::{Asked, refused_in};
use crate::args::compare::{MarkArguments, NoteArguments, TagArguments};
use crate::args::values::wall_clock;
use crate::args::{ListFormat, QuerySource};
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_answers::query::QueryError;
use benchmesh_answers::report::figures;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::annotate::{AnnotateError, Annotated, Annotation};
use benchmesh_store::{Store, StoreError};
use std::path::Path;
use std::time::SystemTime;

pub async fn tag(arguments: TagArguments) -> anyhow::Result<Outcome> {
    let annotation = Annotation::Tag {
        set: arguments.set.into_iter().collect(),
        remove: arguments.remove,
    };
    let common = arguments.common;
    let done = annotate(common.source, &arguments.run, annotation).await?;
    if common.format == ListFormat::Json {
        output::document(&done)?;
        return Ok(Outcome::Done);
    }
    let tags = match done.tags.is_empty() {
        true => "no tags".to_owned(),
        false => lists::tags(&done.tags),
    };
    let line = format!("run {} ({}): {tags}", done.run_id, done.run);
    output::result(&format!("{}\n", terminal::clean(&line)))?;
    Ok(Outcome::Done)
}

pub async fn note(arguments: NoteArguments) -> anyhow::Result<Outcome> {
    let common = arguments.common;
    let note = Annotation::Note(arguments.text);
    let done = annotate(common.source, &arguments.run, note).await?;
    print_done(&done, common.format, "has this note now")
}

pub async fn mark(arguments: MarkArguments) -> anyhow::Result<Outcome> {
    let mark = Annotation::Mark {
        text: arguments.text,
        at: arguments.at.map(MeshMicros),
    };
    let common = arguments.common;
    let done = annotate(common.source, &arguments.run, mark).await?;
    let sentence = format!("is marked at {}", figures::instant(done.at_us));
    print_done(&done, common.format, &sentence)
}

fn print_done(done: &Annotated, format: ListFormat, sentence: &str) -> anyhow::Result<Outcome> {
    match format {
        ListFormat::Json => output::document(done)?,
        ListFormat::Table => {
            output::print_notice(&format!("run {} ({}) {sentence}", done.run_id, done.run))
        }
    }
    Ok(Outcome::Done)
}

/// Applies the annotation at the source.
pub async fn annotate(
    source: QuerySource,
    run: &str,
    annotation: Annotation,
) -> anyhow::Result<Annotated> {
    match source.asked()? {
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            client
                .annotate(run, annotation)
                .await
                .map_err(CallError::into_error)
        }
        Asked::Database(path) => {
            let store = open(&path).await?;
            let done = store.annotate(run, annotation, now()?).await;
            store.close().await;
            done.map_err(|error| match error {
                AnnotateError::Wrong(why) => wrong_usage(why),
                AnnotateError::Store(
                    error @ (StoreError::NoSuch { .. } | StoreError::NoRunYet),
                ) => refused_in(&path, error),
                error => anyhow::Error::new(error),
            })
        }
    }
}

/// Opens an existing database that no collector has open.
pub async fn open(path: &Path) -> anyhow::Result<Store> {
    if !path.is_file() {
        let path = path.to_owned();
        return Err(wrong_usage(QueryError::NoFile { path }.to_string()));
    }
    open_or_create(path).await
}

/// Opens a database to write to, and makes it if there is none.
pub async fn open_or_create(path: &Path) -> anyhow::Result<Store> {
    Store::open(path).await.map_err(|error| match error {
        StoreError::InUse { .. } => wrong_usage(format!(
            "a collector has {} open: ask it with --collector HOST:PORT instead of --db",
            path.display()
        )),
        error => anyhow::Error::new(error).context(format!("open {}", path.display())),
    })
}

pub fn now() -> anyhow::Result<MeshMicros> {
    let since = wall_clock()
        .duration_since(SystemTime::UNIX_EPOCH)
        .context("read the clock")?;
    Ok(MeshMicros(i64::try_from(since.as_micros())?))
}
