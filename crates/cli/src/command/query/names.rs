//! The names that a prompt completes: tables with their columns, functions, words of SQL and the prompt's own commands.
//!
//! Pure but for the reading of the names.

use super::{Asked, asked};
use benchmesh_answers::query::Value;
use benchmesh_model::text::is_hidden;
use std::collections::BTreeSet;
use std::time::Duration;

const TABLES: &str = "
    SELECT m.name, c.name FROM sqlite_schema AS m CROSS JOIN pragma_table_info(m.name) AS c
    WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
    ORDER BY m.type DESC, m.name, c.cid";
const FUNCTIONS: &str = "SELECT DISTINCT name FROM pragma_function_list ORDER BY name";

const COMMANDS: [&str; 5] = [".help", ".tables", ".schema", ".questions", ".quit"];

const WORDS: [&str; 30] = [
    "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "DESC", "DISTINCT", "ELSE", "END", "EXISTS",
    "FILTER", "FROM", "GROUP", "HAVING", "IN", "IS", "JOIN", "LEFT", "LIKE", "LIMIT", "NOT",
    "NULL", "ON", "OR", "ORDER", "OVER", "SELECT", "WHERE", "WITH",
];

/// A table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableNames {
    pub name: String,
    pub columns: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Views first, in the order of their names.
    pub tables: Vec<TableNames>,
    functions: Vec<String>,
}

impl Names {
    pub(super) const fn none() -> Self {
        Self {
            tables: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// Those of the database. Completion writes them to the terminal as they are, so names with hidden characters are
    /// left out: the database may be foreign.
    pub(super) async fn read(source: &Asked, limit: Duration) -> anyhow::Result<Self> {
        let mut tables: Vec<TableNames> = Vec::new();
        let mut rows = asked(source, limit, TABLES).await?;
        while let Some(batch) = rows.next().await? {
            for row in batch {
                let [Value::Text(table), Value::Text(column)] = row.as_slice() else {
                    continue;
                };
                if table.chars().chain(column.chars()).any(is_hidden) {
                    continue;
                }
                match tables.last_mut().filter(|last| last.name == *table) {
                    Some(last) => last.columns.push(column.clone()),
                    None => tables.push(TableNames {
                        name: table.clone(),
                        columns: vec![column.clone()],
                    }),
                }
            }
        }
        rows.end().await;
        let mut functions = Vec::new();
        let mut rows = asked(source, limit, FUNCTIONS).await?;
        while let Some(batch) = rows.next().await? {
            functions.extend(batch.into_iter().filter_map(|row| match row.first() {
                Some(Value::Text(name))
                    if name.starts_with(|c: char| c.is_ascii_alphabetic())
                        && !name.chars().any(is_hidden) =>
                {
                    Some(name.clone())
                }
                _ => None,
            }));
        }
        rows.end().await;
        Ok(Self { tables, functions })
    }

    /// Start of the word at the end of `until`, and its completions. `statement` is the whole statement: its tables
    /// decide which columns are offered.
    pub(super) fn complete(&self, until: &str, statement: &str) -> (usize, Vec<String>) {
        if until.starts_with('.') && !until.contains(' ') {
            return (0, beginning(COMMANDS.into_iter(), until));
        }
        let start = until
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |at| {
                at + until
                    .get(at..)
                    .and_then(|rest| rest.chars().next())
                    .map_or(1, char::len_utf8)
            });
        let word = until.get(start..).unwrap_or_default();
        let tables = self.tables.iter().map(|table| table.name.as_str());
        if until.starts_with(".schema ") {
            return (start, beginning(tables, word));
        }
        let columns = self.columns_of(statement);
        if until
            .get(..start)
            .is_some_and(|before| before.ends_with('.'))
        {
            return (start, beginning(columns, word));
        }
        if word.is_empty() {
            return (start, Vec::new());
        }
        let functions = self.functions.iter().map(String::as_str);
        let all = columns.chain(tables).chain(functions);
        let mut found = beginning(all, word);
        // In the case in which the person writes.
        let is_lower = word.chars().any(char::is_lowercase);
        let words = beginning(WORDS.into_iter(), word).into_iter();
        found.extend(words.map(|word| if is_lower { word.to_lowercase() } else { word }));
        (start, found)
    }

    /// Columns of the tables that the statement names; of all views if it names none yet.
    fn columns_of(&self, statement: &str) -> impl Iterator<Item = &str> {
        let words: BTreeSet<&str> = statement
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let named = |table: &&TableNames| words.contains(table.name.as_str());
        let any = self.tables.iter().any(|table| named(&table));
        let tables = self.tables.iter().filter(move |table| match any {
            true => named(table),
            false => table.name.starts_with("v_"),
        });
        let columns: BTreeSet<&str> = tables
            .flat_map(|table| table.columns.iter().map(String::as_str))
            .collect();
        columns.into_iter()
    }
}

/// The names that begin with the word, in any case, each once.
fn beginning<'n>(names: impl Iterator<Item = &'n str>, word: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        let begins = name
            .get(..word.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(word));
        if begins && !found.iter().any(|one| one == name) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let table = |name: &str, columns: &[&str]| TableNames {
            name: name.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        };
        Names {
            tables: vec![
                table("v_results", &["run_id", "p50_ms", "p99_ms"]),
                table("v_timeline", &["run_id", "second", "p99_ms"]),
                table("runs", &["id", "plan"]),
            ],
            functions: ["median", "round", "printf"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn names_at_the_cursor_are_completed() {
        let names = names();
        for (until, rest, start, expected) in [
            (".s", "", 0, ".schema"),
            (".schema v_t", "", 8, "v_timeline"),
            ("SELECT p", "", 7, "p50_ms p99_ms printf"),
            ("SELECT p", " FROM runs", 7, "plan printf"),
            ("SELECT ru", " FROM runs", 7, "runs"),
            ("SELECT r.", " FROM runs AS r", 9, "id plan"),
            ("SELECT P9", "", 7, "p99_ms"),
            ("SELECT med", "", 7, "median"),
            ("SELECT 1 FRO", "", 9, "FROM"),
            ("select 1 fro", "", 9, "from"),
            ("SELECT ", "", 7, ""),
            ("SELECT 'ü", "", 8, ""),
        ] {
            let (at, found) = names.complete(until, &format!("{until}{rest}"));
            assert_eq!((at, found.join(" ").as_str()), (start, expected), "{until}");
        }
    }
}
