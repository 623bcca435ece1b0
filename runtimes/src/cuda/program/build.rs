//! Building a program: one pass over the nodes that the outputs need.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::UnaryKind;
use planish_ir::{Bindings, DType, Def, Dim, Graph, NodeId, Op, Shape, ValueId};

use super::packed::OnTokens;
use super::view::row_major;
use super::{Argument, Base, Caches, Continued, Launch, Output, Place, Program, Step, Target, View, planned};
use crate::cuda::device::{Grid, Product};
use crate::cuda::packing::{PackedSizes, Packing};
use crate::cuda::source::Source;

pub(super) fn build(
    graph: &Graph,
    bindings: &Bindings,
    target: Target,
    caches: &Caches,
    packed: Option<(&Packing, PackedSizes)>,
) -> Result<Program, String> {
    let packed = packed.map(|(packing, sizes)| OnTokens::new(packing, sizes, bindings));
    let mut builder = Builder::new(graph, bindings, target, caches, packed)?;
    for id in graph.needed_nodes() {
        let node = graph.node(id);
        let name = node.outputs.first().map_or("", |v| graph.value(*v).name.as_str());
        builder
            .node_on_tokens(&node.op, &node.outputs)
            .map_err(|reason| format!("`{}` at `{name}`: {reason}", node.op.kind()))?;
        builder.names.resize(builder.buffers.len(), name.to_owned());
        builder.origins.resize(builder.steps.len(), Some(id));
    }
    builder.finish()
}

/// The most bytes of a buffer, and of all together: more than any memory has, and sums of them do not overflow.
pub(crate) const MOST_BYTES: usize = 1 << 48;

/// The bytes of a tensor.
fn bytes(dtype: DType, shape: &[usize]) -> Result<usize, String> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, size| n.checked_mul(*size));
    bytes.filter(|bytes| *bytes <= MOST_BYTES).ok_or_else(|| format!("{dtype}{shape:?} is too large"))
}

/// What is known of the program so far.
pub(super) struct Builder<'a> {
    pub(super) graph: &'a Graph,
    bindings: Bindings,
    pub(super) target: Target,
    pub(super) caches: &'a Caches,
    kernels: Vec<Source>,
    places: HashMap<Source, usize>,
    steps: Vec<Step>,
    /// The node that each step computes; `None` for copies to outputs.
    origins: Vec<Option<NodeId>>,
    /// The node that needs each buffer, by the name of its first result.
    names: Vec<String>,
    /// The bytes of each buffer.
    buffers: Vec<usize>,
    /// The values that are known, by their index.
    views: Vec<Option<View>>,
    pub(super) uses: Vec<usize>,
    /// The outputs that a value is written to directly, by the index of the value.
    direct: HashMap<ValueId, usize>,
    continued: HashMap<usize, Continued>,
    constants: Vec<u8>,
    pub(super) attentions: Vec<String>,
    /// For a packed batch.
    pub(super) packed: Option<OnTokens<'a>>,
}

impl<'a> Builder<'a> {
    fn new(
        graph: &'a Graph,
        bindings: &Bindings,
        target: Target,
        caches: &'a Caches,
        packed: Option<OnTokens<'a>>,
    ) -> Result<Self, String> {
        let mut direct = HashMap::new();
        for (at, output) in graph.outputs().iter().enumerate() {
            let is_packed = packed.as_ref().is_some_and(|packed| packed.has(output.value));
            if matches!(graph.value(output.value).def, Def::Node { .. }) && !is_packed {
                direct.entry(output.value).or_insert(at);
            }
        }
        let mut builder = Self {
            graph,
            bindings: bindings.clone(),
            target,
            caches,
            kernels: Vec::new(),
            places: HashMap::new(),
            steps: Vec::new(),
            origins: Vec::new(),
            names: Vec::new(),
            buffers: Vec::new(),
            views: vec![None; graph.value_count()],
            uses: graph.use_counts(),
            direct,
            continued: HashMap::new(),
            constants: Vec::new(),
            attentions: Vec::new(),
            packed,
        };
        for (at, &input) in graph.inputs().iter().enumerate() {
            let shape = builder.shape_of(input)?;
            let place = Place { base: Base::Input(at), offset: 0 };
            let mut view = View::contiguous(place, graph.ty(input).dtype, shape);
            if let Some(Some(room)) = caches.room.get(at) {
                // [batch, heads, keys, size] in memory for more keys.
                let room_shape = [view.shape[0], view.shape[1], room.capacity, view.shape[3]];
                view.strides = row_major(&room_shape);
            }
            builder.views[input.index()] = Some(view);
        }
        Ok(builder)
    }

    /// The value of a dimension.
    pub(super) fn size(&self, dim: &Dim) -> Result<usize, String> {
        let bindings = self.packed.as_ref().and_then(OnTokens::bindings).unwrap_or(&self.bindings);
        let value = dim.evaluate(bindings).ok_or_else(|| format!("`{dim}` has no value"))?;
        usize::try_from(value).map_err(|_| format!("`{dim}` is {value}"))
    }

    pub(super) fn shape(&self, shape: &Shape) -> Result<Vec<usize>, String> {
        shape.iter().map(|dim| self.size(dim)).collect()
    }

    pub(super) fn shape_of(&self, value: ValueId) -> Result<Vec<usize>, String> {
        self.shape(&self.graph.ty(value).shape)
    }

    /// A value that is known.
    pub(super) fn view(&mut self, value: ValueId) -> Result<View, String> {
        if let Some(view) = self.packed.as_ref().and_then(|packed| packed.operand(value)) {
            return Ok(view.clone());
        }
        if let Some(view) = &self.views[value.index()] {
            return Ok(view.clone());
        }
        let Some(weight) = self.graph.weight(value) else {
            return Err(format!("`{}` is not known", self.graph.value(value).name));
        };
        let place = Place { base: Base::Weight(value), offset: 0 };
        let view = View::contiguous(place, weight.dtype(), weight.shape().to_vec());
        self.views[value.index()] = Some(view.clone());
        Ok(view)
    }

    /// A value without gaps.
    pub(super) fn whole(&mut self, value: ValueId) -> Result<View, String> {
        let view = self.view(value)?;
        self.without_gaps(view)
    }

    /// The view, or a copy of it without gaps.
    pub(super) fn without_gaps(&mut self, view: View) -> Result<View, String> {
        if view.is_contiguous() {
            return Ok(View { strides: row_major(&view.shape), ..view });
        }
        let copy = self.temporary(view.dtype, view.shape.clone())?;
        self.copy(&copy, &view)?;
        Ok(copy)
    }

    /// Memory of the arena.
    pub(super) fn temporary(&mut self, dtype: DType, shape: Vec<usize>) -> Result<View, String> {
        self.buffers.push(bytes(dtype, &shape)?);
        Ok(View::contiguous(Place { base: Base::Buffer(self.buffers.len() - 1), offset: 0 }, dtype, shape))
    }

    /// Memory for a result, without gaps: that of the output, if it is one. It is known from now on.
    pub(super) fn result(&mut self, value: ValueId) -> Result<View, String> {
        let shape = self.shape_of(value)?;
        let dtype = self.graph.ty(value).dtype;
        bytes(dtype, &shape)?;
        let view = match self.direct.get(&value) {
            Some(&output) => View::contiguous(Place { base: Base::Output(output), offset: 0 }, dtype, shape),
            None => self.temporary(dtype, shape)?,
        };
        self.views[value.index()] = Some(view.clone());
        Ok(view)
    }

    /// Says what a value is.
    pub(super) fn define(&mut self, value: ValueId, view: View) {
        self.views[value.index()] = Some(view);
    }

    /// The output that a value is written to directly.
    pub(super) fn output(&self, value: ValueId) -> Option<usize> {
        self.direct.get(&value).copied()
    }

    /// Notes that an output continues an input.
    pub(super) fn continues(&mut self, output: usize, continued: Continued) {
        self.continued.insert(output, continued);
    }

    /// Whether an output continues an input in its memory.
    pub(super) fn is_continued(&self, input: Option<usize>) -> bool {
        self.continued.values().any(|continued| input.is_some() && continued.input == input)
    }

    /// Whether a value is read.
    pub(super) fn is_used(&self, value: ValueId) -> bool {
        self.uses[value.index()] > 0
    }

    pub(super) fn launch(&mut self, source: Source, grid: Grid, arguments: Vec<Argument>) {
        if grid.blocks.contains(&0) {
            return;
        }
        let count = self.kernels.len();
        let kernel = *self.places.entry(source.clone()).or_insert(count);
        if kernel == count {
            self.kernels.push(source);
        }
        self.steps.push(Step::Launch(Launch { kernel, grid, arguments }));
    }

    pub(super) fn multiply(&mut self, product: Product<Place>) {
        if product.m * product.n * product.batch > 0 {
            self.steps.push(Step::Multiply(product));
        }
    }

    pub(super) fn copy_bytes(&mut self, to: Place, from: Place, bytes: usize) {
        if bytes > 0 {
            self.steps.push(Step::Copy { to, from, bytes });
        }
    }

    /// A constant.
    pub(super) fn constant(&mut self, bytes: &[u8]) -> Place {
        let offset = self.constants.len().next_multiple_of(16);
        self.constants.resize(offset, 0);
        self.constants.extend_from_slice(bytes);
        Place { base: Base::Constants, offset }
    }

    pub(super) fn node(&mut self, op: &Op, results: &[ValueId]) -> Result<(), String> {
        let [result, ..] = results else { return Ok(()) };
        let result = *result;
        match op {
            Op::Unary(p) => self.unary(result, p),
            Op::Binary(p) => self.binary(result, p),
            Op::Select(p) => self.elementwise(result, "x ? y : z", &[p.condition, p.a, p.b]),
            Op::Cast(p) => self.elementwise(result, "x", &[p.x]),
            Op::Gelu(p) => self.elementwise(result, super::elementwise::gelu(p.form), &[p.x]),
            Op::Reduce(p) => self.reduce(result, p),
            Op::CumSum(p) => self.cumsum(result, p),
            Op::Reshape(p) => self.reshape(result, p.x, &p.shape),
            Op::Transpose(p) => {
                let view = self.view(p.x)?.transpose(&p.perm);
                self.define(result, view);
                Ok(())
            }
            Op::Slice(p) => {
                let (start, end) = (self.size(&p.start)?, self.size(&p.end)?);
                let view = self.view(p.x)?;
                if start > end || end > view.shape[p.axis] {
                    return Err(format!("{start}..{end} is out of range for a size of {}", view.shape[p.axis]));
                }
                self.define(result, view.slice(p.axis, start, end));
                Ok(())
            }
            Op::Split(p) => {
                let view = self.view(p.x)?;
                let mut start = 0;
                for (&part, size) in results.iter().zip(&p.sizes) {
                    self.define(part, view.slice(p.axis, start, start + size));
                    start += size;
                }
                Ok(())
            }
            Op::Expand(p) => {
                let shape = self.shape(&p.shape)?;
                let view = self.view(p.x)?.expand(&shape);
                self.define(result, view);
                Ok(())
            }
            Op::Concat(p) => self.concat(result, p),
            Op::Gather(p) => self.gather(result, p.x, p.indices, p.axis),
            Op::Embedding(p) => self.gather(result, p.weight, p.ids, 0),
            Op::Iota(p) => {
                self.size(&p.length)?;
                self.elementwise(result, "i", &[])
            }
            Op::Sizes(p) => {
                let sizes = self.shape(&p.of)?;
                let bytes: Vec<u8> = sizes.iter().flat_map(|size| (*size as u64).to_le_bytes()).collect();
                let place = self.constant(&bytes);
                self.define(result, View::contiguous(place, DType::I64, vec![sizes.len()]));
                Ok(())
            }
            Op::Linear(p) => self.linear(result, p),
            Op::MatMul(p) => self.matmul(result, p),
            Op::Softmax(p) => self.softmax(result, p.x),
            Op::LayerNorm(p) => self.layer_norm(result, p),
            Op::RmsNorm(p) => self.rms_norm(result, p),
            Op::Attention(p) => self.attention(results, p),
            Op::Rotary(p) => self.rotary(result, p),
            Op::Quantize(p) => self.quantize(result, p),
            Op::FakeQuantize(p) => self.fake_quantize(result, p),
            Op::QuantizedLinear(p) => self.quantized_linear(result, p),
            Op::FusedLinear(p) => self.fused_linear(result, p),
            Op::Gated(p) => self.gated(result, p),
            Op::AddNorm(p) => self.add_norm(results, p),
            Op::EmbeddingNorm(p) => self.embedding_norm(results, p),
            Op::RotaryAppend(p) => self.rotary_append(results, p),
            _ => Err("the CUDA runtime has no kernel for it".to_owned()),
        }
    }

    /// Copies what outputs are that no step writes to, and plans the memory.
    fn finish(mut self) -> Result<Program, String> {
        let mut outputs = Vec::new();
        for (at, output) in self.graph.outputs().iter().enumerate() {
            let view = self.view(output.value)?;
            let (dtype, shape) = (view.dtype, self.shape_of(output.value)?);
            bytes(dtype, &shape)?;
            let own = Place { base: Base::Output(at), offset: 0 };
            let to = View::contiguous(own, dtype, shape.clone());
            if self.packed.as_ref().is_some_and(|packed| packed.has(output.value)) {
                self.unpack(&to, view)?;
            } else if view.place != own {
                self.copy(&to, &view)?;
            }
            let cache = self.continued.get(&at).cloned();
            outputs.push(Output { name: output.name.clone(), dtype, shape, cache });
        }
        self.names.resize(self.buffers.len(), "outputs".to_owned());
        self.origins.resize(self.steps.len(), None);
        let sum = self.buffers.iter().fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
        if sum > MOST_BYTES {
            return Err(format!("the buffers of a run take {sum} bytes together, which no memory has"));
        }
        let (intervals, memory) = planned(&self.steps, &self.buffers);
        Ok(Program {
            kernels: self.kernels,
            steps: self.steps,
            origins: self.origins,
            names: self.names,
            intervals,
            memory,
            outputs,
            constants: self.constants,
            attentions: self.attentions,
        })
    }
}

impl Builder<'_> {
    fn unary(&mut self, result: ValueId, op: &planish_ir::ops::Unary) -> Result<(), String> {
        let expression = match op.kind {
            UnaryKind::Neg => "-x",
            UnaryKind::Abs => "absolute(x)",
            UnaryKind::Floor => "floor(x)",
            UnaryKind::Ceil => "ceil(x)",
            UnaryKind::Exp => "exp(x)",
            UnaryKind::Log => "log(x)",
            UnaryKind::Sqrt => "sqrt(x)",
            UnaryKind::Cos => "cos(x)",
            UnaryKind::Sin => "sin(x)",
            UnaryKind::Erf => "erf(x)",
            UnaryKind::Tanh => "tanh(x)",
            UnaryKind::Sigmoid => "sigmoid(x)",
            UnaryKind::Relu => "relu(x)",
            UnaryKind::Silu => "silu(x)",
            UnaryKind::Not => "!x",
            UnaryKind::IsNan => "is_nan(x)",
        };
        self.elementwise(result, expression, &[op.x])
    }
}
