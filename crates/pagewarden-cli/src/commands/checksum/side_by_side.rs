//! A line a table: its rows, its size, and how long each strategy took, beside each other.

use pagewarden::words::{bytes, grouped, printable};
use pagewarden_db::checksum::Strategy;

/// What one strategy gives to the line of its table.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// The table.
    pub table: String,
    /// Its rows, where they were counted.
    pub rows: Option<u64>,
    /// Its size in bytes, where the server tells it.
    pub bytes: Option<u64>,
    /// How long the strategy took; none if it failed.
    pub seconds: Option<f64>,
}

/// The lines, of which one is filled at a time.
#[derive(Debug)]
pub struct SideBySide {
    wide: usize,
    columns: Vec<&'static str>,
    cells: Vec<Cell>,
}

impl SideBySide {
    /// Lines for the columns of some strategies.
    pub fn new(strategies: &[Strategy]) -> Self {
        let columns = strategies.iter().map(|strategy| strategy.name()).collect();
        Self { wide: "table".len(), columns, cells: Vec::new() }
    }

    /// Makes room for names of up to `wide` characters.
    pub fn widen(&mut self, wide: usize) {
        self.wide = self.wide.max(wide);
    }

    /// What the columns are.
    pub fn head(&self) -> String {
        let columns = self.columns.iter().map(|name| (*name).to_owned());
        self.line("table", "rows", "size", columns)
    }

    /// Takes in what one strategy gave, and gives the line once its table has all of them.
    pub fn take(&mut self, cell: Cell) -> Option<String> {
        self.cells.push(cell);
        (self.cells.len() == self.columns.len()).then(|| self.end()).flatten()
    }

    /// The line as far as it is filled; none if nothing is.
    pub fn end(&mut self) -> Option<String> {
        let cells = std::mem::take(&mut self.cells);
        let unknown = || "?".to_owned();
        let name = printable(&cells.first()?.table);
        let rows = cells.iter().rev().find_map(|cell| cell.rows).map_or_else(unknown, grouped);
        let size = cells.iter().rev().find_map(|cell| cell.bytes).map_or_else(unknown, bytes);
        let told = |cell: &Cell| {
            cell.seconds.map_or_else(|| "failed".to_owned(), |seconds| format!("{seconds:.2} s"))
        };
        Some(self.line(&name, &rows, &size, cells.iter().map(told)))
    }

    fn line(
        &self,
        name: &str,
        rows: &str,
        size: &str,
        columns: impl Iterator<Item = String>,
    ) -> String {
        let columns: String = columns.map(|text| format!("  {text:>10}")).collect();
        format!("{name:<0$}  {rows:>13}  {size:>10}{columns}\n", self.wide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_of_a_table_stand_in_one_line() {
        let mut lines = SideBySide::new(&[Strategy::Count, Strategy::Native]);
        lines.widen(6);
        assert_eq!(lines.head(), "table            rows        size       count      native\n");
        let cell = |seconds| Cell {
            table: "orders".to_owned(),
            rows: Some(1_234_567),
            bytes: Some(3 << 20),
            seconds,
        };
        assert_eq!(lines.take(cell(Some(0.5))), None);
        let line = "orders      1,234,567       3 MiB      0.50 s      failed\n";
        assert_eq!(lines.take(Cell { rows: None, ..cell(None) }).unwrap(), line);
        assert_eq!(lines.end(), None);
        // A user ended the run in the middle of it.
        lines.take(cell(Some(12.0)));
        assert_eq!(lines.end().unwrap(), "orders      1,234,567       3 MiB     12.00 s\n");
    }
}
