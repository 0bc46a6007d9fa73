//! Many comparisons at once: Holm's step-down correction, which bounds the chance of a single false verdict among all.

/// The corrected p values, in the order of `values`. Whatever depends on whatever: Holm's bound holds.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = vec![1.0; values.len()];
    let mut at_least = 0.0_f64;
    for (rank, (place, value)) in order.into_iter().enumerate() {
        let left = super::real(values.len() - rank);
        at_least = at_least.max((value * left).min(1.0));
        if let Some(slot) = corrected.get_mut(place) {
            *slot = at_least;
        }
    }
    corrected
}
