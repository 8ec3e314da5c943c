//! Differences that are planted on the target, and who finds them.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Arm;
use super::databases::Databases;
use crate::process;

/// Plants, compares, and says what was found. Fails if that is not what was planted.
pub fn find(
    pagewarden: &Path,
    mut peer: Option<Arm>,
    databases: &Databases,
    rows: u64,
) -> Result<()> {
    let [bit, missing, one, other] = [rows / 7, rows / 5, rows / 3, rows / 2];
    let extra = rows + 1;
    let few = format!(
        "DELETE FROM t WHERE id = {missing}; \
         UPDATE t SET d = ({sum} - id) / 100.0, doc = concat('{{\"k\": ', {sum} - id, '}}') \
           WHERE id IN ({one}, {other}); \
         INSERT INTO t (id, i, d, r, b, name, at, u) \
           SELECT {extra}, i, d, r, b, name, at, u FROM t WHERE id = 1; ",
        sum = one + other
    );
    databases.change_target(
        &format!("{few} UPDATE t SET i = i # 1 WHERE id = {bit}"),
        &format!("{few} UPDATE t SET i = i ^ 1 WHERE id = {bit}"),
    )?;
    println!(
        "\nplanted: one bit in one column of a row, a row missing, one too many, two columns swapped between two rows"
    );
    let table = compare(pagewarden, databases)?;
    let mut changed =
        [(bit, json!(["i"])), (one, json!(["d", "doc"])), (other, json!(["d", "doc"]))];
    changed.sort_by_key(|(id, _)| *id);
    let found = differences(&table, "changed");
    let wanted: Vec<(Value, Value)> =
        changed.into_iter().map(|(id, columns)| (json!(id), columns)).collect();
    ensure!(found == wanted, "changed: {found:?}, planted: {wanted:?}");
    for (kind, id) in [("only_source", missing), ("only_target", extra)] {
        let found = differences(&table, kind);
        ensure!(found == [(json!(id), json!([]))], "{kind}: {found:?}, planted: {id}");
    }
    println!("compare: all named, by row and column, and nothing else");
    say_what_peer_finds(peer.as_mut())?;

    databases.change_target(
        "UPDATE t SET at = at + interval '10 minutes'",
        "UPDATE t SET at = at + INTERVAL 10 MINUTE",
    )?;
    println!("\nplanted besides: a whole column shifted by ten minutes");
    let table = compare(pagewarden, databases)?;
    let counts = ["changed", "only_source", "only_target"].map(|name| table.get(name)?.as_u64());
    ensure!(counts == [Some(rows - 1), Some(1), Some(1)], "{counts:?}");
    let at = list(&table, "diagnosis").find(|one| one.get("column") == Some(&json!("at")));
    let pattern = at.and_then(|one| one.get("pattern")?.as_str()).unwrap_or_default();
    ensure!(pattern == "shifted by +00:10:00", "{:?}", table.get("diagnosis"));
    println!("compare: every row counted; at: {pattern}");
    say_what_peer_finds(peer.as_mut())
}

/// What `compare` says of the table.
fn compare(pagewarden: &Path, databases: &Databases) -> Result<Value> {
    let mut command = Command::new("sh");
    // It ends with 1, which is no failure here.
    command.args(["-c", "\"$0\" compare --quiet --json --differences 100 \"$@\"; [ $? = 1 ]"]);
    command.arg(pagewarden).args(databases.urls());
    let measured = process::measure(&mut command, true)?;
    let report: Value = serde_json::from_slice(&measured.output)?;
    println!(
        "compare: {} in {:.1} s, at most {} MiB",
        report.get("verdict").and_then(Value::as_str).unwrap_or_default(),
        measured.wall.as_secs_f64(),
        measured.memory_bytes >> 20
    );
    list(&report, "tables").next().cloned().context("no table was compared")
}

/// The keys of one kind of differences, with the columns that differ.
fn differences(table: &Value, kind: &str) -> Vec<(Value, Value)> {
    let of_kind = list(table, "differences").filter(|one| one.get("kind") == Some(&json!(kind)));
    let named = |one: &Value| Some((one.pointer("/key/id")?.clone(), one.get("columns")?.clone()));
    of_kind.filter_map(named).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn say_what_peer_finds(peer: Option<&mut Arm>) -> Result<()> {
    let Some(arm) = peer else { return Ok(()) };
    let begin = Instant::now();
    let output = arm.command.output()?;
    println!("{}: {} after {:.1} s", arm.name, output.status, begin.elapsed().as_secs_f64());
    print!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
