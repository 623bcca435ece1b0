//! What a case takes of memory.

use planish_ir::{Bindings, Graph, TensorType, ValueId};

/// The most bytes of inputs, outputs and the largest other value of a case together: what is compared on any machine
/// must not bring it to its knees.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// About how many bytes the inputs, the outputs and the largest other value of a graph have for inputs of these shapes, by
/// name. Values whose sizes only a run knows are left out.
pub(super) fn estimate<'a>(graph: &Graph, shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> u64 {
    let mut bindings = Bindings::new();
    for (name, shape) in shapes {
        let Some(input) = graph.inputs().iter().find(|input| graph.value(**input).name == name) else { continue };
        for (dim, size) in graph.ty(*input).shape.iter().zip(shape) {
            if let (Some(symbol), Ok(size)) = (dim.as_symbol(), i64::try_from(*size)) {
                bindings.insert(symbol.clone(), size);
            }
        }
    }
    let bytes = |value: ValueId| bytes(graph.ty(value), &bindings).unwrap_or(0);
    let inputs = graph.inputs().iter().map(|input| bytes(*input));
    let outputs = graph.outputs().iter().map(|output| bytes(output.value));
    let largest = graph.nodes().flat_map(|(_, node)| &node.outputs).map(|value| bytes(*value)).max();
    inputs.chain(outputs).chain(largest).fold(0, u64::saturating_add)
}

/// The size of a tensor; as large as can be where that overflows, and absent where it is not known.
fn bytes(ty: &TensorType, bindings: &Bindings) -> Option<u64> {
    let sizes: Option<Vec<i64>> = ty.shape.iter().map(|dim| dim.evaluate(bindings)).collect();
    let times = |bytes: u64, size: i64| bytes.saturating_mul(u64::try_from(size).unwrap_or(0));
    Some(sizes?.into_iter().fold(ty.dtype.size() as u64, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_counts_with_inputs_and_outputs() {
        let text = r#"graph "scores" {
          input %x: f32[n, 2]
          %t = transpose(%x) {perm = [1, 0]} : f32[2, n]
          %s = matmul(%x, %t) : f32[n, n]
          %y = matmul(%s, %x) : f32[n, 2]
          output y = %y
        }"#;
        let graph = planish_ir::text::parse(text, &planish_ir::text::no_files).unwrap();
        let bytes = |n: usize| estimate(&graph, [("x", &[n, 2][..])]);
        assert_eq!(bytes(100), 4 * (200 + 200 + 100 * 100));
        assert_eq!(bytes(1 << 40), u64::MAX, "what overflows is too much");
    }
}
