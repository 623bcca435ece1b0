//! Flattening of batch and sequence into one dimension of tokens.

use hashbrown::HashMap;
use planish_ir::handle::Handle;
use planish_ir::ops::{
    Attention, Binary, FakeQuantize, Gelu, LayerNorm, Linear, Reshape, RmsNorm, Split, Transpose, Unary,
};
use planish_ir::{BuildError, Dim, Graph, NodeId, Op, Rewriter, Shape, Step, ValueId};

use super::SWAP_TOKENS;
use super::quantized::becomes_block_product;
use crate::build::Builder;
use crate::{AttentionForm, Example, ONNX, Options, Outcome, Packing, Pass, PassError, TokenOrder};

/// Has everything that works token by token see a matrix, [tokens, features].
pub const FLATTEN_TOKENS: Pass = Pass {
    name: "flatten-tokens",
    summary: "Turns linear layers, and the operators between them that work on each token alone, into operations on a \
              matrix [tokens, features]. A linear layer of a matrix is one Gemm, with its bias and with the weight as \
              stored. A linear layer of a tensor with more dimensions would need a product, a sum and a transposed \
              copy of the weight. A value that is quantized is flattened where a linear layer takes it or gives it. \
              MatMulNBits takes more dimensions, so a layer that becomes one does not need a matrix. \
              For target ort, unless the recipe says otherwise, tokens are ordered by position, [sequence * batch, features], up to \
              the last attention without a cache. Attention can then read its operands as strided matrices where they \
              are, without transposing them. This was measured on CPUs, so other targets order tokens by batch.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 2]
            weight @w = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            %h = linear(%x, @w) : f32[b, s, 2]
            %r = relu(%h) : f32[b, s, 2]
            %y = add(%r, %x) : f32[b, s, 2]
            output y = %y",
        after: "
            input %x: f32[b, s, 2]
            weight @w = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            %h/reshape = reshape(%x) {shape = [b*s, 2]} : f32[b*s, 2]
            %h = linear(%h/reshape, @w) : f32[b*s, 2]
            %r = relu(%h) : f32[b*s, 2]
            %y = add(%r, %h/reshape) : f32[b*s, 2]
            %y/reshape = reshape(%y) {shape = [b, s, 2]} : f32[b, s, 2]
            output y = %y/reshape",
    },
    applies: |options| options.fusion && !options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let sequence_major = match (options.order, options.attention) {
        (TokenOrder::BatchMajor, _) | (_, AttentionForm::MultiHead) => vec![false; graph.value_count()],
        (TokenOrder::SequenceMajor, _) => before_attention(graph),
    };
    let mut tokens = Tokens { options, sequence_major, of_layers: of_layers(graph), matrices: HashMap::new() };
    let changed = graph.rewrite(|graph, node| tokens.step(graph, node))?;
    graph.compact();
    Ok(changed.into())
}

/// Which values, by index, some attention depends on that gains from another order of tokens. Keys of a cache are
/// batch by batch, and queries that are computed by head are laid out for that: neither gains.
fn before_attention(graph: &Graph) -> Vec<bool> {
    let mut before = vec![false; graph.value_count()];
    let nodes: Vec<_> = graph.nodes().collect();
    for (_, node) in nodes.into_iter().rev() {
        let attends = matches!(&node.op, Op::Attention(Attention { q, past_key: None, present, .. })
            if !present.0 && !by_head(graph, *q));
        if attends || node.outputs.iter().any(|v| before[v.index()]) {
            node.op.visit_operands(&mut |v| before[v.index()] = true);
        }
    }
    before
}

/// Whether queries [batch, sequence, features] are put together from [batch, heads, sequence, size].
fn by_head(graph: &Graph, queries: ValueId) -> bool {
    let op = |value: ValueId| graph.producer(value).map(|node| &node.op);
    let Some(Op::Reshape(Reshape { x, .. })) = op(queries) else { return false };
    matches!(op(*x), Some(Op::Transpose(Transpose { perm, .. })) if *perm == [0, 2, 1, 3])
}

/// In which order the rows of a matrix are the tokens of [batch, sequence, features].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Order {
    /// Row `b * sequence + s`.
    BatchMajor,
    /// Row `s * batch + b`.
    SequenceMajor,
}

/// Which values, by index, a linear layer takes.
fn of_layers(graph: &Graph) -> Vec<bool> {
    let mut taken = vec![false; graph.value_count()];
    for (_, node) in graph.nodes() {
        if let Op::Linear(linear) = &node.op {
            taken[linear.x.index()] = true;
        }
    }
    taken
}

struct Tokens<'a> {
    options: &'a Options,
    /// By index of the values before this pass: whether a linear layer takes the value.
    of_layers: Vec<bool>,
    /// By index of the values before this pass.
    sequence_major: Vec<bool>,
    /// The matrices that stand for values of more dimensions.
    matrices: HashMap<(ValueId, Order), ValueId>,
}

impl Tokens<'_> {
    fn step(&mut self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let output = graph.node(node).outputs[0];
        let rank = graph.ty(output).shape.rank();
        let mut may_be_flat = match &graph.node(node).op {
            Op::Linear(linear) => {
                self.sequence_major[output.index()] || !becomes_block_product(graph, linear, self.options)
            }
            Op::FakeQuantize(_) => self.of_layers[output.index()],
            _ => false,
        };
        graph.node(node).op.visit_operands(&mut |v| may_be_flat |= self.is_flat(v));
        // A number of tokens beyond 64 bits fits nowhere else either.
        if rank <= 2 || !may_be_flat || graph.ty(output).shape.elements().is_none() {
            return Ok(Step::Keep);
        }
        let order = match self.sequence_major[output.index()] && rank == 3 {
            true => Order::SequenceMajor,
            false => Order::BatchMajor,
        };
        let op = graph.node(node).op.clone();
        let flat = |v: &ValueId| self.is_flat(*v);
        let op: Op = match op {
            Op::Split(p) if self.options.packing == Packing::All && p.axis + 1 == rank && flat(&p.x) => {
                return self.split(graph, node, p, order);
            }
            Op::Linear(p) => Linear { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::FakeQuantize(p) => FakeQuantize { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::LayerNorm(p) if flat(&p.x) => LayerNorm { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::RmsNorm(p) if flat(&p.x) => RmsNorm { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::Gelu(p) if flat(&p.x) => Gelu { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::Unary(p) if flat(&p.x) => Unary { x: self.matrix(graph, p.x, order, output)?, ..p }.into(),
            Op::Binary(p) if flat(&p.a) || flat(&p.b) => {
                let [wide_a, wide_b] = [p.a, p.b].map(|v| graph.ty(v).shape == graph.ty(output).shape);
                // One number for all tokens, or for each feature.
                let [same_a, same_b] = [p.a, p.b].map(|v| graph.ty(v).shape.rank() <= 1);
                if !((wide_a || same_a) && (wide_b || same_b)) {
                    return Ok(Step::Keep);
                }
                let mut matrix = |v, wide| if wide { self.matrix(graph, v, order, output) } else { Ok(v) };
                let (a, b) = (matrix(p.a, wide_a)?, matrix(p.b, wide_b)?);
                Binary { kind: p.kind, a, b }.into()
            }
            _ => return Ok(Step::Keep),
        };
        let matrix = graph.emit(op, output)?;
        let whole = unflatten(graph, matrix, output, order)?;
        self.matrices.insert((whole, order), matrix);
        Ok(Step::Replace(vec![whole]))
    }

    /// The parts of a matrix of features.
    fn split(&mut self, graph: &mut Rewriter<'_>, node: NodeId, op: Split, order: Order) -> Result<Step, PassError> {
        let outputs = graph.node(node).outputs.clone();
        let x = self.matrix(graph, op.x, order, outputs[0])?;
        let parts = graph.emit_all(Split { x, axis: 1, ..op }, outputs[0])?;
        let mut wholes = Vec::new();
        for (part, output) in parts.into_iter().zip(outputs.iter()) {
            let whole = unflatten(graph, part, *output, order)?;
            self.matrices.insert((whole, order), part);
            wholes.push(whole);
        }
        Ok(Step::Replace(wholes))
    }

    fn is_flat(&self, value: ValueId) -> bool {
        [Order::BatchMajor, Order::SequenceMajor].iter().any(|o| self.matrices.contains_key(&(value, *o)))
    }

    /// The matrix that stands for a value.
    fn matrix(
        &mut self,
        graph: &mut Rewriter<'_>,
        value: ValueId,
        order: Order,
        like: ValueId,
    ) -> Result<ValueId, BuildError> {
        if let Some(matrix) = self.matrices.get(&(value, order)) {
            return Ok(*matrix);
        }
        let shape = graph.ty(value).shape.clone();
        let (features, leading) = (shape.last().cloned(), Shape::new(shape[..shape.rank() - 1].to_vec()));
        let dims: Vec<Dim> = leading.elements().into_iter().chain(features).collect();
        let mut l = Builder::at(graph, like);
        let ordered = match order {
            Order::BatchMajor => value,
            Order::SequenceMajor => l.transpose(value, SWAP_TOKENS)?,
        };
        let matrix = l.reshape(ordered, dims)?;
        self.matrices.insert((value, order), matrix);
        Ok(matrix)
    }
}

/// The value of the type of `like` that a matrix stands for.
fn unflatten(graph: &mut Rewriter<'_>, matrix: ValueId, like: ValueId, order: Order) -> Result<ValueId, BuildError> {
    let shape = graph.ty(like).shape.clone();
    let mut l = Builder::at(graph, like);
    match order {
        Order::BatchMajor => l.reshape(matrix, shape.iter().cloned()),
        Order::SequenceMajor => {
            let swapped = l.reshape(matrix, SWAP_TOKENS.iter().map(|&i| shape[i].clone()))?;
            l.transpose(swapped, SWAP_TOKENS)
        }
    }
}
