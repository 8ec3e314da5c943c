//! What SQL Server says after `BACKUP ... TO DISK = 'NUL:'`, in any language.
//!
//! ```text
//! Processed 33976 pages for database 'Shop', file 'Shop' on file 1.
//! BACKUP DATABASE successfully processed 33977 pages in 1.872 seconds (141.796 MB/sec).
//!                                        pages           seconds      rate
//! ```
//!
//! Words are translated, put into another order, and sometimes cut off; numbers
//! are not. So a last line is one with three numbers of which the third is what the
//! first two make, at 8 KiB a page; that also tells whether its megabyte has 10^6
//! bytes (SQL Server 2000 and 2005) or 2^20 (later ones), which print the same
//! letters. A line of a file has names in quotes and the pages of that file.
//!
//! In the ERRORLOG the time and the source stand before the words; in the history of SQL Agent all
//! messages of a step are one line, each with `[SQLSTATE 01000] (Message 4035)` behind it.

use serde::Serialize;

/// A page of SQL Server.
const PAGE_BYTES: f64 = 8192.0;
/// Beyond what rounding explains.
const TOLERANCE: f64 = 0.003;

/// How many bytes the message's megabyte has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Megabyte {
    /// 10^6.
    Decimal,
    /// 2^20.
    Binary,
    /// The line's figures do not fit together, or are too rough to tell.
    Unknown,
}

/// One backup.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Backup {
    /// `BACKUP DATABASE`, `RESTORE LOG` ..., which no language translates; empty
    /// where it is missing.
    pub statement: String,
    /// Pages of 8 KiB.
    pub pages: u64,
    /// How long it took.
    pub seconds: f64,
    /// The rate as it is printed.
    pub printed_rate: f64,
    /// Pages, seconds and rate fit together.
    pub is_consistent: bool,
    /// In which megabytes.
    pub megabyte: Megabyte,
    /// The rate that follows from pages and seconds.
    pub mib_per_second: f64,
    /// The same in decimal megabytes.
    pub mb_per_second: f64,
    /// The pages of each file, in order.
    pub files: Vec<u64>,
    /// Whether they add up to all pages; `None` without any.
    pub adds_up: Option<bool>,
}

/// Reads all backups that a text reports.
#[must_use]
pub fn parse(text: &str) -> Vec<Backup> {
    let mut backups = Vec::new();
    let mut files: Vec<Vec<u64>> = Vec::new();
    for line in text.lines().flat_map(messages_of) {
        if let Some(mut backup) = last_line(line) {
            (backup.files, backup.adds_up) = pages_of_files(&files, backup.pages);
            files.clear();
            backups.push(backup);
        } else if let Some(numbers) = line_of_file(line) {
            files.push(numbers);
        }
    }
    backups
}

/// The messages in a line.
fn messages_of(line: &str) -> impl Iterator<Item = &str> {
    let behind = |number: usize, piece| if number == 0 { piece } else { behind_state(piece) };
    line.split("[SQLSTATE").enumerate().map(move |(number, piece)| behind(number, piece))
}

/// What stands behind ` 01000] (Message 4035)`, of which a translation has other words.
fn behind_state(piece: &str) -> &str {
    let rest = piece.split_once(']').map_or("", |(_, rest)| rest).trim_start();
    match rest.strip_prefix('(').and_then(|inside| inside.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    }
}

/// A number in a line, in every way it may be read.
#[derive(Debug, Clone, PartialEq)]
struct Number {
    readings: Vec<Reading>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    value: f64,
    /// Half of its last digit: what rounding may have taken or given.
    rounding: f64,
}

/// The last line of a backup.
fn last_line(line: &str) -> Option<Backup> {
    let (statement, from_there) = statement(line);
    // Before it there may be a time.
    let mut found = numbers(&without_asides(from_there));
    if found.len() != 3 {
        found = numbers(&without_asides(line));
    }
    let [pages, seconds, rate] = found.as_slice() else { return None };
    // Some languages have the seconds first.
    let fitting = fitting(pages, seconds, rate).or_else(|| fitting(seconds, pages, rate));
    let is_consistent = fitting.is_some();
    let (pages, seconds, printed_rate, megabyte) = match fitting {
        Some(found) => found,
        // Said by a server, so it counts, whatever its figures; else it may be
        // any line with three numbers.
        None if !statement.is_empty() => {
            let whole = pages.readings.first()?.value;
            let fraction = |number: &Number| number.readings.last().map(|reading| reading.value);
            (whole, fraction(seconds)?, fraction(rate)?, Megabyte::Unknown)
        }
        None => return None,
    };
    let bytes_per_second = if seconds > 0.0 { pages * PAGE_BYTES / seconds } else { 0.0 };
    Some(Backup {
        statement,
        pages: whole(pages)?,
        seconds,
        printed_rate,
        is_consistent,
        megabyte,
        mib_per_second: bytes_per_second / f64::from(1 << 20),
        mb_per_second: bytes_per_second / 1e6,
        files: Vec::new(),
        adds_up: None,
    })
}

/// The readings of three numbers that fit together.
fn fitting(pages: &Number, seconds: &Number, rate: &Number) -> Option<(f64, f64, f64, Megabyte)> {
    let mut best: Option<(f64, (f64, f64, f64, Megabyte))> = None;
    for pages in &pages.readings {
        for seconds in seconds.readings.iter().filter(|seconds| seconds.value > 0.0) {
            for rate in rate.readings.iter().filter(|rate| rate.value > 0.0) {
                for (megabyte, bytes) in [(Megabyte::Binary, 1_048_576.0), (Megabyte::Decimal, 1e6)]
                {
                    let expected = pages.value * PAGE_BYTES / seconds.value / bytes;
                    let error = (rate.value / expected - 1.0).abs();
                    // Of 0.037 seconds the last digit is worth more than a percent.
                    let rounding = seconds.rounding / seconds.value + rate.rounding / rate.value;
                    let is_whole = pages.value.fract() == 0.0;
                    if is_whole && error <= rounding + TOLERANCE {
                        let found = (pages.value, seconds.value, rate.value, megabyte);
                        if best.is_none_or(|(least, _)| error < least) {
                            best = Some((error, found));
                        }
                        // Decimal and binary are 4.9 % apart; coarser than half
                        // of that, neither is known.
                        if rounding > 0.024 {
                            best = Some((error, (found.0, found.1, found.2, Megabyte::Unknown)));
                        }
                    }
                }
            }
        }
    }
    best.map(|(_, found)| found)
}

/// The words that are the same in all languages, and the line from there on; without any, all of it.
fn statement(line: &str) -> (String, &str) {
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric();
    let places = ["BACKUP", "RESTORE"].into_iter().flat_map(|word| {
        line.match_indices(word).filter(move |(at, word)| {
            let before = line.get(..*at).and_then(|before| before.chars().next_back());
            let after = line.get(at.saturating_add(word.len())..);
            let after = after.and_then(|after| after.chars().next());
            !before.is_some_and(is_of_a_word) && !after.is_some_and(is_of_a_word)
        })
    });
    let Some((at, word)) = places.min_by_key(|(at, _)| *at) else { return (String::new(), line) };
    let rest = line.get(at..).unwrap_or(line);
    let mut tokens = rest.split(|c: char| !is_of_a_word(c)).filter(|word| !word.is_empty());
    let statement = match tokens.nth(1) {
        Some(object @ ("DATABASE" | "LOG")) => format!("{word} {object}"),
        _ => word.to_owned(),
    };
    (statement, rest)
}

/// The numbers of a line that tells the pages of one file: it names the database
/// and the file in quotes.
fn line_of_file(line: &str) -> Option<Vec<u64>> {
    let (rest, quoted) = without_quoted(line);
    if quoted < 2 {
        return None;
    }
    let numbers: Vec<u64> = numbers(&without_brackets(&rest))
        .iter()
        .filter_map(|number| number.readings.first().and_then(|reading| whole(reading.value)))
        .collect();
    (!numbers.is_empty() && numbers.len() <= 2).then_some(numbers)
}

/// Which of two numbers are the pages depends on the language: the one with which
/// they add up, else the first.
fn pages_of_files(files: &[Vec<u64>], total: u64) -> (Vec<u64>, Option<bool>) {
    if files.is_empty() {
        return (Vec::new(), None);
    }
    let pick = |last: bool| -> Vec<u64> {
        let one = |numbers: &Vec<u64>| if last { numbers.last() } else { numbers.first() }.copied();
        files.iter().filter_map(one).collect()
    };
    let adds_up = |pages: &[u64]| {
        pages.iter().try_fold(0_u64, |sum, pages| sum.checked_add(*pages)) == Some(total)
    };
    for last in [false, true] {
        let pages = pick(last);
        if adds_up(&pages) {
            return (pages, Some(true));
        }
    }
    (pick(false), Some(false))
}

/// A line without what is quoted in it, and how many quotations it had.
fn without_quoted(line: &str) -> (String, usize) {
    let mut rest = String::new();
    let mut quoted = 0;
    let mut closing = None;
    for c in line.chars() {
        match closing {
            Some(end) if c == end => {
                closing = None;
                quoted += 1;
                rest.push(' ');
            }
            Some(_) => {}
            None => match closing_quote(c) {
                Some(end) => closing = Some(end),
                None => rest.push(c),
            },
        }
    }
    (rest, quoted)
}

fn closing_quote(c: char) -> Option<char> {
    match c {
        '\'' | '"' => Some(c),
        '\u{2018}' => Some('\u{2019}'),
        '\u{201c}' => Some('\u{201d}'),
        '\u{201e}' => Some('\u{201c}'),
        '\u{ab}' => Some('\u{bb}'),
        _ => None,
    }
}

/// `[SQLSTATE 01000]`, as a job's history adds it.
fn without_brackets(line: &str) -> String {
    let mut rest = String::new();
    let mut depth = 0_usize;
    for c in line.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => rest.push(c),
            _ => {}
        }
    }
    rest
}

fn without_asides(line: &str) -> String {
    without_brackets(&without_quoted(line).0)
}

/// The numbers of a line: digits, and separators between digits.
fn numbers(line: &str) -> Vec<Number> {
    let chars: Vec<char> = line.chars().collect();
    let mut found = Vec::new();
    let mut text = String::new();
    for (at, c) in chars.iter().enumerate() {
        let is_between = is_separator(*c)
            && text.ends_with(|c: char| c.is_ascii_digit())
            && chars.get(at + 1).is_some_and(char::is_ascii_digit);
        if c.is_ascii_digit() {
            text.push(*c);
        } else if is_between {
            text.push(if *c == ',' {
                ','
            } else if *c == '.' {
                '.'
            } else {
                ' '
            });
        } else if !text.is_empty() {
            found.extend(number(&std::mem::take(&mut text)));
        }
    }
    found.extend(number(&text));
    found
}

/// What stands between groups of digits, or before a fraction.
fn is_separator(c: char) -> bool {
    matches!(c, '.' | ',' | '\u{a0}' | '\u{202f}')
}

/// A number in every way it may be read: whole, or with a fraction behind its last
/// separator.
fn number(text: &str) -> Option<Number> {
    let mut readings = Vec::new();
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let whole: f64 = digits(text).parse().ok()?;
    readings.push(Reading { value: whole, rounding: 0.5 });
    if let Some((before, after)) = text.rsplit_once([',', '.']) {
        let value: f64 = format!("{}.{after}", digits(before)).parse().ok()?;
        let places = i32::try_from(after.len()).unwrap_or(i32::MAX);
        readings.push(Reading { value, rounding: 0.5 * 10_f64.powi(-places) });
    }
    Some(Number { readings })
}

/// A count, if it is one.
fn whole(value: f64) -> Option<u64> {
    // Up to 2^53 a double counts exactly.
    let is_count = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    is_count.then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Backup {
        let backups = parse(text);
        assert_eq!(backups.len(), 1, "{text}: {backups:?}");
        backups.into_iter().next().unwrap()
    }

    /// Messages of real servers, published by their users: text, pages, seconds,
    /// and the rate that the server printed.
    const MESSAGES: &[(&str, u64, f64, f64, Megabyte)] = &[
        (
            "BACKUP DATABASE successfully processed 51650 pages in 3.588 seconds (112.461 MB/sec).",
            51_650,
            3.588,
            112.461,
            Megabyte::Binary,
        ),
        (
            "--BACKUP DATABASE successfully processed 585 pages in 0.037 seconds (123.350 MB/sec).",
            585,
            0.037,
            123.350,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE successfully processed 24330 pages in 4.103 seconds (46.326 MB/sec).",
            24_330,
            4.103,
            46.326,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE successfully processed 24530 pages in 0.451 seconds (424.922 MB/sec).",
            24_530,
            0.451,
            424.922,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE \u{6210}\u{529f}\u{5904}\u{7406}\u{4e86} 378 \u{9875}\u{ff0c}\
             \u{82b1}\u{8d39} 1.223 \u{79d2}(2.531 MB/\u{79d2})\u{3002}",
            378,
            1.223,
            2.531,
            Megabyte::Decimal,
        ),
        (
            "RESTORE DATABASE \u{6210}\u{529f}\u{5904}\u{7406}\u{4e86} 177 \u{9875}\u{ff0c}\
             \u{82b1}\u{8d39} 0.716 \u{79d2}(2.025 MB/\u{79d2})\u{3002}",
            177,
            0.716,
            2.025,
            Megabyte::Decimal,
        ),
        (
            "BACKUP DATABASE proces\u{f3} correctamente 25377 p\u{e1}ginas en 8.441 segundos \
             (23.486 MB/s).",
            25_377,
            8.441,
            23.486,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE \u{443}\u{441}\u{43f}\u{435}\u{448}\u{43d}\u{43e} 577 \
             \u{441}\u{442}\u{440}\u{430}\u{43d}\u{438}\u{446} \u{437}\u{430} 0.133 \
             \u{441}\u{435}\u{43a}\u{443}\u{43d}\u{434} (33.845 M\u{411}/\u{441}\u{435}\u{43a}). \
             [SQLSTATE 01000]",
            577,
            0.133,
            33.845,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE successfully processed 59099 pages in 25.056 seconds (18.427 MB/sec).",
            59_099,
            25.056,
            18.427,
            Megabyte::Binary,
        ),
        (
            "BACKUP DATABASE successfully processed 151138 pages in 2.558 seconds (461.595 MB/sec).",
            151_138,
            2.558,
            461.595,
            Megabyte::Binary,
        ),
    ];

    #[test]
    fn messages_of_real_servers_are_read_to_the_rate_they_print() {
        for (text, pages, seconds, rate, megabyte) in MESSAGES {
            let backup = one(text);
            assert_eq!(backup.pages, *pages, "{text}");
            assert!((backup.seconds - seconds).abs() < 1e-9, "{text}");
            assert!((backup.printed_rate - rate).abs() < 1e-9, "{text}");
            assert_eq!(backup.megabyte, *megabyte, "{text}: {backup:?}");
            let ours = match megabyte {
                Megabyte::Decimal => backup.mb_per_second,
                _ => backup.mib_per_second,
            };
            // The seconds of the shortest have two digits.
            assert!((ours / rate - 1.0).abs() < 0.004, "{text}: {ours}");
        }
    }

    #[test]
    fn figures_with_separators_are_read_as_they_fit() {
        let text = "Processed 302,810,923 pages in 6,010.4 seconds (393.6 MiB/s).";
        let backup = one(text);
        assert_eq!(backup.pages, 302_810_923);
        assert!((backup.seconds - 6010.4).abs() < 1e-9);
        assert_eq!(backup.megabyte, Megabyte::Binary);
        assert!((backup.mb_per_second - 412.7).abs() < 0.1, "as the server of 2005 would print it");
        let german = "BACKUP DATABASE hat erfolgreich 25.377 Seiten in 8,441 Sekunden \
                      verarbeitet (23,486 MB/s).";
        assert_eq!(one(german).pages, 25_377);
        assert_eq!(one(german).megabyte, Megabyte::Binary);
    }

    #[test]
    fn a_unit_that_was_cut_off_does_no_harm() {
        let backup = one("BACKUP DATABASE \u{306b}\u{3088}\u{308a} 10660815 \u{30da}\u{30fc}\
                          \u{30b8}\u{304c} 1000.000 \u{79d2}\u{9593}\u{3067} (87.333 MB/ ).");
        assert_eq!(backup.pages, 10_660_815);
        assert_eq!(backup.megabyte, Megabyte::Decimal);
        assert!((backup.mb_per_second - 87.333).abs() < 0.001);
    }

    #[test]
    fn files_belong_to_the_backup_that_follows_and_add_up() {
        let text = "10 percent processed.\n\
            Processed 584 pages for database 'shop 7', file 'shop' on file 3.\n\
            Processed 1 pages for database 'shop 7', file 'shop_log' on file 3.\n\
            BACKUP DATABASE successfully processed 585 pages in 0.037 seconds (123.350 MB/sec).\n\
            Completion time: 2025-10-25T13:47:31.4398302+02:00\n\
            Processed 10 pages for database 'b', file 'b' on file 1.\n\
            BACKUP DATABASE successfully processed 585 pages in 0.037 seconds (123.350 MB/sec).\n";
        let backups = parse(text);
        assert_eq!(backups.len(), 2);
        assert_eq!(backups[0].files, [584, 1]);
        assert_eq!(backups[0].adds_up, Some(true));
        assert_eq!(backups[1].files, [10]);
        assert_eq!(backups[1].adds_up, Some(false));
    }

    #[test]
    fn pages_may_stand_behind_the_number_of_the_backup() {
        let text = "\u{5df2}\u{4e3a}\u{6570}\u{636e}\u{5e93} 'master'\u{ff0c}\u{6587}\u{4ef6} \
            'master' (\u{4f4d}\u{4e8e}\u{6587}\u{4ef6} 1 \u{4e0a})\u{5904}\u{7406}\u{4e86} 376 \u{9875}\u{3002}\n\
            \u{5df2}\u{4e3a}\u{6570}\u{636e}\u{5e93} 'master'\u{ff0c}\u{6587}\u{4ef6} \
            'mastlog' (\u{4f4d}\u{4e8e}\u{6587}\u{4ef6} 1 \u{4e0a})\u{5904}\u{7406}\u{4e86} 2 \u{9875}\u{3002}\n\
            BACKUP DATABASE 378 \u{9875}, 1.223 \u{79d2}(2.531 MB/\u{79d2})\n";
        let backup = one(text);
        assert_eq!(backup.files, [376, 2]);
        assert_eq!(backup.adds_up, Some(true));
    }

    #[test]
    fn lines_of_the_errorlog_and_of_a_jobs_history_are_read() {
        let text = "2026-11-23 09:00:01.12 Backup      BACKUP DATABASE successfully processed 585 \
                    pages in 0.037 seconds (123.350 MB/sec).\n\
                    2026-11-23 09:00:02 spid51      BACKUP LOG successfully processed 51650 pages in \
                    3.588 seconds (112.461 MB/sec).\n\
                    2026-11-23 09:00:03.10 Backup      Database backed up. Database: Shop, creation \
                    date(time): 2020/01/02(10:11:12), pages dumped: 585, first LSN: 39:45:37, last \
                    LSN: 39:61:1, number of dump devices: 1.";
        let backups = parse(text);
        let pages: Vec<_> = backups.iter().map(|it| (&*it.statement, it.pages)).collect();
        assert_eq!(pages, [("BACKUP DATABASE", 585), ("BACKUP LOG", 51_650)]);
        assert!(backups.iter().all(|it| it.megabyte == Megabyte::Binary && it.is_consistent));
        let history = "Executed as user: NT SERVICE\\SQLSERVERAGENT. Processed 584 pages for database \
                       'shop', file 'shop' on file 1. [SQLSTATE 01000] (Message 4035)  Processed 1 \
                       pages for database 'shop', file 'shop_log' on file 1. [SQLSTATE 01000] \
                       (Message 4035)  BACKUP DATABASE successfully processed 585 pages in 0.037 \
                       seconds (123.350 MB/sec). [SQLSTATE 01000] (Message 3014).  The step succeeded.";
        let backup = one(history);
        assert_eq!((backup.pages, backup.megabyte), (585, Megabyte::Binary));
        assert_eq!((&*backup.files, backup.adds_up), (&[584, 1][..], Some(true)));
    }

    #[test]
    fn seconds_may_stand_before_the_pages() {
        let text =
            "BACKUP DATABASE, 118,748 saniyede 8123 sayfay\u{131} (0,534 MB/sn) i\u{15f}ledi.";
        let backup = one(text);
        assert_eq!((backup.pages, backup.seconds), (8123, 118.748));
        assert_eq!(backup.megabyte, Megabyte::Binary);
    }

    /// Cut, mixed and repeated pieces of messages: whatever comes out, nothing stops.
    #[test]
    fn no_text_stops_it() {
        let pieces = [
            "BACKUP",
            " DATABASE ",
            "RESTORE LOG",
            "'",
            "\"",
            "\u{ab}",
            "\u{2018}",
            "[",
            "]",
            "(",
            ")",
            "0",
            "9",
            "1.223",
            "378",
            ",",
            ".",
            "\u{a0}",
            "-",
            "MB/\u{79d2}",
            "99999999999999999999",
            "0.000",
            "1e400",
            "\n",
            " ",
            "\u{0}",
            "file",
            "pages",
        ];
        let mut random = crate::stats::random::Random::new(5);
        for _ in 0..20_000 {
            let count = random.below(30);
            let text: String = (0..count)
                .filter_map(|_| pieces.get(random.below(pieces.len())).copied())
                .collect();
            for backup in parse(&text) {
                assert!(backup.mib_per_second.is_finite() && backup.seconds >= 0.0, "{text:?}");
            }
        }
        assert!(parse(&"9".repeat(100_000)).is_empty());
    }

    #[test]
    fn figures_that_contradict_each_other_are_told_and_other_lines_are_not_taken() {
        let backup =
            one("BACKUP LOG successfully processed 100 pages in 9.000 seconds (500.000 MB/sec).");
        assert_eq!(backup.megabyte, Megabyte::Unknown);
        assert!(!backup.is_consistent);
        assert_eq!(backup.statement, "BACKUP LOG");
        for text in
            ["", "1 2 3", "18 percent processed.", "BACKUP DATABASE is terminating", "\u{0}"]
        {
            assert!(parse(text).is_empty(), "{text}");
        }
    }
}
