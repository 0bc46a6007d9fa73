//! Which characters of others' texts a person would not see, or would be misled by.

/// Control characters, and those that change the direction of what follows or take no room: a name with one reads as
/// another.
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
