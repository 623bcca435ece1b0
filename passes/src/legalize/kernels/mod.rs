//! The check that nothing is left that the target has no kernel for.

mod table;

use planish_ir::ops::Foreign;
use planish_ir::{DType, Graph, Op, ValueId};

use super::{attention, mask};
use crate::{Example, Options, Pass, PassError, Target};

/// Checks that the target has a kernel for every operator and its element type.
pub const CHECK_KERNELS: Pass = Pass {
    name: "check-kernels",
    summary: "checks that the target has a kernel for every operator and the element type it works on; lists all that \
              it has none for",
    numerics: "none",
    example: Example {
        target: Target::Onnx,
        fusion: true,
        before: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
        after: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
    },
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<usize, PassError> {
    let operators: Vec<String> = graph
        .nodes()
        .filter_map(|(_, node)| {
            let reason = missing(graph, &node.op, node.outputs[0], options)?;
            let value = graph.value(node.outputs[0]);
            Some(format!("\n  `{}` at `{}` ({}): {reason}", node.op.kind(), value.name, value.origin))
        })
        .collect();
    if operators.is_empty() {
        return Ok(0);
    }
    Err(PassError::Unsupported { target: options.target, opset: options.opset, operators })
}

/// Why the target cannot run an operator.
fn missing(graph: &Graph, op: &Op, result: ValueId, options: &Options) -> Option<String> {
    match op {
        Op::Foreign(foreign) => return missing_foreign(foreign, options.target),
        Op::Attention(p) if mask::is_needed(p) || !attention::has_operator(p) => return Some("no kernel".to_owned()),
        _ => {}
    }
    missing_for(op.mnemonic(), dtype(graph, op, result), options)
}

/// The element type that an operator works on.
pub(super) fn dtype(graph: &Graph, op: &Op, result: ValueId) -> DType {
    let subject = match op {
        Op::Select(p) => p.a,
        _ => op.operands().first().copied().unwrap_or(result),
    };
    graph.ty(subject).dtype
}

/// Why the target has no kernel for an operator on an element type at the opset.
pub(super) fn missing_for(mnemonic: &str, dtype: DType, options: &Options) -> Option<String> {
    let Some(row) = table::ROWS.iter().find(|row| row.mnemonics.contains(&mnemonic)) else {
        return Some("no kernel".to_owned());
    };
    let kernels = match options.target {
        Target::Onnx => row.standard,
        Target::Ort => row.ort,
        Target::OrtCuda => row.cuda,
    };
    if !kernels.contains(&dtype) {
        return Some(format!("no kernel for {dtype}"));
    }
    let until = table::CUDA_UNTIL.iter().find(|(m, _)| *m == mnemonic && options.target == Target::OrtCuda);
    let (_, until) = until.filter(|(_, until)| options.opset > *until)?;
    let copied = table::CUDA_COPIES.contains(&(mnemonic, dtype));
    (!copied).then(|| format!("no kernel beyond opset {until}"))
}

/// Why the target cannot run an operator that passes through, or one in its graphs. Those of the default domain are the
/// export's to check: they are what they are at the opset that it writes.
fn missing_foreign(foreign: &Foreign, target: Target) -> Option<String> {
    let domains: &[&str] = match target {
        Target::Onnx => &[Foreign::STANDARD],
        Target::Ort => &[Foreign::STANDARD, "ai.onnx.ml", "ai.onnx.preview", "com.microsoft", "com.microsoft.nchwc"],
        Target::OrtCuda => &[Foreign::STANDARD, "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"],
    };
    let inner = foreign.inner.0.iter().map(|inner| (&inner.op, &inner.domain));
    let (op, domain) = std::iter::once((&foreign.op.0, &foreign.domain.0))
        .chain(inner)
        .find(|(_, domain)| !domains.contains(&domain.as_str()))?;
    Some(format!("operator {op} of the domain {domain}: target {target} has those of {}", domains.join(", ")))
}
