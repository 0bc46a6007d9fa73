//! The month that a run is filed under.

const US_PER_DAY: i64 = 86_400_000_000;

/// The first day of a UTC month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month {
    year: i64,
    month: i64,
    days_since_1970: i64,
}

impl Month {
    /// Of an instant in microseconds since 1970.
    pub fn of(at_us: i64) -> Self {
        let days = at_us.div_euclid(US_PER_DAY);
        // Days to civil dates, by eras of 400 years that begin in March (H. Hinnant, "chrono-compatible low-level date
        // algorithms").
        let from_march = days + 719_468;
        let era = from_march.div_euclid(146_097);
        let of_era = from_march.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year,
            month,
            days_since_1970: days - day,
        }
    }

    /// As the binary format of PostgreSQL has it: days since 2000. Saturates, as instants end before dates do.
    pub fn postgres_days(self) -> i32 {
        i32::try_from(self.days_since_1970 - 10_957).unwrap_or(i32::MAX)
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-01", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_in_its_month() {
        for (days, text, since_2000) in [
            (0, "1970-01-01", -10_957),
            (-1, "1969-12-01", -10_988),
            (30, "1970-01-01", -10_957),
            (31, "1970-02-01", -10_926),
            (10_957, "2000-01-01", 0),
            (11_016, "2000-02-01", 31),
            (11_017, "2000-03-01", 60),
            (20_787, "2026-11-01", 9_801),
        ] {
            let month = Month::of(days * US_PER_DAY + US_PER_DAY - 1);
            assert_eq!(month.to_string(), text, "{days}");
            assert_eq!(month.postgres_days(), since_2000, "{days}");
        }
    }
}
