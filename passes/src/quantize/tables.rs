//! Tables that rows are looked up in, as codes with a scale for each row.

use std::collections::HashMap;

use planish_ir::ops::{Embedding, Gather, Linear};
use planish_ir::{DType, Graph, NodeId, Op, ValueId, Weight};
use rayon::prelude::*;

use super::sites::MIN_FEATURES;
use super::weight_only::{Uses, uses};
use super::weights::{WeightScales, quantized_rows};
use super::{Plan, PlannedInput, PlannedWeight, Settings, WeightForm};
use crate::PassError;
use crate::pad::Found;

/// The tables that token ids index or a layer shares, in the order of the graph, with the reasons for which some stay floats.
/// Others, such as tables of positions and of sines, stay floats however large they are: all texts share what rounding does
/// to them.
pub(super) struct Tables {
    tables: Vec<(ValueId, Uses, Option<String>)>,
}

impl Tables {
    pub(super) fn of(graph: &Graph, settings: &Settings) -> Self {
        if !settings.weights {
            return Self { tables: Vec::new() };
        }
        let tables = Self::named(graph).into_iter().map(|(table, uses)| {
            let reason = kept(graph, table, &uses, settings);
            (table, uses, reason)
        });
        Self { tables: tables.collect() }
    }

    /// The tables, and what uses them.
    pub(super) fn named(graph: &Graph) -> Vec<(ValueId, Uses)> {
        let tokens = Found::of(graph).tables;
        let (order, mut uses) = uses(graph);
        let tables = order.into_iter().filter_map(|table| {
            let own = uses.remove(&table).filter(|own| own.lookups > 0)?;
            (own.layers > 0 || tokens.contains(&table)).then_some((table, own))
        });
        tables.collect()
    }

    /// Whether a layer takes the same codes as lookups.
    pub(super) fn shares(&self, graph: &Graph, layer: NodeId) -> bool {
        match &graph.node(layer).op {
            Op::Linear(linear) if !linear.transposed.0 => {
                self.tables.iter().any(|(table, _, reason)| *table == linear.weight && reason.is_none())
            }
            _ => false,
        }
    }

    /// The plan of the tables. One whose layer stays a float stays a float with it.
    pub(super) fn planned(self, graph: &Graph, inputs: &[PlannedInput]) -> Vec<PlannedWeight> {
        let name = |value: &ValueId| graph.value(*value).name.clone();
        let one = |(table, uses, reason): (ValueId, Uses, Option<String>)| {
            let used_by: Vec<String> = uses.results.iter().map(name).collect();
            let is_float = |input: &&PlannedInput| input.activation.codes().is_none();
            let takes = |input: &&PlannedInput| input.layers.iter().any(|layer| used_by.contains(layer));
            let float = inputs.iter().filter(is_float).find(takes).map(|input| shared_with(&input.value));
            let form = match reason.or(float) {
                Some(reason) => WeightForm::Float { reason },
                None => WeightForm::Rows { codes: DType::I8, integers: false },
            };
            let elements = graph.weight(table).map_or(0, Weight::elements);
            PlannedWeight { weight: name(&table), used_by, elements, form }
        };
        self.tables.into_iter().map(one).collect()
    }
}

/// Why a table stays a float whose layer stays one.
pub(super) fn shared_with(input: &str) -> String {
    format!("a layer of `{input}`, which stays a float, shares it")
}

/// Why a table stays a float.
fn kept(graph: &Graph, table: ValueId, uses: &Uses, settings: &Settings) -> Option<String> {
    let exception = settings.keep.float(|named| named.is_table() || uses.matches(graph, table, named));
    if let Some(exception) = exception {
        return Some(exception.reason.clone());
    }
    if let Some(reason) = settings.not_finite.get(&graph.value(table).name) {
        return Some(reason.clone());
    }
    let columns = graph.weight(table).map_or(0, |weight| weight.shape()[1]);
    (columns < MIN_FEATURES).then(|| format!("rows of {columns} are too small"))
}

/// The weight that an operator looks rows up in.
pub(super) fn table(op: &Op) -> Option<ValueId> {
    match op {
        Op::Embedding(Embedding { weight: table, .. }) | Op::Gather(Gather { x: table, axis: 0, .. }) => Some(*table),
        _ => None,
    }
}

/// The tables that become codes as a plan says.
///
/// # Errors
/// When a weight cannot be read.
pub(super) fn quantized(graph: &Graph, plan: &Plan, how: WeightScales) -> Result<HashMap<ValueId, Weight>, PassError> {
    let planned: HashMap<&str, &WeightForm> = plan.coded_weights().collect();
    let mut tables: Vec<ValueId> = Vec::new();
    for (_, node) in graph.nodes() {
        let Some(table) = table(&node.op).filter(|table| !tables.contains(table)) else { continue };
        let is_float = |weight: &Weight| weight.dtype() == DType::F32 && weight.as_dequantized().is_none();
        let is_matrix = graph.weight(table).is_some_and(|weight| weight.shape().len() == 2 && is_float(weight));
        if is_matrix && planned.contains_key(graph.value(table).name.as_str()) {
            tables.push(table);
        }
    }
    let one = |table: ValueId| {
        let Some(weight) = graph.weight(table) else { return Ok(None) };
        let is_shared = graph.nodes().any(|(_, node)| matches!(&node.op, Op::Linear(linear) if linear.weight == table));
        // Nothing is added up of products with a table that no layer takes.
        let how = if how == WeightScales::Reduced && !is_shared { WeightScales::MinMax } else { how };
        let codes = quantized_rows(weight, how).map_err(|source| PassError::of_weight(graph, table, source))?;
        Ok(codes.map(|codes| (table, codes)))
    };
    tables.into_par_iter().filter_map(|table| one(table).transpose()).collect()
}

/// Whether a layer takes the same codes as the lookups of its weight: a table that becomes codes as a plan says.
pub(super) fn is_shared(graph: &Graph, plan: &Plan, linear: &Linear) -> bool {
    let name = &graph.value(linear.weight).name;
    !linear.transposed.0 && plan.coded_weights().any(|(weight, _)| weight == name)
}

#[cfg(test)]
mod tests {
    use planish_ir::text::{no_files, parse};

    use super::*;
    use crate::ORT;

    /// The names of the tables that are planned.
    fn planned(text: &str) -> Vec<String> {
        let mut graph = parse(text, &no_files).unwrap();
        planish_onnx::interface::state(&mut graph);
        let plan = Plan::new(&graph, &Settings::int8(&ORT), None).unwrap();
        plan.weights.into_iter().map(|table| table.weight).collect()
    }

    #[test]
    fn only_what_token_ids_index_is_planned() {
        let text = "
            graph \"tables\" {
              input %input_ids: i64[n]
              input %position_ids: i64[n]
              weight @tokens = uniform(1) : f32[64, 2048]
              weight @positions = uniform(2) : f32[2050, 2048]
              weight @sines = uniform(3) : f32[32768, 64]
              %token = embedding(@tokens, %input_ids) : f32[n, 2048]
              %place = embedding(@positions, %position_ids) : f32[n, 2048]
              %sine = gather(@sines, %position_ids) {axis = 0} : f32[n, 64]
              output token = %token
              output place = %place
              output sine = %sine
            }";
        assert_eq!(planned(text), ["tokens"]);
    }

    /// The ids may be those of an input that has another name.
    #[test]
    fn what_a_layer_shares_is_planned() {
        let text = "
            graph \"shared\" {
              input %words: i64[n]
              weight @words.weight = uniform(1) : f32[64, 32]
              %word = embedding(@words.weight, %words) : f32[n, 32]
              %scores = linear(%word, @words.weight) : f32[n, 64]
              output scores = %scores
            }";
        assert_eq!(planned(text), ["words.weight"]);
    }
}
