//! Student's t distribution, from the regularised incomplete beta function (Numerical Recipes, 3rd edition, 6.4).

/// Terms of the continued fraction; it converges within a few dozen.
const TERMS: u32 = 300;
const TINY: f64 = 1e-300;

/// The probability that a t with these degrees of freedom is at least as far from 0 as `t`.
pub fn two_sided(t: f64, degrees: f64) -> f64 {
    if t.is_nan() || degrees.is_nan() || degrees <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The distance from 0 that a t with these degrees of freedom exceeds, in either direction, with `probability`.
pub fn two_sided_quantile(probability: f64, degrees: f64) -> f64 {
    let mut high = 1.0;
    while two_sided(high, degrees) > probability && high < 1e9 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match two_sided(middle, degrees) > probability {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function I_x(a, b).
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    match x < (a + 1.0) / (a + b + 2.0) {
        true => front * fraction(a, b, x) / a,
        false => 1.0 - front * fraction(b, a, 1.0 - x) / b,
    }
}

/// Lentz's method for the continued fraction of the incomplete beta function.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut product = d;
    for term in 1..=TERMS {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / not_zero(1.0 + even * d);
        c = not_zero(1.0 + even / c);
        product *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / not_zero(1.0 + odd * d);
        c = not_zero(1.0 + odd / c);
        product *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    product
}

/// Lanczos' approximation, good to 15 digits.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 14] = [
        57.156_235_665_862_92,
        -59.597_960_355_475_49,
        14.136_097_974_741_746,
        -0.491_913_816_097_620_2,
        0.339_946_499_848_118_9e-4,
        0.465_236_289_270_485_8e-4,
        -0.983_744_753_048_795_6e-4,
        0.158_088_703_224_912_5e-3,
        -0.210_264_441_724_104_9e-3,
        0.217_439_618_115_212_6e-3,
        -0.164_318_106_536_763_9e-3,
        0.844_182_239_838_527_4e-4,
        -0.261_908_384_015_814_1e-4,
        0.368_991_826_595_316_2e-5,
    ];
    let shifted = x + 5.242_187_5;
    let mut sum = 0.999_999_999_999_997_1;
    let mut place = x;
    for term in TERMS {
        place += 1.0;
        sum += term / place;
    }
    (x + 0.5) * shifted.ln() - shifted + (2.506_628_274_631_000_5 * sum / x).ln()
}
