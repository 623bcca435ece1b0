//! Logits of the last token of each row alone.

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, Cast, FakeQuantize, Gather, LayerNorm, Linear, RmsNorm, Unary};
use planish_ir::{DType, Dim, Graph, Op, Origin, Output, OutputRole, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// The axis of tokens of logits, [batch, tokens, vocabulary].
const TOKENS: usize = 1;

/// Leaves only the last token's logits in a graph.
pub const LAST_LOGITS: Pass = Pass {
    name: "last-logits",
    summary: "Computes the logits of the last token of each row only (`logits` of the recipe), because text generation reads no \
              others. The pass takes the output of logits of three dimensions, and follows it back through what treats \
              tokens apart: linear layers, quantization, norms over features, functions of one element, and arithmetic with weights \
              of features. In front of all these a gather takes the last token. It stops at values that something \
              else uses too.",
    numerics: "none, except that a product of another size may sum in another order, and that a scale of codes which each \
               run computes is that of the last tokens",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 2]
            weight @scale = uniform(1) : f32[2]
            weight @head = uniform(2) : f32[6, 2]
            %norm = rms_norm(%x, @scale) {eps = 1e-5} : f32[b, s, 2]
            %scores = linear(%norm, @head) : f32[b, s, 6]
            output logits = %scores",
        after: "
            input %x: f32[b, s, 2]
            weight @scale = uniform(1) : f32[2]
            weight @head = uniform(2) : f32[6, 2]
            weight @logits.last = dense([-1]) : i64[1]
            %x/last = gather(%x, @logits.last) {axis = 1} : f32[b, 1, 2]
            %norm = rms_norm(%x/last, @scale) {eps = 1e-5} : f32[b, 1, 2]
            %scores = linear(%norm, @head) : f32[b, 1, 6]
            output logits = %scores",
    },
    applies: |options| options.last_logits,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // Dead users of a value would count.
    graph.compact();
    let Some(output) =
        graph.outputs().iter().position(|output| graph.interface.output(&output.name) == OutputRole::Logits)
    else {
        return Ok(Outcome::default());
    };
    let Output { name: logits_name, value: logits } = graph.outputs()[output].clone();
    let [_, tokens, _] = &graph.ty(logits).shape[..] else { return Ok(Outcome::default()) };
    if *tokens == Dim::constant(1) {
        return Ok(Outcome::default());
    }
    let uses = graph.use_counts();
    let (mut value, mut steps) = (logits, Vec::new());
    while let Some(before) = of_each_token(graph, value).filter(|_| uses[value.index()] == 1) {
        steps.push(value);
        value = before;
    }
    let (name, origin) = (graph.value(value).name.clone(), graph.value(value).origin.clone());
    let Some(last) = Weight::numbers(DType::I64, vec![1], &[-1.0]) else { return Ok(Outcome::default()) };
    let indices = graph.add_weight(&format!("{logits_name}.last"), last, Origin::Unknown);
    let mut last = graph.emit(Gather { x: value, indices, axis: TOKENS }, &format!("{name}/last"), origin)?[0];
    for step in steps.into_iter().rev() {
        let Some(mut op) = graph.producer(step).map(|node| node.op.clone()) else { continue };
        op.visit_operands_mut(&mut |operand| {
            if *operand == value {
                *operand = last;
            }
        });
        let (name, origin) = (graph.value(step).name.clone(), graph.value(step).origin.clone());
        last = graph.emit(op, &name, origin)?[0];
        value = step;
    }
    graph.set_output(output, last)?;
    graph.compact();
    Ok(1.into())
}

/// What a value of [batch, tokens, features] is computed from, token by token, if it is.
fn of_each_token(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let is_of_features = |other: ValueId| graph.ty(other).shape.rank() < 2;
    let x = match &graph.producer(value)?.op {
        Op::Linear(Linear { x, .. })
        | Op::LayerNorm(LayerNorm { x, .. })
        | Op::RmsNorm(RmsNorm { x, .. })
        | Op::Unary(Unary { x, .. })
        | Op::Cast(Cast { x, .. })
        | Op::FakeQuantize(FakeQuantize { x, .. }) => *x,
        Op::Binary(Binary { a, b, .. }) if is_of_features(*b) => *a,
        Op::Binary(Binary { a, b, .. }) if is_of_features(*a) => *b,
        _ => return None,
    };
    let same_tokens = graph.ty(x).shape.get(TOKENS) == graph.ty(value).shape.get(TOKENS);
    Some(x).filter(|x| same_tokens && graph.ty(*x).shape.rank() == 3)
}
