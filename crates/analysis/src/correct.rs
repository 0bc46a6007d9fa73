//! Multiple comparisons: Holm's step-down correction, which bounds the probability of any false verdict.

/// A corrected p value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corrected {
    pub p: f64,
    /// The level at which Holm's procedure tests it: the interval at one minus this excludes 1 exactly if the corrected
    /// p value is below `alpha`.
    pub level: f64,
}

/// In the order of `values`. Holm's bound holds for any dependence between them.
pub fn holm(values: &[f64], alpha: f64) -> Vec<Corrected> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = vec![
        Corrected {
            p: 1.0,
            level: alpha
        };
        values.len()
    ];
    let mut at_least = 0.0_f64;
    let mut failed: Option<f64> = None;
    for (rank, (place, value)) in order.into_iter().enumerate() {
        let left = super::real(values.len() - rank);
        at_least = at_least.max((value * left).min(1.0));
        // After the first hypothesis that is not rejected, no other is tested at a more lenient level.
        let level = failed.unwrap_or(alpha / left);
        if at_least >= alpha {
            failed = Some(level);
        }
        if let Some(slot) = corrected.get_mut(place) {
            *slot = Corrected { p: at_least, level };
        }
    }
    corrected
}
