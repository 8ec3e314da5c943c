//! `checksum --strategy replicate` and `compare --from-replicate` from outside, on a primary of
//! MariaDB and its replica.

use pagewarden_scratch::mariadb::Installation;
use pagewarden_scratch::mariadb::replication::{await_arrival, pair};
use serde_json::{Value, json};

use crate::compares::{json, plain};
use crate::runner::{Outcome, run};

#[test]
fn replica_sums_for_itself_and_parts_that_differ_are_named() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let [primary, replica] = &pair(&installation, &[], 0).unwrap();
    primary
        .sql(
            "CREATE DATABASE shop; USE shop; \
             CREATE TABLE orders (id int PRIMARY KEY, name varchar(20)) \
               SELECT seq AS id, concat('order ', seq) AS name FROM seq_1_to_250; \
             CREATE TABLE words (word varchar(20)); INSERT INTO words VALUES ('a'), ('a'), ('b')",
        )
        .unwrap();
    let [source, target] = [primary.url("shop"), replica.url("shop")];
    let checksum = |words: &[&str]| {
        let words = [&["checksum", &source, "--strategy", "replicate"], words].concat();
        run(plain().args(words))
    };
    let compare = |words: &[&str]| {
        let words = [&["compare", "--from-replicate", &source, &target], words].concat();
        run(plain().args(words))
    };
    let tables = |outcome: &Outcome| json(outcome)["tables"].as_array().unwrap().clone();

    // Nothing is written without leave, and nothing was summed then.
    let refused = checksum(&[]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("needs --yes"), "{refused:?}");
    assert_eq!(primary.sql("SHOW TABLES IN shop LIKE 'pagewarden%'").unwrap(), "");
    let nothing = compare(&["--json"]);
    assert_eq!(nothing.status, Some(2));
    assert!(json(&nothing)["error"].as_str().unwrap().contains("--strategy replicate"));

    let made = checksum(&["--yes", "--chunk-rows", "100", "--json"]);
    assert_eq!((made.status, &json(&made)["verdict"]), (Some(0), &"complete".into()), "{made:?}");
    let rows: Vec<Value> = tables(&made).iter().map(|table| table["rows"].clone()).collect();
    assert_eq!(rows, [json!(250), json!(3)]);
    assert_eq!(tables(&made)[0]["computed_by"], "server");
    let equal = compare(&["--json"]);
    let report = json(&equal);
    assert_eq!((equal.status, &report["verdict"]), (Some(0), &"equal".into()), "{equal:?}");
    assert_eq!(
        (&report["mode"], &report["consistency"]),
        (&"replicate".into(), &"replicated".into())
    );
    let chunks: Vec<Value> = tables(&equal).iter().map(|table| table["chunks"].clone()).collect();
    assert_eq!(chunks, [json!(3), json!(1)], "the checksums are no table themselves");
    assert_eq!(compare(&["--nagios"]).status, Some(0));

    // What is planted is seen by the next sums, and their parts are named.
    await_arrival(primary, replica).unwrap();
    replica
        .sql("SET sql_log_bin = 0; USE shop; UPDATE orders SET name = 'other' WHERE id = 150")
        .unwrap();
    assert_eq!(compare(&[]).status, Some(0), "what was summed before is not what is there now");
    assert_eq!(checksum(&["--yes", "--chunk-rows", "100"]).status, Some(0));
    let different = compare(&["--json"]);
    assert_eq!(different.status, Some(1), "{different:?}");
    let found = tables(&different);
    assert_eq!(
        (&found[0]["verdict"], &found[1]["verdict"]),
        (&"different".into(), &"equal".into())
    );
    let parts = found[0]["parts_different"].as_array().unwrap();
    assert_eq!(parts.len(), 1, "{found:?}");
    assert_eq!(
        (&parts[0]["part"], &parts[0]["rows_source"], &parts[0]["rows_target"]),
        (&json!(1), &json!(100), &json!(100))
    );
    assert_eq!(compare(&["--nagios"]).status, Some(2));
    let text = compare(&[]);
    assert!(text.stdout.contains(parts[0]["rows_of"].as_str().unwrap()), "{text:?}");
    // The rows themselves are named by the other way to compare.
    let named = run(plain().args(["compare", &source, &target, "--settle", "50ms", "--json"]));
    assert_eq!((named.status, tables(&named).len()), (Some(1), 2), "{named:?}");
    assert_eq!(tables(&named)[0]["differences"][0]["key"], json!({"id": 150}));

    // Sums that have not come are no verdict, and are waited for.
    replica.sql("STOP SLAVE SQL_THREAD").unwrap();
    assert_eq!(checksum(&["--yes", "--table", "words"]).status, Some(0));
    let late = compare(&["--table", "words", "--patience", "500ms", "--json"]);
    assert_eq!((late.status, &json(&late)["verdict"]), (Some(2), &"incomplete".into()), "{late:?}");
    replica.sql("START SLAVE SQL_THREAD").unwrap();
    let arrived = compare(&["--table", "words"]);
    assert_eq!(arrived.status, Some(0), "{arrived:?}");
}
