//! Lowering of activations.

use planish_ir::ops::{Binary, BinaryKind, Gelu, GeluForm, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Graph, NodeId, Op, Rewriter, Step, ValueId};

use super::quantized::{foreign, standard};
use crate::build::Builder;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Lowers activations that the target has no operator for to arithmetic.
pub const LOWER_ACTIVATIONS: Pass = Pass {
    name: "lower-activations",
    summary: "Lowers activations to arithmetic where the target has no operator for them. Silu is always lowered. Gelu \
              is lowered before opset 20, and without fusion. After a convolution, a `min` of a `max` in float32 with two numbers \
              becomes Clip, which runtimes fuse with it.",
    numerics: "Each step rounds, where a fused kernel rounds once: relative differences of a few 1e-7.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            %y = silu(%x) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            %y/sigmoid = sigmoid(%x) : f32[n, 2]
            %y/mul = mul(%x, %y/sigmoid) : f32[n, 2]
            output y = %y/mul",
    },
    applies: |options| !options.keeps_operators(),
    run,
};

/// The first opset with an operator for GELU.
const GELU_OPSET: u32 = 20;

/// The opset whose Clip is emitted; later ones take the same.
const CLIP_OPSET: u32 = 13;

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let keep_gelu = options.fusion && options.opset >= GELU_OPSET;
    let clips = options.fusion && options.opset >= CLIP_OPSET;
    let lowered = graph.rewrite(|graph, node| step(graph, node, keep_gelu, clips))?;
    graph.compact();
    Ok(lowered.into())
}

fn step(graph: &mut Rewriter<'_>, node: NodeId, keep_gelu: bool, clips: bool) -> Result<Step, PassError> {
    let like = graph.node(node).outputs[0];
    let op = graph.node(node).op.clone();
    let mut lowering = Builder::at(graph, like);
    let value = match op {
        Op::Unary(Unary { kind: UnaryKind::Silu, x }) => {
            let gate = lowering.unary(UnaryKind::Sigmoid, x)?;
            lowering.binary(BinaryKind::Mul, x, gate)?
        }
        Op::Gelu(Gelu { x, form }) if !keep_gelu => gelu(&mut lowering, x, form)?,
        op => match clipped(lowering.graph, &op, like).filter(|_| clips) {
            Some((x, bounds)) => {
                let ty = lowering.graph.ty(x).clone();
                let [low, high] = bounds.map(|bound| Some(lowering.scalar(x, bound)));
                foreign(
                    &mut lowering,
                    standard("Clip", CLIP_OPSET as usize),
                    vec![Some(x), low, high],
                    vec![],
                    vec![ty],
                )?[0]
            }
            None => return Ok(Step::Keep),
        },
    };
    Ok(Step::Replace(vec![value]))
}

/// What `min(max(x, low), high)`, whose result is `like`, limits, where a convolution gives it, and the bounds, of which none may be
/// NaN.
fn clipped(graph: &Graph, op: &Op, like: ValueId) -> Option<(ValueId, [f64; 2])> {
    let bound = |op: &Op, wanted: BinaryKind| match op {
        Op::Binary(Binary { kind, a, b }) if *kind == wanted => {
            graph.number(*b).map(|bound| (*a, bound)).or_else(|| Some((*b, graph.number(*a)?)))
        }
        _ => None,
    };
    let (inner, high) = bound(op, BinaryKind::Min)?;
    let (x, low) = bound(&graph.producer(inner)?.op, BinaryKind::Max)?;
    // Bounds of more dimensions give the result these.
    let keeps_type = [inner, like].iter().all(|value| graph.ty(*value) == graph.ty(x));
    let is_map = matches!(graph.producer(x)?.op, Op::Conv(_));
    (is_map && low <= high && graph.ty(x).dtype == DType::F32 && keeps_type).then_some((x, [low, high]))
}

/// The two formulas of [`GeluForm`], step by step.
fn gelu(l: &mut Builder<'_, '_>, x: ValueId, form: GeluForm) -> Result<ValueId, BuildError> {
    let curve = match form {
        GeluForm::Erf => {
            let scaled = l.with_scalar(BinaryKind::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
            l.unary(UnaryKind::Erf, scaled)?
        }
        GeluForm::Tanh => {
            let square = l.binary(BinaryKind::Mul, x, x)?;
            let cube = l.binary(BinaryKind::Mul, square, x)?;
            let small = l.with_scalar(BinaryKind::Mul, cube, 0.044_715)?;
            let sum = l.binary(BinaryKind::Add, x, small)?;
            let scaled = l.with_scalar(BinaryKind::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
            l.unary(UnaryKind::Tanh, scaled)?
        }
    };
    let factor = l.with_scalar(BinaryKind::Add, curve, 1.0)?;
    let half = l.with_scalar(BinaryKind::Mul, x, 0.5)?;
    l.binary(BinaryKind::Mul, half, factor)
}
