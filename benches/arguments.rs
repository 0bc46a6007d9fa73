//! Parses the values of a bench's arguments. cargo passes its own arguments too, so unknown ones are not refused.

use std::str::FromStr;

/// The value of `--name VALUE`.
pub fn value<T: FromStr>(arguments: &[String], name: &str) -> Option<T> {
    let at = arguments.iter().position(|argument| argument == name)?;
    let text = arguments.get(at + 1)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name}: `{text}` is no number"),
    }
}
