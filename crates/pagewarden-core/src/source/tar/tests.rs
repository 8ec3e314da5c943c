//! Archives as honest and as hostile writers make them.

use proptest::prelude::*;

use super::*;

/// A header with its checksum, changed by `change` before that is made.
fn header(name: &str, kind: u8, bytes: u64, change: impl FnOnce(&mut [u8; BLOCK])) -> Vec<u8> {
    let mut header = [0_u8; BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[SIZE].copy_from_slice(format!("{bytes:011o} ").as_bytes());
    header[TYPE] = kind;
    header[MAGIC].copy_from_slice(b"ustar\x0000");
    change(&mut header);
    header[SUM].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.to_vec()
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    record(name, b'0', data)
}

fn record(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, data.len() as u64, |_| {});
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn pax(key: &str, value: &str) -> Vec<u8> {
    let body = format!(" {key}={value}\n");
    let mut length = body.len() + 1;
    while length != body.len() + length.to_string().len() {
        length = body.len() + length.to_string().len();
    }
    record("pax", b'x', format!("{length}{body}").as_bytes())
}

const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), END.to_vec()].concat()
}

type Members = Vec<(Member, Vec<u8>)>;

/// Members with their data, and the word at the end.
fn read(bytes: &[u8]) -> (Members, Result<Trailing, String>) {
    let mut archive = Archive::new(bytes);
    let mut members = Vec::new();
    loop {
        match archive.next_member() {
            Ok(Some(member)) => {
                let mut data = vec![0; usize::try_from(member.bytes.min(1 << 20)).unwrap()];
                match archive.read_data(&mut data) {
                    Ok(count) => data.truncate(count),
                    Err(error) => return (members, Err(error.to_string())),
                }
                members.push((member, data));
            }
            Ok(None) => {
                return (members, archive.finish().map_err(|error| error.to_string()));
            }
            Err(error) => return (members, Err(error.to_string())),
        }
    }
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).1.expect_err("this archive is refused")
}

#[test]
fn members_come_with_their_data() {
    let long = format!("base/{}", "x".repeat(150));
    let bytes = archive(&[
        file("./PG_VERSION", b"15\n"),
        header("base/", b'5', 0, |_| {}),
        header("pg_tblspc/1", b'2', 7, |header| header[LINK.start] = b't'),
        pax("path", &long),
        file("short", &[7; 700]),
        record("././@LongLink", b'L', format!("{long}2\0").as_bytes()),
        file("short", b""),
        header("5/1", b'0', 0, |header| header[PREFIX.start..][..4].copy_from_slice(b"base")),
    ]);
    let (members, end) = read(&bytes);
    assert_eq!(end, Ok(Trailing::Nothing));
    let names: Vec<_> = members.iter().map(|(member, _)| member.name.as_str()).collect();
    let long2 = format!("{long}2");
    assert_eq!(names, ["PG_VERSION", "base", "pg_tblspc/1", &long, &long2, "base/5/1"]);
    assert_eq!(members[0].1, b"15\n");
    assert_eq!(members[3].1, [7; 700]);
    assert_eq!(members[2].0.kind, MemberKind::SymbolicLink);
    assert_eq!((members[2].0.link.as_deref(), members[2].0.bytes), (Some("t"), 0));
    assert!(members.iter().all(|(member, _)| member.objection.is_none()));
}

/// Found by the fuzzer: what is left of it without its beginning was absolute.
#[test]
fn name_that_begins_here_never_becomes_absolute() {
    for (name, shown) in [("./base/5", "base/5"), (".//etc/x", "etc/x"), (".////x", "x")] {
        let (members, _) = read(&archive(&[file(name, b"")]));
        assert_eq!(members[0].0.name, shown);
    }
}

#[test]
fn data_that_is_not_read_is_passed_over() {
    let bytes = archive(&[file("a", &[1; 40_000]), file("b", b"2")]);
    let mut archive = Archive::new(bytes.as_slice());
    assert_eq!(archive.next_member().unwrap().unwrap().name, "a");
    assert_eq!(archive.next_member().unwrap().unwrap().name, "b");
    assert_eq!(archive.next_member().unwrap(), None);
    assert_eq!(archive.next_member().unwrap(), None);
}

#[test]
fn names_that_lead_out_are_objected_to() {
    for name in ["/etc/passwd", "../x", "base/../../x", "base/.."] {
        let (members, _) = read(&archive(&[file(name, b"")]));
        assert!(members[0].0.objection.is_some(), "{name}");
    }
    for (key, value) in [("path", "/x"), ("path", "a\0b"), ("path", "")] {
        let (members, _) = read(&archive(&[pax(key, value), file("a", b"")]));
        assert!(members[0].0.objection.is_some(), "{value}");
    }
    let (members, _) = read(&archive(&[file("base/..x", b""), file("a..b", b"")]));
    assert!(members.iter().all(|(member, _)| member.objection.is_none()));
}

#[test]
fn what_needs_trust_is_refused_in_clear_words() {
    let cases: [(Vec<u8>, &str); 9] = [
        (header("a", b'S', 0, |_| {}), "sparse"),
        ([pax("GNU.sparse.major", "1"), file("a", b"")].concat(), "sparse"),
        (header("a", b'M', 0, |_| {}), "volumes"),
        ([pax("size", "1024"), file("a", b"x")].concat(), "two sizes"),
        (header("a", b'x', 1 << 30, |_| {}), "record of 1073741824 bytes"),
        (header("a", b'L', 1 << 30, |_| {}), "record of 1073741824 bytes"),
        (header("a", b'0', 0, |header| header[SIZE].fill(0xFF)), "no possible number"),
        (header("a", b'0', 0, |header| header[SIZE][..3].copy_from_slice(b"9-1")), "no possible"),
        ((0..20).flat_map(|_| pax("comment", "x")).collect(), "too many records before one member"),
    ];
    for (bytes, word) in cases {
        let text = refusal(&bytes);
        assert!(text.contains(word), "{text}");
    }
    let global = record("a", b'g', b"11 path=a/\n");
    assert!(refusal(&global).contains("for all members"));
}

#[test]
fn binary_sizes_are_read() {
    let big = header("a", b'0', 0, |header| {
        header[SIZE].fill(0);
        header[SIZE.start] = 0x80;
        header[SIZE.end - 6] = 1;
    });
    let mut archive = Archive::new(big.as_slice());
    assert_eq!(archive.next_member().unwrap().unwrap().bytes, 1 << 40);
}

#[test]
fn archive_that_is_cut_off_says_so_wherever_it_is_cut() {
    let whole = archive(&[file("a", &[1; 700]), pax("path", "b"), file("x", b"2")]);
    let marked = whole.len() - 2 * BLOCK;
    for length in 0..marked {
        let text = refusal(&whole[..length]);
        assert!(text.contains("cut off"), "{length}: {text}");
    }
    // One block of zeroes will do.
    for length in [marked + BLOCK, marked + BLOCK + 7, whole.len()] {
        assert_eq!(read(&whole[..length]).1, Ok(Trailing::Nothing), "{length}");
    }
}

#[test]
fn what_follows_the_end_is_told() {
    let mut bytes = archive(&[file("a", b"1")]);
    bytes.extend([0; 9000]);
    assert_eq!(read(&bytes).1, Ok(Trailing::Nothing));
    bytes.extend(b"more");
    assert_eq!(read(&bytes).1, Ok(Trailing::Data));
    let lone = [file("a", b""), vec![0; BLOCK], file("b", b""), END.to_vec()].concat();
    assert!(refusal(&lone).contains("half an end mark"));
}

#[test]
fn damaged_header_is_seen() {
    let sound = archive(&[file("base/5/1259", &[1; 100]), file("b", b"")]);
    assert!(looks_like_tar(&sound));
    for at in 0..BLOCK {
        for bit in 0..8 {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << bit;
            assert!(!looks_like_tar(&bytes) || SUM.contains(&at), "byte {at} bit {bit}");
        }
    }
}

proptest! {
    /// Whatever the bytes are: it ends, and no member has more data than there is.
    #[test]
    fn noise_is_read_to_an_end(
        mut bytes in prop::collection::vec(any::<u8>(), 0..4096),
        kinds in prop::collection::vec(prop::sample::select(b"0125xgLKSM7\0".to_vec()), 0..6),
    ) {
        for (index, kind) in kinds.iter().enumerate() {
            if let Some(block) = bytes.get_mut(index * 2 * BLOCK..).and_then(|b| b.get_mut(..BLOCK)) {
                block[SIZE].copy_from_slice(format!("{:011o} ", index * 300).as_bytes());
                block[TYPE] = *kind;
                block[SUM].fill(b' ');
                let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
                block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        let (members, _) = read(&bytes);
        let data: usize = members.iter().map(|(_, data)| data.len()).sum();
        prop_assert!(data <= bytes.len());
    }
}
