//! Sizes that a run determines: how many rows each part of a split has.

use crate::ops::{Foreign, Setting};
use crate::{Bindings, Dim, Graph, Op, Type};

/// The sizes of the inputs, and of the parts of splits whose sizes a run determines: as many parts as can have rows have as
/// many as the others, one more or less. The parts of a mixture of experts are the tokens of each expert, so that a token takes experts that no
/// other takes, as long as there are such.
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

fn bind_parts(graph: &Graph, split: &Foreign, bindings: &mut Bindings) {
    let Some([Some(x), ..]) = split.inputs.get(..1) else { return };
    let Some(ty) = graph.type_of(*x).as_tensor() else { return };
    let axis = match split.setting("axis") {
        Some(Setting::Int(axis)) if *axis < 0 => usize::try_from(*axis + ty.shape.rank() as i64),
        Some(Setting::Int(axis)) => usize::try_from(*axis),
        _ => Ok(0),
    };
    let size =
        |ty: &Type, axis: usize| ty.as_tensor().filter(|ty| axis < ty.shape.rank()).map(|ty| ty.shape[axis].clone());
    let Some(rows) = axis.as_ref().ok().and_then(|axis| size(graph.type_of(*x), *axis)?.evaluate(bindings)) else {
        return;
    };
    let sizes = split.results.0.iter().map(|ty| axis.ok().and_then(|axis| size(ty.as_ref()?, axis)));
    let sizes: Vec<Option<Dim>> = sizes.collect();
    let symbols: Vec<_> = sizes.iter().filter_map(|dim| dim.as_ref()?.as_symbol()).collect();
    let unknown = symbols.iter().all(|symbol| !bindings.contains_key(*symbol));
    let (Ok(parts), true) = (i64::try_from(sizes.len()), symbols.len() == sizes.len() && unknown && rows >= 0) else {
        return;
    };
    for (part, symbol) in (0..).zip(symbols) {
        bindings.insert(symbol.clone(), rows / parts + i64::from(part < rows % parts));
    }
}
