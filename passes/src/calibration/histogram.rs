//! A histogram whose range grows.

/// How many bins a histogram has, half of them for negative elements.
pub const BINS: usize = 2048;

/// The bins of one sign.
pub(super) const SIDE: usize = BINS / 2;

/// The least exponent of a range; elements below 2^-74 in magnitude are counted with zero.
const LEAST_EXPONENT: i16 = -64;

/// How many elements lie where, in bins of one width over [-T, T]. T is the least power of two above all magnitudes,
/// and at least 2^-64. When T doubles, pairs of bins become one, so the counts do not depend on the order of the data.
///
/// Bin `BINS / 2 + k` has the elements of [k w, (k + 1) w), and bin `BINS / 2 - 1 - k` the negative ones of
/// (-(k + 1) w, -k w], with the width w = T / 1024. Zero, of either sign, is in bin `BINS / 2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    exponent: i16,
    /// [`BINS`] of them.
    counts: Vec<u64>,
}

/// A histogram in parts, as tables store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramParts {
    /// T is 2 to this power.
    pub exponent: i16,
    /// The counts, from the most negative bin on.
    pub counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { exponent: LEAST_EXPONENT, counts: vec![0; BINS] }
    }
}

impl Histogram {
    /// The histogram of given parts; `None` where there is none: other than [`BINS`] counts, or an exponent that no
    /// data leads to.
    #[must_use]
    pub fn from_parts(parts: HistogramParts) -> Option<Self> {
        let HistogramParts { exponent, counts } = parts;
        let fits = counts.len() == BINS && (LEAST_EXPONENT..=65).contains(&exponent);
        fits.then_some(Self { exponent, counts })
    }

    /// The parts.
    #[must_use]
    pub fn to_parts(&self) -> HistogramParts {
        HistogramParts { exponent: self.exponent, counts: self.counts.clone() }
    }

    /// The counts, from the most negative bin on.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of elements.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// T: all elements lie between -T and T.
    #[must_use]
    pub fn limit(&self) -> f64 {
        f64::from(self.exponent).exp2()
    }

    /// The width of a bin.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.limit() / SIDE as f64
    }

    /// The lower edge of a bin; for [`BINS`] the upper edge of the last one.
    #[must_use]
    pub fn edge(&self, bin: usize) -> f64 {
        (bin as f64 - SIDE as f64) * self.width()
    }

    /// Doubles T until it exceeds a magnitude.
    pub(super) fn widen(&mut self, magnitude: f32) {
        while f64::from(magnitude) >= self.limit() {
            self.double();
        }
    }

    fn double(&mut self) {
        let old = std::mem::replace(&mut self.counts, vec![0; BINS]);
        for (k, (&positive, &negative)) in old[SIDE..].iter().zip(old[..SIDE].iter().rev()).enumerate() {
            self.counts[SIDE + k / 2] += positive;
            self.counts[SIDE - 1 - k / 2] += negative;
        }
        self.exponent += 1;
    }

    /// Counts elements that are below T in magnitude.
    pub(super) fn add(&mut self, elements: &[f32]) {
        const LANES: usize = 64;
        const LAST_NEGATIVE: u32 = SIDE as u32 - 1;
        // Products with powers of two are exact, or are below 1 and stay so.
        let scale = (1.0 / self.width()) as f32;
        let mut bins = [0u32; LANES];
        for chunk in elements.chunks(LANES) {
            for (bin, x) in bins.iter_mut().zip(chunk) {
                let k = (x.abs() * scale) as u32;
                *bin = if *x < 0.0 { LAST_NEGATIVE - k } else { LAST_NEGATIVE + 1 + k };
            }
            for bin in &bins[..chunk.len()] {
                self.counts[*bin as usize] += 1;
            }
        }
    }

    /// Adds the elements of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        while self.exponent < other.exponent {
            self.double();
        }
        let mut other = other.clone();
        while other.exponent < self.exponent {
            other.double();
        }
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(elements: &[f32]) -> Histogram {
        let mut histogram = Histogram::default();
        for x in elements {
            histogram.widen(x.abs());
            histogram.add(&[*x]);
        }
        histogram
    }

    /// The bin by the definition, in float64.
    fn bin(x: f32, limit: f64) -> usize {
        let k = (f64::from(x).abs() / (limit / 1024.0)).floor() as usize;
        if x < 0.0 { 1023 - k } else { 1024 + k }
    }

    #[test]
    fn elements_are_in_the_bin_that_the_final_range_gives_them() {
        let elements = [
            0.0, -0.0, 1e-44, -1e-44, 1e-30, 0.5, -0.5, 0.999, 1.0, -1.0, 1.001, -3.999, 1000.0, -1e-7, 4096.0, 7.0e6,
            -8388608.0,
        ];
        let histogram = of(&elements);
        assert_eq!((histogram.limit(), histogram.total()), (16_777_216.0, 17));
        let mut expected = vec![0; BINS];
        elements.iter().for_each(|x| expected[bin(*x, histogram.limit())] += 1);
        assert_eq!(histogram.counts(), expected);
        let mut reversed = elements;
        reversed.reverse();
        assert_eq!(of(&reversed), histogram);
        let (mut a, b) = (of(&elements[..9]), of(&elements[9..]));
        let mut other = b.clone();
        other.merge(&a);
        a.merge(&b);
        assert_eq!((&a, &other), (&histogram, &histogram));
    }

    #[test]
    fn edges_are_multiples_of_the_width() {
        let histogram = of(&[3.0]);
        assert_eq!((histogram.limit(), histogram.width()), (4.0, 4.0 / 1024.0));
        assert_eq!((histogram.edge(0), histogram.edge(1024), histogram.edge(2048)), (-4.0, 0.0, 4.0));
        assert_eq!(Histogram::from_parts(histogram.to_parts()), Some(histogram.clone()));
        let mut parts = histogram.to_parts();
        parts.counts.pop();
        assert_eq!(Histogram::from_parts(parts), None);
    }
}
