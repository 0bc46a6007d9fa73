//! Selection of agents: by label expression or by name.

use super::{AgentFacts, source::ValuePosition};

/// How agents are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every pair must hold; the label `name` is the agent's name.
    Labels(Vec<(String, String)>),
    /// These agents, by name.
    Names(Vec<String>),
}

/// A selector and its position in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    pub selector: Selector,
    pub position: ValuePosition,
    /// One position per name; empty for labels.
    pub names_at: Vec<ValuePosition>,
}

impl Selector {
    /// Parses `k=v,k=v`. The error describes what is invalid.
    pub fn parse_labels(text: &str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not a label expression", part.trim()))?;
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() || value.is_empty() {
                return Err(format!(
                    "`{}` has no {}",
                    part.trim(),
                    if key.is_empty() { "label" } else { "value" }
                ));
            }
            if key.ends_with('!') || value.starts_with('=') {
                return Err(format!(
                    "`{}`: only `label=value` is supported",
                    part.trim()
                ));
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self::Labels(pairs))
    }

    /// Whether the selector matches `agent`.
    pub fn chooses(&self, agent: &AgentFacts) -> bool {
        match self {
            Self::Names(names) => names.contains(&agent.name),
            Self::Labels(pairs) => pairs.iter().all(|(key, value)| {
                if key == "name" {
                    agent.name == *value
                } else {
                    agent.labels.get(key) == Some(value)
                }
            }),
        }
    }

    /// The selector as written in the plan.
    pub fn describe(&self) -> String {
        match self {
            Self::Names(names) => names.join(", "),
            Self::Labels(pairs) => pairs
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn agent(name: &str, labels: &[(&str, &str)]) -> AgentFacts {
        AgentFacts {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..AgentFacts::default()
        }
    }

    #[test]
    fn every_pair_must_hold() {
        let a = agent("a", &[("role", "client"), ("rack", "1")]);
        for (expression, chosen) in [
            ("role=client", true),
            ("role=client,rack=1", true),
            (" role = client , rack = 1 ", true),
            ("role=client,rack=2", false),
            ("name=a", true),
            ("name=b", false),
            ("zone=x", false),
        ] {
            let selector = Selector::parse_labels(expression).unwrap();
            assert_eq!(selector.chooses(&a), chosen, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for bad in [
            "", "client", "role=", "=client", "role=a,", "role!=a", "role==a",
        ] {
            assert!(Selector::parse_labels(bad).is_err(), "{bad}");
        }
    }
}
