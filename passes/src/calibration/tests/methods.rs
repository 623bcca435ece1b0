//! Each method against a plain computation of what it is defined as, on the elements themselves.

use super::*;

/// Numbers that look random, from 0 to 1.
fn uniform(count: usize) -> impl Iterator<Item = f64> {
    let mut state = 1u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Elements like those of activations: a bell, one side of it longer, and some far out.
fn activations(count: usize, outliers: usize) -> Vec<f32> {
    let numbers: Vec<f64> = uniform(12 * count).collect();
    let bell = numbers.chunks(12).map(|twelve| twelve.iter().sum::<f64>() - 6.0);
    let skewed = bell.map(|x| if x > 0.0 { 1.5 * x } else { 0.5 * x });
    let mut all: Vec<f32> = skewed.map(|x| x as f32).collect();
    all.iter_mut().take(outliers).enumerate().for_each(|(i, x)| *x = 40.0 + i as f32);
    all
}

const GRIDS: [Grid; 2] = [Grid::U8, Grid::S8];

#[test]
fn minmax_holds_all_elements_and_zero() {
    let range = |elements: &[f32], grid| column(elements).range(RangeMethod::MinMax, grid);
    assert_eq!(range(&[1.0, 3.5], Grid::U8), Range { min: 0.0, max: 3.5 });
    assert_eq!(range(&[-2.0, -0.5], Grid::U8), Range { min: -2.0, max: 0.0 });
    assert_eq!(range(&[-2.0, 1.0], Grid::U8), Range { min: -2.0, max: 1.0 });
    assert_eq!(range(&[-2.0, 1.0], Grid::S8), Range { min: -2.0, max: 2.0 });
    for method in [RangeMethod::MinMax, RangeMethod::Percentile(99.0), RangeMethod::Entropy, RangeMethod::Mse] {
        for grid in GRIDS {
            assert_eq!(InputStatistics::new(1).range(method, grid), Range { min: 0.0, max: 0.0 });
            assert_eq!(column(&[0.0, 0.0]).range(method, grid), Range { min: 0.0, max: 0.0 });
            let range = column(&[5.0]).range(method, grid);
            assert!(range.min <= 0.0 && range.max <= 5.0 && range.max > 4.0, "{method}: {range:?}");
        }
    }
}

/// The elements that a percentile leaves out, found by sorting.
#[test]
fn percentiles_are_those_of_sorted_elements() {
    for (count, percentage) in [(10_000, 99.9), (10_000, 99.0), (1000, 90.0), (500, 99.999), (300, 100.0)] {
        let elements = activations(count, 3);
        let statistics = column(&elements);
        let width = statistics.histogram.width();
        let mut sorted: Vec<f64> = elements.iter().map(|x| f64::from(*x)).collect();
        sorted.sort_by(f64::total_cmp);
        let beyond = count as f64 * (1.0 - percentage / 100.0);
        let side = (beyond / 2.0).floor() as usize;
        let expected = Range { min: sorted[side], max: sorted[count - 1 - side] };
        let got = statistics.range(RangeMethod::Percentile(percentage), Grid::U8);
        let near = |got: f64, want: f64| (got - want).abs() <= width;
        assert!(near(got.min, expected.min) && near(got.max, expected.max), "{percentage}: {got:?}, {expected:?}");
        let outside = sorted.iter().filter(|x| **x < got.min || **x > got.max).count();
        assert!(outside as f64 <= beyond, "{outside} elements of {count} are beyond {percentage} %");

        let mut magnitudes: Vec<f64> = sorted.iter().map(|x| x.abs()).collect();
        magnitudes.sort_by(f64::total_cmp);
        let limit = magnitudes[count - 1 - beyond.floor() as usize];
        let got = statistics.range(RangeMethod::Percentile(percentage), Grid::S8);
        assert!(near(got.max, limit) && got.min == -got.max, "{percentage}: {got:?}, {limit}");
    }
}

/// The divergence as the description of the search has it, from the elements.
fn brute_entropy(elements: &[f32], width: f64, sides: i64) -> f64 {
    let index = |x: f32| (f64::from(x.abs()) / width).floor() as i64;
    let signed = |x: f32| if x < 0.0 { -1 - index(x) } else { index(x) };
    let mut best = (f64::INFINITY, 0);
    for side in 64..=sides {
        let (mut p, mut s) = (vec![0f64; 2 * side as usize], vec![0f64; 2 * side as usize]);
        for x in elements {
            let bin = signed(*x) + side;
            p[bin.clamp(0, 2 * side - 1) as usize] += 1.0;
            if (0..2 * side).contains(&bin) {
                s[bin as usize] += 1.0;
            }
        }
        let size = s.len() / 128;
        // The bins of the group of a bin: the last of 128 groups has the rest.
        let group = |bin: usize| match (bin / size).min(127) {
            127 => 127 * size..s.len(),
            group => group * size..(group + 1) * size,
        };
        let q: Vec<f64> = (0..s.len())
            .map(|bin| {
                let filled = p[group(bin)].iter().filter(|count| **count != 0.0).count();
                if p[bin] == 0.0 { 0.0 } else { s[group(bin)].iter().sum::<f64>() / filled as f64 }
            })
            .collect();
        let smoothed = |counts: &[f64]| -> Vec<f64> {
            let zeros = counts.iter().filter(|c| **c == 0.0).count() as f64;
            let loss = 1e-4 * zeros / (counts.len() as f64 - zeros);
            counts.iter().map(|c| if *c == 0.0 { 1e-4 } else { c - loss }).collect()
        };
        let (p, q) = (smoothed(&p), smoothed(&q));
        if p.iter().chain(&q).any(|x| *x <= 0.0 || !x.is_finite()) {
            continue;
        }
        let (sum_p, sum_q): (f64, f64) = (p.iter().sum(), q.iter().sum());
        let divergence: f64 = p.iter().zip(&q).map(|(p, q)| (p / sum_p) * ((p / sum_p).ln() - (q / sum_q).ln())).sum();
        if divergence < best.0 - 1e-12 {
            best = (divergence, side);
        }
    }
    best.1 as f64 * width
}

#[test]
fn entropy_is_the_least_divergence_of_all_windows() {
    for (count, outliers) in [(3000, 0), (3000, 2), (400, 1)] {
        let mut elements = activations(count, outliers);
        // In a smaller range there are fewer windows.
        elements.iter_mut().for_each(|x| *x *= 0.25);
        elements.push(63.0);
        let statistics = column(&elements);
        let width = statistics.histogram.width();
        let largest = elements.iter().fold(0f32, |a, x| a.max(x.abs()));
        let used = (f64::from(largest) / width).floor() as i64 + 1;
        let expected = brute_entropy(&elements, width, used.min(220));
        let got = statistics.range(RangeMethod::Entropy, Grid::S8);
        assert_eq!(got, Range { min: -expected, max: expected }, "{count} elements");
        assert!(expected < 63.0, "the last element is clipped");
        let cut = statistics.range(RangeMethod::Entropy, Grid::U8);
        let extremes = statistics.extremes();
        assert_eq!(cut, Range { min: extremes.min.max(-expected), max: expected });
    }
}

#[test]
fn mse_is_the_least_error_of_all_candidates() {
    for (elements, clips) in [(activations(4000, 1), true), (activations(4000, 0), false)] {
        let statistics = column(&elements);
        for grid in GRIDS {
            let whole = statistics.range(RangeMethod::MinMax, grid);
            // Elements quantized one by one.
            let error = |k: u32| -> f64 {
                let factor = f64::from(k) / 256.0;
                let scale = (whole.max - whole.min) * factor / f64::from(grid.steps);
                let first = (whole.min * factor / scale).round();
                let quantized = |x: f64| (x / scale).round().clamp(first, first + f64::from(grid.steps)) * scale;
                elements.iter().map(|x| (f64::from(*x) - quantized(f64::from(*x))).powi(2)).sum()
            };
            let best = (1..=256).map(error).fold(f64::INFINITY, f64::min);
            let got = statistics.range(RangeMethod::Mse, grid);
            let k = (got.max / whole.max * 256.0).round() as u32;
            assert!((got.min - whole.min * f64::from(k) / 256.0).abs() < 1e-9);
            assert!(error(k) <= 1.02 * best, "{} is not near {best}", error(k));
            assert!(!clips || error(k) < error(256), "clipping helps");
        }
    }
}

#[test]
fn methods_have_names() {
    for (text, method) in [
        ("minmax", RangeMethod::MinMax),
        ("entropy", RangeMethod::Entropy),
        ("mse", RangeMethod::Mse),
        ("percentile:99.5", RangeMethod::Percentile(99.5)),
    ] {
        assert_eq!((text.parse(), method.to_string().as_str()), (Ok(method), text));
    }
    assert_eq!("percentile".parse(), Ok(RangeMethod::Percentile(99.999)));
    for wrong in ["", "max", "percentile:", "percentile:101", "percentile:50", "percentile:nan", "mse:1"] {
        assert!(wrong.parse::<RangeMethod>().unwrap_err().to_string().contains("is not a method"), "{wrong}");
    }
}
