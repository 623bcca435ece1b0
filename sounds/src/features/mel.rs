//! Banks of triangular filters on the mel scale, as `mel_filter_bank` of the transformers library makes them.

/// A scale of pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MelScale {
    /// That of the Hidden Markov Model Toolkit: 2595 log10(1 + f / 700).
    Htk,
    /// Kaldi's: 1127 ln(1 + f / 700).
    Kaldi,
    /// That of Slaney's Auditory Toolbox: linear below 1 kHz and logarithmic above.
    Slaney,
}

/// The frequency from which Slaney's scale is logarithmic, and its place on the scale.
const BREAK: [f64; 2] = [1000.0, 15.0];

impl MelScale {
    /// The place of a frequency in Hz.
    #[must_use]
    pub fn of_hertz(self, hertz: f64) -> f64 {
        match self {
            Self::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            Self::Kaldi => 1127.0 * (1.0 + hertz / 700.0).ln(),
            Self::Slaney if hertz >= BREAK[0] => BREAK[1] + (hertz / BREAK[0]).ln() * 27.0 / 6.4_f64.ln(),
            Self::Slaney => 3.0 * hertz / 200.0,
        }
    }

    /// The frequency in Hz at a place.
    #[must_use]
    pub fn to_hertz(self, mel: f64) -> f64 {
        match self {
            Self::Htk => 700.0 * (10.0_f64.powf(mel / 2595.0) - 1.0),
            Self::Kaldi => 700.0 * ((mel / 1127.0).exp() - 1.0),
            Self::Slaney if mel >= BREAK[1] => BREAK[0] * (6.4_f64.ln() / 27.0 * (mel - BREAK[1])).exp(),
            Self::Slaney => 200.0 * mel / 3.0,
        }
    }
}

/// Filters, each a triangle over frequencies.
#[derive(Clone, Debug, PartialEq)]
pub struct MelBank {
    /// For each band its first bin, and the weights from there on.
    bands: Vec<(usize, Vec<f64>)>,
    bins: usize,
}

/// What a bank is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MelOptions {
    /// How many bands it has.
    pub bands: usize,
    /// The number of frequencies: half of the transform's length, and one.
    pub bins: usize,
    /// Samples per second.
    pub rate: u32,
    /// The lowest and the highest frequency, in Hz.
    pub hertz: [f64; 2],
    /// The scale on which bands have equal distances.
    pub scale: MelScale,
    /// Whether the sides of triangles are straight on the scale, and not in Hz.
    pub is_straight_on_scale: bool,
    /// Whether weights are divided by half of the width of the band in Hz (Slaney's norm).
    pub by_width: bool,
}

impl MelBank {
    /// The bank of some options.
    #[must_use]
    pub fn new(options: MelOptions) -> Self {
        let MelOptions { bands, bins, rate, hertz, scale, is_straight_on_scale, by_width } = options;
        let [low, high] = hertz.map(|hertz| scale.of_hertz(hertz));
        let steps = (bands + 1) as f64;
        let mels: Vec<f64> = (0..bands + 2).map(|at| low + (high - low) * at as f64 / steps).collect();
        let hertz: Vec<f64> = mels.iter().map(|mel| scale.to_hertz(*mel)).collect();
        let last = bins.saturating_sub(1).max(1) as f64;
        let place = |bin: usize| match is_straight_on_scale {
            true => scale.of_hertz(f64::from(rate) / (2.0 * last) * bin as f64),
            false => f64::from(rate / 2) * bin as f64 / last,
        };
        let places: Vec<f64> = (0..bins).map(place).collect();
        let corners = if is_straight_on_scale { &mels } else { &hertz };
        let bands = corners.windows(3).zip(hertz.windows(3)).map(|(corner, hertz)| {
            let scale = if by_width { 2.0 / (hertz[2] - hertz[0]) } else { 1.0 };
            let weight = |place: f64| {
                let up = (place - corner[0]) / (corner[1] - corner[0]);
                let down = (corner[2] - place) / (corner[2] - corner[1]);
                up.min(down).max(0.0) * scale
            };
            let weights: Vec<f64> = places.iter().map(|place| weight(*place)).collect();
            let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
            (first, weights[first..end].to_vec())
        });
        Self { bands: bands.collect(), bins }
    }

    /// How many bands it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bands.len()
    }

    /// Whether it has no bands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// The number of frequencies that it takes.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.bins
    }

    /// The weights of all frequencies for each band: [bands, bins].
    #[must_use]
    pub fn matrix(&self) -> Vec<f64> {
        let mut matrix = vec![0.0; self.bands.len() * self.bins];
        for ((first, weights), row) in self.bands.iter().zip(matrix.chunks_exact_mut(self.bins.max(1))) {
            row[*first..][..weights.len()].copy_from_slice(weights);
        }
        matrix
    }

    /// The energies of bands.
    pub(crate) fn apply(&self, power: &[f64], bands: &mut [f64]) {
        for ((first, weights), band) in self.bands.iter().zip(bands) {
            *band = weights.iter().zip(&power[*first..]).map(|(weight, power)| weight * power).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_go_there_and_back() {
        for scale in [MelScale::Htk, MelScale::Kaldi, MelScale::Slaney] {
            for hertz in [0.0, 20.0, 999.0, 1000.0, 4321.0, 24_000.0] {
                assert!((scale.to_hertz(scale.of_hertz(hertz)) - hertz).abs() < 1e-8, "{scale:?} {hertz}");
            }
        }
        // 1 kHz has 1000 mels by definition, but for Slaney's.
        assert!((MelScale::Htk.of_hertz(1000.0) - 1000.0).abs() < 0.02);
        assert!((MelScale::Kaldi.of_hertz(1000.0) - 1000.0).abs() < 0.02);
    }

    #[test]
    fn bands_are_triangles() {
        let options = MelOptions {
            bands: 80,
            bins: 201,
            rate: 16_000,
            hertz: [0.0, 8000.0],
            scale: MelScale::Slaney,
            is_straight_on_scale: false,
            by_width: false,
        };
        let plain = MelBank::new(options);
        let matrix = plain.matrix();
        assert_eq!((plain.len(), plain.bins(), matrix.len()), (80, 201, 80 * 201));
        // Between the first and the last center, weights of a frequency sum up to 1.
        for bin in 2..180 {
            let sum: f64 = matrix.iter().skip(bin).step_by(201).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{bin}: {sum}");
        }
        let normed = MelBank::new(MelOptions { by_width: true, ..options });
        let area: f64 = normed.matrix()[79 * 201..].iter().sum::<f64>() * 40.0;
        assert!((area - 1.0).abs() < 0.02, "{area}");
    }
}
