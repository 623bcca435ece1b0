//! Tables of positions of a grid for a grid of other sides, as `torch.nn.functional.interpolate` resamples them with
//! `align_corners=False`.

use planish_ir::{DType, Weight};

/// How numbers between those of the table come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// `bilinear`.
    Linear,
    /// `bicubic`.
    Cubic,
    /// `bicubic` with `antialias=True`.
    SmoothCubic,
}

/// The most numbers that say what a side of a grid takes of another.
const MAX_TAPS: usize = 1 << 26;

/// A table, [rows * columns, features] of a grid, for another grid. Nothing is read before the result is. `None` where the shape
/// does not fit, or a grid has too long a side.
pub(crate) fn resample(table: &Weight, from: [usize; 2], to: [usize; 2], filter: Filter) -> Option<Weight> {
    let &[count, features] = table.shape() else { return None };
    if count != from[0] * from[1] {
        return None;
    }
    if from == to {
        return Some(table.clone());
    }
    let side = |table: &Weight, from: usize, to: usize| {
        to.checked_mul(from).filter(|taps| *taps <= MAX_TAPS)?;
        let taps = Weight::numbers(DType::F32, vec![to, from], &taps(filter, from, to))?;
        let inner = table.elements() / from;
        let zeros = Weight::scalar(DType::F32, 0.0).reshape(&[1, 1])?.pad(&[to, inner], 0.0)?;
        zeros.plus_product(&taps, &table.reshape(&[from, inner])?)
    };
    // Rows, then columns as rows.
    let rows = side(table, from[0], to[0])?.reshape(&[to[0], from[1], features])?.transpose(&[1, 0, 2])?;
    let columns = side(&rows, from[1], to[1])?.reshape(&[to[1], to[0], features])?.transpose(&[1, 0, 2])?;
    columns.reshape(&[to[0] * to[1], features])
}

/// What each of `to` numbers takes of each of `from`: [to, from].
fn taps(filter: Filter, from: usize, to: usize) -> Vec<f64> {
    let scale = from as f64 / to as f64;
    let mut taps = vec![0.0; to * from];
    for (at, row) in taps.chunks_exact_mut(from).enumerate() {
        let centre = scale * (at as f64 + 0.5);
        // Those beyond an end are the one at the end.
        let mut add = |place: f64, part: f64| row[place.clamp(0.0, (from - 1) as f64) as usize] += part;
        match filter {
            Filter::Linear => {
                let place = (centre - 0.5).max(0.0);
                add(place.floor(), 1.0 - place.fract());
                add(place.floor() + 1.0, place.fract());
            }
            Filter::Cubic => {
                let first = (centre - 0.5).floor() - 1.0;
                (0..4).map(|i| first + f64::from(i)).for_each(|place| add(place, cubic(place - centre + 0.5, -0.75)));
            }
            Filter::SmoothCubic => {
                let (reach, wide) = (2.0 * scale.max(1.0), scale.max(1.0));
                let first = (centre - reach + 0.5).trunc().max(0.0) as usize;
                let end = ((centre + reach + 0.5).trunc() as usize).min(from);
                let part = |place: usize| cubic((place as f64 - centre + 0.5) / wide, -0.5);
                let sum: f64 = (first..end).map(part).sum();
                (first..end).for_each(|place| row[place] = part(place) / sum);
            }
        }
    }
    taps
}

/// The kernel of bicubic convolution at a distance, with the parameter `a` (Keys 1981, doi:10.1109/TASSP.1981.1163711).
fn cubic(distance: f64, a: f64) -> f64 {
    match distance.abs() {
        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(table: &[f64], from: [usize; 2], to: [usize; 2], filter: Filter) -> Vec<f64> {
        let table = Weight::numbers(DType::F32, vec![table.len(), 1], table).unwrap();
        resample(&table, from, to, filter).unwrap().read_numbers().unwrap()
    }

    fn assert_near(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-5, "{found} and {wanted}");
        }
    }

    // What torch 2.15 computes of 0, 1, 4, 9.
    #[test]
    fn numbers_are_those_of_torch() {
        let table = [0.0, 1.0, 4.0, 9.0];
        assert_near(&resampled(&table, [1, 4], [1, 6], Filter::Linear), LINEAR);
        assert_near(&resampled(&table, [4, 1], [6, 1], Filter::Cubic), CUBIC);
        assert_near(&resampled(&table, [1, 4], [1, 6], Filter::SmoothCubic), SMOOTH);
        assert_near(&resampled(&table, [1, 4], [1, 3], Filter::SmoothCubic), SMOOTH_LESS);
        assert_near(&resampled(&table, [2, 2], [3, 4], Filter::Cubic), SQUARE);
    }

    #[test]
    fn a_table_of_the_same_grid_is_not_touched_and_others_have_to_fit() {
        let table = Weight::numbers(DType::F32, vec![4, 1], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(resample(&table, [2, 2], [2, 2], Filter::Cubic), Some(table.clone()));
        assert_eq!(resample(&table, [2, 3], [2, 2], Filter::Cubic), None);
    }

    const LINEAR: &[f64] = &[0.000000, 0.500000, 1.500000, 3.500000, 6.500000, 9.000000];

    const CUBIC: &[f64] = &[-0.086806, 0.218750, 1.430555, 3.152778, 6.781250, 9.434029];

    const SMOOTH: &[f64] = &[-0.065789, 0.294118, 1.361111, 3.361111, 6.823530, 9.328948];

    const SMOOTH_LESS: &[f64] = &[0.075515, 2.359195, 7.935927];

    const SQUARE: &[f64] = &[
        -0.416070, -0.199327, 0.157661, 0.374403, 1.683594, 2.679688, 4.320312, 5.316406, 3.783257, 5.558702, 8.482964,
        10.258408,
    ];
}
