//! Shapes as ONNX wants them: vectors of 64 bit integers, computed from the inputs' shapes where
//! they depend on symbols. Every symbol, product and sum is computed once.

use std::collections::HashMap;

use planish_ir::{DType, Dim, Graph, Op, Shape, Symbol, ValueId, Weight};

use super::nodes::{int, ints, size};
use super::{Emitter, data_type};
use crate::proto::{AttributeProto, NodeProto, TensorProto};

/// What has been computed already.
#[derive(Default)]
pub(super) struct Cache {
    /// By rank and values.
    constants: HashMap<(usize, Vec<i64>), String>,
    dims: HashMap<Dim, String>,
    shapes: HashMap<Shape, String>,
}

impl Emitter<'_> {
    /// The name of a vector of integers that does not depend on the inputs.
    pub(super) fn constant(&mut self, values: &[i64]) -> String {
        self.integers(vec![i64::try_from(values.len()).unwrap_or(i64::MAX)], values)
    }

    /// The name of an integer.
    pub(super) fn scalar(&mut self, value: i64) -> String {
        self.integers(Vec::new(), &[value])
    }

    /// The name of a number, where the type has one.
    pub(super) fn number(&mut self, dtype: DType, value: f64) -> Option<String> {
        let bytes = Weight::scalar(dtype, value).read().ok()?;
        Some(self.initializer("const/number", Vec::new(), data_type(dtype), bytes))
    }

    /// The name of a vector of binary32 numbers.
    pub(super) fn floats(&mut self, values: &[f32]) -> String {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.initializer("const/floats", vec![size(values.len())], data_type(DType::F32), bytes)
    }

    /// The name of a tensor.
    pub(super) fn initializer(&mut self, hint: &str, dims: Vec<i64>, data_type: i32, bytes: Vec<u8>) -> String {
        let name = self.fresh(hint);
        let raw_data = bytes.into();
        self.initializers.push(TensorProto { dims, data_type, name: name.clone(), raw_data, ..TensorProto::default() });
        name
    }

    fn integers(&mut self, dims: Vec<i64>, values: &[i64]) -> String {
        let key = (dims.len(), values.to_vec());
        if let Some(name) = self.dims.constants.get(&key) {
            return name.clone();
        }
        let text: Vec<String> = values.iter().map(i64::to_string).collect();
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let name = self.initializer(&format!("const/{}", text.join("_")), dims, data_type(DType::I64), bytes);
        self.dims.constants.insert(key, name.clone());
        name
    }

    /// The name of a vector with one element: a dimension.
    pub(super) fn dim(&mut self, dim: &Dim) -> String {
        if let Some(size) = dim.as_constant() {
            return self.constant(&[size]);
        }
        if let Some(name) = self.dims.dims.get(dim) {
            return name.clone();
        }
        let name = match dim.as_symbol() {
            Some(symbol) => self.symbol(symbol),
            None => self.sum(dim),
        };
        self.dims.dims.insert(dim.clone(), name.clone());
        name
    }

    fn symbol(&mut self, symbol: &Symbol) -> String {
        let (input, axis) = match (binding(self.graph, symbol), sum_of(self.graph, symbol)) {
            // The room of a buffer is no length of what is in it.
            (of, Some((input, axis, rest))) if is_buffer(self.graph, of.0) => {
                let all = self.shape_of(input, axis, "length");
                let rest = self.dim(&rest);
                return self.shape_node("Sub", vec![all, rest], symbol, Vec::new());
            }
            (of, _) => of,
        };
        let size = self.shape_of(input, axis, symbol);
        match usize::try_from(axis).ok().and_then(|axis| self.graph.ty(input).shape[axis].as_multiple()) {
            Some((_, count)) if count > 1 => {
                let count = self.constant(&[count]);
                self.shape_node("Div", vec![size, count], symbol, Vec::new())
            }
            _ => size,
        }
    }

    fn shape_of(&mut self, input: ValueId, axis: i64, what: &str) -> String {
        let attributes = vec![int("start", axis), int("end", axis + 1)];
        self.shape_node("Shape", vec![self.name(input).to_owned()], what, attributes)
    }

    fn sum(&mut self, dim: &Dim) -> String {
        let mut sum: Option<String> = None;
        for (coefficient, symbols) in dim.summands() {
            let mut product = (coefficient != 1 || symbols.is_empty()).then(|| self.constant(&[coefficient]));
            for symbol in symbols {
                let factor = self.dim(&Dim::symbol(symbol));
                product = Some(match product {
                    Some(product) => self.shape_node("Mul", vec![product, factor], "product", Vec::new()),
                    None => factor,
                });
            }
            let product = product.unwrap_or_default();
            sum = Some(match sum {
                Some(sum) => self.shape_node("Add", vec![sum, product], "sum", Vec::new()),
                None => product,
            });
        }
        sum.unwrap_or_default()
    }

    /// The name of a scalar: a dimension.
    pub(super) fn dim_scalar(&mut self, dim: &Dim) -> String {
        let vector = self.dim(dim);
        let axes = self.constant(&[0]);
        self.shape_node("Squeeze", vec![vector, axes], "scalar", Vec::new())
    }

    /// The name of a vector: the dimensions of a shape.
    pub(super) fn shape(&mut self, shape: &Shape) -> String {
        if let Some(sizes) = shape.as_constant() {
            return self.constant(&sizes);
        }
        if let Some(name) = self.dims.shapes.get(shape) {
            return name.clone();
        }
        let dims: Vec<String> = shape.iter().map(|d| self.dim(d)).collect();
        let name = self.shape_node("Concat", dims, "shape", vec![int("axis", 0)]);
        self.dims.shapes.insert(shape.clone(), name.clone());
        name
    }

    /// A node on shapes, named after what it computes.
    fn shape_node(&mut self, op: &str, input: Vec<String>, what: &str, attribute: Vec<AttributeProto>) -> String {
        let output = self.fresh(&format!("shape/{what}"));
        self.nodes.push(NodeProto {
            input,
            output: vec![output.clone()],
            name: output.clone(),
            op_type: op.to_owned(),
            attribute,
            ..NodeProto::default()
        });
        output
    }
}

/// The first input, or else result of an operator that determines sizes, that has the symbol, or a multiple of it, as a dimension,
/// and which; the verifier guarantees one.
fn binding(graph: &Graph, symbol: &Symbol) -> (ValueId, i64) {
    let determining = graph.nodes().filter(|(_, node)| node.op.determined_symbols().next().is_some());
    let results = determining.flat_map(|(_, node)| &node.outputs);
    let results: Vec<ValueId> = results.copied().collect();
    let multiple = |dim: &Dim| dim.as_multiple().filter(|(other, _)| *other == symbol).map(|(_, count)| count);
    for values in [graph.inputs(), &results] {
        for is_wanted in [|count: i64| count == 1, |count: i64| count > 1] {
            for &value in values {
                let axis = graph.ty(value).shape.iter().position(|d| multiple(d).is_some_and(is_wanted));
                if let Some(axis) = axis.and_then(|a| i64::try_from(a).ok()) {
                    return (value, axis);
                }
            }
        }
    }
    unreachable!("invariant V07: every symbol is a dimension of one of these")
}

/// Whether an input is a cache that an operator appends to in place: a program may give it a buffer with room for more.
fn is_buffer(graph: &Graph, input: ValueId) -> bool {
    graph.nodes().any(|(_, node)| match &node.op {
        Op::Foreign(op) => {
            op.op.0 == "GroupQueryAttention" && op.inputs.iter().skip(3).take(2).any(|o| *o == Some(input))
        }
        _ => false,
    })
}

/// The first input that has a sum of the symbol and of others as a dimension, which, and the others: all of them symbols of
/// inputs that are no buffers.
fn sum_of(graph: &Graph, symbol: &Symbol) -> Option<(ValueId, i64, Dim)> {
    let own = Dim::symbol(symbol);
    let known = |dim: &Dim| {
        let mut symbols = dim.symbols();
        symbols.all(|other| *other != *symbol && !is_buffer(graph, binding(graph, other).0))
    };
    graph.inputs().iter().find_map(|&input| {
        graph.ty(input).shape.iter().enumerate().find_map(|(axis, dim)| {
            let rest = dim.checked_sub(&own).filter(|rest| rest.as_constant() != Some(0))?;
            known(&rest).then_some((input, i64::try_from(axis).ok()?, rest))
        })
    })
}

/// Permutations and the like as an attribute.
pub(super) fn indices(name: &str, values: &[usize]) -> AttributeProto {
    ints(name, values.iter().map(|&v| i64::try_from(v).unwrap_or(i64::MAX)).collect())
}
