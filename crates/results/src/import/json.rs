//! The JSON document of a log.

use super::{ImportError, at};
use serde_json::Value;

/// The document and the line on which it begins. Warnings may precede it, if both went into one file. `hint` states how
/// to make the tool write JSON.
pub(super) fn document(log: &str, hint: &str) -> Result<(Value, usize), ImportError> {
    let before: usize = log
        .split_inclusive('\n')
        .take_while(|line| !line.starts_with('{'))
        .map(str::len)
        .sum();
    let skipped = log.get(..before).unwrap_or_default().lines().count();
    let text = log.get(before..).unwrap_or_default();
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match documents.next() {
        Some(Ok(whole)) => Ok((whole, skipped + 1)),
        Some(Err(error)) if error.is_eof() => Err(at(
            skipped + error.line(),
            "the JSON ends here, in the middle: the log is cut off",
        )),
        Some(Err(error)) => Err(at(
            skipped + error.line(),
            format!("this is no JSON: {error}"),
        )),
        None => Err(at(1, format!("there is no JSON; {hint}"))),
    }
}
