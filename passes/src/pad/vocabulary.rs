//! Padding of vocabularies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use planish_ir::ops::{Binary, BinaryKind, Embedding, Linear, Slice};
use planish_ir::{Dim, Graph, Op, Step, ValueId, Weight};

use super::find::{Found, Head};
use super::{Logits, enlarged};
use crate::{Example, Note, ONNX, Options, Outcome, Pass, PassError};

/// Pads tables of tokens and the heads that score them.
pub const PAD_VOCAB: Pass = Pass {
    name: "pad-vocab",
    summary: "Pads the vocabulary to a multiple of rows (`pad_vocab` of the recipe), because kernels for matrix products are faster \
              at aligned sizes. The pass pads the tables that token ids are looked up in, and the linear layers that \
              score tokens, with their biases. A table that also scores tokens stays one tensor. The new rows of a \
              table hold zeros, and no id reaches them. A slice after the layer removes the new columns of the \
              scores. With padded logits they stay, and hold the most negative finite number of the element type. A \
              linear layer scores tokens if an output is computed from it element by element, and its weight is such a \
              table. It also does if that output is called `logits` and has as many columns as a table has rows. Ids \
              are token ids if they come from an input whose name ends with `input_ids`.",
    numerics: "none in the columns of tokens, except that a product of another size may sum in another order",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %input_ids: i64[b, s]
            weight @table = uniform(1) : f32[6, 2]
            %x = embedding(@table, %input_ids) : f32[b, s, 2]
            %y = linear(%x, @table) : f32[b, s, 6]
            output logits = %y",
        after: "
            input %input_ids: i64[b, s]
            weight @table = pad(uniform(1) : f32[6, 2], 0.0) : f32[8, 2]
            %x = embedding(@table, %input_ids) : f32[b, s, 2]
            %y = linear(%x, @table) : f32[b, s, 8]
            %y/slice = slice(%y) {axis = 2, start = 0, end = 6} : f32[b, s, 6]
            output logits = %y/slice",
    },
    applies: |options| options.padding.vocabulary.is_some_and(|multiple| multiple > 0),
    run,
};

/// A vocabulary, and what it is padded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VocabularyPadding {
    /// The number of tokens.
    pub size: usize,
    /// The number of rows and columns with padding.
    pub padded: usize,
    /// What the scores look like outside; absent where the graph scores no tokens, and only looks their vectors up.
    pub logits: Option<Logits>,
}

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(multiple) = options.padding.vocabulary.filter(|multiple| *multiple > 0) else {
        return Ok(Outcome::default());
    };
    // Dead users of a table or of scores would count.
    graph.compact();
    let found = Found::of(graph);
    let note = found.vocabulary(graph).and_then(|(size, scored)| {
        let padded = size.checked_next_multiple_of(multiple)?;
        Some(VocabularyPadding { size, padded, logits: scored.then_some(options.padding.logits) })
    });
    let notes = note.map(Note::Vocabulary).into_iter().collect();
    let Found { mut tables, mut heads } = found;
    tables.retain(|table| graph.weight(*table).is_some_and(|table| !table.shape()[0].is_multiple_of(multiple)));
    heads.retain(|head| !head.size.is_multiple_of(multiple));
    let mut larger = HashMap::new();
    for table in tables {
        larger.insert(table, padded(graph, table, 0, multiple, 0.0)?);
    }
    for head in &heads {
        let Linear { weight, transposed, .. } = head.linear;
        let weight = match larger.entry(weight) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => *entry.insert(padded(graph, weight, usize::from(transposed.0), multiple, 0.0)?),
        };
        let scores = match options.padding.logits {
            Logits::Sliced => sliced(graph, head, weight, multiple)?,
            Logits::Padded => whole(graph, head, weight, multiple)?,
        };
        graph.set_output(head.output, scores)?;
    }
    if larger.is_empty() {
        return Ok(Outcome { changed: 0, notes });
    }
    graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        match graph.node(node).op.clone() {
            Op::Embedding(Embedding { weight, ids }) if larger.contains_key(&weight) => {
                Ok::<_, PassError>(Step::Replace(vec![graph.emit(Embedding { weight: larger[&weight], ids }, like)?]))
            }
            _ => Ok(Step::Keep),
        }
    })?;
    graph.compact();
    Ok(Outcome { changed: larger.len(), notes })
}

/// The output of a head with a larger weight, as it was before.
fn sliced(graph: &mut Graph, head: &Head, weight: ValueId, multiple: usize) -> Result<ValueId, PassError> {
    let bias = head.linear.bias.map(|bias| padded(graph, bias, 0, multiple, 0.0)).transpose()?;
    let scores = again(graph, Linear { weight, bias, ..head.linear.clone() }, head.scores)?;
    let (name, origin) = (graph.value(head.scores).name.clone(), graph.value(head.scores).origin.clone());
    let shape = &graph.ty(head.scores).shape;
    let (axis, end) = (shape.rank().saturating_sub(1), shape.last().cloned().unwrap_or_default());
    let slice = Slice { x: scores, axis, start: Dim::constant(0), end };
    let mut value = graph.emit(slice, &format!("{name}/slice"), origin)?[0];
    let mut before = head.scores;
    for &step in &head.after {
        value = reapplied(graph, step, before, value, |_, other| Ok(other))?;
        before = step;
    }
    Ok(value)
}

/// The output of a head with a larger weight, in all its width.
fn whole(graph: &mut Graph, head: &Head, weight: ValueId, multiple: usize) -> Result<ValueId, PassError> {
    let output = graph.outputs()[head.output].value;
    // Zeros of the weight leave what is in the bias; what is applied after would change it.
    let alone = head.after.is_empty();
    let lowest = graph.ty(output).dtype.finite_min().unwrap_or(f64::MIN);
    let bias = match head.linear.bias {
        Some(bias) => Some(padded(graph, bias, 0, multiple, if alone { lowest } else { 0.0 })?),
        None if alone => Some(columns(graph, head, multiple, lowest)?),
        None => None,
    };
    let mut value = again(graph, Linear { weight, bias, ..head.linear.clone() }, head.scores)?;
    let mut before = head.scores;
    for &step in &head.after {
        value = reapplied(graph, step, before, value, |graph, other| {
            let width = graph.weight(other).and_then(|weight| weight.shape().last().copied());
            match width.filter(|width| *width == head.size && head.size > 1) {
                // One neither overflows nor divides by zero.
                Some(_) => padded(graph, other, graph.ty(other).shape.rank() - 1, multiple, 1.0),
                None => Ok(other),
            }
        })?;
        before = step;
    }
    if alone {
        return Ok(value);
    }
    let (name, origin) = (graph.value(output).name.clone(), graph.value(output).origin.clone());
    let b = columns(graph, head, multiple, lowest)?;
    Ok(graph.emit(Binary { kind: BinaryKind::Add, a: value, b }, &format!("{name}/columns"), origin)?[0])
}

/// Zero for each token, and `lowest` for the columns of none: of the output's element type.
fn columns(graph: &mut Graph, head: &Head, multiple: usize, lowest: f64) -> Result<ValueId, PassError> {
    let output = graph.outputs()[head.output].value;
    let none = Weight::numbers(graph.ty(output).dtype, vec![0], &[]);
    let zeros = none.and_then(|none| none.pad(&[head.size], 0.0));
    let value = graph.value(head.scores);
    let (name, origin) = (format!("{}.columns", value.name), value.origin.clone());
    match zeros {
        Some(zeros) => {
            let zeros = graph.add_weight(&name, zeros, origin);
            padded(graph, zeros, 0, multiple, lowest)
        }
        None => Err(PassError::TooLarge { name, origin, multiple }),
    }
}

/// Emits an operator that stands for `like`.
fn again(graph: &mut Graph, op: impl Into<Op>, like: ValueId) -> Result<ValueId, PassError> {
    let (name, origin) = (graph.value(like).name.clone(), graph.value(like).origin.clone());
    Ok(graph.emit(op, &name, origin)?[0])
}

/// Emits what gives `step` from `before` again, applied to `value`; its other operands as `other` has them.
fn reapplied(
    graph: &mut Graph,
    step: ValueId,
    before: ValueId,
    value: ValueId,
    mut other: impl FnMut(&mut Graph, ValueId) -> Result<ValueId, PassError>,
) -> Result<ValueId, PassError> {
    let Some(mut op) = graph.producer(step).map(|node| node.op.clone()) else { return Ok(value) };
    let mut operands = Vec::new();
    for operand in op.operands() {
        operands.push(if operand == before { value } else { other(graph, operand)? });
    }
    let mut operands = operands.into_iter();
    op.visit_operands_mut(&mut |v| *v = operands.next().unwrap_or(*v));
    again(graph, op, step)
}

/// A weight larger along one axis, filled up with `value`, with the name and the origin of the one
/// that it stands for.
fn padded(graph: &mut Graph, weight: ValueId, axis: usize, multiple: usize, value: f64) -> Result<ValueId, PassError> {
    let larger = enlarged(graph, weight, axis, multiple, value)?;
    let (name, origin) = (graph.value(weight).name.clone(), graph.value(weight).origin.clone());
    Ok(graph.add_weight(&name, larger, origin))
}
