//! The words of a statement in the schema.
//!
//! SQLite keeps statements as they were written, so that any spelling may come. What is not
//! understood for sure is `None`, and nothing is concluded from it.

#![deny(clippy::arithmetic_side_effects)]

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A keyword, a name or a number without quotes.
    Word(String),
    /// A name in quotes or brackets.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Any other character.
    Sign(char),
}

impl Token {
    /// True for that keyword, which is in capital letters.
    #[must_use]
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// True for that character.
    #[must_use]
    pub fn is_sign(&self, sign: char) -> bool {
        *self == Self::Sign(sign)
    }

    /// The name that it is, in quotes or not.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Word(name) | Self::Name(name) | Self::Text(name) => Some(name),
            Self::Sign(_) => None,
        }
    }
}

/// Takes a statement apart; `None` if a quote or a comment does not end.
#[must_use]
pub fn tokens(sql: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = sql.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            space if space.is_ascii_whitespace() => {}
            '-' if rest.peek() == Some(&'-') => {
                rest.by_ref().find(|next| *next == '\n');
            }
            '/' if rest.peek() == Some(&'*') => {
                rest.next();
                let mut before = ' ';
                // SQLite takes a comment that does not end for one.
                for next in rest.by_ref() {
                    if before == '*' && next == '/' {
                        break;
                    }
                    before = next;
                }
            }
            '\'' => found.push(Token::Text(quoted(&mut rest, '\'')?)),
            '"' | '`' => found.push(Token::Name(quoted(&mut rest, first)?)),
            '[' => {
                let mut name = String::new();
                loop {
                    match rest.next()? {
                        ']' => break,
                        other => name.push(other),
                    }
                }
                found.push(Token::Name(name));
            }
            begin if is_word(begin) => {
                let mut word = String::from(begin);
                while let Some(next) = rest.next_if(|next| is_word(*next)) {
                    word.push(next);
                }
                found.push(Token::Word(word));
            }
            other => found.push(Token::Sign(other)),
        }
    }
    Some(found)
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii()
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char) -> Option<String> {
    let mut name = String::new();
    loop {
        let next = rest.next()?;
        if next == quote && rest.next_if_eq(&quote).is_none() {
            return Some(name);
        }
        name.push(next);
    }
}

/// Whether a `CREATE TABLE` says `WITHOUT ROWID`; `None` if that is not known.
#[must_use]
pub fn is_without_rowid(sql: &str) -> Option<bool> {
    let tokens = tokens(sql)?;
    let is_table = tokens.first()?.is("CREATE") && tokens.get(1)?.is("TABLE");
    let end = tokens.iter().rposition(|token| token.is_sign(')'))?;
    let options = tokens.get(end.saturating_add(1)..)?;
    is_table.then(|| options.iter().any(|token| token.is("WITHOUT")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_comments_are_taken_apart() {
        let sql = "CREATE TABLE \"a \"\"b\" ([x y], `z`, 'w''s' /* ) */, -- )\n n$1)";
        let names: Vec<_> = tokens(sql)
            .unwrap()
            .iter()
            .filter_map(|token| token.name().map(str::to_owned))
            .collect();
        assert_eq!(names, ["CREATE", "TABLE", "a \"b", "x y", "z", "w's", "n$1"]);
        assert_eq!(tokens("CREATE TABLE 'a"), None);
    }

    #[test]
    fn table_without_rowid_says_so_behind_its_columns() {
        assert_eq!(
            is_without_rowid("CREATE TABLE t(a PRIMARY KEY) STRICT, without  RowID"),
            Some(true)
        );
        assert_eq!(is_without_rowid("CREATE TABLE t(a DEFAULT 'WITHOUT ROWID')"), Some(false));
        assert_eq!(is_without_rowid("CREATE INDEX i ON t(a)"), None);
    }
}
