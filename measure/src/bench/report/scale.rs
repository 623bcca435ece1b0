//! Scales of axes: where a value is on a plot, and which values have ticks.

/// About how many ticks an axis has.
const TICKS: f64 = 5.0;

/// The largest and the least magnitude that a scale shows; others are drawn at the edge.
const LARGEST: f64 = 1e140;
const LEAST: f64 = 1e-140;

/// The share of the range that a logarithmic scale leaves free at each end.
const MARGIN: f64 = 0.06;

/// A scale from values to pixels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    logarithmic: bool,
    /// The values at the two ends.
    domain: [f64; 2],
    /// The pixels of the two ends.
    range: [f64; 2],
    ticks: Vec<f64>,
}

impl Scale {
    /// A linear scale that begins and ends with a tick and has all these values, 0 only if it is one of them. Values that
    /// are not finite are left out.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let [mut low, mut high] = ends(values.into_iter().map(|v| v.clamp(-LARGEST, LARGEST))).unwrap_or([0.0, 1.0]);
        // The least difference leaves room for ticks that differ.
        let magnitude = low.abs().max(high.abs());
        if high - low <= (magnitude * 1e-9).max(LEAST) {
            let half = if magnitude < LEAST { 0.5 } else { magnitude / 10.0 };
            [low, high] = [low - half, high + half];
        }
        let step = step(low, high);
        // Not by rounding alone: 0.3 / 0.1 is a little less than 3.
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let ticks: Vec<f64> = (0..=(last - first) as usize).map(|i| (first + i as f64) * step + 0.0).collect();
        Self { logarithmic: false, domain: [first * step, last * step], range: [0.0, 1.0], ticks }
    }

    /// A logarithmic scale that has all these values and some room around them. Values that are not positive and finite are
    /// left out.
    pub(super) fn logarithmic(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|v| *v > 0.0 && v.is_finite());
        let [mut low, mut high] = ends(positive.map(|v| v.clamp(LEAST, LARGEST))).unwrap_or([1.0, 10.0]);
        if high / low < 1.1 {
            [low, high] = [low / 1.2, high * 1.2];
        }
        let room = (high / low).powf(MARGIN);
        let domain = [low / room, high * room];
        Self { logarithmic: true, domain, range: [0.0, 1.0], ticks: logarithmic_ticks(domain) }
    }

    /// The same between these pixels; the first is that of the least value.
    pub(super) fn between(self, start: f64, end: f64) -> Self {
        Self { range: [start, end], ..self }
    }

    /// The values at the two ends.
    pub(super) fn domain(&self) -> [f64; 2] {
        self.domain
    }

    /// The pixel of a value; of one beyond an end, or that the scale cannot show, that end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let [low, high] = self.domain.map(place);
        let share = if value.is_nan() { 0.0 } else { ((place(value) - low) / (high - low)).clamp(0.0, 1.0) };
        self.range[0] + (self.range[1] - self.range[0]) * share
    }

    /// The ticks: their pixels and texts.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        self.ticks.iter().map(|tick| self.at(*tick)).zip(self.texts()).collect()
    }

    fn texts(&self) -> Vec<String> {
        let plain: Vec<(f64, &str)> = self.ticks.iter().map(|tick| scaled(*tick)).collect();
        // Of a linear scale all ticks have as many digits after the point.
        let digits = |v: f64| format!("{v}").split_once('.').map_or(0, |(_, digits)| digits.len());
        let most = plain.iter().map(|(v, _)| digits(*v)).max().unwrap_or(0);
        let one_unit = plain.iter().all(|(_, unit)| unit.is_empty());
        plain
            .into_iter()
            .map(|(v, unit)| match v {
                v if v != 0.0 && (v.abs() < 1e-4 || v.abs() >= 1e6) => format!("{v:e}"),
                v if !self.logarithmic && one_unit => format!("{v:.most$}"),
                v => format!("{v}{unit}"),
            })
            .collect()
    }
}

/// The least and the largest of the finite values.
fn ends(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.filter(|v| v.is_finite()).map(|v| [v, v]).reduce(|[l, h], [v, _]| [l.min(v), h.max(v)])
}

/// A step of 1, 2 or 5 times a power of ten, such that about [`TICKS`] of them lie between the two.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= rough * (1.0 - 1e-9));
    // In one division or multiplication: 3 * 0.1 is not 0.3, and 3 / 10 is.
    nice.unwrap_or(10.0) * power
}

fn logarithmic_ticks(domain: [f64; 2]) -> Vec<f64> {
    let [low, high] = domain;
    let decades = high.log10() - low.log10();
    let exponents = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let within = |tick: &f64| (low..=high).contains(tick);
    let multiples = |of: &'static [f64]| {
        let powers = exponents.clone().map(|exponent| 10f64.powi(exponent));
        powers.flat_map(move |power| of.iter().map(move |m| rounded(m * power))).filter(within).collect::<Vec<f64>>()
    };
    if decades > 2.0 * TICKS {
        let stride = (decades / TICKS).ceil() as usize;
        return multiples(&[1.0]).into_iter().step_by(stride).collect();
    }
    let choices = [(&[1.0][..], 4), (&[1.0, 3.0], 4), (&[1.0, 2.0, 5.0], 3)];
    let mut choices = choices.into_iter().map(|(of, least)| (multiples(of), least));
    if let Some((ticks, _)) = choices.find(|(ticks, least)| ticks.len() >= *least) {
        return ticks;
    }
    let step = step(low, high);
    let first = (low / step).ceil();
    (0..=2 * TICKS as usize).map(|i| rounded((first + i as f64) * step)).filter(within).collect()
}

/// Without the last digits, which are of rounding.
fn rounded(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// A value in the unit that its tick is written with.
fn scaled(value: f64) -> (f64, &'static str) {
    let (by, unit) = match value.abs() {
        v if v >= 1e15 => (1.0, ""),
        v if v >= 1e12 => (1e12, "T"),
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    (rounded(value / by), unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        let cases: &[(&[f64], &[&str])] = &[
            (&[0.0, 4.2], &["0", "1", "2", "3", "4", "5"]),
            (&[0.0, 0.3], &["0.0", "0.1", "0.2", "0.3"]),
            (&[0.9986, 1.0], &["0.9985", "0.9990", "0.9995", "1.0000"]),
            (&[-3.0, 7.0], &["-4", "-2", "0", "2", "4", "6", "8"]),
            (&[0.0, 23_000.0], &["0", "5000", "10k", "15k", "20k", "25k"]),
            (&[0.0, 3e9], &["0", "1G", "2G", "3G"]),
        ];
        for (values, expected) in cases {
            assert_eq!(texts(&Scale::linear(values.iter().copied())), *expected, "{values:?}");
        }
    }

    #[test]
    fn logarithmic_ticks_are_powers_or_round_numbers() {
        let cases: &[(&[f64], &[&str])] = &[
            (&[1.0, 100.0], &["1", "3", "10", "30", "100"]),
            (&[2.0, 50.0], &["2", "5", "10", "20", "50"]),
            (&[0.032, 0.2], &["0.05", "0.1", "0.2"]),
            (&[0.01, 2e4], &["0.01", "0.1", "1", "10", "100", "1000", "10k"]),
            (&[1e-6, 1e9], &["1e-6", "0.01", "100", "1M"]),
            (&[110.0, 170.0], &["120", "140", "160"]),
        ];
        for (values, expected) in cases {
            let found = texts(&Scale::logarithmic(values.iter().copied()));
            assert_eq!(found, *expected, "{values:?}");
        }
    }

    #[test]
    fn degenerate_ranges_have_ticks() {
        let cases: [&[f64]; 8] = [
            &[],
            &[0.0],
            &[5.0],
            &[-5.0, -5.0],
            &[f64::NAN, f64::INFINITY],
            &[1e9, 1e9 + 1e-7],
            &[f64::MAX, -f64::MAX],
            &[f64::MIN_POSITIVE / 4.0],
        ];
        for values in cases {
            for scale in [Scale::linear(values.iter().copied()), Scale::logarithmic(values.iter().copied())] {
                assert!((2..=16).contains(&texts(&scale).len()), "{values:?}: {scale:?}");
            }
        }
        let one = Scale::linear([5.0]).between(0.0, 100.0);
        assert_eq!(texts(&one), ["4.4", "4.6", "4.8", "5.0", "5.2", "5.4", "5.6"]);
        assert_eq!(one.at(5.0).round(), 50.0);
    }

    #[test]
    fn values_are_placed_in_proportion() {
        let linear = Scale::linear([0.0, 10.0]).between(200.0, 100.0);
        assert_eq!([0.0, 5.0, 10.0, 11.0, f64::NAN].map(|v| linear.at(v)), [200.0, 150.0, 100.0, 100.0, 200.0]);
        let log = Scale::logarithmic([1.0, 100.0]).between(0.0, 112.0);
        let at = [1.0, 10.0, 100.0, 0.0, -1.0].map(|v| log.at(v).round());
        assert_eq!(at, [6.0, 56.0, 106.0, 0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn ticks_rise_inside_the_range(values in proptest::collection::vec(prop_oneof![any::<f64>(), -1e3..1e3f64, 1e-3..1e3f64], 0..5)) {
            for scale in [Scale::linear(values.clone()), Scale::logarithmic(values.clone())] {
                let scale = scale.between(10.0, 110.0);
                let ticks = scale.ticks();
                prop_assert!((2..=16).contains(&ticks.len()), "{:?}", scale);
                for pair in ticks.windows(2) {
                    prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1, "{:?} {:?}", pair, scale);
                }
                for value in values.iter().copied().chain(scale.domain()) {
                    prop_assert!((10.0..=110.0).contains(&scale.at(value)), "{} {:?}", value, scale);
                }
                prop_assert!(ticks.iter().all(|(at, text)| (10.0..=110.0).contains(at) && !text.contains("NaN")));
            }
        }
    }
}
