//! Cutting a graph into stages that run one after another, each on a device of its own: pipeline parallelism.
//!
//! A graph is cut where one value goes from the nodes before to the nodes behind: the hidden state of a transformer between two
//! layers, and also between attention and the feed-forward network. What follows from masks, positions, token types and sizes
//! alone does not count: each stage that needs it computes it again. Inputs do not count either: each stage takes those that it
//! needs. So a cache belongs to the stage of its layer.

mod balance;
mod extract;
mod points;

use planish_ir::cost::{costs, stored_bytes};
use planish_ir::{Bindings, Graph};

/// What the costs of stages are, which are balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The bytes of the weights that a stage has: what a step of a decoder is bound by.
    WeightBytes,
    /// The floating-point operations of a run.
    Flops,
}

/// A graph is not cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// It has fewer places to be cut at than are asked for.
    #[error(
        "the graph has {} where one value goes on, so it becomes {most} stages at most, and {asked} are asked for",
        places(*most)
    )]
    Few {
        /// How many stages are asked for.
        asked: usize,
        /// The most stages that it can become.
        most: usize,
    },
    /// A stage breaks the rules of graphs.
    #[error("stage {stage}: {reason}")]
    Stage {
        /// Which one, from 0 on.
        stage: usize,
        /// What is wrong.
        reason: String,
    },
}

fn places(most: usize) -> String {
    match most.saturating_sub(1) {
        0 => "no place".to_owned(),
        1 => "one place".to_owned(),
        several => format!("{several} places"),
    }
}

/// The bytes in a run of the outputs of a stage that the next one takes.
#[must_use]
pub fn sent(stage: &Graph, next: &Graph, run: &Bindings) -> Option<u64> {
    let takes = |name: &str| next.inputs().iter().any(|value| next.value(*value).name == name);
    let outputs = stage.outputs().iter().filter(|output| takes(&output.name));
    outputs.map(|output| stage.type_of(output.value).as_tensor()?.bytes_in(run)).sum()
}

/// Cuts a graph into `count` stages of costs as equal as the places allow: the most expensive stage is as cheap as it can be.
/// `bindings` has the sizes of the run that the costs are of. The stages have the inputs and outputs of the graph that are theirs,
/// by their names; a value that goes on is an output of a stage and an input of the next one that takes it, of the same name.
///
/// # Errors
/// When the graph has not so many places to be cut at.
pub fn cut(graph: &Graph, count: usize, balance: Balance, bindings: &Bindings) -> Result<Vec<Graph>, CutError> {
    let points = points::find(graph, &node_costs(graph, balance, bindings), bindings);
    if count == 0 || count > points.len() + 1 {
        return Err(CutError::Few { asked: count, most: points.len() + 1 });
    }
    let chosen = balance::choose(&points, count);
    extract::stages(graph, &chosen).map_err(|(stage, reason)| CutError::Stage { stage, reason })
}

/// The cost of each node that the outputs need, in their order. A weight counts for each node that reads it, as a stage for each of
/// them has it.
fn node_costs(graph: &Graph, balance: Balance, bindings: &Bindings) -> Vec<u64> {
    let nodes = graph.needed_nodes();
    match balance {
        Balance::WeightBytes => {
            let bytes = |value| graph.weight(value).map_or(0, stored_bytes);
            nodes.iter().map(|node| graph.node(*node).op.operands().into_iter().map(bytes).sum()).collect()
        }
        Balance::Flops => {
            let costs = costs(graph, bindings);
            let mut known = costs.nodes.iter().peekable();
            let cost = |node| known.next_if(|(id, _)| *id == node).map_or(0, |(_, cost)| cost.flops);
            nodes.into_iter().map(cost).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_eval::{Tensor, evaluate};
    use planish_ir::text::{no_files, parse};
    use planish_ir::{InputRole, Symbol, verify};

    use super::*;

    /// Three layers with residuals. The mask of all of them is computed once.
    const LAYERS: &str = r#"graph "layers" {
  input %x: f32[n, 2]
  input %attention_mask: i64[n, 2]
  weight @a = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
  weight @b = dense([0.5, 2.0, 1.0, 4.0]) : f32[2, 2]
  weight @c = dense([1.0, 0.5, 3.0, 0.25]) : f32[2, 2]
  %m = cast(%attention_mask) {to = f32} : f32[n, 2]
  %p0 = matmul(%x, @a) : f32[n, 2]
  %q0 = mul(%p0, %m) : f32[n, 2]
  %h0 = add(%x, %q0) : f32[n, 2]
  %p1 = matmul(%h0, @b) : f32[n, 2]
  %q1 = mul(%p1, %m) : f32[n, 2]
  %h1 = add(%h0, %q1) : f32[n, 2]
  %p2 = matmul(%h1, @c) : f32[n, 2]
  %q2 = mul(%p2, %m) : f32[n, 2]
  %h2 = add(%h1, %q2) : f32[n, 2]
  output first = %h0
  output y = %h2
}"#;

    fn layers() -> Graph {
        let mut graph = parse(LAYERS, &no_files).unwrap();
        graph.interface.inputs.insert("attention_mask".to_owned(), InputRole::Mask);
        graph
    }

    fn cut_into(graph: &Graph, count: usize) -> Result<Vec<Graph>, CutError> {
        cut(graph, count, Balance::WeightBytes, &Bindings::from_iter([(Symbol::new("n"), 1)]))
    }

    fn names(stage: &Graph) -> (Vec<&str>, Vec<&str>) {
        let inputs = stage.inputs().iter().map(|value| stage.value(*value).name.as_str());
        (inputs.collect(), stage.outputs().iter().map(|output| output.name.as_str()).collect())
    }

    #[test]
    fn only_the_hidden_state_goes_on() {
        let stages = cut_into(&layers(), 3).unwrap();
        assert_eq!(names(&stages[0]), (vec!["x", "attention_mask"], vec!["first"]));
        assert_eq!(names(&stages[1]), (vec!["first", "attention_mask"], vec!["h1"]));
        assert_eq!(names(&stages[2]), (vec!["h1", "attention_mask"], vec!["y"]));
        assert_eq!(stages.iter().map(|stage| stage.weights().count()).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn stages_in_turn_compute_what_the_graph_computes() {
        let graph = layers();
        let x = Tensor::new(vec![2, 2], vec![1f32, -2.0, 0.5, 3.0]).unwrap();
        let mask = Tensor::new(vec![2, 2], vec![1i64, 1, 1, 0]).unwrap();
        let whole = evaluate(&graph, &[("x", x.clone()), ("attention_mask", mask.clone())]).unwrap();
        for count in 1..=3 {
            let mut known = vec![("x".to_owned(), x.clone()), ("attention_mask".to_owned(), mask.clone())];
            for stage in cut_into(&graph, count).unwrap() {
                verify(&stage).unwrap();
                let takes = |name: &str| stage.inputs().iter().any(|value| stage.value(*value).name == name);
                let inputs: Vec<(&str, Tensor)> =
                    known.iter().filter(|(name, _)| takes(name)).map(|(name, t)| (name.as_str(), t.clone())).collect();
                let given = evaluate(&stage, &inputs).unwrap();
                known.extend(given);
            }
            for (name, tensor) in &whole {
                assert_eq!(
                    known.iter().find(|(other, _)| other == name).map(|(_, t)| t),
                    Some(tensor),
                    "{count}: {name}"
                );
            }
        }
    }

    #[test]
    fn a_graph_with_too_few_places_is_not_cut() {
        assert_eq!(cut_into(&layers(), 4).err().unwrap(), CutError::Few { asked: 4, most: 3 });
        assert_eq!(cut_into(&layers(), 0).err().unwrap(), CutError::Few { asked: 0, most: 3 });
        // What is computed of an input that is no mask would have to go on too.
        let graph = parse(LAYERS, &no_files).unwrap();
        let error = cut_into(&graph, 2).err().unwrap();
        assert!(error.to_string().contains("no place where one value goes on"), "{error}");
    }

    #[test]
    fn a_size_that_only_another_input_has_comes_with_that_input() {
        let text =
            LAYERS.replace("input %attention_mask: i64[n, 2]", "input %attention_mask: i64[n, 2]\n  input %k: f32[k]");
        let text = text.replace(
            "  output y",
            "  %t = expand(%h2) {shape = [k, n, 2]} : f32[k, n, 2]\n  output t = %t\n  output y",
        );
        let mut graph = parse(&text, &no_files).unwrap();
        graph.interface.inputs.insert("attention_mask".to_owned(), InputRole::Mask);
        let stages = cut_into(&graph, 2).unwrap();
        assert!(names(&stages[1]).0.contains(&"k") && !names(&stages[0]).0.contains(&"k"), "{}", stages[1]);
        stages.iter().for_each(|stage| verify(stage).unwrap());
    }
}
