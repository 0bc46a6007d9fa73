//! The spread of figures that are measured in pairs.

/// The median, between the two order statistics that contain the true median with at least 95 % probability.
pub fn median_95(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (count, last) = (values.len(), values.len().saturating_sub(1));
    assert!(count >= 6, "{count} pairs are too few: at least 6");
    let mut from = last / 2;
    // As many standard deviations of the number of values below the median, which is binomial.
    while (last as f64 / 2.0 - from as f64) < 0.98 * (count as f64).sqrt() && from > 0 {
        from -= 1;
    }
    let middle = f64::midpoint(values[last / 2], values[count / 2]);
    [values[from], middle, values[last - from]]
}

/// Whether a share in percent, with its interval, is below a limit.
pub fn verdict([low, _, high]: [f64; 3], limit: f64) -> &'static str {
    if high < limit {
        "met"
    } else if low >= limit {
        "MISSED"
    } else {
        "neither shown nor refuted; more pairs show it"
    }
}
