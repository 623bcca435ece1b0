//! The loss of each input: what its codes do to the results of its layers.

use std::collections::{BTreeMap, HashMap};

use planish_ir::Graph;
use rayon::prelude::*;

use super::sites::{Site, sites};
use super::trial::Trial;
use super::{Plan, PlannedInput};
use crate::PassError;
use crate::calibration::InputStatistics;

impl Plan {
    /// Measures the error of the results of the layers of each quantized input, on the rows that calibration sampled of
    /// it: the mean over tokens of the sum of squares, relative to that of the results, to three digits. An input that
    /// stays a float, or of which there are no rows, has none.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn measure(&mut self, graph: &Graph, statistics: &BTreeMap<String, InputStatistics>) -> Result<(), PassError> {
        let sites = sites(graph);
        let sites: HashMap<&str, &Site> =
            sites.iter().map(|site| (graph.value(site.value).name.as_str(), site)).collect();
        let loss = |input: &PlannedInput| -> Result<Option<f64>, PassError> {
            let known = (sites.get(input.value.as_str()), statistics.get(&input.value));
            let (Some(site), Some(statistics)) = known else { return Ok(None) };
            let fits = statistics.columns.len() == site.columns && !statistics.rows.rows().is_empty();
            if input.activation.codes().is_none() || !fits {
                return Ok(None);
            }
            Ok(Some(rounded(Trial::new(graph, site, statistics.rows.matrix())?.loss(&input.activation))))
        };
        self.inputs.par_iter_mut().try_for_each(|input| {
            input.layer_loss = loss(input)?;
            Ok(())
        })
    }
}

/// Three digits: the next ones differ between processors.
fn rounded(loss: f64) -> f64 {
    format!("{loss:.2e}").parse().unwrap_or(loss)
}
