//! The output of a command from the agent's configuration: a JSON object of figures and texts, or lines `name=value`.

use super::{Facts, NotReadable, Value};
use serde_json::Value as Json;

/// Parses the facts of such a command's output.
///
/// # Errors
/// If the output has neither form.
pub fn parse(output: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    if output.trim_start().starts_with('{') {
        let object: serde_json::Map<String, Json> = serde_json::from_str(output)
            .map_err(|error| NotReadable(format!("not a JSON object: {error}")))?;
        for (name, value) in &object {
            match value {
                Json::Number(number) => {
                    facts.add_number(name, number.as_f64().unwrap_or(f64::NAN), "")
                }
                Json::String(text) => facts.add_text(name, text),
                Json::Bool(bool) => facts.add_text(name, if *bool { "true" } else { "false" }),
                Json::Null | Json::Array(_) | Json::Object(_) => {}
            }
        }
    } else {
        for (name, value) in output.lines().filter_map(|line| line.split_once('=')) {
            match value.trim().parse::<f64>() {
                Ok(number) if number.is_finite() => {
                    facts.add(name.to_owned(), Value::Number(number), "");
                }
                _ => facts.add_text(name, value),
            }
        }
    }
    match facts.as_slice().is_empty() {
        true => Err(NotReadable(
            "no facts in it: write a JSON object, or lines such as health=ok".to_owned(),
        )),
        false => Ok(()),
    }
}
