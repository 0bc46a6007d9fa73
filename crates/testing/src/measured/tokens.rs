//! Rust source as names and symbols. Comments, literals and lifetimes are left out, because they contain no calls.

/// A name, keyword or symbol, and its line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceToken {
    pub kind: TokenKind,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Keywords too; a raw name without its `r#`.
    Name(String),
    Sign(char),
    /// A number, character or string.
    Literal,
}

impl SourceToken {
    pub fn is(&self, sign: char) -> bool {
        self.kind == TokenKind::Sign(sign)
    }

    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Name(name) => Some(name),
            TokenKind::Sign(_) | TokenKind::Literal => None,
        }
    }
}

pub fn tokens(text: &str) -> Vec<SourceToken> {
    let mut rest = text;
    let mut line = 1;
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (kind, length) = next(rest, first);
        let (read, after) = rest.split_at(length);
        if let Some(kind) = kind {
            found.push(SourceToken { kind, line });
        }
        line += read.matches('\n').count();
        rest = after;
    }
    found
}

/// The token at the start of `rest`, if there is one, and its length in bytes, which is never 0.
fn next(rest: &str, first: char) -> (Option<TokenKind>, usize) {
    let literal = |length| (Some(TokenKind::Literal), length);
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, block_comment(rest));
    }
    if first == '\'' {
        return match character(rest) {
            Some(length) => literal(length),
            None => (None, 1 + name_length(rest.get(1..).unwrap_or_default())),
        };
    }
    if let Some(length) = string(rest) {
        return literal(length);
    }
    if first.is_ascii_digit() {
        return literal(name_length(rest));
    }
    if let Some(raw) = rest.strip_prefix("r#") {
        let length = name_length(raw);
        return (name(raw, length), 2 + length);
    }
    match name_length(rest) {
        0 if first.is_whitespace() => (None, first.len_utf8()),
        0 => (Some(TokenKind::Sign(first)), first.len_utf8()),
        length => (name(rest, length), length),
    }
}

fn name(text: &str, length: usize) -> Option<TokenKind> {
    Some(TokenKind::Name(text.get(..length)?.to_owned()))
}

fn name_length(text: &str) -> usize {
    let is_of_a_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.find(|letter| !is_of_a_name(letter))
        .unwrap_or(text.len())
}

/// The length of the comment, including nested ones.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of `'a'` or `'\n'`; none for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    match letters.next()? {
        (_, '\\') => {
            letters.next()?;
        }
        (_, '\'') => return None,
        (_, _) => {
            let (at, end) = letters.next()?;
            return (end == '\'').then_some(at + 1);
        }
    }
    let end = letters.find(|(_, letter)| *letter == '\'')?;
    Some(end.0 + 1)
}

/// The length of a string of any kind: `"a"`, `b"a"`, `c"a"`, `r#"a"#`, `br"a"`, and of a byte `b'a'`.
fn string(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - body.len();
    if prefix > 1 {
        return None;
    }
    if prefix == 1 && text.starts_with("b'") {
        return Some(1 + character(body)?);
    }
    if let Some(raw) = body.strip_prefix('r') {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        let inner = raw.get(marks..)?.strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(marks));
        let length = inner.find(&end).map_or(inner.len(), |at| at + end.len());
        return Some(text.len() - inner.len() + length);
    }
    let inner = body.strip_prefix('"')?;
    let mut letters = inner.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => return Some(text.len() - inner.len() + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}
