//! Tables whose rows are in others' hands, as Spark's executors: on each of them a [`Worker`] makes
//! canonical rows out of Arrow's columns; where the caller is, Python functions run the tasks.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray as _;
use arrow_array::types as arrow;
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use pagewarden_db::compare::Course;
use pagewarden_db::engine::elsewhere::{self, Elsewhere, Executors, Span, Task};
use pagewarden_db::error::{Error, Result};
use pagewarden_db::location::Location;
use pagewarden_db::row::Row;
use pagewarden_db::row::column::{Kind, Unit, append_bytes, append_large, append_whole};
use pagewarden_db::table::{Column, Filled, Form};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capsule::batches;
use crate::servers::{self, CompareOptions, Failure, Reading};

/// What values of an Arrow type are, unless they have no canonical form.
fn kind(of: &DataType) -> Option<Kind> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => None,
        TimeUnit::Millisecond => Some(Unit::Milli),
        TimeUnit::Microsecond => Some(Unit::Micro),
        TimeUnit::Nanosecond => Some(Unit::Nano),
    };
    let scale = |scale: i8| u32::try_from(scale).ok().map(Kind::Decimal);
    match of {
        DataType::Boolean => Some(Kind::Boolean),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Kind::Signed),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Some(Kind::Unsigned)
        }
        DataType::Float32 | DataType::Float64 => Some(Kind::Float),
        DataType::Decimal128(_, digits) => scale(*digits),
        DataType::Date32 => Some(Kind::Date),
        DataType::Time64(of) => unit(of).map(Kind::Time),
        // Its numbers are those of UTC, whichever zone the type names.
        DataType::Timestamp(of, _) => unit(of).map(Kind::Moment),
        DataType::Utf8 | DataType::LargeUtf8 => Some(Kind::Text),
        DataType::Binary | DataType::LargeBinary => Some(Kind::Bytes),
        _ => None,
    }
}

/// A column of a batch.
struct Source<'a> {
    array: &'a dyn Array,
    kind: Kind,
    form: &'a Form,
}

fn wholes<T: ArrowPrimitiveType>(array: &dyn Array, at: usize) -> Option<i64>
where
    i64: TryFrom<T::Native>,
{
    let array: &PrimitiveArray<T> = array.as_primitive_opt()?;
    i64::try_from(array.value(at)).ok()
}

impl Source<'_> {
    /// Appends a value; none if it is none of its type.
    fn append(&self, row: &mut Row, at: usize) -> Option<()> {
        let array = self.array;
        if array.is_null(at) || array.data_type() == &DataType::Null {
            row.null();
            return Some(());
        }
        let value = match array.data_type() {
            DataType::Int8 => wholes::<arrow::Int8Type>(array, at),
            DataType::Int16 => wholes::<arrow::Int16Type>(array, at),
            DataType::Int32 => wholes::<arrow::Int32Type>(array, at),
            DataType::Int64 => wholes::<arrow::Int64Type>(array, at),
            DataType::UInt8 => wholes::<arrow::UInt8Type>(array, at),
            DataType::UInt16 => wholes::<arrow::UInt16Type>(array, at),
            DataType::UInt32 => wholes::<arrow::UInt32Type>(array, at),
            // Of 64 bits, as they are.
            DataType::UInt64 => {
                Some(array.as_primitive_opt::<arrow::UInt64Type>()?.value(at).cast_signed())
            }
            DataType::Date32 => wholes::<arrow::Date32Type>(array, at),
            DataType::Time64(TimeUnit::Microsecond) => {
                wholes::<arrow::Time64MicrosecondType>(array, at)
            }
            DataType::Time64(TimeUnit::Nanosecond) => {
                wholes::<arrow::Time64NanosecondType>(array, at)
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                wholes::<arrow::TimestampMillisecondType>(array, at)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                wholes::<arrow::TimestampMicrosecondType>(array, at)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                wholes::<arrow::TimestampNanosecondType>(array, at)
            }
            _ => return self.append_other(row, at),
        };
        append_whole(row, self.kind, value?);
        Some(())
    }

    fn append_other(&self, row: &mut Row, at: usize) -> Option<()> {
        let array = self.array;
        let mut bytes = |value: &[u8]| append_bytes(row, self.kind, self.form, value).then_some(());
        match array.data_type() {
            DataType::Utf8 => bytes(array.as_string_opt::<i32>()?.value(at).as_bytes()),
            DataType::LargeUtf8 => bytes(array.as_string_opt::<i64>()?.value(at).as_bytes()),
            DataType::Binary => bytes(array.as_binary_opt::<i32>()?.value(at)),
            DataType::LargeBinary => bytes(array.as_binary_opt::<i64>()?.value(at)),
            DataType::Boolean => {
                array.as_boolean_opt().map(|array| row.unsigned(u64::from(array.value(at))))
            }
            DataType::Float32 => {
                let array = array.as_primitive_opt::<arrow::Float32Type>();
                array.map(|array| row.float(f64::from(array.value(at))))
            }
            DataType::Float64 => {
                let array = array.as_primitive_opt::<arrow::Float64Type>();
                array.map(|array| row.float(array.value(at)))
            }
            DataType::Decimal128(..) => {
                let array = array.as_primitive_opt::<arrow::Decimal128Type>();
                array.map(|array| append_large(row, array.value(at), self.kind.scale()))
            }
            _ => None,
        }
    }
}

/// Gives the rows of a batch, whose columns are those of the task in their order.
fn each_row(
    batch: &RecordBatch,
    task: &Task,
    see: &mut dyn FnMut(&Row) -> PyResult<()>,
) -> PyResult<()> {
    if batch.num_columns() != task.columns.len() {
        return Err(PyTypeError::new_err("a batch does not have the columns of the task"));
    }
    let schema = batch.schema();
    let mut sources = Vec::new();
    for ((array, field), (_, form)) in
        batch.columns().iter().zip(schema.fields()).zip(&task.columns)
    {
        let of = field.data_type();
        let kind = if of == &DataType::Null { Some(Kind::Signed) } else { kind(of) };
        let kind = kind.ok_or_else(|| {
            let name = field.name();
            let text = format!("the column {name} ({of}) has no form in which values are compared");
            PyTypeError::new_err(text)
        })?;
        sources.push(Source { array: array.as_ref(), kind, form });
    }
    let mut row = Row::new();
    for at in 0..batch.num_rows() {
        row.clear();
        for (source, field) in sources.iter().zip(schema.fields()) {
            source.append(&mut row, at).ok_or_else(|| {
                let text = format!("a value of the column {} is none of its type", field.name());
                PyValueError::new_err(text)
            })?;
        }
        see(&row)?;
    }
    Ok(())
}

/// What an executor does with its rows.
#[pyclass(module = "pagewarden._pagewarden")]
#[derive(Debug)]
pub struct Worker {
    worker: elsewhere::Worker,
}

/// Bytes of rows that are given at a time.
const PIECE_BYTES: usize = 1 << 20;

#[pymethods]
impl Worker {
    #[new]
    fn new(task: &str) -> PyResult<Self> {
        let task = serde_json::from_str(task);
        let task = task.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { worker: elsewhere::Worker::new(task) })
    }

    /// Counts the rows of a stream in.
    fn add(&mut self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let batches = batches(stream)?;
        let worker = &mut self.worker;
        py.detach(|| {
            let task = worker.task().clone();
            for batch in batches {
                let batch = batch.map_err(|error| PyValueError::new_err(error.to_string()))?;
                each_row(&batch, &task, &mut |row| {
                    worker.add(row);
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    /// The rows of a stream that are wanted, in pieces that end between rows.
    fn wanted<'py>(
        &self,
        py: Python<'py>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let batches = batches(stream)?;
        let worker = &self.worker;
        let pieces = py.detach(|| -> PyResult<_> {
            let (mut pieces, mut piece) = (Vec::new(), Vec::new());
            for batch in batches {
                let batch = batch.map_err(|error| PyValueError::new_err(error.to_string()))?;
                each_row(&batch, worker.task(), &mut |row| {
                    if worker.is_wanted(row) {
                        piece.extend_from_slice(row.bytes());
                        if piece.len() >= PIECE_BYTES {
                            pieces.push(std::mem::take(&mut piece));
                        }
                    }
                    Ok(())
                })?;
            }
            pieces.push(piece);
            pieces.retain(|piece| !piece.is_empty());
            Ok(pieces)
        })?;
        Ok(pieces.iter().map(|piece| PyBytes::new(py, piece)).collect())
    }

    /// Counts in what another worker has summed.
    fn join(&mut self, sums: &[u8]) -> PyResult<()> {
        self.worker.join(sums).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// What was summed, for another worker.
    fn sums<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.worker.sums())
    }

    /// The rows, and their sum as `pagewarden checksum` has it.
    fn total(&self) -> (u64, String) {
        let total = self.worker.total();
        (total.rows, total.text())
    }
}

/// A column of a table: its name, its type for people, what its values are, whether it may be null.
#[derive(Debug, Clone, FromPyObject)]
pub struct Declared(String, String, String, bool);

impl Declared {
    fn column(&self) -> Column {
        let Self(name, declared, kind, nullable) = self.clone();
        let (form, wire, exact) = match kind.as_str() {
            "whole" => (Form::Number, "bigint", true),
            "decimal" => (Form::Number, "", true),
            "number" => (Form::Number, "", false),
            "text" => (Form::Text, "", false),
            "bytes" => (Form::Bytes, "", false),
            "date" => (Form::Date, "", false),
            "time" => (Form::Time, "", false),
            "moment" => (Form::Moment, "", false),
            "null" => (Form::Any, "", false),
            _ => (Form::Opaque(format!("rows elsewhere: {name} {declared}")), "", false),
        };
        let wire = wire.to_owned();
        Column {
            name,
            declared,
            form,
            wire,
            character_set: None,
            nullable,
            exact,
            filled: Filled::Said,
        }
    }
}

/// Executors that Python functions speak to.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Table {
    title: String,
    name: String,
    columns: Vec<Declared>,
    /// Takes a column's place; gives the first number, the last, the rows, those without one.
    span: Py<PyAny>,
    /// Takes a task; gives what workers have summed.
    sums: Py<PyAny>,
    /// Takes a task and the ranges of the key; gives pieces of rows.
    rows: Py<PyAny>,
}

impl fmt::Debug for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Table {
    fn failed(&self, error: &PyErr) -> Error {
        Error::Refused { place: self.name.clone(), reason: error.to_string() }
    }

    /// Calls a function that gives bytes, again and again.
    fn pieces(
        &self,
        call: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        Python::attach(|py| {
            let pieces = call(py).and_then(|pieces| Ok(pieces.bind(py).try_iter()?.unbind()));
            let pieces = pieces.map_err(|error| self.failed(&error))?;
            for piece in pieces.bind(py).clone() {
                let piece = piece.and_then(|piece| piece.extract::<Vec<u8>>());
                let piece = piece.map_err(|error| self.failed(&error))?;
                see(&piece)?;
            }
            Ok(())
        })
    }
}

fn as_text(task: &Task) -> Result<String> {
    serde_json::to_string(task).map_err(|error| Error::Unsupported(error.to_string()))
}

impl Executors for Table {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(Declared::column).collect()
    }

    fn span(&self, column: usize) -> Result<Option<Span>> {
        Python::attach(|py| {
            let found = self.span.call1(py, (column,));
            let found = found.and_then(|it| it.extract::<Option<(i64, i64, u64, u64)>>(py));
            let found = found.map_err(|error| self.failed(&error))?;
            Ok(found.map(|(first, last, rows, nulls)| Span { first, last, rows, nulls }))
        })
    }

    fn sums(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let text = as_text(task)?;
        self.pieces(|py| self.sums.call1(py, (text,)), see)
    }

    fn rows(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let text = as_text(task)?;
        let spans = task.wanted.as_ref().and_then(|wanted| task.split.spans(wanted));
        self.pieces(|py| self.rows.call1(py, (text, spans)), see)
    }
}

/// The task of summing a whole table, whose columns come in the order that every engine gives them;
/// refused where a column cannot be summed.
#[pyfunction]
pub fn whole_task(columns: Vec<Declared>) -> PyResult<(Vec<usize>, String)> {
    let columns: Vec<Column> = columns.iter().map(Declared::column).collect();
    let names: HashMap<&str, usize> =
        columns.iter().enumerate().map(|(place, column)| (column.name.as_str(), place)).collect();
    if names.len() < columns.len() {
        return Err(PyValueError::new_err("two columns have the same name"));
    }
    let table = pagewarden_db::table::Table {
        name: pagewarden_db::table::TableName { schema: None, name: String::new() },
        columns,
        key: Vec::new(),
        engine: String::new(),
        bytes: None,
        rows_estimated: None,
    };
    let order = table.ordered();
    let task = elsewhere::whole(&table).map_err(|error| PyTypeError::new_err(error.to_string()))?;
    let text = serde_json::to_string(&task);
    Ok((order, text.map_err(|error| PyValueError::new_err(error.to_string()))?))
}

/// Compares a database's table with one that is elsewhere, and gives the object of
/// `pagewarden compare --json`. `interrupt` is called when the caller ends it.
#[pyfunction]
pub fn compare_elsewhere(
    py: Python<'_>,
    source: String,
    table: Table,
    options: CompareOptions,
    progress: Option<Py<PyAny>>,
    interrupt: Py<PyAny>,
) -> PyResult<(Option<String>, Option<Failure>)> {
    let begin = Instant::now();
    let reading = Reading::begin(options.rate())?;
    let source = match options.source(&source, &reading) {
        Ok(source) => source,
        Err(error) => return Ok((None, Some(servers::failure(&error, "")))),
    };
    let place = source.to_string();
    let name = table.name.clone();
    let target = Location::elsewhere(&name, Elsewhere(Arc::new(table)));
    let request = options.request(source, target)?;
    // Executors do not end by themselves.
    let ended = |py: Python<'_>| interrupt.call0(py).map(drop);
    let work = move |reading: &Reading| {
        let compared = servers::one(&request, &Course::default(), reading);
        servers::made(compared, &options, &place, begin)
    };
    reading.wait_or(py, progress, &ended, work)
}
