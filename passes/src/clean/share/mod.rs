//! Weights that are stored more than once.

mod elements;

use std::collections::{HashMap, HashSet};

use planish_ir::ops::{Linear, MatMul};
use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Graph, Op, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};
use elements::{Elements, SAMPLES};

/// Weights of fewer bytes stay as they are: their entry in a file takes as much.
const LEAST_BYTES: u64 = 64;

/// Makes weights of the same elements expressions of one.
pub const SHARE_WEIGHTS: Pass = Pass {
    name: "share-weights",
    summary: "Stores equal weights once. Exporters often store a tied weight twice: for example GPT-2's embedding \
              table, and its transpose as the head. Where two weights hold the same elements, or one matrix is the \
              transpose of another, the pass makes both expressions of one stored weight. It compares a few elements \
              of weights of the same type and shape first. Where these agree, it reads and compares all elements, tile \
              by tile. The pass ignores weights of less than 64 bytes. It also ignores constants: weights of more than \
              4 MiB whose first compared elements are all the same number.",
    numerics: "none: the elements are the same bit by bit",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %ids: i64[n]
            weight @head = dense([1, 3, 5, 7, 9, 11, 13, 15, 2, 4, 6, 8, 10, 12, 14, 16]) : f32[2, 8]
            weight @table = dense([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]) : f32[8, 2]
            %x = embedding(@table, %ids) : f32[n, 2]
            %y = matmul(%x, @head) : f32[n, 8]
            output y = %y",
        after: "
            input %ids: i64[n]
            weight @table = dense([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]) : f32[8, 2]
            weight @head = transpose(dense([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]) : f32[8, 2], [1, 0]) : f32[2, 8]
            %x = embedding(@table, %ids) : f32[n, 2]
            %y = matmul(%x, @head) : f32[n, 8]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let shared = shared(graph)?;
    if shared.is_empty() {
        return Ok(Outcome::default());
    }
    let rebuilt = graph.weights().filter_map(|(id, value, weight)| {
        let weight = rebuilt(weight, &shared)?;
        Some((id, value.name.clone(), weight, value.origin.clone()))
    });
    let rebuilt: Vec<_> = rebuilt.collect();
    let added = rebuilt.into_iter().map(|(id, name, weight, origin)| (id, graph.add_weight(&name, weight, origin)));
    let with: HashMap<ValueId, ValueId> = added.collect();
    graph.substitute(&with);
    graph.compact();
    Ok(with.len().into())
}

/// What holds the elements of a weight, in whichever order and type.
fn stored(weight: &Weight) -> Option<&Weight> {
    match weight.expr() {
        WeightExpr::Stored(_) | WeightExpr::Inline(_) => Some(weight),
        WeightExpr::Transpose(of, _) | WeightExpr::Cast(of) => stored(of),
        _ => None,
    }
}

/// A weight, of what takes the place of the one that holds its elements.
fn rebuilt(weight: &Weight, shared: &HashMap<Weight, Weight>) -> Option<Weight> {
    match weight.expr() {
        WeightExpr::Transpose(..) | WeightExpr::Cast(_) => weight.map(&mut |of| rebuilt(of, shared)),
        _ => shared.get(weight).cloned(),
    }
}

/// Weights whose elements another one holds, and what they are of that.
fn shared(graph: &Graph) -> Result<HashMap<Weight, Weight>, PassError> {
    let mut shared = HashMap::new();
    for class in groups(graph).into_iter().map(agreeing).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let mut distinct: Vec<Elements<'_>> = Vec::new();
        for weight in class {
            let mut same = None;
            for other in &distinct {
                same = weight.in_terms_of(other)?;
                if same.is_some() {
                    break;
                }
            }
            match same {
                Some(expression) => drop(shared.insert(weight.weight.clone(), expression)),
                None => distinct.push(weight),
            }
        }
    }
    Ok(shared)
}

/// Weights that may hold the same elements: those of a type and a shape, or the transpose's. First those
/// that would have to be transposed at run time if only their transposes were stored.
fn groups(graph: &Graph) -> Vec<Vec<Elements<'_>>> {
    let mut seen: HashSet<&Weight> = HashSet::new();
    let mut index: HashMap<(DType, Vec<usize>), usize> = HashMap::new();
    let mut groups: Vec<Vec<Elements<'_>>> = Vec::new();
    for (_, value, weight) in graph.weights() {
        let Some(weight) = stored(weight).filter(|w| w.bytes() >= LEAST_BYTES && w.dtype().is_computed()) else {
            continue;
        };
        let Some(elements) = Elements::of(weight, value).filter(|_| seen.insert(weight)) else { continue };
        let mut shape = weight.shape().to_vec();
        if shape.len() == 2 {
            shape.sort_unstable();
        }
        let at = *index.entry((weight.dtype(), shape)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(elements);
    }
    groups.retain(|group| group.len() > 1);
    let fixed = used_as_stored(graph);
    groups.iter_mut().for_each(|group| group.sort_by_key(|elements| !fixed.contains(elements.weight)));
    groups
}

/// Weights with a use for which it matters how they are stored; linear layers and products take a
/// matrix either way.
fn used_as_stored(graph: &Graph) -> HashSet<&Weight> {
    let mut fixed: HashSet<&Weight> = graph.outputs().iter().filter_map(|output| graph.weight(output.value)).collect();
    for (_, node) in graph.nodes() {
        let matrix = match &node.op {
            Op::Linear(Linear { weight, .. }) => Some(*weight),
            Op::MatMul(MatMul { b, .. }) => Some(*b),
            _ => None,
        };
        let others = node.op.operands().into_iter().filter(|operand| Some(*operand) != matrix);
        fixed.extend(others.filter_map(|operand| graph.weight(operand)));
    }
    fixed
}

/// Parts of a group in which all weights agree in a few elements. Weights that agree with none are not
/// read further, nor are large ones that seem to be constant.
fn agreeing(group: Vec<Elements<'_>>) -> Result<Vec<Vec<Elements<'_>>>, PassError> {
    let mut classes = vec![group];
    for sample in 0..SAMPLES {
        let mut split = Vec::new();
        for class in classes {
            let mut parts: Vec<Vec<Elements<'_>>> = Vec::new();
            let mut of_element: HashMap<[u8; 8], usize> = HashMap::new();
            for weight in class {
                let at = *of_element.entry(weight.sample(sample)?).or_insert(parts.len());
                match parts.get_mut(at) {
                    Some(part) => part.push(weight),
                    None => parts.push(vec![weight]),
                }
            }
            split.extend(parts.into_iter().filter(|part| part.len() > 1));
        }
        classes = split;
    }
    let worth = classes.iter().map(|class| class[0].is_worth_reading()).collect::<Result<Vec<_>, _>>()?;
    Ok(classes.into_iter().zip(worth).filter_map(|(class, worth)| worth.then_some(class)).collect())
}
