//! Strikes secrets out of a command line's words and of mount options.
//!
//! If it is ambiguous how far a secret reaches, more is struck out rather than less. It knows the names of secret
//! options, passwords in URLs and this program's join tokens; a secret without such a mark is not recognized.

use std::{collections::BTreeMap, ops::Range};

/// An option is secret if its name contains one of these.
const SECRET: [&str; 5] = ["token", "secret", "password", "passphrase", "passwd"];
pub(super) const STRUCK: &str = "***";
/// Prefix of join tokens.
const JOIN_TOKEN: &str = "bmjoin-";

/// Strikes secret values and the passwords of URLs out of one word of a command line or a list of mount options.
#[must_use]
pub fn without_secrets(word: &str) -> String {
    let mut secrets = passwords_of_urls(word);
    secrets.extend(values(word));
    secrets.extend(arguments(word));
    secrets.extend(join_tokens(word));
    secrets.retain(|secret| !secret.is_empty());
    secrets.sort_unstable_by_key(|secret| secret.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for secret in secrets {
        match merged.last_mut() {
            Some(last) if secret.start <= last.end => last.end = last.end.max(secret.end),
            _ => merged.push(secret),
        }
    }
    let (mut shown, mut end) = (String::with_capacity(word.len()), 0);
    for secret in merged {
        shown.push_str(part(word, end..secret.start));
        shown.push_str(STRUCK);
        end = secret.end;
    }
    shown.push_str(part(word, end..word.len()));
    shown
}

/// Whether the value of an option of this name is secret. A path to a secret is not.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    if ["file", "path", "ring", "dir"]
        .iter()
        .any(|end| name.ends_with(end))
        || name.contains("public")
    {
        return false;
    }
    let of_a_key = |mark| {
        name.rsplit_once(mark)
            .is_some_and(|(_, last)| last == "key")
    };
    SECRET.iter().any(|secret| name.contains(secret))
        || matches!(
            name.as_str(),
            "key" | "pass" | "pwd" | "apikey" | "accesskey" | "accountkey"
        )
        || ['-', '_', '.'].into_iter().any(of_a_key)
}

fn part(word: &str, range: Range<usize>) -> &str {
    word.get(range).unwrap_or_default()
}

/// `password` of each `scheme://user:password@host`, up to the last `@` before the next URL: a password may contain
/// any character.
fn passwords_of_urls(word: &str) -> Vec<Range<usize>> {
    let marks = word.match_indices("://").map(|(at, _)| at);
    // The first one is a URL, whatever precedes it.
    let mut starts: Vec<usize> = Vec::new();
    for mark in marks {
        if starts.is_empty() || begins_url(part(word, 0..mark)) {
            starts.push(mark + 3);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([word.len()]);
    let password = |(start, end): (usize, usize)| {
        let (user_info, _) = part(word, start..end).rsplit_once('@')?;
        let colon = user_info.find(':')?;
        Some(start + colon + 1..start + user_info.len())
    };
    starts
        .iter()
        .copied()
        .zip(ends)
        .filter_map(password)
        .collect()
}

/// Maximum length of a URL's scheme.
const MOST_SCHEME_BYTES: usize = 32;

/// Whether the text before a `://` ends in a scheme that begins a list item, a value or an argument.
fn begins_url(before: &str) -> bool {
    let is_of_scheme =
        |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let mut bytes = before.as_bytes().iter().rev();
    let scheme = bytes
        .by_ref()
        .take(MOST_SCHEME_BYTES)
        .take_while(is_of_scheme)
        .count();
    let before_scheme = before.len().checked_sub(scheme + 1);
    let mark = before_scheme.and_then(|at| before.as_bytes().get(at));
    scheme > 0
        && mark.is_none_or(|mark| {
            mark.is_ascii_whitespace() || matches!(mark, b',' | b';' | b'=' | b'"' | b'\'')
        })
}

/// `value` of each `name=value` with a secret name, in comma-separated lists, queries, connection strings and alone.
fn values(word: &str) -> Vec<Range<usize>> {
    let is_separator = |char: char| {
        matches!(char, ',' | ';' | '?' | '&' | '=' | '"' | '\'') || char.is_whitespace()
    };
    // The next position of each mark, so that each is searched for once.
    let mut next_marks: BTreeMap<char, usize> = BTreeMap::new();
    let mut next = |mark: char, from: usize| {
        let known = next_marks.get(&mark).filter(|at| **at >= from);
        known.copied().unwrap_or_else(|| {
            let found = part(word, from..word.len()).find(mark);
            let at = found.map_or(word.len(), |length| from + length);
            next_marks.insert(mark, at);
            at
        })
    };
    let value = |(equals, _): (usize, &str)| {
        let before = part(word, 0..equals);
        let name = before.rsplit(is_separator).next().unwrap_or_default();
        if !is_secret(name) {
            return None;
        }
        let start = equals + 1;
        let separator = before.strip_suffix(name)?.chars().next_back();
        let end = match separator {
            Some(mark @ (',' | ';' | '"' | '\'')) => next(mark, start),
            Some('?' | '&') => next('&', start),
            Some(blank) if blank.is_whitespace() => {
                start + argument_end(part(word, start..word.len()))
            }
            _ => word.len(),
        };
        Some(start..end)
    };
    word.match_indices('=').filter_map(value).collect()
}

/// `value` of each `--name value` with a secret name, if one word contains a whole command, as for `sh -c`.
fn arguments(word: &str) -> Vec<Range<usize>> {
    let is_start = |at: usize| {
        part(word, 0..at)
            .chars()
            .next_back()
            .is_none_or(char::is_whitespace)
    };
    let value = |at: usize| {
        let option = part(word, at..word.len());
        let length = option.find(char::is_whitespace)?;
        let (name, rest) = option.split_at_checked(length)?;
        let value = rest.trim_start();
        let start = word.len() - value.len();
        (!name.contains('=') && is_secret(name)).then(|| start..start + argument_end(value))
    };
    let dashes = word.match_indices('-').map(|(at, _)| at);
    dashes
        .filter(|at| is_start(*at))
        .filter_map(value)
        .collect()
}

/// End of the first argument of a shell's command line: a blank outside quotes.
fn argument_end(text: &str) -> usize {
    let mut quote = None;
    for (at, char) in text.char_indices() {
        match quote {
            Some(open) if open == char => quote = None,
            Some(_) => {}
            None if matches!(char, '"' | '\'') => quote = Some(char),
            None if char.is_whitespace() => return at,
            None => {}
        }
    }
    text.len()
}

/// The part after the prefix of each join token.
fn join_tokens(word: &str) -> Vec<Range<usize>> {
    let token = |(at, mark): (usize, &str)| {
        let start = at + mark.len();
        let rest = part(word, start..word.len());
        let length = rest.find(|char: char| !char.is_ascii_alphanumeric());
        start..start + length.unwrap_or(rest.len())
    };
    word.match_indices(JOIN_TOKEN).map(token).collect()
}
