//! Truncates and sanitises untrusted text for a column, a terminal or a log line.

/// Limit of a text for people: an error, a problem, the mount options.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// The text truncated to [`MAX_TEXT_BYTES`] at a character boundary, each control character replaced by a space.
pub(crate) fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    cut_to(end, text.get(..end).unwrap_or_default())
}

/// The text truncated to `most` characters, each control character replaced by a space.
pub(crate) fn cut_to(most: usize, text: &str) -> String {
    text.chars()
        .take(most)
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

/// The text truncated to `most` characters for a log line, with non-printable characters escaped.
pub fn printable(most: usize, text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(most));
    for char in text.chars().take(most) {
        match char {
            '\'' | '"' | '\\' => line.push(char),
            _ => line.extend(char.escape_debug()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_short_and_of_one_line() {
        assert_eq!(cut("a\nb\u{1b}[2J\0"), "a b [2J ");
        assert_eq!(cut_to(3, "äöüß"), "äöü");
        assert_eq!(cut(&"x".repeat(1 << 20)).len(), MAX_TEXT_BYTES);
        assert_eq!(cut(&"x€".repeat(1 << 10)), "x€".repeat(1 << 10));
        assert_eq!(cut(&"€".repeat(1 << 20)).len(), MAX_TEXT_BYTES - 1);
    }

    #[test]
    fn lines_of_the_log_cannot_be_forged_or_turned_around() {
        assert_eq!(printable(64, "it's \"good\"\\"), "it's \"good\"\\");
        assert_eq!(
            printable(64, "a\nINFO b\u{1b}\u{202e}"),
            "a\\nINFO b\\u{1b}\\u{202e}"
        );
        assert_eq!(printable(2, "abc"), "ab");
    }
}
