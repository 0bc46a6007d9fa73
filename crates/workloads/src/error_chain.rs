//! Formats an error with its causes on one line.

/// The message of an error and of each of its causes, joined by colons. Some libraries repeat their cause in their own
/// message; the repetition is left out.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Failure {
        message: &'static str,
        #[source]
        source: Option<Box<Failure>>,
    }

    #[test]
    fn each_cause_is_told_once() {
        let failure = |message, source: Option<Failure>| Failure {
            message,
            source: source.map(Box::new),
        };
        let root = failure("no space", None);
        let repeated = failure("write x: no space", Some(root));
        let error = failure("keep it", Some(repeated));
        assert_eq!(error_chain(&error), "keep it: write x: no space");
    }
}
