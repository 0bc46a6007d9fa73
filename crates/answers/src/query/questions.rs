//! The documented questions: docs/questions.md has each with its SQL, and this module reads them from there.
//!
//! The documented SQL is the executed SQL. A question is about one run, given by `:run`.

use benchmesh_workloads::params::nearest;
use std::sync::LazyLock;

const DOCUMENT: &str = include_str!("../../../../docs/questions.md");
/// The expression for a question's run, which also works without a value for `:run`.
const RUN: &str = "coalesce(:run, (SELECT max(id) FROM runs))";

const WITHOUT_ROWS: &str = "No rows: ";

/// A documented question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// `worst-seconds`
    pub name: &'static str,
    /// The question in words.
    pub asks: &'static str,
    /// With `:run` for the run's id; NULL means the newest run.
    pub sql: &'static str,
    /// Why there may be no rows, and what gives some.
    pub without_rows: Option<&'static str>,
}

static ALL: LazyLock<Vec<Question>> = LazyLock::new(|| read(DOCUMENT));

/// All questions, in the order of the document.
pub fn all() -> &'static [Question] {
    &ALL
}

/// The question with this name.
pub fn find(name: &str) -> Option<&'static Question> {
    all().iter().find(|question| question.name == name)
}

/// The name of a question that is most like this one; `None` if none is like it.
pub fn nearest_name(name: &str) -> Option<&'static str> {
    nearest(name, all().iter().map(|question| question.name))
}

/// Names of the questions that match a report's content.
pub fn of_report(has_targets: bool, has_links: bool) -> Vec<&'static str> {
    let mut names = vec!["results"];
    if has_targets {
        names.push("targets-side-by-side");
    }
    names.extend([
        "slowest-client",
        "daemon-cost",
        "host-load",
        "rados-bench",
        "zero-seconds",
    ]);
    if has_links {
        names.push("links");
    }
    names.extend(["doubtful", "what-went-wrong"]);
    names
}

impl Question {
    /// The SQL for the run with this id. The id is a literal number: SQLite pushes a condition below a view's GROUP BY
    /// only for a comparison with a constant.
    pub fn about(&self, run: i64) -> String {
        self.about_expression(&run.to_string())
    }

    /// The SQL about the run whose id an SQL expression gives.
    pub fn about_expression(&self, run: &str) -> String {
        self.sql.replace(RUN, run)
    }

    /// The SQL about the newest run, without a parameter.
    pub fn about_newest(&self) -> String {
        self.sql.replace(RUN, "(SELECT max(id) FROM runs)")
    }
}

/// The SQL that finds the run with this id, uid or name (the newest of that name); `None` is the newest of all. Its
/// one row contains the id, or NULL.
pub fn which_run(wanted: Option<&str>) -> String {
    let Some(wanted) = wanted.filter(|wanted| !matches!(*wanted, "" | "last")) else {
        return "SELECT max(id) FROM runs".to_owned();
    };
    let text = format!("'{}'", wanted.replace('\'', "''").replace('\0', ""));
    let by_id = wanted.parse::<i64>().map_or_else(
        |_| String::new(),
        |id| format!("(SELECT id FROM runs WHERE id = {id}), "),
    );
    format!(
        "SELECT coalesce({by_id}(SELECT id FROM runs WHERE uid = {text}), \
         (SELECT id FROM runs WHERE name = {text} ORDER BY id DESC LIMIT 1))"
    )
}

/// A second-level heading is the name, the first paragraph the question, the first SQL block its SQL; a paragraph below
/// it that begins with [`WITHOUT_ROWS`] says why there may be no rows.
fn read(document: &'static str) -> Vec<Question> {
    let parts = document.split("\n## ").skip(1);
    parts
        .filter_map(|part| {
            let (name, rest) = part.split_once('\n')?;
            let (asks, rest) = rest.split_once("```sql\n")?;
            let (sql, rest) = rest.split_once("```")?;
            let below = rest.trim().split("\n\n").next().unwrap_or_default();
            Some(Question {
                name: name.trim(),
                asks: asks.trim(),
                sql: sql.trim().trim_end_matches(';'),
                without_rows: below.strip_prefix(WITHOUT_ROWS),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_question_has_a_name_of_its_own_its_words_and_its_sql() {
        assert!(all().len() >= 20, "{} questions", all().len());
        assert_eq!(DOCUMENT.matches("\n## ").count(), all().len());
        for (at, question) in all().iter().enumerate() {
            let well_named = question
                .name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(well_named, "{}", question.name);
            assert!(question.asks.contains('?'), "{}", question.asks);
            assert_eq!(question.sql.matches(":run").count(), 1, "{}", question.name);
            assert!(!question.about(7).contains(":run"), "{}", question.name);
            assert_eq!(
                all().iter().position(|one| one.name == question.name),
                Some(at)
            );
        }
        for has_links in [false, true] {
            for name in of_report(has_links, has_links) {
                assert!(find(name).is_some(), "{name}");
            }
        }
        assert_eq!(find("no-such"), None);
        assert_eq!(nearest_name("worst-second"), Some("worst-seconds"));
        assert_eq!(nearest_name("x"), None);
        let explained = all().iter().filter_map(|one| one.without_rows);
        assert_eq!(
            explained.count(),
            DOCUMENT.matches("\nNo rows: ").count(),
            "each explanation is read"
        );
    }

    #[test]
    fn a_run_is_named_in_any_way_and_quoted() {
        assert_eq!(which_run(None), "SELECT max(id) FROM runs");
        assert_eq!(which_run(Some("last")), which_run(None));
        let by_id = which_run(Some("12"));
        assert!(
            by_id.starts_with("SELECT coalesce((SELECT id FROM runs WHERE id = 12), "),
            "{by_id}"
        );
        let hostile = which_run(Some("'; DROP TABLE runs; --"));
        assert!(
            hostile.contains("uid = \'\'\'; DROP TABLE runs; --\'"),
            "{hostile}"
        );
    }
}
