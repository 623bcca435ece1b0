//! Random well-typed graphs, as a list of choices that shrinks well. Every operator occurs, also
//! in the chains that transformers are made of.
//!
//! The graphs are well conditioned: rounding differently in one operator changes outputs by little.
//! What is not continuous, such as a comparison, is applied only to values that every correct
//! evaluation gives exactly.

mod arithmetic;
mod attention;
mod layers;
mod shapes;
mod values;

use std::collections::HashSet;

use planish_ir::{DType, Dim, Graph, Origin, Shape, TensorType, ValueId};
use proptest::prelude::*;

/// What to add to a graph, and to which values.
pub type Choice = [u8; 4];

/// Choices for [`build`].
pub fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec(any::<Choice>(), 1..14)
}

/// The graph of some choices. Integer inputs are indices below 2.
pub fn build(choices: &[Choice]) -> Graph {
    let mut growing = Growing::new();
    choices.iter().for_each(|choice| growing.grow(*choice));
    growing.finish()
}

/// Names as models have them, and names that only quotes hold.
const NAMES: &[&str] = &["x", "encoder.layer.0/out", "a b", "\"q\" = {", "\u{e9}\\n", "x_1", "line\nbreak: %y"];

struct Growing {
    graph: Graph,
    values: Vec<ValueId>,
    /// Values that depend on how an operator rounds.
    rounded: HashSet<ValueId>,
    seed: u64,
}

impl Growing {
    fn new() -> Self {
        let mut graph = Graph::new("random \"graph\"");
        let (batch, length) = (Dim::symbol("batch_size"), Dim::symbol("sequence_length"));
        let mut input = |name: &str, dtype, dims: &[Dim]| {
            graph.add_input(name, TensorType::new(dtype, Shape::new(dims.to_vec())), Origin::Unknown)
        };
        let values = vec![
            input("table_rows", DType::F32, &[3.into(), 4.into()]),
            input("mask", DType::Bool, &[batch.clone(), length.clone()]),
            input("ids", DType::I64, &[batch.clone(), length.clone()]),
            input("hidden", DType::F32, &[batch, length, 4.into()]),
        ];
        Self { graph, values, rounded: HashSet::new(), seed: 0 }
    }

    fn grow(&mut self, [kind, a, b, c]: Choice) {
        // A choice that no value fits is left out.
        let _: Option<()> = match kind % 23 {
            0 => self.unary(a, b),
            1 | 2 => self.binary(a, b, c),
            3 => self.integers(a, b, c),
            4 => self.predicate(a, b, c),
            5 => self.select(a, b, c),
            6 => self.cast(a, b),
            7 => self.reduce(a, b, c),
            8 => self.reshape(a, b),
            9 => self.transpose(a, b),
            10 => self.slice(a, b, c),
            11 => self.concat(a, b, c),
            12 => self.expand(a, b),
            13 => self.gather(a, b, c),
            14 => self.linear(a, b, c),
            15 => self.matmul(a, b),
            16 => self.normalize(a, b),
            17 => self.embedding(a, b),
            18 => self.attention(a, b, c),
            19 => self.rotary(a, b),
            20 => self.embeddings(a, b),
            21 => self.decoder_layer(a, b, c),
            _ => self.layer(a, b),
        };
    }

    fn finish(mut self) -> Graph {
        let uses = self.graph.use_counts();
        let unused = self.values.iter().filter(|v| uses[planish_ir::handle::Handle::index(**v)] == 0);
        // Some values stay dead.
        let mut outputs: Vec<ValueId> = unused.step_by(2).copied().collect();
        outputs.extend(self.values.last().filter(|v| !outputs.contains(v)));
        for (i, value) in outputs.into_iter().enumerate() {
            self.graph.add_output(&format!("{} {i}", NAMES[i % NAMES.len()]), value);
        }
        self.graph
    }
}
