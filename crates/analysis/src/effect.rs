//! Effect size: a difference relative to the scatter of the values.

/// Hedges' g: the distance of two means in pooled standard deviations.
pub fn effect_size(a: &[f64], b: &[f64]) -> Option<f64> {
    let of = |values: &[f64]| {
        let n = super::real(values.len());
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (n, mean, squares)
    };
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let ((n_a, mean_a, squares_a), (n_b, mean_b, squares_b)) = (of(a), of(b));
    let degrees = n_a + n_b - 2.0;
    let deviation = ((squares_a + squares_b) / degrees).sqrt();
    let small_sample = 1.0 - 3.0 / (4.0 * degrees - 1.0);
    (deviation > 0.0).then(|| (mean_b - mean_a) / deviation * small_sample)
}
