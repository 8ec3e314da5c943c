//! How far a server has come in the log of another.
//!
//! A position is `SYSTEM PLACE SLOT...`: the name of the system, the end of its log as a
//! number of bytes, and the slots by which others follow this database logically.
//!
//! A standby has the name of the system that it is a copy of, and says what it has replayed.
//! A subscriber is a system of its own: it follows if one of its subscriptions in the same
//! database reads from one of these slots. `latest_end_lsn` is up to where its worker has
//! answered the publisher, which it does between transactions, having applied all before;
//! `received_lsn` may be of what it has not applied yet. Neither needs rights.

use super::PostgresDialect;
use crate::engine::statement::Dialect as _;

/// Asks for the position.
///
/// Not `pg_current_wal_lsn`: with `synchronous_commit = off` rows are seen before their commit
/// is written. Where a record fills a page, the place of the next one is behind the head of the
/// next page, and no server that follows comes to that place: heads are of 24 bytes, or of 40
/// at the begin of a segment, and what begins before a page and ends within 40 bytes of it
/// began before the page all the same.
pub const POSITION: &str = "SELECT system_identifier || ' ' \
       || place - CASE WHEN place % page <= 40 THEN place % page ELSE 0 END \
       || coalesce((SELECT string_agg(' ' || slot_name, '') FROM pg_replication_slots \
            WHERE slot_type = 'logical' AND database = current_database()), '') \
     FROM pg_control_system(), \
       (SELECT current_setting('wal_block_size')::numeric AS page, \
          CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
          ELSE pg_current_wal_insert_lsn() END - '0/0'::pg_lsn AS place) AS log";

/// What to ask a server that may follow; the first question that is answered counts. None if
/// the position is not one that [`POSITION`] gives.
pub fn questions(position: &str) -> Option<[String; 2]> {
    let mut words = position.split(' ');
    let (system, place) = (words.next()?, words.next()?.parse::<u64>().ok()?);
    let text = |word: &str| PostgresDialect.text(word);
    let slots: Vec<String> = words.map(text).collect();
    // SQL has no empty list.
    let slots = if slots.is_empty() { "NULL".to_owned() } else { slots.join(", ") };
    Some([
        format!(
            "SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= {place} FROM pg_control_system() \
             WHERE pg_is_in_recovery() AND system_identifier::text = {}",
            text(system)
        ),
        // One that is stopped, or still copies a table, has not come there.
        format!(
            "SELECT bool_and(coalesce((SELECT max(latest_end_lsn) FROM pg_stat_subscription w \
                 WHERE w.subid = s.oid AND w.relid IS NULL) - '0/0'::pg_lsn >= {place}, false) \
               AND NOT EXISTS (SELECT FROM pg_subscription_rel \
                 WHERE srsubid = s.oid AND srsubstate <> 'r')) \
             FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid \
             WHERE d.datname = current_database() AND s.subslotname IN ({slots})"
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_others_are_not_asked_about() {
        let [standby, subscriber] = questions("7412 81920 one two").unwrap();
        assert!(standby.contains("= '7412'") && standby.contains(">= 81920"), "{standby}");
        assert!(subscriber.contains("IN ('one', 'two')"), "{subscriber}");
        assert!(questions("7412 81920").unwrap()[1].contains("IN (NULL)"));
        for other in ["", "0-1-5", "7412", "7412 0/14000", "x y'z"] {
            assert_eq!(questions(other), None, "{other}");
        }
    }
}
