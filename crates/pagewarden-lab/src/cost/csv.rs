//! Tables from elsewhere: `run,ARM,ARM...`, a row a block.
//!
//! Made by hand, by a spreadsheet or by a script in any country: commas,
//! semicolons or tabs; a byte order mark; carriage returns; blanks; quotes;
//! decimal commas (where commas do not separate); cells that are missing. What
//! cannot be understood is refused with its line, never guessed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::cost::experiment::{Better, Kind};
use crate::cost::record::{ArmRecord, ExperimentRecord, MetricRecord, Run};
use crate::cost::samples::Sample;

/// What a table's only metric is called.
pub const METRIC: &str = "value";

/// More is no table of runs.
const BYTES_MAX: u64 = 64 << 20;
/// More rows than anybody runs; every block takes part in every resampling.
const ROWS_MAX: usize = 200_000;
/// Arms beyond this make more pairs than anybody reads.
const ARMS_MAX: usize = 32;

/// Headers by which the first column is known to number the rows.
const RUN_WORDS: &[&str] =
    &["run", "block", "row", "no", "nr", "num", "number", "id", "test", "iteration", "lauf"];
/// Cells that say that there is no figure.
const MISSING: &[&str] = &["", "-", "na", "n/a", "#n/a", "nan", "null", "none", "."];

/// Reads a table from a file.
///
/// # Errors
/// It cannot be read, or is no such table; says in which line.
pub fn read(path: &Path, better: Better) -> anyhow::Result<Run> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    ensure!(!metadata.is_dir(), "cannot read {shown}: it is a folder");
    ensure!(
        metadata.len() <= BYTES_MAX,
        "{shown} is too large for a table of runs ({} MiB)",
        metadata.len() >> 20
    );
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let name = path.file_stem().map_or_else(|| "table".into(), |name| name.to_string_lossy());
    parse(&bytes, &name, better).with_context(|| format!("cannot analyse {shown}"))
}

/// Reads a table from its bytes; `name` becomes the name of the experiment.
///
/// # Errors
/// As for [`read`].
pub fn parse(bytes: &[u8], name: &str, better: Better) -> anyhow::Result<Run> {
    let text = decode(bytes)?;
    let mut lines = (1_usize..)
        .zip(text.split(['\n', '\r']).scan((), |(), line| Some(line)))
        .filter(|(_, line)| !line.trim().is_empty() && !is_remark(line));
    let lines: Vec<(usize, &str)> = lines.by_ref().collect();
    let Some(((header_line, header), rows)) = lines.split_first() else {
        bail!("it is empty\nhint: the first line names the arms: run,OFF,ON");
    };
    ensure!(rows.len() <= ROWS_MAX, "it has more than {ROWS_MAX} rows");
    let separator = separator(header);
    let arms = arms(*header_line, &cells(header, separator), rows, separator)?;
    let mut run = Run { ended: true, ..Run::default() };
    for (block, (line, row)) in (0_u32..).zip(rows) {
        let cells = cells(row, separator);
        let (_, figures) = cells.split_first().unwrap_or((&String::new(), &[]));
        let extra = figures.iter().skip(arms.len()).find(|cell| !cell.is_empty());
        if let Some(extra) = extra {
            bail!(
                "line {line}: more cells than arms: '{}' has no arm\n\
                 hint: if numbers are written with a decimal comma, separate cells by semicolons",
                shown(extra)
            );
        }
        for (arm, cell) in arms.iter().zip(figures) {
            if let Some(value) =
                figure(cell, separator).with_context(|| format!("line {line}, {}", shown(arm)))?
            {
                run.samples.push(sample(name, arm, block, value));
            }
        }
    }
    let counted = |arm: &String| run.samples.iter().filter(|sample| sample.arm == *arm).count();
    if let Some(arm) = arms.iter().find(|arm| counted(arm) == 0) {
        bail!("no line has a figure for '{}'", shown(arm));
    }
    run.experiments = vec![record(name, arms, rows.len(), better)];
    Ok(run)
}

/// `# a remark`, but not `#,OFF,ON`.
fn is_remark(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| !rest.trim_start().starts_with([',', ';', '\t']))
}

fn decode(bytes: &[u8]) -> anyhow::Result<String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        bail!("it is UTF-16\nhint: save it as CSV in UTF-8");
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    ensure!(!bytes.contains(&0), "it is no text");
    // Line ends of every kind count as one line.
    Ok(String::from_utf8_lossy(bytes).replace("\r\n", "\n"))
}

/// What separates cells: judged by the header, where no number confuses it.
fn separator(header: &str) -> char {
    ['\t', ';'].into_iter().find(|separator| header.contains(*separator)).unwrap_or(',')
}

/// The cells of a line, without quotes and blanks.
fn cells(line: &str, separator: char) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        if c == '"' {
            quoted = !quoted;
        } else if c == separator && !quoted {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
    }
    for cell in &mut cells {
        *cell = cell.trim().to_owned();
    }
    cells
}

fn arms(
    line: usize,
    header: &[String],
    rows: &[(usize, &str)],
    separator: char,
) -> anyhow::Result<Vec<String>> {
    let Some((first, named)) = header.split_first() else { bail!("line {line} is empty") };
    let end = named.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    let arms: Vec<String> = named.iter().take(end).cloned().collect();
    let hint = "hint: the first line names the arms: run,OFF,ON";
    if !header.is_empty() && header.iter().all(|cell| figure(cell, separator).is_ok()) {
        bail!("line {line}: there is no header, only figures\n{hint}");
    }
    let lower = first.to_lowercase();
    let word = lower.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let known = first.is_empty() || first.starts_with('#') || RUN_WORDS.contains(&word);
    // Some other word over numbers that just count is the same.
    let counts = || {
        let mut numbers = rows.iter().map(|(_, row)| {
            cells(row, separator).first().and_then(|cell| cell.parse::<u64>().ok())
        });
        let begin = numbers.next().flatten();
        begin.is_some_and(|begin| (begin + 1..).zip(numbers).all(|(n, cell)| cell == Some(n)))
            && rows.len() > 1
    };
    ensure!(
        known || counts(),
        "line {line}: the first column must number the runs, and its header is '{}'\n{hint}",
        shown(first)
    );
    ensure!(
        arms.len() >= 2,
        "line {line}: it takes two arms to compare, and there {}\n{hint}",
        if arms.len() == 1 { "is one" } else { "is none" }
    );
    ensure!(arms.len() <= ARMS_MAX, "line {line}: more than {ARMS_MAX} arms");
    for (index, arm) in arms.iter().enumerate() {
        ensure!(!arm.is_empty(), "line {line}: arm {} has no name", index + 1);
        ensure!(
            !arms.iter().take(index).any(|other| other == arm),
            "line {line}: two arms are called '{}'",
            shown(arm)
        );
    }
    Ok(arms)
}

/// The figure in a cell; `None` if it says that there is none.
fn figure(cell: &str, separator: char) -> anyhow::Result<Option<f64>> {
    if MISSING.contains(&cell.to_lowercase().as_str()) {
        return Ok(None);
    }
    let one_comma = separator != ',' && !cell.contains('.') && cell.matches(',').count() == 1;
    let text = if one_comma { cell.replace(',', ".") } else { cell.to_owned() };
    // Not the words for infinity that Rust knows too.
    let plain = text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    match text.parse::<f64>() {
        Ok(value) if plain && value.is_finite() => {
            ensure!(value > 0.0, "{cell} is not above zero, and arms are compared by their ratio");
            Ok(Some(value))
        }
        _ => bail!("'{}' is not a number", shown(cell)),
    }
}

/// A piece of the file in a message.
fn shown(text: &str) -> String {
    pagewarden::words::shortened(&pagewarden::words::printable(text), 40)
}

fn sample(name: &str, arm: &str, block: u32, value: f64) -> Sample {
    Sample {
        experiment: name.to_owned(),
        condition: String::new(),
        arm: arm.to_owned(),
        block,
        order: block,
        warm_up: false,
        values: BTreeMap::from([(METRIC.to_owned(), value)]),
        words: BTreeMap::new(),
        noise: BTreeMap::new(),
    }
}

fn record(name: &str, arms: Vec<String>, rows: usize, better: Better) -> ExperimentRecord {
    ExperimentRecord {
        name: name.to_owned(),
        title: name.to_owned(),
        arms: arms.into_iter().map(|name| ArmRecord { name, what: String::new() }).collect(),
        metrics: vec![MetricRecord {
            name: METRIC.to_owned(),
            unit: String::new(),
            kind: Kind::Timed,
            better,
        }],
        is_price: true,
        conditions: vec![String::new()],
        blocks: u32::try_from(rows).unwrap_or(u32::MAX),
        ..ExperimentRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, u32, f64)> {
        let run = parse(text.as_bytes(), "t", Better::Lower).unwrap();
        run.samples
            .into_iter()
            .map(|sample| (sample.arm, sample.block, sample.values[METRIC]))
            .collect()
    }

    fn refused(text: &str) -> String {
        format!("{:#}", parse(text.as_bytes(), "t", Better::Lower).unwrap_err())
    }

    #[test]
    fn tables_of_many_origins_say_the_same() {
        let plain = values("run,OFF,ON\n1,1053.5,1060\n2,1e3,999\n");
        assert_eq!(plain.len(), 4);
        assert_eq!(plain[1], ("ON".to_owned(), 0, 1060.0));
        for text in [
            "\u{feff}run,OFF,ON\r\n1,1053.5,1060\r\n2,1e3,999\r\n",
            "run;OFF;ON\n1;1053,5;1060\n2;1000;999",
            "Run #\tOFF\tON\n1\t1053,5\t1060\n2\t1000.0\t999\n",
            "\"run\", \"OFF\" ,\"ON\"\n\n# a remark\n 1 , 1053.5 , 1060 \n2,\"1000\",999\n\n",
            "block,OFF,ON,,\n1,1053.5,1060,,\n2,1000,999,,\n",
            "#,OFF,ON\n1,1053.5,1060\n2,1000,999\n",
            "start,OFF,ON\n7,1053.5,1060\n8,1000,999\n",
            "run,OFF,ON\r1,1053.5,1060\r2,1000,999\r",
        ] {
            assert_eq!(values(text), plain, "{text:?}");
        }
    }

    #[test]
    fn missing_cells_leave_the_rest_of_their_block() {
        let found = values("run,A,B,C\n1,10,,12\n2,NA,11\n3,n/a,-,13\n");
        let places: Vec<(&str, u32)> =
            found.iter().map(|(arm, block, _)| (arm.as_str(), *block)).collect();
        assert_eq!(places, [("A", 0), ("C", 0), ("B", 1), ("C", 2)]);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "it is empty"),
            ("\n\n", "it is empty"),
            ("1,2,3\n2,3,4\n", "line 1: there is no header"),
            ("run,A\n1,2\n", "there is one"),
            ("run\n1\n", "there is none"),
            ("run,A,A\n1,2,3\n", "two arms are called 'A'"),
            ("run,A,,B\n1,2,3,4\n", "arm 2 has no name"),
            ("NONE,TORN,SUM\n1053,1051,1060\n900,2,3\n", "must number the runs"),
            ("run,A,B\n1,2,3\n2,fast,3\n", "line 3, A: 'fast' is not a number"),
            ("run,A,B\n1,2,3 s\n", "line 2, B: '3 s' is not a number"),
            ("run,A,B\n1,2,inf\n", "'inf' is not a number"),
            ("run,A,B\n1,2,0\n", "line 2, B: 0 is not above zero"),
            ("run,A,B\n1,2,-4\n", "-4 is not above zero"),
            ("run,A,B\n1,1053,5,1060,5\n", "line 2: more cells than arms: '1060' has no arm"),
            ("run;A;B\n1;1.053,5;2\n", "'1.053,5' is not a number"),
            ("run,A,B\n", "no line has a figure for 'A'"),
            ("run,A,B\n1,2,\n", "no line has a figure for 'B'"),
        ] {
            let message = refused(text);
            assert!(message.contains(expected), "{text:?}: {message}");
        }
        let utf16 = parse(b"\xff\xfer\0u\0n\0", "t", Better::Lower).unwrap_err();
        assert!(utf16.to_string().contains("UTF-16"), "{utf16}");
        assert!(parse(b"run,A,B\n1,\0,2\n", "t", Better::Lower).is_err());
    }

    /// Whatever the bytes, there is an answer.
    #[test]
    fn rubbish_never_stops_the_program() {
        let mut random = crate::stats::random::Random::new(29);
        let alphabet = b"run,;\t\n\r\"AB0123456789.-+eE \xff\xef\xbb#\0";
        for _ in 0..2000 {
            let length = random.below(60);
            let mut bytes: Vec<u8> =
                (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
            if random.below(2) == 0 {
                bytes = [b"run,A,B\n".as_slice(), &bytes].concat();
            }
            if let Ok(run) = parse(&bytes, "t", Better::Lower) {
                let analysis = crate::cost::analyse::analyse(&run, 0.02);
                assert!(!analysis.sentence.is_empty());
            }
        }
    }
}
