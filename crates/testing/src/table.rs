//! Tables of cases written as text, for cases that a tuple of Rust would spread over many lines.

/// The rows of a table: a case per line, its columns separated by ` | `. `\n` in a column is a line break. A line that
/// begins with `| ` continues the row above; empty lines and lines that begin with `//` are skipped. The last column may
/// contain further ` | `.
///
/// # Panics
///
/// If there is no row, or a row has fewer columns.
pub fn table<const COLUMNS: usize>(text: &str) -> Vec<[String; COLUMNS]> {
    let mut rows: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        match rows.last_mut() {
            _ if line.is_empty() || line.starts_with("//") => {}
            Some(row) if line.starts_with("| ") => *row = format!("{row} {line}"),
            _ => rows.push(line.to_owned()),
        }
    }
    assert!(!rows.is_empty(), "a table without rows");
    let columns = |row: &String| -> [String; COLUMNS] {
        // The last column may be empty.
        let row = format!("{row} ");
        let columns = row.splitn(COLUMNS, " | ");
        let columns: Vec<String> = columns.map(|it| it.trim().replace("\\n", "\n")).collect();
        let columns = columns.try_into();
        columns.unwrap_or_else(|_| panic!("not {COLUMNS} columns: {row}"))
    };
    rows.iter().map(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_row_unless_it_continues_one() {
        let text = r#"
            name = "x"\nsize = 1 | 2:8  | empty
            // Why this case is here.
            a                    |      | b
                | c
            d                    | e    |
        "#;
        let expected = [
            ["name = \"x\"\nsize = 1", "2:8", "empty"],
            ["a", "", "b | c"],
            ["d", "e", ""],
        ];
        assert_eq!(table::<3>(text), expected);
    }

    #[test]
    #[should_panic(expected = "not 3 columns: a | b")]
    fn a_row_with_too_few_columns_is_a_mistake() {
        table::<3>("a | b");
    }
}
