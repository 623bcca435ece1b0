//! A graph that grows node by node. Each node runs alone on ONNX Runtime when it is added, so all shapes and values are known.

use std::collections::HashSet;

use fastrand::Rng;
use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::proto::{AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::attributes::{constant, node, size, tensor, typed};
use crate::runner::{Runner, Tensors, model, run};

/// The most elements of a value.
const LARGEST: usize = 20_000;

/// Numbers beyond this magnitude make rounding visible.
const LIMIT: f64 = 1e4;

/// The most outputs of a graph.
const OUTPUTS: usize = 6;

/// A value of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct V(usize);

/// An operand that is left out.
pub(crate) const NONE: V = V(usize::MAX);

impl V {
    pub(crate) fn name(self) -> String {
        if self == NONE { String::new() } else { format!("v{}", self.0) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Input,
    Constant,
    Initializer,
    Result,
}

/// A graph with the inputs that it was grown with, and all its values on these.
pub(crate) struct Grown {
    pub(crate) model: ModelProto,
    pub(crate) feeds: Tensors,
    pub(crate) values: Tensors,
}

pub(crate) struct Growing<'a> {
    pub(crate) rng: Rng,
    pub(crate) opset: i64,
    runner: &'a Runner,
    values: Vec<(Tensor, Kind)>,
    nodes: Vec<NodeProto>,
}

impl<'a> Growing<'a> {
    pub(crate) fn new(seed: u64, newest: i64, runner: &'a Runner) -> Self {
        let mut rng = Rng::with_seed(seed);
        let opset = rng.i64(13..=newest);
        Self { rng, opset, runner, values: Vec::new(), nodes: Vec::new() }
    }

    /// Adds what a function adds, or nothing where that does not come to an end.
    pub(crate) fn attempt(&mut self, grow: fn(&mut Self) -> Option<V>) {
        let before = (self.nodes.len(), self.values.len());
        if grow(self).is_none() {
            self.nodes.truncate(before.0);
            self.values.truncate(before.1);
        }
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// True with a probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.rng.f64() < probability
    }

    /// Two operands, in this order or, now and then, in the other.
    pub(crate) fn either(&mut self, a: V, b: V) -> [V; 2] {
        if self.chance(0.7) { [a, b] } else { [b, a] }
    }

    /// One of several.
    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())].clone()
    }

    /// A value that fits: one of the last results above all.
    pub(crate) fn pick(&mut self, fits: impl Fn(&Tensor) -> bool) -> Option<V> {
        let found = self.values.iter().enumerate().filter(|(_, (tensor, kind))| {
            matches!(kind, Kind::Input | Kind::Result) && !tensor.data().is_empty() && fits(tensor)
        });
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        let from = if self.chance(0.7) { found.len().saturating_sub(8) } else { 0 };
        let at = self.rng.choice(&found[from..]).copied()?;
        Some(V(at))
    }

    /// A value of float32 with so many dimensions.
    pub(crate) fn float(&mut self, ranks: std::ops::RangeInclusive<usize>) -> Option<V> {
        self.pick(|tensor| tensor.dtype() == DType::F32 && ranks.contains(&tensor.shape().len()))
    }

    pub(crate) fn value(&self, v: V) -> &Tensor {
        &self.values[v.0].0
    }

    pub(crate) fn shape(&self, v: V) -> Vec<usize> {
        self.value(v).shape().to_vec()
    }

    pub(crate) fn rank(&self, v: V) -> usize {
        self.value(v).shape().len()
    }

    pub(crate) fn last(&self, v: V) -> usize {
        self.value(v).shape().last().copied().unwrap_or(1)
    }

    /// An axis, counted from either end.
    pub(crate) fn signed(&mut self, axis: usize, rank: usize) -> i64 {
        if self.rng.bool() { size(axis) - size(rank) } else { size(axis) }
    }

    pub(crate) fn axis(&mut self, v: V) -> Option<i64> {
        let rank = self.rank(v);
        if rank == 0 {
            return None;
        }
        let axis = self.rng.usize(..rank);
        Some(self.signed(axis, rank))
    }

    /// Normally distributed numbers.
    pub(crate) fn noise(&mut self, shape: &[usize], scale: f64) -> Tensor {
        let mut one = || (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0;
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| one() * scale).collect();
        filled(DType::F32, shape, &numbers)
    }

    /// Numbers from 0.1 to 1.1.
    pub(crate) fn positive(&mut self, shape: &[usize], scale: f64) -> Tensor {
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| (self.rng.f64() + 0.1) * scale).collect();
        filled(DType::F32, shape, &numbers)
    }

    /// Integers in a range.
    pub(crate) fn whole(&mut self, dtype: DType, shape: &[usize], range: std::ops::Range<i64>) -> Tensor {
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| self.rng.i64(range.clone()) as f64).collect();
        filled(dtype, shape, &numbers)
    }

    pub(crate) fn booleans(&mut self, shape: &[usize]) -> Tensor {
        self.whole(DType::Bool, shape, 0..2)
    }

    /// A shape that broadcasts to another.
    pub(crate) fn broadcast(&mut self, shape: &[usize]) -> Vec<usize> {
        let from = if self.chance(0.3) { self.rng.usize(..=shape.len()) } else { 0 };
        shape[from..].iter().map(|&size| if self.chance(0.3) { 1 } else { size }).collect()
    }

    pub(crate) fn input(&mut self, tensor: Tensor) -> V {
        self.values.push((tensor, Kind::Input));
        V(self.values.len() - 1)
    }

    pub(crate) fn constant(&mut self, value: Tensor) -> V {
        let v = V(self.values.len());
        let is_node = self.chance(0.3);
        if is_node {
            self.nodes.push(node("Constant", &[], &[&v.name()], vec![tensor("value", &value)]));
        }
        self.values.push((value, if is_node { Kind::Constant } else { Kind::Initializer }));
        v
    }

    /// A scalar of float32.
    pub(crate) fn number(&mut self, number: f64) -> V {
        self.constant(filled(DType::F32, &[], &[number]))
    }

    /// A vector of integers.
    pub(crate) fn indices(&mut self, indices: &[i64]) -> V {
        self.constant(integers(&[indices.len()], indices))
    }

    /// A scalar of 64 bit integers.
    pub(crate) fn index(&mut self, index: i64) -> V {
        self.constant(integers(&[], &[index]))
    }

    /// A constant of noise.
    pub(crate) fn weight(&mut self, shape: &[usize], scale: f64) -> V {
        let noise = self.noise(shape, scale);
        self.constant(noise)
    }

    /// The result of an operator.
    pub(crate) fn op(&mut self, op: &str, inputs: &[V], attribute: Vec<AttributeProto>) -> Option<V> {
        self.ops(op, inputs, attribute, 1).map(|results| results[0])
    }

    /// The results of an operator.
    pub(crate) fn ops(
        &mut self,
        op: &str,
        inputs: &[V],
        attribute: Vec<AttributeProto>,
        count: usize,
    ) -> Option<Vec<V>> {
        let made = NodeProto { attribute, ..self.unnamed(op, inputs, count) };
        self.add(made, inputs, count)
    }

    /// The result of one of ONNX Runtime's own operators.
    pub(crate) fn microsoft(&mut self, op: &str, inputs: &[V], attribute: Vec<AttributeProto>) -> Option<V> {
        let made = NodeProto { attribute, domain: "com.microsoft".to_owned(), ..self.unnamed(op, inputs, 1) };
        self.add(made, inputs, 1).map(|results| results[0])
    }

    /// A node whose results are the next values.
    fn unnamed(&self, op: &str, inputs: &[V], count: usize) -> NodeProto {
        NodeProto {
            op_type: op.to_owned(),
            input: inputs.iter().map(|v| v.name()).collect(),
            output: (0..count).map(|at| V(self.values.len() + at).name()).collect(),
            ..NodeProto::default()
        }
    }

    /// Adds a node whose graphs read more values than its operands.
    pub(crate) fn capturing(
        &mut self,
        op: &str,
        inputs: &[V],
        captured: &[V],
        attribute: Vec<AttributeProto>,
        count: usize,
    ) -> Option<Vec<V>> {
        let made = NodeProto { attribute, ..self.unnamed(op, inputs, count) };
        self.add(made, &[inputs, captured].concat(), count)
    }

    fn add(&mut self, made: NodeProto, reads: &[V], count: usize) -> Option<Vec<V>> {
        let mut seen = HashSet::new();
        let reads: Vec<V> = reads.iter().copied().filter(|v| *v != NONE && seen.insert(*v)).collect();
        let input = reads.iter().map(|v| self.typed(*v)).collect();
        let output = made.output.iter().map(|name| ValueInfoProto { name: name.clone(), r#type: None }).collect();
        let graph = GraphProto { node: vec![made.clone()], input, output, ..GraphProto::default() };
        let feeds: Tensors = reads.iter().map(|v| (v.name(), self.value(*v).clone())).collect();
        let mut session = self.runner.load_model(&model(self.opset, graph), false).ok()?;
        let results = run(session.as_mut(), &feeds).ok()?;
        if results.len() != count || !results.iter().all(|(_, tensor)| is_moderate(tensor)) {
            return None;
        }
        self.nodes.push(made);
        let first = self.values.len();
        self.values.extend(results.into_iter().map(|(_, tensor)| (tensor, Kind::Result)));
        Some((first..first + count).map(V).collect())
    }

    fn typed(&self, v: V) -> ValueInfoProto {
        let dims = self.shape(v).into_iter().map(|dim| DimensionValue::DimValue(size(dim))).collect();
        typed(&v.name(), self.value(v).dtype(), Some(dims))
    }

    /// The graph, with what no node reads as its outputs; with names for some of the sizes of its inputs where `open`.
    pub(crate) fn finish(mut self, open: bool) -> Option<Grown> {
        let mut read = HashSet::new();
        self.nodes.iter().for_each(|node| reads(node, &mut read));
        let of = |kind: Kind| self.values.iter().enumerate().filter(move |(_, value)| value.1 == kind);
        let results: Vec<V> = of(Kind::Result).map(|(at, _)| V(at)).filter(|v| !read.contains(&v.name())).collect();
        let inputs: Vec<V> = of(Kind::Input).map(|(at, _)| V(at)).collect();
        let initializer = of(Kind::Initializer).map(|(at, (value, _))| constant(&V(at).name(), value)).collect();
        if results.is_empty() {
            return None;
        }
        let output = results.iter().take(OUTPUTS).map(|v| typed(&v.name(), self.value(*v).dtype(), None)).collect();
        let mut input: Vec<ValueInfoProto> = inputs.iter().map(|v| self.typed(*v)).collect();
        for port in input.iter_mut().filter(|_| open) {
            let tensor = port.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
            let dims = tensor.and_then(|tensor| tensor.shape.as_mut()).map(|shape| &mut shape.dim);
            for (at, dim) in dims.into_iter().flatten().enumerate() {
                if self.rng.bool() {
                    dim.value = Some(DimensionValue::DimParam(format!("{}_{at}", port.name)));
                }
            }
        }
        let named = |v: V| (v.name(), self.value(v).clone());
        let feeds: Tensors = inputs.into_iter().map(named).collect();
        let values: Tensors = of(Kind::Result).map(|(at, _)| named(V(at))).collect();
        let graph = GraphProto { node: self.nodes, input, output, initializer, ..GraphProto::default() };
        Some(Grown { model: model(self.opset, graph), feeds, values })
    }
}

/// The names that a node reads, those in its graphs included.
pub(crate) fn reads(node: &NodeProto, names: &mut HashSet<String>) {
    names.extend(node.input.iter().filter(|name| !name.is_empty()).cloned());
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        names.extend(graph.output.iter().map(|port| port.name.clone()));
        graph.node.iter().for_each(|node| reads(node, names));
    }
}

/// Whether values are few and small enough for rounding to stay small.
fn is_moderate(tensor: &Tensor) -> bool {
    let mut largest = 0.0f64;
    if tensor.dtype().is_float() {
        tensor.visit_f64(|v| largest = if v.is_finite() { largest.max(v.abs()) } else { f64::INFINITY });
    }
    tensor.data().len() <= LARGEST && largest <= LIMIT
}

/// Numbers as a tensor.
pub(crate) fn filled(dtype: DType, shape: &[usize], numbers: &[f64]) -> Tensor {
    let tensor = Tensor::from_f64(dtype, shape.to_vec(), numbers);
    tensor.unwrap_or_else(|| unreachable!("{} numbers for {shape:?}", numbers.len()))
}

/// 64 bit integers as a tensor.
pub(crate) fn integers(shape: &[usize], numbers: &[i64]) -> Tensor {
    let tensor = Tensor::new(shape.to_vec(), numbers.to_vec());
    tensor.unwrap_or_else(|| unreachable!("{} numbers for {shape:?}", numbers.len()))
}

/// Whether shapes broadcast with each other.
pub(crate) fn fits(a: &[usize], b: &[usize]) -> bool {
    a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b || *a == 1 || *b == 1)
}
