//! The memory that a case takes.

use std::time::Duration;

use planish_data::inputs::shape_bindings;
use planish_eval::Limits;
use planish_ir::{Bindings, Graph, TensorType, ValueId};

/// The bytes that the inputs, the outputs and the largest other value of a case may take together while the reference
/// computes them: of any model at least, and of any model at most. Verification has to run beside other programs on a
/// usual machine, and of a small model in a small part of its memory.
const LEAST_BYTES: u64 = 1 << 28;
const MOST_BYTES: u64 = 1 << 30;

/// How many bytes more these are for each byte of weights.
const BYTES_PER_WEIGHT: u64 = 8;

/// Which part of these the inputs may have: the reference and the runtime under test hold several copies of them.
const INPUT_PART: u64 = 4;

/// The bytes of an element while the reference interpreter computes it: floats are float64 then.
const COMPUTED_BYTES: u64 = 8;

/// Checks that a case with inputs of these shapes, by name, takes no more memory than a case may. Values whose sizes only
/// a run knows are left out.
///
/// # Errors
/// When the case takes more memory than the limit; the message has both numbers.
pub(super) fn check<'a>(graph: &Graph, shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Result<(), String> {
    let (Bytes { inputs, all }, most) = (estimate(graph, shapes), most_bytes(graph));
    let most_of_inputs = most / INPUT_PART;
    if inputs > most_of_inputs {
        return Err(format!(
            "its inputs have {inputs} bytes, and those of a case of this model may have {most_of_inputs}"
        ));
    }
    if all > most {
        return Err(format!(
            "its inputs, its outputs and its largest value would take {all} bytes in the reference interpreter, and a case \
             of this model may take {most}"
        ));
    }
    Ok(())
}

/// The bytes that a case of a model may take.
fn most_bytes(graph: &Graph) -> u64 {
    LEAST_BYTES.saturating_add(weight_bytes(graph).saturating_mul(BYTES_PER_WEIGHT)).min(MOST_BYTES)
}

fn weight_bytes(graph: &Graph) -> u64 {
    graph.weights().map(|(_, _, weight)| weight.bytes()).fold(0, u64::saturating_add)
}

/// The most rounds of loops in a run.
const MAX_ROUNDS: u64 = 100_000;

/// How long the loops of a run may take. What of a model is not a loop is bounded by the shapes of a case.
const MAX_LOOP_TIME: Duration = Duration::from_secs(20);

/// Where a run of a graph on the reference interpreter ends: values whose sizes only a run knows, and loops whose
/// condition stays true, would have no bound.
#[must_use]
pub fn reference_limits(graph: &Graph) -> Limits {
    // The weights once as they are stored, and once as they are read.
    let memory = most_bytes(graph).saturating_add(weight_bytes(graph).saturating_mul(2));
    Limits { memory: Some(memory), rounds: Some(MAX_ROUNDS), loop_time: Some(MAX_LOOP_TIME) }
}

/// The memory of a case.
#[derive(Debug, PartialEq)]
struct Bytes {
    /// The bytes of the inputs as they are given.
    inputs: u64,
    /// The bytes of the inputs, the outputs and the largest other value, as the reference computes them.
    all: u64,
}

fn estimate<'a>(graph: &Graph, shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Bytes {
    let bindings = shape_bindings(graph, shapes);
    let given = |value: ValueId| bytes(graph.ty(value), &bindings, graph.ty(value).dtype.size() as u64);
    let computed = |value: ValueId| bytes(graph.ty(value), &bindings, COMPUTED_BYTES);
    let inputs = || graph.inputs().iter().copied();
    let outputs = graph.outputs().iter().map(|output| output.value);
    let largest = graph.nodes().flat_map(|(_, node)| &node.outputs).filter_map(|value| computed(*value)).max();
    Bytes {
        inputs: inputs().filter_map(given).fold(0, u64::saturating_add),
        all: inputs().chain(outputs).filter_map(computed).chain(largest).fold(0, u64::saturating_add),
    }
}

/// The bytes of a tensor with elements of so many; as many as can be where that overflows, and `None` where a size is not
/// known.
fn bytes(ty: &TensorType, bindings: &Bindings, element: u64) -> Option<u64> {
    let sizes: Option<Vec<i64>> = ty.shape.iter().map(|dim| dim.evaluate(bindings)).collect();
    let times = |bytes: u64, size: i64| bytes.saturating_mul(u64::try_from(size).unwrap_or(0));
    Some(sizes?.into_iter().fold(element, times))
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
        assert_eq!(bytes(100), Bytes { inputs: 4 * 200, all: 8 * (200 + 200 + 100 * 100) });
        assert_eq!(bytes(1 << 40).all, u64::MAX, "what overflows is too much");
        let check = |n: usize| check(&graph, [("x", &[n, 2][..])]);
        check(5_000).unwrap();
        assert!(check(6_000).unwrap_err().contains("largest value would take 288192000 bytes"));
        assert!(check((1 << 23) + 1).unwrap_err().starts_with("its inputs have 67108872 bytes"));
    }

    #[test]
    fn a_case_of_a_large_model_may_take_more() {
        let most = |rows: u64| {
            let text = format!(
                "graph \"wide\" {{\ninput %x: f32[n, 4]\nweight @w = uniform(1) : f32[{rows}, 4]\n\
                 %y = linear(%x, @w) : f32[n, {rows}]\noutput y = %y\n}}"
            );
            most_bytes(&planish_ir::text::parse(&text, &planish_ir::text::no_files).unwrap())
        };
        assert_eq!(most(1), LEAST_BYTES + 8 * 16);
        assert_eq!(most(1 << 20), LEAST_BYTES + 8 * (16 << 20));
        assert_eq!(most(1 << 30), MOST_BYTES);
    }
}
