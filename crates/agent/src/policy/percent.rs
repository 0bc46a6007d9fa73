//! Parses percentages.

/// Parses `N%` with N from 1 to 100; `None`: not a percentage.
pub(super) fn percent(text: &str) -> Result<Option<u8>, String> {
    let Some(number) = text.trim().strip_suffix('%') else {
        return Ok(None);
    };
    match number.trim().parse::<u8>() {
        Ok(percent @ 1..=100) => Ok(Some(percent)),
        _ => Err("a share is 1% to 100%".to_owned()),
    }
}
