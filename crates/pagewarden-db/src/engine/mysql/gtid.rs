//! Global transaction identifiers, which say how far a server has come in another's log.
//!
//! MariaDB's are `domain-server-sequence`, one a domain, separated by commas. Within a domain
//! the sequence only grows. MySQL's are sets of all transactions that a server has run.

/// Whether what was applied goes as far as a position; none if they have no domain in
/// common, so that one does not follow the other.
pub fn has_reached(applied: &str, position: &str) -> Option<bool> {
    let applied = parse(applied);
    let mut reached = None;
    for (domain, wanted) in parse(position) {
        let of_domain = applied.iter().filter(|(known, _)| *known == domain);
        if let Some(have) = of_domain.map(|(_, sequence)| *sequence).max() {
            reached = Some(reached.unwrap_or(true) && have >= wanted);
        }
    }
    reached
}

/// Asks a MySQL whether it has run all transactions of a set, which is written as a
/// statement writes it; NULL if it has run none, so that one does not follow the other.
pub fn of_mysql(set: &str) -> String {
    let mine = "@@GLOBAL.gtid_executed";
    let in_common = format!("GTID_SUBTRACT({set}, GTID_SUBTRACT({set}, {mine}))");
    format!("SELECT IF({in_common} = '', NULL, GTID_SUBSET({set}, {mine}))")
}

fn parse(text: &str) -> Vec<(u64, u64)> {
    let one = |gtid: &str| {
        let mut parts = gtid.trim().split('-');
        let (domain, _server, sequence) = (parts.next()?, parts.next()?, parts.next()?);
        Some((domain.parse().ok()?, sequence.parse().ok()?))
    };
    text.split(',').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_compared_domain_by_domain() {
        for (applied, position, reached) in [
            ("0-1-5", "0-1-5", Some(true)),
            ("0-1-4", "0-1-5", Some(false)),
            ("0-2-6", "0-1-5", Some(true)),
            ("0-1-9,1-1-3", "1-1-4,0-1-2", Some(false)),
            ("0-1-9,\n1-1-4", "1-1-4,0-1-2", Some(true)),
            ("2-1-9", "0-1-1", None),
            ("", "0-1-1", None),
        ] {
            assert_eq!(has_reached(applied, position), reached, "{applied} {position}");
        }
    }
}
