//! Substitutes for kernels that the target lacks.

use std::collections::HashMap;

use planish_ir::ops::{Binary, BinaryKind, Cast};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, ValueId};

use super::Signature;
use crate::build::Builder;
use crate::{Example, ORT_CUDA, Options, Outcome, Pass, PassError};

/// Has operators that the target has no kernel for run on kernels that it has.
pub const SUBSTITUTE_KERNELS: Pass = Pass {
    name: "substitute-kernels",
    summary: "Replaces operators that the target has no kernel for by operators that it has kernels for. The pass runs \
              for target ort-cuda. Operators on float16 or bfloat16 run in float32, between casts: for example \
              comparisons, logarithms, means and running sums of bfloat16. Equality beyond opset 18 becomes \
              `less_or_equal` and `greater_or_equal`. Operators without a substitute stay, and check-kernels reports \
              them.",
    numerics: "none: float32 holds every number of the half types, and results round once",
    example: Example {
        target: &ORT_CUDA,
        fusion: true,
        before: "
            input %x: bf16[n]
            input %i: i64[n]
            %f = floor(%x) : bf16[n]
            %e = equal(%i, %i) : bool[n]
            output f = %f
            output e = %e",
        after: "
            input %x: bf16[n]
            input %i: i64[n]
            %f/cast = cast(%x) {to = f32} : f32[n]
            %f/floor = floor(%f/cast) : f32[n]
            %f/cast_1 = cast(%f/floor) {to = bf16} : bf16[n]
            %e/less_or_equal = less_or_equal(%i, %i) : bool[n]
            %e/greater_or_equal = greater_or_equal(%i, %i) : bool[n]
            %e/and = and(%e/less_or_equal, %e/greater_or_equal) : bool[n]
            output f = %f/cast_1
            output e = %e/and",
    },
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    if !options.target.substitutes_kernels {
        return Ok(Outcome::default());
    }
    let mut substitutes = Substitutes { options, widened: HashMap::new() };
    let changed = graph.rewrite(|graph, node| substitutes.step(graph, node))?;
    graph.compact();
    Ok(changed.into())
}

/// The signature of an operator in float32, where it is one of half precision.
fn widened<'a>(signature: &Signature<'a>) -> Signature<'a> {
    let widened = |dtype: DType| if matches!(dtype, DType::F16 | DType::Bf16) { DType::F32 } else { dtype };
    Signature {
        mnemonic: signature.mnemonic,
        operands: signature.operands.iter().map(|(name, dtype)| (*name, widened(*dtype))).collect(),
        results: signature.results.iter().map(|dtype| widened(*dtype)).collect(),
    }
}

struct Substitutes<'a> {
    options: &'a Options,
    /// Values of half types in float32, each cast once.
    widened: HashMap<ValueId, ValueId>,
}

impl Substitutes<'_> {
    fn lacks(&self, signature: &Signature<'_>) -> bool {
        (self.options.target.kernels.missing)(signature, self.options.opset).is_some()
    }

    fn step(&mut self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let (op, outputs) = (graph.node(node).op.clone(), graph.node(node).outputs.clone());
        let like = outputs[0];
        let signature = Signature::of(graph, graph.node(node));
        if !self.lacks(&signature) {
            return Ok(Step::Keep);
        }
        let wide = widened(&signature);
        if let Op::Binary(Binary { kind: BinaryKind::Equal, a, b }) = op
            && self.lacks(&wide)
            && !self.lacks(&Signature { mnemonic: "less_or_equal", ..wide.clone() })
        {
            let (a, b) = (self.widen(graph, a, like)?, self.widen(graph, b, like)?);
            let mut l = Builder::at(graph, like);
            let at_most = l.binary(BinaryKind::LessOrEqual, a, b)?;
            let at_least = l.binary(BinaryKind::GreaterOrEqual, a, b)?;
            return Ok(Step::Replace(vec![l.binary(BinaryKind::And, at_most, at_least)?]));
        }
        if wide == signature || self.lacks(&wide) {
            return Ok(Step::Keep);
        }
        let mut wide = op;
        let mut failed = None;
        wide.visit_operands_mut(&mut |operand| match self.widen(graph, *operand, like) {
            Ok(widened) => *operand = widened,
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut l = Builder::at(graph, like);
        let results = l.emit_all(wide)?;
        let types: Vec<DType> = outputs.iter().map(|output| l.graph.ty(*output).dtype).collect();
        let narrowed = results.into_iter().zip(types).map(|(result, dtype)| l.cast(result, dtype));
        Ok(Step::Replace(narrowed.collect::<Result<_, _>>()?))
    }

    /// A value in float32, if it is in half precision.
    fn widen(&mut self, graph: &mut Rewriter<'_>, value: ValueId, like: ValueId) -> Result<ValueId, PassError> {
        if !matches!(graph.ty(value).dtype, DType::F16 | DType::Bf16) {
            return Ok(value);
        }
        if let Some(widened) = self.widened.get(&value) {
            return Ok(*widened);
        }
        let widened = graph.part(Cast { x: value, to: DType::F32 }, like)?;
        self.widened.insert(value, widened);
        Ok(widened)
    }
}
