//! Golden files and tables, read row by row.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::cursor::{BATCH_ROWS, Cursor};
use super::folder::Folder;
use super::kind::Meaning;
use crate::row::Row;
use crate::row::column::Kind;
use crate::table::{Column, Form};

fn golden(name: &str) -> Folder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/parquet");
    let path: PathBuf = folder.join(name);
    Folder::open(&path.as_path().into()).unwrap()
}

/// The first column of all rows, as numbers.
fn keys(folder: &Folder) -> Vec<i128> {
    let mut cursor = Cursor::new(vec![0]);
    let (mut keys, mut key) = (Vec::new(), Vec::new());
    while cursor.has_next(folder).unwrap() {
        cursor.take_whole(&mut key).unwrap();
        keys.push(key[0]);
    }
    assert_eq!((keys.len() as u64, cursor.row()), (folder.rows(), folder.rows()));
    keys
}

/// All rows, in the order of their texts; NULL is `-`.
fn rows(folder: &Folder) -> BTreeSet<Vec<String>> {
    let columns: Vec<(usize, Form)> =
        folder.columns.iter().map(|column| column.form.clone()).enumerate().collect();
    let mut cursor = Cursor::new((0..columns.len()).collect());
    let (mut rows, mut row) = (BTreeSet::new(), Row::new());
    while cursor.has_next(folder).unwrap() {
        cursor.take(folder, &columns, &mut row).unwrap();
        let text = |index| {
            let field = row.field(index).unwrap();
            let text = String::from_utf8_lossy(field.payload).into_owned();
            if field.tag == crate::row::Tag::Null { "-".to_owned() } else { text }
        };
        assert!(rows.insert((0..columns.len()).map(text).collect()));
    }
    assert_eq!(rows.len() as u64, folder.rows());
    rows
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn rows_are_gone_back_to_from_within_a_batch_and_not_from_behind_the_last_one() {
    let folder = golden("pyarrow-26.0.1/plain.parquet");
    let keys = keys(&folder);
    assert!(keys.len() > BATCH_ROWS && keys.is_sorted());
    let rows = folder.rows();
    let mut whole = Cursor::new(vec![0]);
    let mut key = Vec::new();
    while whole.has_next(&folder).unwrap() {
        whole.take_whole(&mut key).unwrap();
    }
    for begin in [0, rows - 9] {
        assert!(!whole.may_go_to(begin), "{begin}");
        let mut other = Cursor::new(vec![0]);
        for row in [rows - 1, begin.max(rows - rows % BATCH_ROWS as u64)] {
            other.go_to(&folder, row).unwrap();
            assert!(other.has_next(&folder).unwrap());
            other.take_whole(&mut key).unwrap();
            assert_eq!(Some(&key[0]), keys.get(usize::try_from(row).unwrap()), "{row}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn deleted_rows_are_no_rows_wherever_a_reading_begins(
        // The number of deleted rows of 256; and some that follow each other.
        of_256 in prop::sample::select(vec![0, 2, 128, 250, 256]),
        chances in prop::collection::vec(any::<u8>(), 1200),
        hole in (0..1200_usize, 0..1200_usize),
        places in prop::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let mut folder = golden("pyarrow-26.0.1/plain.parquet");
        let all = keys(&folder);
        prop_assert_eq!(all.len(), chances.len());
        let is_deleted = |row: usize| {
            u16::from(chances[row]) < of_256 || (row >= hole.0 && row < hole.1)
        };
        let left: Vec<i128> = (0..all.len()).filter(|row| !is_deleted(*row)).map(|row| all[row]).collect();
        folder.delete((0..all.len()).filter(|row| is_deleted(*row)).map(|row| row as u64).collect());
        prop_assert_eq!(&keys(&folder), &left);
        let mut cursor = Cursor::new(vec![0]);
        let mut key = Vec::new();
        for place in places.iter().filter(|_| !left.is_empty()) {
            let row = place.index(left.len());
            if !cursor.may_go_to(row as u64) {
                cursor = Cursor::new(vec![0]);
            }
            cursor.go_to(&folder, row as u64).unwrap();
            prop_assert_eq!(cursor.row(), row as u64);
            prop_assert!(cursor.has_next(&folder).unwrap());
            cursor.take_whole(&mut key).unwrap();
            prop_assert_eq!(key[0], left[row]);
        }
    }
}

/// What the scripts beside the tables put in, and deleted.
#[test]
fn tables_of_spark_have_the_rows_that_were_not_deleted() {
    let mut expected = BTreeSet::new();
    for id in 3..900 {
        if id % 100 != 7 && !(id >= 600 && id % 2 == 1) {
            let word = if id == 450 { "x".to_owned() } else { format!("w{id}") };
            expected.insert([number(id), word, number(id % 2)].to_vec());
        }
    }
    assert_eq!(expected.len(), 741);
    for name in [
        "delta-spark-4.0.0/parts",
        "delta-spark-4.0.0/v2",
        "iceberg-spark-1.10.0/v2",
        "iceberg-spark-1.10.0/v3",
    ] {
        assert!(rows(&golden(name)) == expected, "{name}");
    }
}

/// What Spark read when the tables were made is beside them.
#[test]
fn tables_of_iceberg_have_the_rows_that_spark_reads() {
    for (name, count) in [("by_values", 185), ("upserts", 121), ("added", 42)] {
        let table = golden(&format!("iceberg-spark-1.10.0/{name}"));
        let read = golden(&format!("iceberg-spark-1.10.0/{name}.parquet"));
        let names = |folder: &Folder| -> Vec<String> {
            folder.columns.iter().map(|column| column.name.clone()).collect()
        };
        assert_eq!(names(&table), names(&read), "{name}");
        let (rows, expected) = (rows(&table), rows(&read));
        assert_eq!(rows.difference(&expected).next(), None, "{name}");
        assert_eq!(expected.difference(&rows).next(), None, "{name}");
        assert_eq!(rows.len(), count, "{name}");
    }
}

fn number(value: i64) -> String {
    let mut row = Row::new();
    row.integer(value);
    String::from_utf8_lossy(row.field(0).unwrap().payload).into_owned()
}

#[test]
fn columns_by_other_names_and_values_of_the_log_are_read() {
    let folder = golden("delta-spark-4.0.0/mapped");
    let names: Vec<_> = folder.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "day", "at", "price", "label", "word", "more"]);
    let mut expected = BTreeSet::new();
    let of_log = ["2024-02-29", "2024-02-29 23:59:59.5", "-12345e-1", "a b/c=d%"];
    for id in [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20] {
        let [day, at, price, label] = if (10..20).contains(&id) { ["-"; 4] } else { of_log };
        let more = if id == 20 { number(5) } else { "-".to_owned() };
        let (id, word) = (number(id), format!("w{id}"));
        expected.insert(texts(&[&id, day, at, price, label, &word, &more]));
    }
    assert_eq!(rows(&folder), expected);
}

/// A folder with copies of a golden file in these places.
fn partitioned(places: &[&str]) -> tempfile::TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/parquet");
    let folder = tempfile::tempdir().unwrap();
    for place in places {
        let place = folder.path().join(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(golden.join("duckdb-2.0.1/plain.parquet"), place).unwrap();
    }
    folder
}

/// The types of the columns that folders make, and their values in each file.
fn made_by_folders(places: &[&str]) -> (Vec<String>, BTreeSet<Vec<String>>) {
    let kept = partitioned(places);
    let plain = golden("duckdb-2.0.1/plain.parquet").columns.len();
    let folder = Folder::open(&kept.path().into()).unwrap();
    let types = folder.columns[plain..].iter().map(|it| it.declared.clone()).collect();
    let columns: Vec<(usize, Form)> =
        folder.columns.iter().map(|column| column.form.clone()).enumerate().skip(plain).collect();
    let mut cursor = Cursor::new(columns.iter().map(|(index, _)| *index).collect());
    let (mut values, mut row) = (BTreeSet::new(), Row::new());
    while cursor.has_next(&folder).unwrap() {
        cursor.take(&folder, &columns, &mut row).unwrap();
        let text = |index| match row.field(index).unwrap() {
            field if field.tag == crate::row::Tag::Null => "-".to_owned(),
            field => String::from_utf8_lossy(field.payload).into_owned(),
        };
        values.insert((0..columns.len()).map(text).collect());
    }
    (types, values)
}

#[test]
fn names_of_folders_are_values_of_columns() {
    let (types, values) = made_by_folders(&[
        "month=01/day=2024-02-29/a%20b=x%2Fy/1.parquet",
        "month=12/day=__HIVE_DEFAULT_PARTITION__/a%20b=7/1.parquet",
        "month=12/day=2023-01-01/a%20b=%+f/deeper/2.parquet",
        "_delta=1/skipped.txt",
    ]);
    // Of the last file; in that of `day` it is NULL.
    assert_eq!(types, ["NAME OF A FOLDER", "NULL", "NAME OF A FOLDER"]);
    let months: BTreeSet<&str> = values.iter().map(|row| row[0].as_str()).collect();
    assert_eq!((values.len(), months.len()), (3, 2), "{values:?}");
    let words: BTreeSet<&str> = values.iter().map(|row| row[2].as_str()).collect();
    assert_eq!(words, BTreeSet::from(["%+f", "7", "x/y"]));
    assert!(values.iter().any(|row| row[1] == "-"), "{values:?}");
    let (_, values) = made_by_folders(&["n=__HIVE_DEFAULT_PARTITION__/1.parquet"]);
    assert_eq!(values, BTreeSet::from([texts(&["-"])]));
}

#[test]
fn folders_that_contradict_each_other_are_refused() {
    for (places, why) in [
        (["n=1/1.parquet", "2.parquet"], "other columns"),
        (["n=1/1.parquet", "m=1/1.parquet"], "other columns"),
        (["n=1/n=2/1.parquet", "n=1/n=3/1.parquet"], "above it makes, too"),
        (["n=/1.parquet", "n=1/1.parquet"], "no value"),
        (["=1/1.parquet", "=2/1.parquet"], "no column"),
    ] {
        let folder = partitioned(&places);
        let refused = Folder::open(&folder.path().into()).unwrap_err();
        assert!(format!("{:?}", refused.1).contains(why), "{places:?}: {:?}", refused.1);
    }
}

/// A column of the type that pyarrow gives to nothing but None, or a partition of NULL, has the type that it
/// has in other files.
#[test]
fn column_of_nulls_is_of_the_type_that_it_has_elsewhere() {
    let folder = golden("pyarrow-26.0.1/plain.parquet");
    let typed = folder.columns[0].clone();
    let mut column = typed.clone();
    super::folder::agree(&mut column, &Meaning::of_nothing()).unwrap();
    assert_eq!(column, typed);
    let mut column = Column { form: Form::Any, exact: false, ..typed.clone() };
    super::folder::agree(&mut column, &Meaning::of_nothing()).unwrap();
    assert_eq!((&column.form, column.declared.as_str()), (&Form::Any, "NULL"));
    super::folder::agree(&mut column, &Meaning::of(Kind::Date, Form::Date, "DATE")).unwrap();
    assert_eq!(column.form, Form::Date);
}
