//! Names in foreign text: characters that are invisible or misleading, and misspellings.

/// Control characters, and characters that change the direction of the following text or have no width: with one of
/// them, a name looks like a different name.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The candidate that `name` was probably a misspelling of.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (candidate, likeness(name, candidate)))
        .filter(|(_, likeness)| *likeness >= 0.75)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

/// How much a name is like a candidate: 1 if they are the same but for case and for `_` and `-`.
pub fn likeness(name: &str, candidate: &str) -> f64 {
    let folded = name.to_ascii_lowercase().replace('_', "-");
    strsim::jaro_winkler(&folded, &candidate.replace('_', "-"))
}

/// What the refusal of a name suggests: `did you mean nightly?`.
#[must_use]
pub fn did_you_mean(near: &str) -> String {
    format!("did you mean {near}?")
}

/// The same before further words: empty, or with a blank at its end.
#[must_use]
pub fn meant_first(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| did_you_mean(near) + " ")
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
