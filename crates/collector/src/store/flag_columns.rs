//! The columns `flag_*` of the view `v_results`, one for each row of the table of flags.
//!
//! A new flag needs no migration: opening the file to write gives the view the columns of this version's flags.

use crate::results::Flag;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

const COLUMN: &str = "instr(s.flags, ";

/// Makes the view anew where its columns are another version's.
pub(super) async fn update(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let find = "SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = 'v_results'";
    let stored: String = sqlx::query_scalar(find).fetch_one(&mut *writer).await?;
    let wanted = with_flags(&stored);
    if wanted == stored {
        return Ok(());
    }
    let mut transaction = writer.begin().await?;
    sqlx::query("DROP VIEW v_results")
        .execute(&mut *transaction)
        .await?;
    sqlx::query(AssertSqlSafe(wanted))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

/// The view's definition with the columns of this version's flags behind `s.flags`, and with no other.
fn with_flags(view: &str) -> String {
    let mut lines = Vec::new();
    let others = view
        .lines()
        .filter(|line| !line.trim_start().starts_with(COLUMN));
    for line in others {
        if !matches!(line.trim(), "s.flags" | "s.flags,") {
            lines.push(line.to_owned());
            continue;
        }
        lines.push("       s.flags,".to_owned());
        let last = Flag::ROWS.len().saturating_sub(1);
        for (nth, row) in Flag::ROWS.iter().enumerate() {
            let (name, comma) = (row.name, if nth == last { "" } else { "," });
            let column = row.column();
            lines.push(format!(
                "       {COLUMN}'\"{name}\"') > 0 AS {column}{comma}"
            ));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_another_version_are_replaced_once() {
        let bare = "CREATE VIEW v AS\nSELECT s.id,\n       s.flags\nFROM steps AS s";
        let now = with_flags(bare);
        assert!(now.starts_with("CREATE VIEW v AS\nSELECT s.id,\n       s.flags,\n       instr("));
        assert!(now.ends_with("AS flag_no_data\nFROM steps AS s"), "{now}");
        let former = bare.replace(
            "s.flags\n",
            "s.flags,\n       instr(s.flags, '\"gone\"') > 0 AS flag_gone\n",
        );
        assert_eq!(with_flags(&former), now);
        assert_eq!(with_flags(&now), now);
    }
}
