//! Resizing as Pillow computes it: two passes of weighted sums, in integers of 22 fractional bits.

use std::f64::consts::PI;

use crate::Picture;

/// What the weights of neighbours follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The pixel at the same place.
    Nearest,
    /// Lanczos' windowed sinc of three lobes.
    Lanczos,
    /// A triangle.
    Bilinear,
    /// Keys' cubic with a = -0.5.
    Bicubic,
    /// A rectangle: means of areas.
    Box,
    /// Hamming's windowed sinc of one lobe.
    Hamming,
}

/// Fractional bits of weights.
const BITS: u32 = 22;

impl Filter {
    /// The filter that Pillow gives a number (`PIL.Image.Resampling`).
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        [Self::Nearest, Self::Lanczos, Self::Bilinear, Self::Bicubic, Self::Box, Self::Hamming]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// How far from its center the filter is not 0.
    fn support(self) -> f64 {
        match self {
            Self::Nearest | Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        let at = x.abs();
        match self {
            Self::Nearest | Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - at).max(0.0),
            Self::Hamming if at == 0.0 => 1.0,
            Self::Hamming if at >= 1.0 => 0.0,
            Self::Hamming => {
                let x = at * PI;
                // In float32, as Pillow has them.
                x.sin() / x * (f64::from(0.54f32) + f64::from(0.46f32) * x.cos())
            }
            Self::Bicubic if at < 1.0 => (1.5 * at - 2.5) * at * at + 1.0,
            Self::Bicubic if at < 2.0 => ((at - 5.0) * at + 8.0) * at * -0.5 + 2.0,
            Self::Bicubic => 0.0,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

/// The neighbours of a place of the result: the first one, and the weights.
struct Window {
    first: usize,
    weights: Vec<i32>,
}

/// The windows of the places of a line that has another length.
fn windows(from: usize, to: usize, filter: Filter) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let window = |place: usize| {
        let center = (place as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let weights: Vec<f64> =
            (first..end.max(first)).map(|x| filter.weight((x as f64 - center + 0.5) * (1.0 / stretch))).collect();
        let sum: f64 = weights.iter().sum();
        let part = |weight: f64| {
            let share = if sum == 0.0 { weight } else { weight / sum };
            (share * f64::from(1 << BITS) + 0.5f64.copysign(share)) as i32
        };
        Window { first, weights: weights.into_iter().map(part).collect() }
    };
    (0..to).map(window).collect()
}

/// The weighted sum of samples that are `step` apart.
fn sum(window: &Window, samples: &[u8], step: usize) -> u8 {
    let start: i32 = 1 << (BITS - 1);
    let parts = window.weights.iter().zip(samples[window.first * step..].iter().step_by(step));
    let sum = parts.fold(start, |sum, (weight, sample)| sum + weight * i32::from(*sample));
    (sum >> BITS).clamp(0, 255) as u8
}

impl Picture {
    /// The picture in another size. `None` where that has no pixels.
    #[must_use]
    pub fn resize(&self, width: usize, height: usize, filter: Filter) -> Option<Self> {
        if width == 0 || height == 0 {
            return None;
        }
        if filter == Filter::Nearest {
            return self.nearest(width, height);
        }
        // As Pillow 13: the pass that leaves less for the other one comes first.
        let [taller, wider] = [(self.height(), height), (self.width(), width)]
            .map(|(from, to)| from.cast_signed().saturating_sub(to.cast_signed()));
        if taller > 0 && taller > wider.saturating_mul(2) {
            return self.in_height(height, filter)?.in_width(width, filter);
        }
        self.in_width(width, filter)?.in_height(height, filter)
    }

    /// With another width.
    fn in_width(&self, width: usize, filter: Filter) -> Option<Self> {
        if width == self.width() {
            return Some(self.clone());
        }
        let windows = windows(self.width(), width, filter);
        let mut pixels = Vec::with_capacity(3 * width * self.height());
        for line in self.pixels().chunks_exact(3 * self.width()) {
            for window in &windows {
                pixels.extend((0..3).map(|channel| sum(window, &line[channel..], 3)));
            }
        }
        Self::new(width, self.height(), pixels)
    }

    /// With another height.
    fn in_height(&self, height: usize, filter: Filter) -> Option<Self> {
        if height == self.height() {
            return Some(self.clone());
        }
        let step = 3 * self.width();
        let mut pixels = Vec::with_capacity(step * height);
        for window in windows(self.height(), height, filter) {
            pixels.extend((0..step).map(|at| sum(&window, &self.pixels()[at..], step)));
        }
        Self::new(self.width(), height, pixels)
    }

    /// The pixels at the places that the centers of the new ones have.
    fn nearest(&self, width: usize, height: usize) -> Option<Self> {
        // Steps are added up, as Pillow does: a product rounds to other pixels now and then.
        let places = |from: usize, to: usize| -> Vec<usize> {
            let step = from as f64 / to as f64;
            let next = |at: &f64| Some(at + step);
            std::iter::successors(Some(0.5 * step), next).take(to).map(|at| (at as usize).min(from - 1)).collect()
        };
        let (columns, rows) = (places(self.width(), width), places(self.height(), height));
        let pixel = |row: usize, column: usize| &self.pixels()[3 * (row * self.width() + column)..][..3];
        let pixels = rows.iter().flat_map(|row| columns.iter().flat_map(|column| pixel(*row, *column))).copied();
        Self::new(width, height, pixels.collect())
    }
}
