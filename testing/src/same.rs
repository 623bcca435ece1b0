//! Whether two graphs are the same up to names.

use std::collections::{BTreeMap, HashMap};

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, Flag, Linear, Real};
use planish_ir::{DType, Def, Graph, Op, Type, ValueId};

/// What a value is, its operands by number.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Input(String, Type),
    Weight(DType, Vec<usize>, Vec<String>),
    Result(Op, usize),
}

/// Numbers values: the same number is the same value, whatever it is called. Weights are the same by their
/// elements, operands of commutative operators are in either order, a weight that is stored transposed
/// is its transpose, and numbers count to six digits: exporters compute constants in 32 bits.
#[derive(Default)]
pub struct Numbering {
    seen: HashMap<Key, usize>,
}

impl Numbering {
    fn number(&mut self, key: Key) -> usize {
        let next = self.seen.len();
        *self.seen.entry(key).or_insert(next)
    }

    /// The numbers of a graph's outputs.
    pub fn outputs(&mut self, graph: &Graph) -> BTreeMap<String, usize> {
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        for (id, value) in graph.values() {
            let key = match &value.def {
                Def::Input => Key::Input(value.name.clone(), value.ty.clone()),
                Def::Weight(_) => weight(graph, id, false),
                Def::Node { .. } => continue,
            };
            numbers.insert(id, self.number(key));
        }
        for (_, node) in graph.nodes() {
            let mut op = node.op.clone();
            op.visit_operands_mut(&mut |v| *v = ValueId::from_index(numbers[v]));
            match (&mut op, &node.op) {
                (Op::Binary(Binary { kind, a, b }), _) if kind.is_commutative() && b.index() < a.index() => {
                    std::mem::swap(a, b);
                }
                (Op::Linear(linear), Op::Linear(Linear { weight: stored, transposed: Flag(true), .. })) => {
                    linear.weight = ValueId::from_index(self.number(weight(graph, *stored, true)));
                    linear.transposed = Flag(false);
                }
                _ => {}
            }
            let short = |real: &mut Real| real.0 = six_digits(real.0).parse().unwrap();
            match &mut op {
                Op::LayerNorm(norm) => short(&mut norm.eps),
                Op::RmsNorm(norm) => short(&mut norm.eps),
                Op::Attention(attention) => short(&mut attention.scale),
                _ => {}
            }
            for (index, output) in node.outputs.iter().enumerate() {
                numbers.insert(*output, self.number(Key::Result(op.clone(), index)));
            }
        }
        graph.outputs().iter().map(|output| (output.name.clone(), numbers[&output.value])).collect()
    }
}

/// The elements of a weight, or of its transpose.
fn weight(graph: &Graph, value: ValueId, transposed: bool) -> Key {
    let weight = graph.weight(value).expect("a weight").clone();
    let weight = if transposed { weight.transpose(&[1, 0]).expect("a matrix") } else { weight };
    let numbers = weight.read_numbers().unwrap().into_iter().map(six_digits).collect();
    Key::Weight(weight.dtype(), weight.shape().to_vec(), numbers)
}

fn six_digits(number: f64) -> String {
    format!("{number:.5e}")
}

/// Whether two graphs compute their outputs in the same way.
pub fn same_up_to_names(a: &Graph, b: &Graph) -> bool {
    let mut numbering = Numbering::default();
    numbering.outputs(a) == numbering.outputs(b)
}
