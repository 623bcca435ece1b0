//! What a run computes and reads, counted on graphs.

use planish_eval::Tensor;
use planish_ir::Graph;
use planish_ir::cost::{Cost, costs};

use super::figures::Work;
use crate::inputs::shape_bindings;

/// The work of a run on these inputs, which gives these outputs: the operations of the products of `model`, and the weights of
/// `graph`, which computes the same in some form. `None` where a node of one of them cannot be counted.
pub(crate) fn work(
    model: &Graph,
    graph: &Graph,
    inputs: &[(String, Tensor)],
    outputs: &[(String, Tensor)],
) -> Option<Work> {
    let flops = total(model, inputs)?.product_flops;
    let tensors: u64 = inputs.iter().chain(outputs).map(|(_, tensor)| tensor.bytes()).sum();
    Some(Work { flops, bytes: total(graph, inputs)?.weights.saturating_add(tensors) })
}

fn total(graph: &Graph, inputs: &[(String, Tensor)]) -> Option<Cost> {
    let shapes = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.shape()));
    let costs = costs(graph, &shape_bindings(graph, shapes));
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
        let graph = text::parse(graph, &text::no_files).unwrap();
        let tensor = |shape: Vec<usize>| Tensor::zeros(planish_ir::DType::F32, shape).unwrap();
        let (inputs, outputs) = ([("x".to_owned(), tensor(vec![3, 8]))], [("y".to_owned(), tensor(vec![3, 4]))]);
        let work = work(&graph, &graph, &inputs, &outputs).unwrap();
        assert_eq!((work.flops, work.bytes), (2 * 3 * 8 * 4, 4 * (4 * 8 + 3 * 8 + 3 * 4)));
    }
}
