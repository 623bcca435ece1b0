//! The loss of each input: what its codes do to the results of its layers.

use std::collections::{BTreeMap, HashMap};

use planish_ir::Graph;
use rayon::prelude::*;

use super::sites::{Site, sites};
use super::trial::Trial;
use super::{Plan, PlannedInput, maps};
use crate::PassError;
use crate::calibration::InputStatistics;

impl Plan {
    /// Measures the error of the results of the layers of each quantized input, on the rows that calibration sampled of
    /// it: the mean over tokens of the sum of squares, relative to that of the results, to three digits. Those of a convolution are its
    /// products at one place of the window. An input that stays a float, or of which there are no rows, has none.
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
            Ok::<_, PassError>(())
        })?;
        let takers = maps::Maps::of(graph, &|_| true);
        let takers: HashMap<&str, &maps::Map> =
            takers.maps.iter().map(|map| (graph.value(map.value).name.as_str(), map)).collect();
        let loss = |input: &PlannedInput| -> Result<Option<f64>, PassError> {
            let known = (takers.get(input.value.as_str()), statistics.get(&input.value));
            let (Some(map), Some(statistics)) = known else { return Ok(None) };
            let is_empty = map.takers.is_empty() || statistics.rows.is_empty();
            if input.activation.codes().is_none() || is_empty {
                return Ok(None);
            }
            maps::loss(graph, &map.takers, &statistics.rows.matrix(), &input.activation).map(rounded).map(Some)
        };
        self.maps.par_iter_mut().try_for_each(|map| {
            map.layer_loss = loss(map)?;
            Ok(())
        })
    }
}

/// Three digits: the next ones differ between processors.
pub(super) fn rounded(loss: f64) -> f64 {
    format!("{loss:.2e}").parse().unwrap_or(loss)
}

#[cfg(test)]
mod tests {
    use planish_ir::DType;
    use planish_ir::text::{no_files, parse};

    use super::*;
    use crate::calibration::{RowId, TokenRows};
    use crate::quantize::Activation;

    fn statistics(rows: &[[f32; 2]]) -> InputStatistics {
        let mut statistics = InputStatistics::new(2);
        let ids: Vec<Option<RowId>> = (0..rows.len() as u64).map(|token| Some(RowId { sample: 0, token })).collect();
        statistics.add(TokenRows { elements: &rows.concat(), columns: 2, ids: &ids }).unwrap();
        statistics
    }

    /// The loss of an input of a layer that gives `127 a`, `b` and `127 b`.
    fn loss(rows: &[[f32; 2]], activation: Activation) -> Option<f64> {
        let graph = parse(
            "graph \"of\" {
            input %x: f32[n, 2]
            weight @w = dense([127.0, 0.0, 0.0, 1.0, 0.0, 127.0]) : f32[3, 2]
            %y = linear(%x, @w) : f32[n, 3]
            output y = %y
            }",
            &no_files,
        );
        let input = |value: &str, activation: &Activation| PlannedInput {
            value: value.to_owned(),
            layers: Vec::new(),
            layer_loss: Some(9.0),
            activation: activation.clone(),
        };
        let mut plan = Plan { inputs: vec![input("x", &activation), input("unknown", &activation)], ..Plan::default() };
        let known = BTreeMap::from(["x", "unknown"].map(|name| (name.to_owned(), statistics(rows))));
        plan.measure(&graph.unwrap(), &known).unwrap();
        assert_eq!(plan.inputs[1].layer_loss, None, "the graph has no such input");
        plan.inputs[0].layer_loss
    }

    fn fixed(codes: DType, scale: f32) -> Activation {
        Activation::Static { codes, scale, zero_point: 0, split: Vec::new(), smooth: Vec::new() }
    }

    #[test]
    fn the_loss_is_the_mean_over_rows_of_relative_squares() {
        // The weights are codes. The first row is too, and of the second one 1.25 becomes 1.
        let rows = [[1.0, 2.0], [1.25, 0.0]];
        assert_eq!(loss(&rows, fixed(DType::I8, 1.0)), Some(0.02));
        assert_eq!(loss(&rows, fixed(DType::I8, 0.25)), Some(0.0));
        // E4M3 has three bits after the first one: 1.25 is a number of it, and 17 is not.
        assert_eq!(loss(&rows, fixed(DType::F8E4M3FN, 1.0)), Some(0.0));
        assert_eq!(loss(&[[17.0, 0.0]], fixed(DType::F8E4M3FN, 1.0)), Some(3.46e-3));
    }

    #[test]
    fn floats_and_inputs_without_rows_have_none() {
        assert_eq!(loss(&[[1.0, 2.0]], Activation::Float { reason: String::new() }), None);
        assert_eq!(loss(&[], fixed(DType::I8, 1.0)), None);
    }
}
