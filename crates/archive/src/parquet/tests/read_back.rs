//! Files read back with the reader of the same crate: every value.

use super::*;
use crate::tables::ColumnType;
use ::parquet::basic::{Compression, ConvertedType};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use rusqlite::types::Value;
use std::fs::File;

/// The columns of a file that a value of SQLite becomes.
fn expected(kind: ColumnType, value: &Value) -> Vec<Field> {
    let text = |text: String| Field::Str(text);
    match (kind, value) {
        (ColumnType::Any, Value::Integer(number)) => {
            #[expect(clippy::cast_precision_loss, reason = "as documented")]
            let double = *number as f64;
            vec![text(number.to_string()), Field::Double(double)]
        }
        (ColumnType::Any, Value::Real(number)) => {
            vec![text(number.to_string()), Field::Double(*number)]
        }
        (ColumnType::Any, Value::Text(word)) => vec![text(word.clone()), Field::Null],
        (_, Value::Null) => vec![Field::Null],
        (_, Value::Integer(number)) => vec![Field::Long(*number)],
        (_, Value::Real(number)) => vec![Field::Double(*number)],
        (_, Value::Text(word)) => vec![text(word.clone())],
        (_, Value::Blob(bytes)) => vec![Field::Bytes(bytes.clone().into())],
    }
}

#[test]
fn every_value_of_every_table_is_there_in_order() {
    let scene = Scene::new(&Shape::small());
    scene.change(UNUSUAL);
    let exported = scene.export().unwrap();
    assert_eq!((exported.runs_written, exported.runs_unchanged), (3, 0));
    let source = Source::open(&scene.db("benchmesh.db")).unwrap();
    let sqlite = Connection::open(scene.db("benchmesh.db")).unwrap();
    let mut read = 0;
    for run in source.ended_runs().unwrap() {
        for table in source.tables() {
            let names: Vec<&str> = table.columns.iter().map(|one| one.name.as_str()).collect();
            let sql = format!(
                "SELECT {} FROM {} WHERE {} ORDER BY {}",
                names.join(", "),
                table.name,
                of_run(table, &run),
                table.order().join(", ")
            );
            let mut rows = sqlite.prepare(&sql).unwrap();
            let rows = rows.query_map([], |row| {
                let values = table.columns.iter().enumerate();
                let values = values.map(|(at, column)| Ok(expected(column.kind, &row.get(at)?)));
                Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.concat())
            });
            let rows: Vec<Vec<Field>> = rows.unwrap().map(Result::unwrap).collect();
            let folder = format!("{}/site=lab1/month=2025-06", table.name);
            let path = scene
                .mesh()
                .join(folder)
                .join(format!("{}.parquet", run.uid));
            if rows.is_empty() {
                assert!(!path.exists(), "{}", path.display());
                continue;
            }
            let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let found = file.get_row_iter(None).unwrap().map(|row| {
                let mut fields = row.unwrap().into_columns().into_iter();
                let uid = (String::from("run_uid"), Field::Str(run.uid.clone()));
                assert_eq!(fields.next().unwrap(), uid);
                fields.map(|(_, field)| field).collect()
            });
            let found: Vec<Vec<Field>> = found.collect();
            assert_eq!(found.len(), rows.len(), "{} of {}", table.name, run.uid);
            for (found, expected) in found.iter().zip(&rows) {
                assert_eq!(found, expected, "{} of {}", table.name, run.uid);
            }
            read += u64::try_from(rows.len()).unwrap();
        }
    }
    assert_eq!(read, exported.rows);
}

#[test]
fn files_have_types_statistics_and_bounded_row_groups() {
    let scene = Scene::new(&Shape {
        hosts: 12,
        runs: 0,
        soak_seconds: 1000,
        ..Shape::small()
    });
    scene.change(UNUSUAL);
    scene.export().unwrap();
    let open = |table: &str| {
        let path = format!("{table}/site=lab1/month=2025-06/run-1.parquet");
        SerializedFileReader::new(File::open(scene.mesh().join(path)).unwrap()).unwrap()
    };
    let samples = open("daemon_samples");
    let groups = samples.metadata().row_groups();
    let rows: Vec<i64> = groups.iter().map(|one| one.num_rows()).collect();
    assert_eq!(rows, [65_536, 120 * 1001 - 65_536]);
    let column = |name: &str| {
        let mut columns = groups[0].columns().iter();
        columns
            .find(|one| one.column_path().string() == name)
            .unwrap()
    };
    for name in ["daemon_id", "at_us", "cpu_user_us", "rss_bytes"] {
        let statistics = column(name).statistics().unwrap();
        assert!(statistics.min_bytes_opt().is_some() && statistics.max_bytes_opt().is_some());
        assert!(matches!(column(name).compression(), Compression::ZSTD(_)));
    }
    let schema = open("facts");
    let schema = schema.metadata().file_metadata().schema_descr();
    let value = schema.columns().iter().find(|one| one.name() == "value");
    assert_eq!(value.unwrap().converted_type(), ConvertedType::UTF8);
    assert_eq!(value.unwrap().max_def_level(), 0, "never NULL");
    let unit = schema.columns().iter().find(|one| one.name() == "unit");
    assert_eq!(unit.unwrap().max_def_level(), 1, "may be NULL");
    let facts = samples.metadata().file_metadata().key_value_metadata();
    let site = facts
        .unwrap()
        .iter()
        .find(|one| one.key == "benchmesh.site");
    assert_eq!(site.unwrap().value.as_deref(), Some("lab1"));
}

/// The values of one row group, one compressed chunk of a column, and the footer: not the 60 MB of all values.
#[test]
fn memory_is_bounded() {
    let scene = Scene::new(&Shape {
        hosts: 12,
        runs: 0,
        soak_seconds: 2800,
        ..Shape::small()
    });
    let (exported, peak) = benchmesh_testing::memory::peak_of(|| scene.export().unwrap());
    assert!(exported.rows > 400_000, "{}", exported.rows);
    assert!((4 << 20..32 << 20).contains(&peak), "{peak} bytes");
}
