//! Runs as Parquet tables: one table a kind, the manifest in the key-value metadata of each.
//!
//! A row is the record's JSON object as columns, so that both forms have one source and a missing
//! or mistyped column fails as the same field of a line would. Lists are flattened: texts (labels,
//! limits) are joined by commas, and residencies become a column a p-state (`residency_off_ns`,
//! `residency_p1_ns`, …), as a query wants them. Unknown columns of newer versions are passed over.

use crate::{Manifest, Run};
use ::parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::record::Field;
use ::parquet::schema::types::Type;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The key of the manifest in a table's metadata.
pub const MANIFEST_KEY: &str = "everwarm.manifest";

/// Why bytes are not a table of a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are no Parquet file, or a damaged one.
    #[error("not a readable Parquet table: {0}")]
    Parquet(#[from] ParquetError),
    /// A Parquet file, but not one of ours.
    #[error("a Parquet table without the key `{MANIFEST_KEY}`; everwarm writes it into each")]
    NoManifest,
    /// A column is missing or of the wrong type.
    #[error("row {row}: {why}")]
    Row {
        /// The row, counted from 1; 0 is the manifest.
        row: u64,
        /// What is wrong with it.
        why: String,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Unsigned, 64 bits.
    Whole,
    Real,
    Text,
}

/// A column: its name, its kind, and whether it may be null.
struct Column {
    name: String,
    kind: Kind,
    optional: bool,
}

fn columns(spec: &[(&str, Kind, bool)]) -> Vec<Column> {
    let column = |(name, kind, optional): &(&str, Kind, bool)| Column {
        name: (*name).to_owned(),
        kind: *kind,
        optional: *optional,
    };
    spec.iter().map(column).collect()
}

use Kind::{Real, Text, Whole};

const DISPATCHES: &[(&str, Kind, bool)] = &[
    ("actor", Text, false),
    ("queue", Whole, false),
    ("number", Whole, false),
    ("round", Whole, true),
    ("cell", Text, true),
    ("step", Text, true),
    ("kernel", Text, false),
    ("flops", Real, true),
    ("bytes", Real, true),
    ("committed_ns", Whole, false),
    ("gpu_start_ns", Whole, false),
    ("gpu_end_ns", Whole, false),
    ("observed_ns", Whole, false),
    ("gap_ns", Whole, true),
    ("pstate", Whole, true),
    ("clock_hz", Real, true),
    ("late_ns", Whole, true),
    ("labels", Text, true),
];
const TELEMETRY: &[(&str, Kind, bool)] = &[
    ("at_ns", Whole, false),
    ("gpu_energy_j", Real, true),
    ("cpu_energy_j", Real, true),
    ("pstate", Whole, true),
    ("clock_hz", Real, true),
    ("memory_clock_hz", Real, true),
    ("power_w", Real, true),
    ("temperature_c", Real, true),
    ("limited_by", Text, true),
    ("busy", Real, true),
];
const REQUESTS: &[(&str, Kind, bool)] = &[
    ("actor", Text, false),
    ("number", Whole, false),
    ("round", Whole, true),
    ("cell", Text, true),
    ("measured_at", Text, false),
    ("prompt_tokens", Whole, true),
    ("generated_tokens", Whole, true),
    ("sent_ns", Whole, false),
    ("first_token_ns", Whole, true),
    ("end_ns", Whole, true),
    ("prefill_gpu_start_ns", Whole, true),
    ("late_ns", Whole, true),
    ("labels", Text, true),
];
const MARKS: &[(&str, Kind, bool)] = &[
    ("at_ns", Whole, false),
    ("actor", Text, false),
    ("name", Text, false),
    ("round", Whole, true),
    ("cell", Text, true),
];

/// Names of a run's tables; the first holds what is the run's own, the command buffers.
pub const TABLES: [&str; 4] = ["dispatches", "telemetry", "requests", "marks"];

/// The tables of a run by name, as in [`TABLES`].
///
/// # Errors
/// [`Error::Parquet`], which only a defect of this crate would cause.
pub fn to_tables(run: &Run) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    let manifest = &run.manifest;
    let states = run.telemetry.iter().filter_map(|t| t.residency_ns.as_ref().map(Vec::len)).max();
    let mut telemetry = columns(TELEMETRY);
    telemetry.extend((0..states.unwrap_or(0)).map(|state| Column {
        name: residency_name(state),
        kind: Whole,
        optional: true,
    }));
    let tables = [
        table(manifest, &columns(DISPATCHES), &run.dispatches)?,
        table(manifest, &telemetry, &run.telemetry)?,
        table(manifest, &columns(REQUESTS), &run.requests)?,
        table(manifest, &columns(MARKS), &run.marks)?,
    ];
    Ok(TABLES.into_iter().zip(tables).collect())
}

/// The run of the tables that are given; one that is missing counts as empty.
///
/// # Errors
/// See [`Error`]. Without any table there is no manifest: [`Error::NoManifest`].
pub fn from_tables(tables: &[(&str, Vec<u8>)]) -> Result<Run, Error> {
    let mut run: Option<Run> = None;
    for (name, bytes) in tables {
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes.clone()))?;
        let run = match &mut run {
            Some(run) => run,
            none => none.insert(Run::new(manifest(&reader)?)),
        };
        match *name {
            "dispatches" => run.dispatches = rows(&reader)?,
            "telemetry" => run.telemetry = rows(&reader)?,
            "requests" => run.requests = rows(&reader)?,
            "marks" => run.marks = rows(&reader)?,
            _ => run.unknown += 1,
        }
    }
    run.ok_or(Error::NoManifest)
}

/// Fields that are lists of texts in a record and one text, joined by commas, in a table.
const TEXT_LISTS: [&str; 2] = ["labels", "limited_by"];

fn residency_name(state: usize) -> String {
    if state == 0 { "residency_off_ns".to_owned() } else { format!("residency_p{state}_ns") }
}

fn table<T: Serialize>(
    manifest: &Manifest,
    columns: &[Column],
    rows: &[T],
) -> Result<Vec<u8>, Error> {
    let rows: Vec<Map<String, Value>> = rows.iter().map(flat).collect();
    let head = serde_json::to_string(manifest).expect("a manifest is plain data");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("everwarm {}", manifest.everwarm))
        .set_key_value_metadata(Some(vec![KeyValue::new(MANIFEST_KEY.to_owned(), head)]))
        .build();
    let mut bytes = Vec::new();
    let mut file =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema(columns)?), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let values = rows.iter().map(|row| row.get(&column.name).filter(|v| !v.is_null()));
        let levels: Vec<i16> = values.clone().map(|v| i16::from(v.is_some())).collect();
        let levels = column.optional.then_some(levels.as_slice());
        let present = values.flatten();
        let mut writer = group.next_column()?.expect("there is a writer for each column");
        match column.kind {
            Whole => {
                // Parquet keeps unsigned numbers in signed ones of the same bits.
                let values: Vec<i64> =
                    present.filter_map(Value::as_u64).map(|v| v as i64).collect();
                writer.typed::<Int64Type>().write_batch(&values, levels, None)?;
            }
            Real => {
                let values: Vec<f64> = present.filter_map(Value::as_f64).collect();
                writer.typed::<DoubleType>().write_batch(&values, levels, None)?;
            }
            Text => {
                let values: Vec<ByteArray> =
                    present.filter_map(Value::as_str).map(ByteArray::from).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, levels, None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn schema(columns: &[Column]) -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, converted) = match column.kind {
            Whole => (Physical::INT64, ConvertedType::UINT_64),
            Real => (Physical::DOUBLE, ConvertedType::NONE),
            Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(&column.name, physical)
            .with_converted_type(converted)
            .with_repetition(repetition)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("everwarm").with_fields(fields).build()
}

/// A record as a flat JSON object.
fn flat<T: Serialize>(row: &T) -> Map<String, Value> {
    let Ok(Value::Object(mut row)) = serde_json::to_value(row) else {
        unreachable!("a record is a struct with text keys")
    };
    for list in TEXT_LISTS {
        if let Some(Value::Array(texts)) = row.get(list) {
            let joined = texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
            row.insert(list.to_owned(), joined.into());
        }
    }
    if let Some(Value::Array(spans)) = row.remove("residency_ns") {
        row.extend(
            spans.into_iter().enumerate().map(|(state, span)| (residency_name(state), span)),
        );
    }
    row
}

/// The reverse of [`flat`].
fn nested(mut row: Map<String, Value>) -> Map<String, Value> {
    for list in TEXT_LISTS {
        match row.remove(list) {
            Some(Value::String(joined)) => {
                let texts = joined.split(',').filter(|text| !text.is_empty()).map(Value::from);
                row.insert(list.to_owned(), Value::Array(texts.collect()));
            }
            Some(Value::Null) | None => {}
            Some(other) => {
                row.insert(list.to_owned(), other);
            }
        }
    }
    let mut spans = Vec::new();
    while let Some(span) = row.remove(&residency_name(spans.len())).filter(|s| !s.is_null()) {
        spans.push(span);
    }
    if !spans.is_empty() {
        row.insert("residency_ns".to_owned(), Value::Array(spans));
    }
    row
}

fn manifest(reader: &SerializedFileReader<bytes::Bytes>) -> Result<Manifest, Error> {
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let head = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == MANIFEST_KEY));
    let head = head.and_then(|pair| pair.value.as_deref()).ok_or(Error::NoManifest)?;
    serde_json::from_str(head)
        .map_err(|error| Error::Row { row: 0, why: format!("{MANIFEST_KEY}: {error}") })
}

fn rows<T: DeserializeOwned>(reader: &SerializedFileReader<bytes::Bytes>) -> Result<Vec<T>, Error> {
    let read = |(i, row): (usize, Result<::parquet::record::Row, ParquetError>)| {
        let row = row?;
        let fields = row.get_column_iter().map(|(name, field)| (name.clone(), json(field)));
        let value = Value::Object(nested(fields.collect()));
        serde_path_to_error::deserialize(value).map_err(|error| Error::Row {
            row: i as u64 + 1,
            why: format!("column `{}`: {}", error.path(), error.inner()),
        })
    };
    reader.get_row_iter(None)?.enumerate().map(read).collect()
}

fn json(field: &Field) -> Value {
    match field {
        Field::ULong(value) => Value::from(*value),
        Field::Long(value) => Value::from(*value), // as tools write it that rewrote our table
        Field::UInt(value) => Value::from(*value),
        Field::Int(value) => Value::from(*value),
        Field::Double(value) => Value::from(*value),
        Field::Str(value) => Value::from(value.as_str()),
        // Types that this crate never writes can only be columns that it does not know.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::full;

    #[test]
    fn what_is_written_is_read_and_bytes_repeat() {
        let tables = to_tables(&full()).unwrap();
        assert_eq!(from_tables(&tables).unwrap(), full());
        assert_eq!(tables, to_tables(&full()).unwrap());
        let empty = Run::new(full().manifest);
        assert_eq!(from_tables(&to_tables(&empty).unwrap()).unwrap(), empty);
    }

    #[test]
    fn every_field_has_its_column() {
        let run = full();
        let check = |row: Map<String, Value>, columns: &[(&str, Kind, bool)]| {
            let left: Vec<&String> = row
                .keys()
                .filter(|name| !name.starts_with("residency_"))
                .filter(|name| !columns.iter().any(|(column, ..)| column == name))
                .collect();
            assert!(left.is_empty(), "no column for {left:?}");
        };
        check(flat(&run.dispatches[0]), DISPATCHES);
        check(flat(&run.telemetry[0]), TELEMETRY);
        check(flat(&run.requests[0]), REQUESTS);
        check(flat(&run.marks[0]), MARKS);
    }

    #[test]
    fn strangers_are_refused() {
        let error = from_tables(&[("dispatches", b"not parquet".to_vec())]).unwrap_err();
        assert!(error.to_string().contains("not a readable Parquet table"), "{error}");
        assert!(matches!(from_tables(&[]), Err(Error::NoManifest)));
    }
}
