//! What a run computes and reads, counted on graphs.

use planish_data::inputs::{Sizes, graph_bindings, shape_bindings};
use planish_eval::Tensor;
use planish_ir::cost::{Cost, costs};
use planish_ir::{Bindings, Graph, ValueId};

use super::figures::Work;

/// The work of a run on these inputs, which gives these outputs: the operations of the products of `model`, and the weights of
/// `graph`, which computes the same in some form. `None` where a node of one of them cannot be counted.
pub(crate) fn work(
    model: &Graph,
    graph: &Graph,
    inputs: &[(String, Tensor)],
    outputs: &[(String, Tensor)],
) -> Option<Work> {
    let bindings =
        |graph: &Graph| shape_bindings(graph, inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())));
    let flops = total(model, &bindings(model))?.product_flops;
    let tensors: u64 = inputs.iter().chain(outputs).map(|(_, tensor)| tensor.bytes()).sum();
    Some(Work { flops, bytes: total(graph, &bindings(graph))?.weights.saturating_add(tensors) })
}

/// The work of a run of `tokens` new tokens in each of so many rows after `past` cached ones, counted as by [`work`]. `None`
/// also where the size of an input or output does not follow from these numbers.
pub(super) fn work_of_rows(model: &Graph, graph: &Graph, rows: usize, tokens: usize, past: usize) -> Option<Work> {
    let sizes = Sizes { batch: rows, sequence: tokens, side: None };
    let bindings = |graph: &Graph| graph_bindings(graph, sizes, past);
    let of_model = bindings(model);
    let flops = total(model, &of_model)?.product_flops;
    let bytes = |value: ValueId| {
        let ty = model.type_of(value).as_tensor()?;
        let elements = ty.shape.evaluate(&of_model)?.into_iter().try_fold(1usize, usize::checked_mul)?;
        Some((elements as u64).checked_mul(ty.dtype.bits() as u64)?.div_ceil(8))
    };
    let values = model.inputs().iter().copied().chain(model.outputs().iter().map(|output| output.value));
    let tensors: u64 = values.map(bytes).sum::<Option<u64>>()?;
    Some(Work { flops, bytes: total(graph, &bindings(graph))?.weights.saturating_add(tensors) })
}

fn total(graph: &Graph, bindings: &Bindings) -> Option<Cost> {
    let costs = costs(graph, bindings);
    costs.uncounted.is_empty().then(|| costs.total())
}

#[cfg(test)]
mod tests {
    use planish_ir::text;

    use super::*;

    #[test]
    fn a_linear_layer_has_its_product_and_its_weight() {
        let graph = r#"graph "g" {
            input %x: f32[b, 8]
            weight @w = uniform(1) : f32[4, 8]
            %y = linear(%x, @w) : f32[b, 4]
            output y = %y
        }"#;
        let mut graph = text::parse(graph, &text::no_files).unwrap();
        planish_onnx::interface::state(&mut graph);
        let tensor = |shape: Vec<usize>| Tensor::zeros(planish_ir::DType::F32, shape).unwrap();
        let (inputs, outputs) = ([("x".to_owned(), tensor(vec![3, 8]))], [("y".to_owned(), tensor(vec![3, 4]))]);
        let work = work(&graph, &graph, &inputs, &outputs).unwrap();
        assert_eq!((work.flops, work.bytes), (2 * 3 * 8 * 4, 4 * (4 * 8 + 3 * 8 + 3 * 4)));
        assert_eq!(work_of_rows(&graph, &graph, 3, 7, 9), Some(work));
    }

    #[test]
    fn a_step_reads_the_cache() {
        let graph = r#"graph "g" {
            input %x: f32[batch_size, sequence_length, 8]
            input %past: f32[batch_size, past_sequence_length, 8]
            weight @w = uniform(1) : f32[4, 8]
            %y = linear(%x, @w) : f32[batch_size, sequence_length, 4]
            %z = concat([%past, %x]) {axis = 1} : f32[batch_size, past_sequence_length + sequence_length, 8]
            output y = %y
            output z = %z
        }"#;
        let mut graph = text::parse(graph, &text::no_files).unwrap();
        planish_onnx::interface::state(&mut graph);
        let work = work_of_rows(&graph, &graph, 2, 1, 5).unwrap();
        assert_eq!((work.flops, work.bytes), (2 * 2 * 8 * 4, 4 * (4 * 8 + 2 * 8 + 2 * 5 * 8 + 2 * 4 + 2 * 6 * 8)));
    }
}
