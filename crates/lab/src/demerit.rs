//! How far a model is from measured times.
//!
//! The demerit figure (Ruemmler & Wilkes, IEEE Computer 3/1994): draw the distributions of the
//! measured and the modelled times, and take the root mean square of their horizontal distance.
//! With equally many times that is the distance of the sorted lists. It says nothing about single
//! requests.

/// The demerit figure of modelled against measured times, as a share of the measured mean. Sorts
/// both.
///
/// # Panics
/// If the lists are empty or differ in length.
pub fn demerit(modelled: &mut [u64], measured: &mut [u64]) -> f64 {
    assert_eq!(modelled.len(), measured.len(), "one modelled time for each measured one");
    assert!(!measured.is_empty(), "no times to compare");
    modelled.sort_unstable();
    measured.sort_unstable();
    let square = |(a, b): (&u64, &u64)| (a.abs_diff(*b) as f64).powi(2);
    let squares: f64 = modelled.iter().zip(measured.iter()).map(square).sum();
    let root = (squares / measured.len() as f64).sqrt();
    root / mean(measured)
}

/// The mean of some times.
pub fn mean(times: &[u64]) -> f64 {
    times.iter().map(|&time| time as f64).sum::<f64>() / times.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_distributions_have_none_and_a_shift_is_its_share_of_the_mean() {
        assert_eq!(demerit(&mut [3, 1, 2], &mut [1, 2, 3]), 0.0);
        let shifted = demerit(&mut [11, 21, 31], &mut [10, 20, 30]);
        assert!((shifted - 0.05).abs() < 1e-12, "{shifted}");
    }
}
