//! How the columns of an input are split.

/// The range that columns are cut into, and the columns that have further columns of codes, at most `most` of them in
/// all: the least R with a sum of `ceil(a / R) - 1` over the columns of at most `most`, where `a` is the magnitude of a
/// column. Magnitudes are finite and not negative.
#[must_use]
pub fn split_columns(magnitudes: &[f32], most: usize) -> (f32, Vec<usize>) {
    let largest = magnitudes.iter().copied().fold(0.0, f32::max);
    if most == 0 || largest == 0.0 {
        return (largest, Vec::new());
    }
    let further = |range: f32| -> usize { magnitudes.iter().map(|a| copies(*a, range) - 1).sum() };
    // A range that is enough, and one that is not. The number of columns falls as the range grows.
    let (mut low, mut high) = (0f32, largest);
    // The float that is enough and next to one that is not.
    while high.to_bits() - low.to_bits() > 1 {
        let middle = f32::from_bits(u32::midpoint(low.to_bits(), high.to_bits()));
        if further(middle) <= most { high = middle } else { low = middle }
    }
    let repeated = |(column, a): (usize, &f32)| std::iter::repeat_n(column, copies(*a, high) - 1);
    (high, magnitudes.iter().enumerate().flat_map(repeated).collect())
}

/// How many parts of a range a magnitude takes; at least one.
fn copies(magnitude: f32, range: f32) -> usize {
    // Beyond any number of columns there are.
    ((f64::from(magnitude) / f64::from(range)).ceil().min(1e9) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_columns_are_split() {
        assert_eq!(split_columns(&[1.0, 8.0, 2.0], 0), (8.0, vec![]));
        assert_eq!(split_columns(&[1.0, 8.0, 2.0], 1), (4.0, vec![1]));
        assert_eq!(split_columns(&[1.0, 8.0, 2.0], 3), (2.0, vec![1, 1, 1]));
        assert_eq!(split_columns(&[1.0, -0.0, 0.5], 1), (0.5, vec![0]));
        assert_eq!(split_columns(&[0.0; 3], 4), (0.0, vec![]));
        assert_eq!(split_columns(&[], 4), (0.0, vec![]));
        // Equal columns are split together or not at all.
        assert_eq!(split_columns(&[3.0, 3.0, 1.0], 1), (3.0, vec![]));
    }

    proptest! {
        /// The range is the least of all that are enough: brute force over every range at which a number of copies
        /// changes.
        #[test]
        fn the_range_is_the_least(magnitudes in prop::collection::vec(0f32..100.0, 1..12), most in 0usize..8) {
            let (range, split) = split_columns(&magnitudes, most);
            prop_assert!(split.len() <= most && split.is_sorted());
            let further = |range: f64| -> f64 {
                magnitudes.iter().map(|a| ((f64::from(*a) / range - 1e-9).ceil() - 1.0).max(0.0)).sum()
            };
            let candidates = magnitudes.iter().flat_map(|a| (1..=most + 1).map(move |n| f64::from(*a) / n as f64));
            let least = candidates.filter(|r| *r > 0.0 && further(*r) <= most as f64).fold(f64::INFINITY, f64::min);
            if least.is_finite() {
                prop_assert!((f64::from(range) / least - 1.0).abs() < 1e-6, "{range} {least}");
            }
            for (column, a) in magnitudes.iter().enumerate() {
                let parts = 1 + split.iter().filter(|c| **c == column).count();
                prop_assert!(f64::from(*a) <= f64::from(range) * parts as f64 * (1.0 + 1e-6));
            }
        }
    }
}
