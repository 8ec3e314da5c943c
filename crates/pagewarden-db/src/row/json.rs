//! JSON in one form: no white space, the keys of objects in the order of their
//! bytes, numbers as [`super::number`] has them, text without needless escapes.
//!
//! A key that stands twice stays twice: which of the two counts is a matter of the
//! engine, and losing one is a difference.

use super::number::Decimal;

/// Deeper JSON is compared as the text that it is.
const DEPTH_MAX: usize = 128;

/// The canonical form of JSON; none of what is no JSON.
pub fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    // Numbers must come through to the last digit, which a general reader's do not.
    let text = std::str::from_utf8(text).ok()?;
    let mut reader = Reader { rest: text };
    let mut out = Vec::with_capacity(text.len());
    reader.value(&mut out, 0)?;
    reader.space();
    reader.rest.is_empty().then_some(out)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, word: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.space();
        match self.rest.bytes().next()? {
            b'{' => self.object(out, depth),
            b'[' => self.array(out, depth),
            b'"' => {
                let text = self.string()?;
                out.extend_from_slice(&serde_json::to_vec(&text).ok()?);
                Some(())
            }
            b't' => self.word("true", out),
            b'f' => self.word("false", out),
            b'n' => self.word("null", out),
            _ => self.number(out),
        }
    }

    fn word(&mut self, word: &str, out: &mut Vec<u8>) -> Option<()> {
        self.take(word)?;
        out.extend_from_slice(word.as_bytes());
        Some(())
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at_checked(end)?;
        Decimal::parse(number.as_bytes())?.write(out);
        self.rest = rest;
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let (quoted, rest) = self.rest.split_at_checked(end + 1)?;
        self.rest = rest;
        serde_json::from_str(quoted).ok()
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.take("[")?;
        out.push(b'[');
        self.space();
        if self.take("]").is_some() {
            out.push(b']');
            return Some(());
        }
        loop {
            self.value(out, depth + 1)?;
            self.space();
            if self.take(",").is_some() {
                out.push(b',');
            } else {
                self.take("]")?;
                out.push(b']');
                return Some(());
            }
        }
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.take("{")?;
        let mut members: Vec<(String, Vec<u8>)> = Vec::new();
        self.space();
        let mut more = self.take("}").is_none();
        while more {
            self.space();
            let key = self.rest.starts_with('"').then(|| self.string())??;
            self.space();
            self.take(":")?;
            let mut value = Vec::new();
            self.value(&mut value, depth + 1)?;
            members.push((key, value));
            self.space();
            more = self.take(",").is_some();
            if !more {
                self.take("}")?;
            }
        }
        members.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
        out.push(b'{');
        for (index, (key, value)) in members.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&serde_json::to_vec(key).ok()?);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Option<String> {
        canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn spacing_order_and_spelling_do_not_matter() {
        let expected = r#"{"a":[1,5e-1,null],"b":{"c":"x\n","d":true}}"#;
        for text in [
            r#"{"a":[1,0.5,null],"b":{"c":"x\n","d":true}}"#,
            " { \"b\" : {\"d\":true, \"c\":\"x\\u000a\"} ,\n\"a\":[1.0, 5e-1,null]}",
        ] {
            assert_eq!(form(text).as_deref(), Some(expected));
        }
        assert_eq!(form("1e2"), form("100.0"));
        assert_eq!(form("\"\\u00e9\""), form("\"\u{e9}\""));
    }

    #[test]
    fn digits_and_doubled_keys_are_kept() {
        assert_ne!(form("0.1234567890123456789"), form("0.1234567890123456788"));
        assert_ne!(form(r#"{"a":1,"a":2}"#), form(r#"{"a":2}"#));
        assert_ne!(form("\"1\""), form("1"));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in
            ["", "{", "[1,]", "{\"a\"}", "nul", "1 2", "'a'", "\"\\x\"", "{a:1}", "[1 2]", "\"a"]
        {
            assert_eq!(form(text), None, "{text}");
        }
        assert_eq!(form(&"[".repeat(100_000)), None);
    }
}
