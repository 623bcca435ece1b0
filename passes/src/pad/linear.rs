//! Padding of linear layers.

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, BinaryKind, FakeQuantize, Gelu, Linear, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Graph, NodeId, Op, Rewriter, Step, Value, ValueId, Weight};

use super::enlarged;
use crate::{Example, FeaturePadding, Note, ONNX, Options, Outcome, Pass, PassError, QuantizedForm};

/// Pads the features of linear layers to sizes that the target's kernels are aligned to.
pub const PAD_LINEAR: Pass = Pass {
    name: "pad-linear",
    summary: "Pads the features of linear layers to a multiple that the target's kernels are faster at. Features \
              between two linear layers are padded on both sides if only products and activations that keep zeros \
              (gelu, relu, silu, tanh) stand between. This costs nothing at run time. Results of other layers are \
              padded, and a slice removes the padding. Layers with fewer results than the multiple stay, as \
              classifiers have: they would compute more padding than results. Layers of which only the operand is not \
              aligned stay, because padding it at run time would copy it. Weights with other uses, and weights of codes \
              with zero points, stay. Without fusion \
              everything stays. For target cuda, layers of codes have the alignment of their codes.",
    numerics: "none, except that a product of another size may sum in another order",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 4]
            weight @up = uniform(1) : f32[6, 4]
            weight @down = uniform(2) : f32[4, 6]
            %u = linear(%x, @up) : f32[n, 6]
            %r = relu(%u) : f32[n, 6]
            %y = linear(%r, @down) : f32[n, 4]
            output y = %y",
        after: "
            input %x: f32[n, 4]
            weight @up = pad(uniform(1) : f32[6, 4], 0.0) : f32[8, 4]
            weight @down = pad(uniform(2) : f32[4, 6], 0.0) : f32[4, 8]
            %u = linear(%x, @up) : f32[n, 8]
            %r = relu(%u) : f32[n, 8]
            %y = linear(%r, @down) : f32[n, 4]
            output y = %y",
    },
    applies: |options| options.fusion,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    // Dead users of a weight or a result would count.
    graph.compact();
    let mut alignment = Alignment { options, notes: Vec::new() };
    let mut changed = 0;
    // A layer that ends one pair may begin another.
    loop {
        let uses = graph.use_counts();
        let paired = graph.rewrite(|graph, node| alignment.pair(graph, node, &uses))?;
        graph.compact();
        changed += paired;
        if paired == 0 {
            break;
        }
    }
    let uses = graph.use_counts();
    changed += graph.rewrite(|graph, node| alignment.sliced(graph, node, &uses))?;
    graph.compact();
    Ok(Outcome { changed, notes: alignment.notes })
}

/// How many operators are looked at between linear layers.
const DEPTH: usize = 8;

/// What features are padded to a multiple of.
struct Alignment<'a> {
    options: &'a Options,
    /// The layers that were padded.
    notes: Vec<Note>,
}

impl Alignment<'_> {
    /// The multiple for a layer.
    fn of(&self, graph: &Graph, layer: &Linear) -> usize {
        let of_codes = graph.weight(layer.weight).is_some_and(|weight| weight.as_dequantized().is_some());
        let dtype = if of_codes && self.on_codes() { DType::I8 } else { graph.ty(layer.x).dtype };
        self.options.padding.features.unwrap_or_else(|| (self.options.target.alignment)(dtype)).max(1)
    }

    /// Whether layers of codes multiply codes as they are.
    fn on_codes(&self) -> bool {
        self.options.target.quantized == QuantizedForm::Codes
    }

    /// What a layer takes, or what it takes the codes of. A code of 0 is the number 0.
    fn floats(&self, graph: &Graph, uses: &[usize], x: ValueId) -> ValueId {
        match graph.producer(x).map(|node| &node.op) {
            Some(Op::FakeQuantize(FakeQuantize { x: floats, scale: Some(_), .. }))
                if self.on_codes() && uses.get(x.index()) == Some(&1) =>
            {
                *floats
            }
            _ => x,
        }
    }

    /// Reports a layer by its result.
    fn note(&mut self, graph: &Graph, result: ValueId, [size, multiple]: [usize; 2], given: bool) {
        let Value { name, origin, .. } = graph.value(result);
        let padded = size.next_multiple_of(multiple);
        self.notes.push(Note::Features(FeaturePadding {
            at: name.clone(),
            origin: origin.clone(),
            size,
            padded,
            given,
        }));
    }

    /// Pads the features that a linear layer takes, where they are made of linear layers alone.
    fn pair(&mut self, graph: &mut Rewriter<'_>, node: NodeId, uses: &[usize]) -> Result<Step, PassError> {
        let like = graph.node(node).outputs[0];
        let Some(linear) = own_linear(graph, &graph.node(node).op, uses) else { return Ok(Step::Keep) };
        let multiple = self.of(graph, &linear);
        let unaligned = features(graph, linear.x).filter(|features| !features.is_multiple_of(multiple));
        let Some(size) = unaligned.filter(|_| keeps_zeros(graph, uses, self.floats(graph, uses, linear.x), DEPTH))
        else {
            return Ok(Step::Keep);
        };
        let x = rebuilt(graph, linear.x, multiple)?;
        let weight = padded(graph, linear.weight, usize::from(!linear.transposed.0), multiple)?;
        self.note(graph, like, [size, multiple], false);
        Ok(Step::Replace(vec![graph.emit(Linear { x, weight, ..linear }, like)?]))
    }

    /// Pads the features that a linear layer gives, and slices them.
    fn sliced(&mut self, graph: &mut Rewriter<'_>, node: NodeId, uses: &[usize]) -> Result<Step, PassError> {
        let like = graph.node(node).outputs[0];
        let Some(linear) = own_linear(graph, &graph.node(node).op, uses) else { return Ok(Step::Keep) };
        let multiple = self.of(graph, &linear);
        let unaligned = features(graph, like).filter(|n| *n > multiple && !n.is_multiple_of(multiple));
        let (Some(size), Some(end)) = (unaligned, graph.ty(like).shape.last().cloned()) else { return Ok(Step::Keep) };
        let axis = graph.ty(like).shape.rank() - 1;
        let wider = padded_linear(graph, linear, multiple)?;
        self.note(graph, like, [size, multiple], true);
        let x = graph.emit(wider, like)?;
        let slice = Slice { x, axis, start: Dim::constant(0), end };
        Ok(Step::Replace(vec![graph.part(slice, like)?]))
    }
}

/// The last dimension, where it is known.
fn features(graph: &Graph, value: ValueId) -> Option<usize> {
    graph.ty(value).shape.last()?.as_constant().and_then(|n| usize::try_from(n).ok())
}

/// The layer, where nothing else uses its weight, and its bias is known.
fn own_linear(graph: &Graph, op: &Op, uses: &[usize]) -> Option<Linear> {
    let Op::Linear(linear) = op else { return None };
    let known = |weight: ValueId| graph.weight(weight).is_some();
    // Codes of 0 would not be the number 0.
    let has_zero_points = |weight: &Weight| weight.as_dequantized().is_some_and(|of| of.zero_points.is_some());
    let own = graph.weight(linear.weight).is_some_and(|weight| !has_zero_points(weight))
        && uses.get(linear.weight.index()) == Some(&1);
    let tokens = graph.ty(linear.x).shape.rank() > 1;
    (own && tokens && linear.bias.is_none_or(known)).then(|| linear.clone())
}

/// Whether a value is made of linear layers, by operators that make zeros of zeros and that nothing else
/// uses the results of.
fn keeps_zeros(graph: &Graph, uses: &[usize], value: ValueId, depth: usize) -> bool {
    let own = depth > 0 && uses.get(value.index()) == Some(&1);
    let Some(node) = graph.producer(value).filter(|_| own) else { return false };
    let keeps_zeros = |x: &ValueId| keeps_zeros(graph, uses, *x, depth - 1);
    match &node.op {
        Op::Linear(_) => own_linear(graph, &node.op, uses).is_some(),
        Op::Gelu(Gelu { x, .. }) => keeps_zeros(x),
        Op::Unary(Unary { kind: UnaryKind::Relu | UnaryKind::Silu | UnaryKind::Tanh, x }) => keeps_zeros(x),
        Op::Binary(Binary { kind: BinaryKind::Mul, a, b }) => {
            let same = graph.ty(*a).shape == graph.ty(*b).shape;
            same && keeps_zeros(a) && keeps_zeros(b)
        }
        _ => false,
    }
}

/// A value that [`keeps_zeros`] with its features padded.
fn rebuilt(graph: &mut Rewriter<'_>, value: ValueId, multiple: usize) -> Result<ValueId, PassError> {
    let Some(mut op) = graph.producer(value).map(|node| node.op.clone()) else { return Ok(value) };
    if let Op::Linear(linear) = op {
        let linear = padded_linear(graph, linear, multiple)?;
        return Ok(graph.emit(linear, value)?);
    }
    let operands = op.operands().into_iter().map(|operand| rebuilt(graph, operand, multiple));
    let mut operands = operands.collect::<Result<Vec<_>, _>>()?.into_iter();
    op.visit_operands_mut(&mut |v| *v = operands.next().unwrap_or(*v));
    Ok(graph.emit(op, value)?)
}

/// The layer with more results, all zero.
fn padded_linear(graph: &mut Rewriter<'_>, linear: Linear, multiple: usize) -> Result<Linear, PassError> {
    let weight = padded(graph, linear.weight, usize::from(linear.transposed.0), multiple)?;
    let bias = linear.bias.map(|bias| padded(graph, bias, 0, multiple)).transpose()?;
    Ok(Linear { weight, bias, ..linear })
}

/// A weight with zeros appended along an axis.
fn padded(graph: &mut Rewriter<'_>, weight: ValueId, axis: usize, multiple: usize) -> Result<ValueId, PassError> {
    let larger = enlarged(graph, weight, axis, multiple, 0.0)?;
    Ok(graph.weight_like(larger, weight))
}
