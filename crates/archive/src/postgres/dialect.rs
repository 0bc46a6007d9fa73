//! Rewrites SQL of our databases, as views and documented questions have it, for PostgreSQL.
//!
//! One rewriting covers what an archive has in addition: each table of the text becomes its rows of one archived run
//! (`archived`, a row of `benchmesh.runs` of the query around it), so that ids that two collectors gave twice never
//! meet. The others are of the dialect; functions.sql has the functions. The text is trusted: it is the store's own and
//! the documentation's. A test holds the rows of each text against those of SQLite, so that this needs no parser.

/// Which names in FROM and JOIN are rows of an archive.
#[derive(Clone, Debug, Default)]
pub struct Relations {
    pub tables: Vec<String>,
    /// Those of the tables that are partitioned by month.
    pub partitioned: Vec<String>,
    pub views: Vec<String>,
}

/// Whose rows a text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the archived run.
    Run,
    /// Those of all runs of its site, in which an id of a run is used once. Ids of other things are only compared within
    /// a view.
    Site,
}

/// How `ORDER BY` treats NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullOrder {
    /// As SQLite does: the smallest of all values.
    Smallest,
    /// As the text says. No index serves another order than PostgreSQL's own.
    AsWritten,
}

/// Functions that PostgreSQL 16 or later has in its grammar, so that only their schema tells them apart.
const IN_GRAMMAR: [&str; 2] = ["json", "json_array"];

/// Behind a query whose rows PostgreSQL shall compute before it joins them: as code it does that, and SQLite ignores it.
const FENCE: &str = "/* OFFSET 0 */";

/// Words that follow a table and are not its alias.
const NO_ALIAS: [&str; 14] = [
    "ON", "WHERE", "CROSS", "JOIN", "LEFT", "GROUP", "ORDER", "LIMIT", "UNION", "WINDOW", "HAVING",
    "USING", "INNER", "SELECT",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Text,
    Open,
    Close,
    Comma,
    /// Blanks and comments.
    Blank,
    Other,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    text: String,
}

impl Token {
    /// SQL that is not rewritten any more.
    fn finished(text: String) -> Self {
        let kind = Kind::Other;
        Self { kind, text }
    }

    fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
}

/// The same statement for PostgreSQL.
pub fn translate(sql: &str, relations: &Relations, scope: Scope, nulls: NullOrder) -> String {
    let mut text = Text(tokens(sql));
    text.join_with_conditions(relations, scope);
    text.select_archived(relations, scope);
    text.rewrite_calls();
    text.rewrite_words();
    if nulls == NullOrder::Smallest {
        text.order_nulls();
    }
    text.0.into_iter().map(|token| token.text).collect()
}

fn tokens(sql: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (kind, length) = match first {
            '\'' => (Kind::Text, quoted(rest)),
            '(' => (Kind::Open, 1),
            ')' => (Kind::Close, 1),
            ',' => (Kind::Comma, 1),
            _ if rest.starts_with(FENCE) => (Kind::Other, FENCE.len()),
            _ if rest.starts_with("/*") => (
                Kind::Blank,
                rest.find("*/").map_or(rest.len(), |end| end + 2),
            ),
            _ if rest.starts_with("--") => (Kind::Blank, rest.find('\n').unwrap_or(rest.len())),
            c if c.is_whitespace() => (Kind::Blank, until(rest, |c| !c.is_whitespace())),
            c if c.is_ascii_digit() => (Kind::Number, until(rest, |c| !is_word(c) && c != '.')),
            c if is_word(c) => (Kind::Word, until(rest, |c| !is_word(c))),
            c => (Kind::Other, c.len_utf8()),
        };
        let (token, after) = rest.split_at(length);
        found.push(Token {
            kind,
            text: token.to_owned(),
        });
        rest = after;
    }
    found
}

fn until(text: &str, ends: impl Fn(char) -> bool) -> usize {
    text.find(ends).unwrap_or(text.len())
}

/// The length of a text literal; a doubled quote does not end it.
fn quoted(text: &str) -> usize {
    let mut is_open = false;
    for (at, c) in text.char_indices() {
        if c == '\'' {
            is_open = !is_open;
        } else if !is_open {
            return at;
        }
    }
    text.len()
}

/// The columns of a relation that are those of the archived run.
fn key(name: &String, relations: &Relations, scope: Scope) -> Vec<&'static str> {
    match scope {
        Scope::Site => vec!["site"],
        Scope::Run if relations.partitioned.contains(name) => vec!["site", "run_uid", "month"],
        Scope::Run => vec!["site", "run_uid"],
    }
}

/// A query for the archived run's rows, without its closing parenthesis.
fn rows(name: &str, key: &[&str], alias: Option<&str>) -> String {
    let prefix = alias.map(|alias| format!("{alias}.")).unwrap_or_default();
    let table = alias
        .map(|alias| format!(" AS {alias}"))
        .unwrap_or_default();
    let same: Vec<String> = key
        .iter()
        .map(|key| format!("{prefix}{key} = archived.{key}"))
        .collect();
    format!(
        "(SELECT {prefix}* FROM benchmesh.{name}{table} WHERE {}",
        same.join(" AND ")
    )
}

#[derive(Debug)]
struct Text(Vec<Token>);

impl Text {
    fn at(&self, index: usize) -> Option<&Token> {
        self.0.get(index)
    }

    /// The index of the next token that is not blank.
    fn next(&self, after: usize) -> Option<usize> {
        let rest = self.0.get(after + 1..)?;
        let found = rest.iter().position(|token| token.kind != Kind::Blank)?;
        Some(after + 1 + found)
    }

    fn next_is(&self, after: usize, word: &str) -> Option<usize> {
        let next = self.next(after)?;
        self.at(next).is_some_and(|it| it.is(word)).then_some(next)
    }

    fn set(&mut self, index: usize, text: impl Into<String>) {
        if let Some(token) = self.0.get_mut(index) {
            token.text = text.into();
        }
    }

    /// Where a parenthesis ends, and its commas.
    fn enclosed(&self, open: usize) -> Option<(usize, Vec<usize>)> {
        let mut depth = 0;
        let mut commas = Vec::new();
        for (index, token) in self.0.iter().enumerate().skip(open) {
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                Kind::Comma if depth == 1 => commas.push(index),
                _ => {}
            }
            if depth == 0 {
                return Some((index, commas));
            }
        }
        None
    }

    /// The end of what is joined, without its alias: a name, a call, or a query in parentheses.
    fn end_of_item(&self, start: usize) -> Option<usize> {
        match self.at(start)?.kind {
            Kind::Open => self.enclosed(start).map(|(close, _)| close),
            Kind::Word => match self.next(start) {
                Some(open) if self.at(open)?.kind == Kind::Open => {
                    self.enclosed(open).map(|(close, _)| close)
                }
                _ => Some(start),
            },
            _ => None,
        }
    }

    /// The last token of an alias behind `end`.
    fn alias(&self, end: usize) -> Option<usize> {
        if let Some(word) = self.next_is(end, "AS") {
            return self.next(word);
        }
        let next = self.next(end)?;
        let token = self.at(next)?;
        let is_alias = token.kind == Kind::Word && NO_ALIAS.iter().all(|word| !token.is(word));
        is_alias.then_some(next)
    }

    /// `CROSS JOIN x ON condition`, by which SQLite keeps an order of joins, is `JOIN x ON condition`. A partitioned table
    /// is sought for each row before it, because without statistics PostgreSQL would rather join all samples of the run.
    fn join_with_conditions(&mut self, relations: &Relations, scope: Scope) {
        let mut next = 0;
        while next < self.0.len() {
            let cross = next;
            next += 1;
            let Some((join, table, alias, on)) = self.join_with_condition(cross) else {
                continue;
            };
            self.set(cross, "");
            let name = self
                .at(table)
                .map(|token| token.text.clone())
                .unwrap_or_default();
            let named = self
                .at(alias)
                .map(|token| token.text.clone())
                .unwrap_or_default();
            if !relations.partitioned.contains(&name) {
                continue;
            }
            let rows = rows(&name, &key(&name, relations, scope), Some(&named));
            for index in table..on {
                self.set(index, "");
            }
            self.set(join, "JOIN LATERAL");
            if let Some(token) = self.0.get_mut(table) {
                *token = Token::finished(format!("{rows} AND"));
            }
            self.set(on, " (");
            let end = self.end_of_condition(on) + 1;
            self.0.insert(
                end,
                Token::finished(format!(") OFFSET 0) AS {named} ON true")),
            );
        }
    }

    /// The indexes of `JOIN`, of the table, of its alias and of `ON` behind this `CROSS`.
    fn join_with_condition(&self, cross: usize) -> Option<(usize, usize, usize, usize)> {
        self.at(cross).filter(|token| token.is("CROSS"))?;
        let join = self.next_is(cross, "JOIN")?;
        let table = self.next(join)?;
        let end = self.end_of_item(table)?;
        let alias = self.alias(end).unwrap_or(end);
        Some((join, table, alias, self.next_is(alias, "ON")?))
    }

    /// The last token of the condition behind `ON`.
    fn end_of_condition(&self, on: usize) -> usize {
        let mut depth = 0;
        let mut last = on;
        for (index, token) in self.0.iter().enumerate().skip(on + 1) {
            let is_end = token.kind == Kind::Word && NO_ALIAS.iter().any(|word| token.is(word));
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                Kind::Blank => continue,
                _ => {}
            }
            if depth < 0 || depth == 0 && is_end {
                break;
            }
            last = index;
        }
        last
    }

    fn select_archived(&mut self, relations: &Relations, scope: Scope) {
        let mut unnamed = 0;
        for index in 0..self.0.len() {
            let is_from = self
                .at(index)
                .is_some_and(|token| token.is("FROM") || token.is("JOIN"));
            let Some(start) = self.next(index).filter(|_| is_from) else {
                continue;
            };
            let Some(end) = self.end_of_item(start) else {
                continue;
            };
            let is_named = self.alias(end).is_some();
            let Some(token) = self.at(start) else {
                continue;
            };
            if token.kind == Kind::Open {
                if !is_named {
                    unnamed += 1;
                    self.set(end, format!(") AS unnamed_{unnamed}"));
                }
                continue;
            }
            let name = token.text.clone();
            if relations.tables.contains(&name) || relations.views.contains(&name) {
                let alias = if is_named {
                    String::new()
                } else {
                    format!(" AS {name}")
                };
                let rows = rows(&name, &key(&name, relations, scope), None);
                self.set(start, format!("{rows}){alias}"));
            }
        }
    }

    fn rewrite_calls(&mut self) {
        for index in 0..self.0.len() {
            let Some(token) = self.at(index).filter(|token| token.kind == Kind::Word) else {
                continue;
            };
            let name = token.text.to_ascii_lowercase();
            let Some(open) = self
                .next(index)
                .filter(|next| self.at(*next).is_some_and(|it| it.kind == Kind::Open))
            else {
                continue;
            };
            let Some((close, commas)) = self.enclosed(open) else {
                continue;
            };
            match (name.as_str(), commas.as_slice()) {
                // A function computes all of its arguments.
                ("iif", [then, otherwise]) => {
                    self.set(index, "");
                    self.set(open, "(CASE WHEN ");
                    self.set(*then, " THEN");
                    self.set(*otherwise, " ELSE");
                    self.set(close, " END)");
                }
                // Nested, of two values each.
                ("min" | "max", [before @ .., _]) => {
                    let call = format!("benchmesh.scalar_{name}");
                    self.set(index, call.as_str());
                    for comma in before {
                        self.set(*comma, format!(", {call}("));
                    }
                    self.set(close, ")".repeat(1 + before.len()));
                }
                (name, _) if IN_GRAMMAR.contains(&name) => {
                    self.set(index, format!("benchmesh.{name}"))
                }
                _ => {}
            }
        }
    }

    fn rewrite_words(&mut self) {
        for index in 0..self.0.len() {
            let Some(token) = self.at(index) else {
                continue;
            };
            let text = token.text.as_str();
            let becomes = match token.kind {
                // What SQLite computes as a double, PostgreSQL would as a decimal number.
                Kind::Number if text.contains(['.', 'e', 'E']) => {
                    format!("'{text}'::double precision")
                }
                Kind::Word if token.is("IS") => {
                    let next = self.next(index).and_then(|next| self.at(next));
                    let is_test = next.is_none_or(|next| next.is("NULL") || next.is("NOT"));
                    if is_test {
                        continue;
                    }
                    String::from("IS NOT DISTINCT FROM")
                }
                Kind::Word if token.is("AS") => {
                    let next = self.next(index);
                    let kind = next.and_then(|next| self.at(next));
                    let kind = match kind {
                        Some(kind) if kind.is("INTEGER") => "bigint",
                        Some(kind) if kind.is("REAL") => "double precision",
                        _ => continue,
                    };
                    let Some(next) = next else { continue };
                    self.set(next, kind);
                    continue;
                }
                Kind::Other if text == FENCE => String::from("OFFSET 0"),
                _ => continue,
            };
            self.set(index, becomes);
        }
    }

    /// Says for each expression of `ORDER BY` where its NULLs are.
    fn order_nulls(&mut self) {
        for by in 0..self.0.len() {
            let is_order = self.at(by).is_some_and(|token| token.is("ORDER"));
            let Some(start) = self.next_is(by, "BY").filter(|_| is_order) else {
                continue;
            };
            let mut depth = 0;
            let (mut is_falling, mut last) = (false, start);
            let mut ends = Vec::new();
            for index in start + 1..self.0.len() {
                let Some(token) = self.at(index) else { break };
                let is_over = depth == 0
                    && (token.kind == Kind::Close
                        || token.is("LIMIT")
                        || token.is("ROWS")
                        || token.is("WINDOW"));
                if is_over {
                    break;
                }
                match token.kind {
                    Kind::Open => depth += 1,
                    Kind::Close => depth -= 1,
                    Kind::Blank => continue,
                    Kind::Comma if depth == 0 => {
                        ends.push((last, is_falling));
                        is_falling = false;
                        continue;
                    }
                    Kind::Word if depth == 0 && token.is("DESC") => is_falling = true,
                    _ => {}
                }
                last = index;
            }
            ends.push((last, is_falling));
            for (end, is_falling) in ends {
                let Some(text) = self.at(end).map(|token| token.text.clone()) else {
                    continue;
                };
                if text.eq_ignore_ascii_case("LAST") || text.eq_ignore_ascii_case("FIRST") {
                    continue;
                }
                let nulls = if is_falling { "LAST" } else { "FIRST" };
                self.set(end, format!("{text} NULLS {nulls}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: &str) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let relations = Relations {
            tables: names(&["steps", "op_intervals"]),
            partitioned: names(&["op_intervals"]),
            views: names(&["v_results"]),
        };
        let found = translate(sql, &relations, Scope::Run, NullOrder::Smallest);
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn relations_are_those_of_the_archived_run() {
        let of_run = "WHERE site = archived.site AND run_uid = archived.run_uid";
        check(
            "SELECT s.id FROM steps AS s CROSS JOIN v_results AS i ON i.x = s.x",
            &format!(
                "SELECT s.id FROM (SELECT * FROM benchmesh.steps {of_run}) AS s  JOIN (SELECT * FROM \
                 benchmesh.v_results {of_run}) AS i ON i.x = s.x"
            ),
        );
        check(
            "FROM x CROSS JOIN op_intervals AS i ON i.x = f(x.x) AND i.y = 1 WHERE true",
            "FROM x  JOIN LATERAL (SELECT i.* FROM benchmesh.op_intervals AS i WHERE i.site = archived.site AND i.run_uid = \
             archived.run_uid AND i.month = archived.month AND ( i.x = f(x.x) AND i.y = 1) OFFSET 0) AS i ON true WHERE true",
        );
        check(
            "FROM op_intervals",
            &format!(
                "FROM (SELECT * FROM benchmesh.op_intervals {of_run} AND month = archived.month) AS op_intervals"
            ),
        );
        check(
            "SELECT 'FROM steps' FROM v_results WHERE x IN (SELECT id FROM others) -- FROM steps",
            &format!(
                "SELECT 'FROM steps' FROM (SELECT * FROM benchmesh.v_results {of_run}) AS v_results WHERE x IN (SELECT id \
                 FROM others) -- FROM steps"
            ),
        );
        check(
            "SELECT * FROM (SELECT 1 FROM json_each(x)) WHERE 'it''s (' = y",
            "SELECT * FROM (SELECT 1 FROM json_each(x)) AS unnamed_1 WHERE 'it''s (' = y",
        );
    }

    #[test]
    fn calls_words_and_numbers_are_of_the_dialect() {
        for (sql, expected) in [
            (
                "iif(a > 0, f(a, 1), iif(b, 2, 3))",
                "(CASE WHEN a > 0 THEN f(a, 1) ELSE (CASE WHEN b THEN 2 ELSE 3 END) END)",
            ),
            ("max(a)", "max(a)"),
            (
                "max(1, min(a, f(b, c)), d)",
                "benchmesh.scalar_max(1, benchmesh.scalar_max( benchmesh.scalar_min(a, f(b, c)), d))",
            ),
            (
                "json_array(json(x))",
                "benchmesh.json_array(benchmesh.json(x))",
            ),
            (
                "(SELECT 1 /* OFFSET 0 */) /* ( */",
                "(SELECT 1 OFFSET 0) /* ( */",
            ),
            (
                "a / 1e6 + t1.b2 * 2",
                "a / '1e6'::double precision + t1.b2 * 2",
            ),
            (
                "a IS b AND c IS NOT NULL AND d IS NULL",
                "a IS NOT DISTINCT FROM b AND c IS NOT NULL AND d IS NULL",
            ),
            (
                "CAST(a AS INTEGER), CAST(b AS REAL)",
                "CAST(a AS bigint), CAST(b AS double precision)",
            ),
            (
                "ORDER BY a DESC, f(b, c), d NULLS LAST LIMIT 1",
                "ORDER BY a DESC NULLS LAST, f(b, c) NULLS FIRST, d NULLS LAST LIMIT 1",
            ),
            (
                "OVER (PARTITION BY a ORDER BY b) - 1",
                "OVER (PARTITION BY a ORDER BY b NULLS FIRST) - 1",
            ),
        ] {
            check(sql, expected);
        }
    }
}
