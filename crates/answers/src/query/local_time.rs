//! Local time from SQLite, which uses the machine's time zone.

use rusqlite::{Connection, OptionalExtension};

/// Parses an instant, as microseconds since the Unix epoch; `None` if the text has none of these forms.
///
/// * a time of day (`02:00`): the next instant after `now_us` at which local clocks show it
/// * a local date and time (`2026-12-24T02:00`)
/// * a date and time with `Z` or an offset
pub fn instant(text: &str, now_us: i64) -> Option<i64> {
    if !text.contains(':') {
        return None;
    }
    let file = Connection::open_in_memory().ok()?;
    let ask = |sql: &str| -> Option<i64> {
        let seconds = file.query_row(sql, (text, now_us / 1_000_000), |row| row.get(0));
        let seconds: Option<i64> = seconds.optional().ok()??;
        seconds?.checked_mul(1_000_000)
    };
    let on_day = "unixepoch(date(?2, 'unixepoch', 'localtime', :day) || ' ' || ?1, 'utc')";
    let has_date = text.contains('-') && text.len() > "2026-12-24".len();
    let time = text.get("2026-12-24".len()..).unwrap_or_default();
    let has_zone = time.contains(['Z', 'z', '+', '-']);
    match (has_date, has_zone) {
        (true, true) => ask("SELECT unixepoch(?1) WHERE ?2 IS NOT NULL"),
        (true, false) => ask("SELECT unixepoch(?1, 'utc') WHERE ?2 IS NOT NULL"),
        (false, _) => ["'+0 days'", "'+1 day'"]
            .iter()
            .filter_map(|day| ask(&format!("SELECT {}", on_day.replace(":day", day))))
            .find(|at| *at > now_us),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// 2026-11-24T08:00:00Z
    const NOW: i64 = 1_795_507_200_000_000;
    const DAY_US: i64 = 86_400_000_000;

    #[test]
    fn a_time_of_day_is_the_next_one_here() {
        for text in ["02:00", "23:59:59", "08:00"] {
            let at = instant(text, NOW).unwrap();
            // A day may be an hour longer.
            assert!(
                at > NOW && at <= NOW + DAY_US + 3_600_000_000,
                "{text} {at}"
            );
            let shown: String = Connection::open_in_memory()
                .unwrap()
                .query_row(
                    "SELECT time(?, 'unixepoch', 'localtime')",
                    [at / 1_000_000],
                    |row| row.get(0),
                )
                .unwrap();
            assert!(shown.starts_with(text), "{shown}");
        }
    }

    #[test]
    fn a_date_is_local_or_of_its_zone() {
        let at = instant("2026-11-25T02:00:00Z", NOW).unwrap();
        assert_eq!(at, NOW + 18 * 3_600_000_000);
        assert_eq!(instant("2026-11-25 04:00+02:00", NOW), Some(at));
        let local = instant("2026-11-25T02:00", NOW).unwrap();
        assert!((local - at).abs() <= 14 * 3_600_000_000, "{local}");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "now",
            "25:00",
            "02:60",
            "2026-13-01T02:00",
            "2026-11-25",
            "'",
            "12",
            "tomorrow",
            "2460000.5",
        ] {
            assert_eq!(instant(text, NOW), None, "{text}");
        }
    }
}
