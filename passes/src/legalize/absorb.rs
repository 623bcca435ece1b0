//! Absorption of biases that norms and softmax can include without cost.

use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::ops::{Attention, Binary, BinaryKind, Flag, LayerNorm, Linear, UnaryKind};
use planish_ir::{BuildError, Graph, Node, NodeId, Op, Rewriter, Shape, Step, TensorType, ValueId};

use crate::build::Builder;
use crate::fold::RESULT_BYTES;
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Moves biases of linear layers to where adding them costs nothing.
pub const ABSORB_BIASES: Pass = Pass {
    name: "absorb-biases",
    summary: "Moves biases of linear layers to places where they cost nothing. The pass runs for target ort, because \
              the gain was measured on CPUs. When the result of a linear layer is added to a normalized x, the bias b \
              of the layer moves into the bias of the norm. Every other linear layer of x, with weight W, subtracts W \
              * b from its own bias. The sum stays the same: (y * V + b) + x = y * V + (x + b). The bias of an \
              attention's keys is dropped, unless the keys are cached or the scores are capped: it adds the same \
              number to all scores of a query, and softmax ignores that.",
    numerics: "x + b rounds where b was added elsewhere before, and W * b is subtracted again. The differences grow \
               with the size of b relative to x. In trained models they are about 1e-6.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %i: f32[n, 2]
            weight @scale = dense([1.0, 1.0]) : f32[2]
            weight @shift = dense([0.5, 0.5]) : f32[2]
            weight @up = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            weight @up_bias = dense([1.0, 1.0]) : f32[2]
            weight @down = dense([4.0, 3.0, 2.0, 1.0]) : f32[2, 2]
            weight @down_bias = dense([0.25, 0.5]) : f32[2]
            %x = layer_norm(%i, @scale, bias: @shift) {eps = 1e-5} : f32[n, 2]
            %u = linear(%x, @up, bias: @up_bias) : f32[n, 2]
            %d = linear(%u, @down, bias: @down_bias) : f32[n, 2]
            %y = add(%d, %x) : f32[n, 2]
            output y = %y",
        after: "
            input %i: f32[n, 2]
            weight @scale = dense([1.0, 1.0]) : f32[2]
            weight @shift = dense([0.5, 0.5]) : f32[2]
            weight @up = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            weight @up_bias = dense([1.0, 1.0]) : f32[2]
            weight @down = dense([4.0, 3.0, 2.0, 1.0]) : f32[2, 2]
            weight @down_bias = dense([0.25, 0.5]) : f32[2]
            %shift/add = add(@shift, @down_bias) : f32[2]
            %x = layer_norm(%i, @scale, bias: %shift/add) {eps = 1e-5} : f32[n, 2]
            %up_bias/linear = linear(@down_bias, @up) : f32[2]
            %up_bias/sub = sub(@up_bias, %up_bias/linear) : f32[2]
            %u = linear(%x, @up, bias: %up_bias/sub) : f32[n, 2]
            %d = linear(%u, @down) : f32[n, 2]
            %y = add(%d, %x) : f32[n, 2]
            output y = %y",
    },
    applies: |options| options.fusion && options.absorbs_biases,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // Dead users of a norm would keep it from absorbing.
    graph.compact();
    let plan = Plan::of(graph);
    if plan.is_empty() {
        return Ok(Outcome::default());
    }
    let moved = graph.rewrite(|graph, node| plan.step(graph, node))?;
    graph.compact();
    Ok(moved.into())
}

/// Whether what a bias becomes in a linear layer is computed at compile time.
fn bias_folds(graph: &Graph, op: &Op) -> bool {
    let Op::Linear(linear) = op else { return true };
    // Of a weight that is stored the other way round, all would be in memory at once.
    if linear.transposed.0 {
        return false;
    }
    let known = |v: ValueId| graph.weight(v).is_some();
    let weight = graph.ty(linear.weight);
    let bias = TensorType::new(weight.dtype, Shape::new(weight.shape.first().cloned()));
    let fits = bias.bytes().is_some_and(|bytes| bytes <= RESULT_BYTES);
    fits && known(linear.weight) && linear.bias.is_none_or(known)
}

/// What becomes of which node, by its result.
#[derive(Default)]
struct Plan {
    /// Norms, and the bias that they absorb.
    absorbing: HashMap<ValueId, ValueId>,
    /// Linear layers whose own bias goes.
    emptied: HashSet<ValueId>,
    /// Linear layers that give an attention's keys and nothing else: whatever is added to all
    /// tokens alike goes.
    keys: HashSet<ValueId>,
    /// Linear layers that read an absorbing norm, and the bias it absorbs.
    reading: HashMap<ValueId, ValueId>,
}

impl Plan {
    fn of(graph: &Graph) -> Self {
        // By index, of norms alone: other users are not asked for.
        let mut users: Vec<Vec<&Node>> = vec![Vec::new(); graph.value_count()];
        let of_norm = |v: ValueId| matches!(graph.producer(v).map(|n| &n.op), Some(Op::LayerNorm(_)));
        for (_, node) in graph.nodes() {
            node.op.visit_operands(&mut |v| {
                if of_norm(v) {
                    users[v.index()].push(node);
                }
            });
        }
        let uses = graph.use_counts();
        let mut plan = Self::default();
        for (_, node) in graph.nodes() {
            match &node.op {
                Op::LayerNorm(LayerNorm { bias: Some(own), .. }) if graph.weight(*own).is_some() => {
                    let x = node.outputs[0];
                    let users = &users[x.index()];
                    if users.len() == uses[x.index()] {
                        plan.consider_norm(graph, x, users, &uses);
                    }
                }
                // Keys that are results too stay as they are; so do those beside others of the past,
                // and those whose scores are capped.
                Op::Attention(Attention { k, present: Flag(false), past_key: None, softcap: None, .. })
                    if uses[k.index()] == 1 =>
                {
                    if matches!(graph.producer(*k).map(|n| &n.op), Some(Op::Linear(_))) {
                        plan.keys.insert(*k);
                    }
                }
                _ => {}
            }
        }
        plan
    }

    /// Plans the move into the norm whose result is `x`, if `x` goes into one sum with a linear
    /// layer's result and else only into linear layers.
    fn consider_norm(&mut self, graph: &Graph, x: ValueId, users: &[&Node], uses: &[usize]) {
        let (mut sums, mut readers) = (Vec::new(), Vec::new());
        for user in users {
            match &user.op {
                Op::Binary(Binary { kind: BinaryKind::Add, a, b }) => sums.push(if *a == x { *b } else { *a }),
                Op::Linear(linear) if linear.x == x => readers.push(user.outputs[0]),
                _ => return,
            }
        }
        let [other] = sums[..] else { return };
        let Some(Op::Linear(Linear { bias: Some(bias), .. })) = graph.producer(other).map(|n| &n.op) else { return };
        let folds = graph.weight(*bias).is_some() && users.iter().all(|user| bias_folds(graph, &user.op));
        // Broadcasting would add the bias to more than the sum has.
        if folds && uses[other.index()] == 1 && graph.ty(other) == graph.ty(x) {
            self.absorbing.insert(x, *bias);
            self.emptied.insert(other);
            self.reading.extend(readers.into_iter().map(|reader| (reader, *bias)));
        }
    }

    fn is_empty(&self) -> bool {
        self.absorbing.is_empty() && self.keys.is_empty()
    }

    fn step(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let output = graph.node(node).outputs[0];
        let op: Op = match graph.node(node).op.clone() {
            Op::LayerNorm(norm) => match (norm.bias, self.absorbing.get(&output)) {
                (Some(own), Some(moved)) => {
                    let bias = Builder::at(graph, own).binary(BinaryKind::Add, own, *moved)?;
                    LayerNorm { bias: Some(bias), ..norm }.into()
                }
                _ => return Ok(Step::Keep),
            },
            Op::Linear(linear) => {
                let bias = self.bias(graph, output, &linear)?;
                if bias == linear.bias {
                    return Ok(Step::Keep);
                }
                Linear { bias, ..linear }.into()
            }
            _ => return Ok(Step::Keep),
        };
        Ok(Step::Replace(vec![graph.emit(op, output)?]))
    }

    /// The bias that a linear layer is left with.
    fn bias(&self, graph: &mut Rewriter<'_>, output: ValueId, linear: &Linear) -> Result<Option<ValueId>, BuildError> {
        if self.keys.contains(&output) {
            return Ok(None);
        }
        let own = linear.bias.filter(|_| !self.emptied.contains(&output));
        let Some(moved) = self.reading.get(&output) else { return Ok(own) };
        let mut l = Builder::at(graph, linear.bias.unwrap_or(linear.weight));
        let extra = l.emit(Linear { x: *moved, bias: None, ..linear.clone() })?;
        match own {
            Some(own) => l.binary(BinaryKind::Sub, own, extra).map(Some),
            None => l.unary(UnaryKind::Neg, extra).map(Some),
        }
    }
}
