//! What was found as Arrow tables: findings, and pages by what they count as.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pagewarden::database::Description;
use pagewarden::report::{Report, RunEnd, TargetEnd};
use pagewarden::verdict::{Finding, Note, Recount, Standing, Stretch, Unread};
use pagewarden::verify::Sink;

use crate::runs::TargetRuns;

/// Rows of a batch.
const BATCH_ROWS: usize = 64 << 10;

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

impl Table {
    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A column while it is built.
#[derive(Debug)]
enum Column {
    Text(StringBuilder),
    Number(UInt64Builder),
}

/// A value of a row.
enum Value<'a> {
    Text(Option<&'a str>),
    Number(Option<u64>),
}

/// A table while it is built.
#[derive(Debug)]
struct Building {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    batches: Vec<RecordBatch>,
}

impl Building {
    /// A table with these columns: the name, whether it is a number, whether it may be null.
    fn of(columns: &[(&str, bool, bool)]) -> Self {
        let kind = |is_number| if is_number { DataType::UInt64 } else { DataType::Utf8 };
        let field = |(name, is_number, nullable): &(&str, bool, bool)| {
            Field::new(*name, kind(*is_number), *nullable)
        };
        let column = |(_, is_number, _): &(&str, bool, bool)| match is_number {
            true => Column::Number(UInt64Builder::new()),
            false => Column::Text(StringBuilder::new()),
        };
        Self {
            schema: Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>())),
            columns: columns.iter().map(column).collect(),
            rows: 0,
            batches: Vec::new(),
        }
    }

    fn add(&mut self, row: &[Value<'_>]) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            match (column, value) {
                (Column::Text(column), Value::Text(value)) => column.append_option(*value),
                (Column::Number(column), Value::Number(value)) => column.append_option(*value),
                _ => return Err(io::Error::other("a value does not fit its column")),
            }
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS { self.flush().map_err(io::Error::other) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ArrowError> {
        if mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let finish = |column: &mut Column| -> ArrayRef {
            match column {
                Column::Text(column) => Arc::new(column.finish()),
                Column::Number(column) => Arc::new(column.finish()),
            }
        };
        let columns = self.columns.iter_mut().map(finish).collect();
        self.batches.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Table> {
        self.flush().map_err(io::Error::other)?;
        let batches = mem::take(&mut self.batches);
        Ok(Table { schema: Arc::clone(&self.schema), batches })
    }
}

/// Findings, a row each, as a report.
#[derive(Debug)]
pub struct FindingsTable<'a> {
    out: &'a mut Option<Table>,
    path: String,
    table: Building,
}

impl<'a> FindingsTable<'a> {
    /// An empty one. At the end of the run it is put into `out`.
    pub fn new(out: &'a mut Option<Table>) -> Self {
        let table = Building::of(&[
            ("path", false, false),
            ("file", false, false),
            ("page", true, true),
            ("offset", true, true),
            ("severity", false, false),
            ("kind", false, false),
            ("database", false, true),
            ("object", false, true),
            ("stored", false, true),
            ("computed", false, true),
            ("detail", false, true),
            ("hint", false, true),
            ("stored_file", false, true),
            ("stored_offset", true, true),
        ]);
        Self { out, path: String::new(), table }
    }
}

impl Sink for FindingsTable<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let origin = finding.origin.as_deref();
        self.table.add(&[
            Value::Text(Some(&self.path)),
            Value::Text(Some(&finding.place.file)),
            Value::Number(finding.place.page.map(|page| page.0)),
            Value::Number(finding.place.offset.map(|offset| offset.0)),
            Value::Text(Some(finding.severity.name())),
            Value::Text(Some(finding.kind.name())),
            Value::Text(finding.database.as_deref()),
            Value::Text(finding.object.as_deref()),
            Value::Text(finding.stored.as_deref()),
            Value::Text(finding.computed.as_deref()),
            Value::Text(finding.detail.as_deref()),
            Value::Text(finding.hint.as_deref()),
            Value::Text(origin.map(|origin| origin.stored_file.as_str())),
            Value::Number(origin.and_then(|origin| origin.stored_offset).map(|offset| offset.0)),
        ])
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

impl Report for FindingsTable<'_> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.path = target.path.to_string_lossy().into_owned();
        Ok(())
    }

    fn end_target(&mut self, _: &TargetEnd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        *self.out = Some(self.table.finish()?);
        Ok(())
    }
}

/// Pages, a row for each run of those that count as the same, as a report.
#[derive(Debug)]
pub struct PagesTable<'a> {
    out: &'a mut Option<Table>,
    path: String,
    target: TargetRuns,
    table: Building,
}

impl<'a> PagesTable<'a> {
    /// An empty one. At the end of the run it is put into `out`.
    pub fn new(out: &'a mut Option<Table>) -> Self {
        let table = Building::of(&[
            ("path", false, false),
            ("file", false, false),
            ("first_page", true, true),
            ("pages", true, false),
            ("offset", true, false),
            ("bytes", true, false),
            ("standing", false, false),
        ]);
        Self { out, path: String::new(), target: TargetRuns::default(), table }
    }
}

impl Sink for PagesTable<'_> {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        self.target.add(stretch);
        Ok(())
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        self.target.correct(recount);
        Ok(())
    }
}

impl Report for PagesTable<'_> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.path = target.path.to_string_lossy().into_owned();
        self.target = TargetRuns::default();
        Ok(())
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let runs = mem::take(&mut self.target);
        if !runs.fit(&target.verified.summary.pages) {
            // A table in which a damaged page may stand as a sound one is worse than none.
            let text = format!("the pages of {} do not add up to what was counted", self.path);
            return Err(io::Error::other(text));
        }
        for file in &runs.files {
            for run in &file.runs {
                self.table.add(&[
                    Value::Text(Some(&self.path)),
                    Value::Text(Some(&file.file)),
                    Value::Number(run.first),
                    Value::Number(Some(run.pages)),
                    Value::Number(Some(run.offset)),
                    Value::Number(Some(run.length)),
                    Value::Text(Some(name(run.standing))),
                ])?;
            }
        }
        Ok(())
    }

    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        *self.out = Some(self.table.finish()?);
        Ok(())
    }
}

/// The name of the count in JSON.
fn name(standing: Option<Standing>) -> &'static str {
    match standing {
        None => "unread",
        Some(Standing::Ok) => "ok",
        Some(Standing::Empty) => "empty",
        Some(Standing::Unprotected) => "unprotected",
        Some(Standing::Unverifiable) => "unverifiable",
        Some(Standing::Undecided) => "undecided",
        Some(Standing::Suspect) => "suspect",
        Some(Standing::Damaged) => "damaged",
    }
}
