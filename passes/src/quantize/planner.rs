//! From what is asked for, and what calibration measured, to a plan.

use std::collections::BTreeMap;

use planish_ir::{DType, Graph, Op, ValueId};
use rayon::prelude::*;

use super::sites::{MIN_FEATURES, Site, layer, name, sites};
use super::smooth::smooth_factors;
use super::split::split_columns;
use super::tables::Tables;
use super::trial::Trial;
use super::{Activation, Plan, PlannedInput};
use super::{attention, maps, norms, recurrent};
use crate::calibration::{ColumnStatistics, Grid, InputStatistics, RangeMethod, SampledRow};
use crate::{Exceptions, PassError, QuantizedForm, Range, Target};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The type of the codes of activations: u8 with a zero point, i8 or f8e4m3fn without one.
    pub codes: DType,
    /// The form of quantized layers of the target.
    pub form: QuantizedForm,
    /// How the range of an input is chosen.
    pub range: RangeMethod,
    /// How many columns of codes an input may have more than columns.
    pub split_columns: usize,
    /// How the inputs that norms give are smoothed.
    pub smooth: Smooth,
    /// The error of the results of its layers, the mean over tokens of the ratio of sums of squares, within which an input
    /// is not split.
    pub max_loss: f64,
    /// Whether the scales of inputs are those of each run. With a calibration, it says what is smoothed and split.
    pub dynamic: bool,
    /// Whether tables that rows are looked up in become codes of i8, and weights of recurrent layers.
    pub weights: bool,
    /// What stays a float: layers whose name or that of their weight, or an origin, matches, and tables of tokens.
    pub keep: Exceptions,
    /// Weights that stay floats because they are not finite: by their names, and why.
    pub not_finite: BTreeMap<String, String>,
}

impl Settings {
    /// INT8 as a target computes it.
    #[must_use]
    pub fn int8(target: &Target) -> Self {
        let codes = match target.quantized {
            QuantizedForm::IntegerProducts | QuantizedForm::UnsignedPairs => DType::U8,
            QuantizedForm::Pairs | QuantizedForm::SignedPairs | QuantizedForm::Codes => DType::I8,
        };
        Self {
            codes,
            form: target.quantized,
            range: RangeMethod::MinMax,
            split_columns: if target.quantized == QuantizedForm::Codes { 0 } else { SPLIT_COLUMNS },
            smooth: Smooth::Auto,
            max_loss: MAX_LOSS,
            dynamic: false,
            weights: true,
            keep: Exceptions::default(),
            not_finite: BTreeMap::new(),
        }
    }

    /// FP8, E4M3.
    #[must_use]
    pub fn fp8() -> Self {
        Self {
            codes: DType::F8E4M3FN,
            form: QuantizedForm::Pairs,
            range: RangeMethod::MinMax,
            split_columns: 0,
            smooth: Smooth::Off,
            max_loss: MAX_LOSS,
            dynamic: false,
            weights: false,
            keep: Exceptions::default(),
            not_finite: BTreeMap::new(),
        }
    }
}

/// How columns of an input are divided, and columns of weights multiplied, by factors
/// `max|x|^alpha / max|w|^(1 - alpha)` (SmoothQuant).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Smooth {
    /// Not at all.
    Off,
    /// With this alpha.
    Alpha(f32),
    /// With the alpha that has the least error on rows that the factors were not computed of.
    Auto,
}

/// How many columns of codes an input has more than columns, unless asked for another number.
pub const SPLIT_COLUMNS: usize = 32;

/// The error of the results of layers within which an input is not split, unless asked for another one.
const MAX_LOSS: f64 = 3e-3;

impl Plan {
    /// A plan for a graph that has been raised. With the statistics of its inputs, by their names, scales are fixed unless
    /// they are to be dynamic; without, they are those of each run, and the weights of norms say what is smoothed.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn new(
        graph: &Graph,
        settings: &Settings,
        statistics: Option<&BTreeMap<String, InputStatistics>>,
    ) -> Result<Self, PassError> {
        let tables = Tables::of(graph, settings);
        let planned = |site: &Site| {
            // Factors of columns would make other codes of a weight than those of the table.
            let shared = site.layers.iter().any(|layer| tables.shares(graph, *layer));
            let settings = if shared { &Settings { smooth: Smooth::Off, ..settings.clone() } } else { settings };
            let value = graph.value(site.value).name.clone();
            let activation = match (kept(graph, site, settings), statistics) {
                (Some(reason), _) => Activation::Float { reason },
                (None, None) => {
                    let smooth = if settings.smooth == Smooth::Off { Vec::new() } else { norms::factors(graph, site)? };
                    Activation::Dynamic { split: Vec::new(), limit: None, smooth }
                }
                (None, Some(statistics)) => match statistics.get(&value).filter(|s| s.columns.len() == site.columns) {
                    Some(statistics) => calibrated(graph, site, statistics, settings)?,
                    None => Activation::Float { reason: "the calibration does not have it".to_owned() },
                },
            };
            let layers = site.layers.iter().map(|layer| name(graph, *layer).to_owned()).collect();
            Ok(PlannedInput { value, layers, layer_loss: None, activation })
        };
        let inputs: Vec<PlannedInput> = sites(graph).par_iter().map(planned).collect::<Result<_, PassError>>()?;
        let maps = statistics.map(|statistics| maps::planned(graph, settings, statistics)).unwrap_or_default();
        let convolutions = match statistics {
            Some(_) => Vec::new(),
            None => maps::planned_weights(graph, settings),
        };
        let weights = tables.planned(graph, &inputs).into_iter().chain(recurrent::planned(graph, settings));
        let weights = weights.chain(convolutions).collect();
        let attention = match statistics {
            Some(statistics) => attention::planned(graph, settings, statistics)?,
            None => Vec::new(),
        };
        Ok(Self { inputs, attention, maps, weights })
    }
}

impl Settings {
    /// For each exception, whether it names a layer, a convolution, the product of an attention, a table or the weight of a recurrent layer of a
    /// graph that has been raised.
    #[must_use]
    pub fn matched(&self, graph: &Graph) -> Vec<bool> {
        let layers = sites(graph).into_iter().flat_map(|site| site.layers);
        let named = layers.filter_map(|id| {
            let node = graph.node(id);
            Some(vec![layer(graph, node)?.0.weight, node.outputs[0]])
        });
        let attentions = attention::named(graph, self).into_iter().map(|(_, values)| values.to_vec());
        let recurrent = recurrent::named(graph).into_iter().filter(|_| self.weights);
        let all: Vec<Vec<ValueId>> = named.chain(attentions).chain(recurrent).chain(maps::named(graph, self)).collect();
        let values = self.keep.matched(&all, |of, values| of.any(values.iter().map(|value| graph.value(*value))));
        let tables = if self.weights { Tables::named(graph) } else { Vec::new() };
        let tables = self.keep.matched(&tables, |of, (table, uses)| uses.matches(graph, *table, of) || of.is_table());
        values.into_iter().zip(tables).map(|(value, table)| value || table).collect()
    }
}

/// Why an input stays a float.
fn kept(graph: &Graph, site: &Site, settings: &Settings) -> Option<String> {
    for id in &site.layers {
        let node = graph.node(*id);
        let (linear, features) = layer(graph, node)?;
        let names = [linear.weight, node.outputs[0]].map(|value| graph.value(value));
        if let Some(exception) = settings.keep.float(|named| named.any(names.into_iter())) {
            return Some(exception.reason.clone());
        }
        if let Some(reason) = settings.not_finite.get(&names[0].name) {
            return Some(reason.clone());
        }
        if let Some(least) = features.iter().find(|features| **features < MIN_FEATURES) {
            return Some(format!("a layer of {least} features is too small"));
        }
    }
    None
}

/// The codes of an input whose elements were measured: smoothed where a norm gives it and that lowers the error, and split
/// into as few columns more as bring the error within the limit; where none does, the form with the least error.
fn calibrated(
    graph: &Graph,
    site: &Site,
    statistics: &InputStatistics,
    settings: &Settings,
) -> Result<Activation, PassError> {
    let plain = fixed(statistics, settings, 0, None);
    let norm = graph.producer(site.value).is_some_and(|node| matches!(node.op, Op::LayerNorm(_) | Op::RmsNorm(_)));
    let smooths = norm && settings.smooth != Smooth::Off;
    if settings.codes == DType::F8E4M3FN || settings.split_columns == 0 && !smooths {
        return Ok(plain);
    }
    let trial = Trial::new(graph, site, statistics.rows.matrix())?;
    let (mut best, mut least) = (plain.clone(), trial.loss(&plain));
    let mut offer = |activation: Activation| {
        let loss = trial.loss(&activation);
        if loss < least {
            (best, least) = (activation, loss);
        }
    };
    offer(plain);
    // A factor for each column costs next to nothing.
    if smooths {
        let alpha = match settings.smooth {
            Smooth::Alpha(alpha) => alpha,
            Smooth::Auto | Smooth::Off => held_out_alpha(&trial, statistics, settings),
        };
        let factors = smooth_factors(&magnitudes(statistics), &trial.weight_magnitudes(), alpha);
        offer(fixed(statistics, settings, 0, Some(factors)));
    }
    if least <= settings.max_loss {
        return Ok(best);
    }
    // Fewer columns are cheaper.
    let counts = [8, 4, 2, 1].map(|part| settings.split_columns / part);
    for count in counts.into_iter().filter(|count| *count > 0) {
        let split = fixed(statistics, settings, count, None);
        let loss = trial.loss(&split);
        if loss < least {
            (best, least) = (split, loss);
        }
        if least <= settings.max_loss {
            break;
        }
    }
    Ok(best)
}

/// The alphas that are tried.
const ALPHAS: [f32; 6] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// The alpha with the least error on rows that the factors and the range were not computed of: each half of the sample
/// is tried with those of the other half.
fn held_out_alpha(trial: &Trial, statistics: &InputStatistics, settings: &Settings) -> f32 {
    let rows = statistics.rows.rows();
    let halves = [&rows[..rows.len() / 2], &rows[rows.len() / 2..]];
    let folds = [(halves[0], halves[1]), (halves[1], halves[0])].map(|(seen, held_out)| {
        let rows: Vec<f32> = held_out.iter().flat_map(SampledRow::values).collect();
        (InputStatistics::of_rows(statistics.columns.len(), seen), trial.with_rows(rows))
    });
    let weights = trial.weight_magnitudes();
    let loss = |alpha: f32| -> f64 {
        let fold = |(seen, trial): &(InputStatistics, Trial)| {
            let factors = smooth_factors(&magnitudes(seen), &weights, alpha);
            trial.loss(&fixed(seen, settings, 0, Some(factors)))
        };
        folds.iter().map(fold).sum()
    };
    let losses = ALPHAS.map(|alpha| (loss(alpha), alpha));
    let best = losses.into_iter().reduce(|best, next| if next.0 < best.0 { next } else { best });
    best.map_or(ALPHAS[0], |(_, alpha)| alpha)
}

/// The magnitudes of columns.
fn magnitudes(statistics: &InputStatistics) -> Vec<f32> {
    statistics.columns.iter().map(ColumnStatistics::magnitude).collect()
}

/// The codes of an input with so many columns of codes more than columns, or divided by factors.
pub(super) fn fixed(
    statistics: &InputStatistics,
    settings: &Settings,
    most: usize,
    factors: Option<Vec<f32>>,
) -> Activation {
    let symmetric = settings.codes != DType::U8;
    let grid = if symmetric { Grid::S8 } else { Grid::U8 };
    let range = match &factors {
        None => statistics.range(settings.range, grid),
        Some(factors) => smoothed_range(statistics, factors),
    };
    let largest = range.magnitude() as f32;
    let (limit, split) = match factors {
        Some(_) => (largest, Vec::new()),
        None => {
            let magnitudes: Vec<f32> = magnitudes(statistics).into_iter().map(|a| a.min(largest)).collect();
            split_columns(&magnitudes, most)
        }
    };
    if settings.dynamic {
        let limit = Some(limit).filter(|_| !split.is_empty());
        return Activation::Dynamic { split, limit, smooth: factors.unwrap_or_default() };
    }
    // An input of zeros has codes of 0, whatever the scale is.
    let positive = |scale: f64| if scale > 0.0 { (scale as f32).max(f32::MIN_POSITIVE) } else { 1.0 };
    let (scale, zero_point) = match settings.codes {
        DType::F8E4M3FN => (positive(range.magnitude() / 448.0), 0),
        DType::U8 => {
            let (low, high) = (range.min.max(-f64::from(limit)), range.max.min(f64::from(limit)));
            let scale = positive((high - low) / 255.0);
            (scale, (-low / f64::from(scale)).round_ties_even().clamp(0.0, 255.0) as i64)
        }
        _ => (positive(f64::from(limit) / 127.0), 0),
    };
    Activation::Static { codes: settings.codes, scale, zero_point, split, smooth: factors.unwrap_or_default() }
}

/// The range of the elements divided by factors of their columns, with 0 in it.
fn smoothed_range(statistics: &InputStatistics, factors: &[f32]) -> Range {
    let zero = Range { min: 0.0, max: 0.0 };
    statistics.columns.iter().zip(factors).fold(zero, |range, (column, factor)| {
        let factor = f64::from(*factor);
        let Range { min, max } = column.range();
        range.merge(Range { min: min / factor, max: max / factor })
    })
}
