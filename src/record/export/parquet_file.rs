//! Tables as Parquet: each column by its type, without a value where there is none. What the run is stands in the file's metadata.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::out::{Out, Written};
use super::pass::{Item, Run, Sink};
use super::table::{Cell, Kind, Table};
use super::table_gpus::Gpus;
use super::table_steps::Steps;
use super::{Format, Target};

/// The steps.
pub(super) const STEPS: Format = Format {
    name: "parquet",
    about: "Steps as Parquet: the columns of csv, by their types",
    target: Target::File,
    sink: || Box::new(Parquet::new(Steps)),
};

/// The GPUs' values.
pub(super) const GPUS: Format = Format {
    name: "parquet-gpus",
    about: "GPUs as Parquet: the columns of csv-gpus, by their types",
    target: Target::File,
    sink: || Box::new(Parquet::new(Gpus)),
};

/// Rows of a row group, which are kept until it is written.
const ROWS: usize = 100_000;

struct Parquet<T> {
    table: T,
    file: Option<SerializedFileWriter<Written>>,
    written: Written,
    columns: Vec<Values>,
    rows: usize,
}

/// The values of a column in a row group; `levels` has a 1 for each that is there.
struct Values {
    kind: Kind,
    levels: Vec<i16>,
    integers: Vec<i64>,
    floats: Vec<f32>,
    texts: Vec<ByteArray>,
}

impl<T: Table> Parquet<T> {
    fn new(table: T) -> Self {
        let columns = table.columns().into_iter().map(|(_, kind)| Values::new(kind)).collect();
        Self { table, file: None, written: Written::default(), columns, rows: 0 }
    }

    fn end_of_group(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| self.rows > 0) else { return Ok(()) };
        let mut group = file.next_row_group().map_err(failed)?;
        for values in &mut self.columns {
            if let Some(column) = group.next_column().map_err(failed)? {
                values.write(column).map_err(failed)?;
            }
        }
        group.close().map_err(failed)?;
        self.rows = 0;
        self.written.pass_on(out)
    }
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

impl<T: Table> Sink for Parquet<T> {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        let fields = self.table.columns().into_iter().map(field).collect::<Result<Vec<_>, _>>();
        let schema = fields.and_then(|fields| Type::group_type_builder("row").with_fields(fields).build());
        let facts =
            run.facts().into_iter().map(|(name, value)| KeyValue::new(name.to_owned(), value)).collect();
        let properties = WriterProperties::builder()
            .set_created_by(concat!("hvtui ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(facts))
            .build();
        let schema = Arc::new(schema.map_err(failed)?);
        let file =
            SerializedFileWriter::new(self.written.clone(), schema, Arc::new(properties)).map_err(failed)?;
        self.file = Some(file);
        self.written.pass_on(out)
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        let Self { table, columns, rows, .. } = self;
        table.rows(run, item, &mut |cells| {
            if out.take(1) {
                columns.iter_mut().zip(cells).for_each(|(values, cell)| values.push(*cell));
                *rows += 1;
            }
            Ok(())
        })?;
        if self.rows >= ROWS { self.end_of_group(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        self.end_of_group(out)?;
        if let Some(mut file) = self.file.take() {
            file.finish().map_err(failed)?;
        }
        self.written.pass_on(out)
    }
}

fn field((name, kind): (Cow<'static, str>, Kind)) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Float => (Physical::FLOAT, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
    };
    let builder = Type::primitive_type_builder(&name, physical);
    builder.with_repetition(Repetition::OPTIONAL).with_logical_type(logical).build().map(Arc::new)
}

impl Values {
    fn new(kind: Kind) -> Self {
        Self { kind, levels: Vec::new(), integers: Vec::new(), floats: Vec::new(), texts: Vec::new() }
    }

    fn push(&mut self, cell: Cell<'_>) {
        self.levels.push(i16::from(cell != Cell::None));
        match cell {
            Cell::Integer(value) => self.integers.push(value),
            Cell::Moment(at) => self.integers.push(at.0),
            Cell::Float(value) => self.floats.push(value),
            Cell::Text(text) => self.texts.push(ByteArray::from(text)),
            Cell::None => {}
        }
    }

    /// Writes the column, and begins anew.
    fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(&*self.levels);
        match self.kind {
            Kind::Integer | Kind::Moment => {
                column.typed::<Int64Type>().write_batch(&self.integers, levels, None)?
            }
            Kind::Float => column.typed::<FloatType>().write_batch(&self.floats, levels, None)?,
            Kind::Text => column.typed::<ByteArrayType>().write_batch(&self.texts, levels, None)?,
        };
        *self = Self::new(self.kind);
        column.close()
    }
}
