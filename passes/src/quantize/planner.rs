//! From what is asked for, and what calibration measured, to a plan.

use std::collections::BTreeMap;

use planish_ir::{DType, Graph};
use regex::Regex;

use super::sites::{MIN_FEATURES, Site, layer, name, sites};
use super::split::split_columns;
use super::{Activation, Plan, PlannedInput};
use crate::calibration::{Grid, InputStatistics, RangeMethod};
use crate::{QuantizedForm, Target};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The type of the codes of activations: u8 with a zero point, i8 or f8e4m3fn without one.
    pub codes: DType,
    /// How the range of an input is chosen.
    pub range: RangeMethod,
    /// How many columns of codes an input may have more than columns.
    pub split_columns: usize,
    /// Layers that stay floats: the name of the layer or of its weight, or an origin, matches.
    pub keep_float: Vec<Regex>,
}

impl Settings {
    /// INT8 as a target computes it.
    #[must_use]
    pub fn int8(target: &Target) -> Self {
        let codes = match target.quantized {
            QuantizedForm::IntegerProducts => DType::U8,
            QuantizedForm::Pairs => DType::I8,
        };
        Self { codes, range: RangeMethod::MinMax, split_columns: SPLIT_COLUMNS, keep_float: Vec::new() }
    }

    /// FP8, E4M3.
    #[must_use]
    pub fn fp8() -> Self {
        Self { codes: DType::F8E4M3FN, range: RangeMethod::MinMax, split_columns: 0, keep_float: Vec::new() }
    }
}

/// How many columns of codes an input has more than columns, unless asked for another number.
pub const SPLIT_COLUMNS: usize = 32;

impl Plan {
    /// A plan for a graph that has been raised. With the statistics of its inputs, by their names, scales are fixed;
    /// without, they are those of each run.
    #[must_use]
    pub fn new(graph: &Graph, settings: &Settings, statistics: Option<&BTreeMap<String, InputStatistics>>) -> Self {
        let planned = |site: &Site| {
            let value = graph.value(site.value).name.clone();
            let activation = match (kept(graph, site, settings), statistics) {
                (Some(reason), _) => Activation::Float { reason },
                (None, None) => Activation::Dynamic { split: Vec::new(), limit: None },
                (None, Some(statistics)) => match statistics.get(&value).filter(|s| s.columns.len() == site.columns) {
                    Some(statistics) => calibrated(statistics, settings),
                    None => Activation::Float { reason: "the calibration does not have it".to_owned() },
                },
            };
            let layers = site.layers.iter().map(|layer| name(graph, *layer).to_owned()).collect();
            PlannedInput { value, layers, activation }
        };
        Self { inputs: sites(graph).iter().map(planned).collect() }
    }
}

/// Why an input stays a float.
fn kept(graph: &Graph, site: &Site, settings: &Settings) -> Option<String> {
    for id in &site.layers {
        let node = graph.node(*id);
        let (linear, features) = layer(graph, node)?;
        let names = [linear.weight, node.outputs[0]].map(|value| graph.value(value));
        let matches = |pattern: &&Regex| {
            names.iter().any(|v| pattern.is_match(&v.name) || pattern.is_match(&v.origin.to_string()))
        };
        if let Some(pattern) = settings.keep_float.iter().find(matches) {
            return Some(format!("`{pattern}` of --keep-float matches"));
        }
        if let Some(least) = features.iter().find(|features| **features < MIN_FEATURES) {
            return Some(format!("a layer of {least} features is too small"));
        }
    }
    None
}

/// The codes of an input whose elements were measured.
fn calibrated(statistics: &InputStatistics, settings: &Settings) -> Activation {
    let symmetric = settings.codes != DType::U8;
    let grid = if symmetric { Grid::S8 } else { Grid::U8 };
    let range = statistics.range(settings.range, grid);
    let largest = range.magnitude() as f32;
    let magnitudes: Vec<f32> = statistics.columns.iter().map(|column| column.magnitude().min(largest)).collect();
    let float = settings.codes == DType::F8E4M3FN;
    let most = if float { 0 } else { settings.split_columns };
    let (limit, split) = split_columns(&magnitudes, most);
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
    Activation::Static { codes: settings.codes, scale, zero_point, split, smooth: Vec::new() }
}
