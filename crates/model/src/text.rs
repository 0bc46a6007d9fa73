//! Detects characters in foreign text that are invisible or misleading.

/// Control characters, and characters that change the direction of the following text or have no width: with one of
/// them, a name looks like a different name.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_all_scripts_are_seen() {
        assert!(!"node-7 Ä 日本 \u{0627}".chars().any(is_hidden));
        for hidden in [
            '\n', '\u{1b}', '\u{202e}', '\u{200d}', '\u{2066}', '\u{feff}',
        ] {
            assert!(is_hidden(hidden), "{hidden:?}");
        }
    }
}
