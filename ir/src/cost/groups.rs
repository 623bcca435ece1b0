//! Sizes that a run determines: how many rows each part of a split has.

use crate::ops::{Foreign, Setting};
use crate::{Bindings, Graph, Op, Type};

/// The sizes of the inputs, and those of the parts of splits that a run determines: rows go to parts evenly, so that as many
/// parts as possible have some. The parts of a mixture of experts are the tokens of each expert.
pub(super) fn with_parts(graph: &Graph, bindings: &Bindings) -> Bindings {
    let mut bindings = bindings.clone();
    for (_, node) in graph.nodes() {
        if let Op::Foreign(split) = &node.op
            && split.is("Split")
        {
            bind_parts(graph, split, &mut bindings);
        }
    }
    bindings
}

/// Binds the sizes of the parts of a split, where all of them are symbols without a size.
fn bind_parts(graph: &Graph, split: &Foreign, bindings: &mut Bindings) -> Option<()> {
    let x = graph.type_of((*split.inputs.first()?)?).as_tensor()?;
    let axis = match split.setting("axis") {
        Some(Setting::Int(axis)) if *axis < 0 => {
            x.shape.rank().checked_sub(usize::try_from(axis.unsigned_abs()).ok()?)?
        }
        Some(Setting::Int(axis)) => usize::try_from(*axis).ok()?,
        _ => 0,
    };
    let rows = x.shape.get(axis)?.evaluate(bindings).filter(|rows| *rows >= 0)?;
    let symbol = |ty: &Option<Type>| ty.as_ref()?.as_tensor()?.shape.get(axis)?.as_symbol().cloned();
    let symbols = split.results.0.iter().map(symbol).collect::<Option<Vec<_>>>()?;
    let parts = i64::try_from(symbols.len()).ok()?;
    if symbols.iter().any(|symbol| bindings.contains_key(symbol)) {
        return None;
    }
    for (part, symbol) in (0..).zip(symbols) {
        bindings.insert(symbol, rows / parts + i64::from(part < rows % parts));
    }
    Some(())
}
