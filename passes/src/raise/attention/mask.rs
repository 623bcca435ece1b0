//! What is added to scores to leave keys out.

use planish_ir::ops::{Attention, Binary, BinaryKind, Cast, Select, Slice, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::super::element::{Element, Elements, Entry, Fact, MASKED, Truth};
use super::super::pattern::{binary, op};
use super::super::{Found, NoMatch, Rule};
use super::sum;
use crate::build::reshape_once;

/// The bias of an attention that is a mask, or has one as a summand.
pub(super) const MASK: Rule = Rule { name: "mask", find: mask };

fn mask(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Attention(mut attention) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let Some(bias) = attention.bias else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let mut seen = Seen::default();
    let mut rest = summands(graph, bias, DEPTH);
    let (count, mut missed) = (rest.len(), None);
    // A window is one once attention is known to be causal.
    for _ in 0..2 {
        missed = None;
        let mut kept = Vec::new();
        for term in rest {
            match seen_through(graph, &attention, term) {
                Ok(more) => {
                    attention.causal.0 |= more.causal;
                    seen.extend(more);
                }
                Err(reason) => {
                    missed = missed.or_else(|| is_mask(graph, term, DEPTH).then_some(reason));
                    kept.push(term);
                }
            }
        }
        rest = kept;
    }
    if rest.len() == count {
        return Err(missed.map_or(NoMatch::Other, NoMatch::Miss));
    }
    let mut mask = attention.mask;
    for (entry, is) in seen.padding {
        let mut given = padding(graph, &attention, entry, output)?;
        if !is {
            given = graph.part(Unary { kind: UnaryKind::Not, x: given }, output)?;
        }
        mask = Some(match mask {
            Some(a) => graph.part(Binary { kind: BinaryKind::And, a, b: given }, output)?,
            None => given,
        });
    }
    let raised = Attention {
        mask,
        bias: sum(graph, &rest)?,
        window: [attention.window, seen.window].into_iter().flatten().min(),
        ..attention
    };
    graph.emit_all(raised, output).map_err(NoMatch::from)
}

/// Which keys a query attends to.
#[derive(Default)]
struct Seen {
    /// Those for which these are not 0, or are.
    padding: Vec<(Entry, bool)>,
    /// Those up to its own position.
    causal: bool,
    /// Of these, the last few.
    window: Option<usize>,
}

impl Seen {
    fn extend(&mut self, more: Seen) {
        let new: Vec<(Entry, bool)> = more.padding.into_iter().filter(|entry| !self.padding.contains(entry)).collect();
        self.padding.extend(new);
        self.causal |= more.causal;
        self.window = [self.window, more.window].into_iter().flatten().min();
    }
}

/// How deep sums are taken apart.
const DEPTH: usize = 8;

/// What a sum is of.
fn summands(graph: &Graph, value: ValueId, depth: usize) -> Vec<ValueId> {
    match binary(graph, value, BinaryKind::Add).filter(|_| depth > 0) {
        Some(parts) => parts.into_iter().flat_map(|part| summands(graph, part, depth - 1)).collect(),
        None => vec![value],
    }
}

/// Whether a value is made as masks are: chosen by a condition, or multiplied with a very negative number.
fn is_mask(graph: &Graph, value: ValueId, depth: usize) -> bool {
    let Some(op) = op(graph, value).filter(|_| depth > 0) else { return false };
    let leaves_out = |v: &ValueId| graph.number(*v).is_some_and(|n| n <= MASKED) || is_mask(graph, *v, depth - 1);
    match op {
        Op::Select(Select { a, b, .. }) | Op::Binary(Binary { a, b, .. }) => [a, b].into_iter().any(leaves_out),
        Op::Reshape(_) | Op::Expand(_) | Op::Slice(_) | Op::Cast(_) => op.operands().iter().any(leaves_out),
        _ => false,
    }
}

/// Queries and keys of an attention.
fn scores(graph: &Graph, attention: &Attention) -> Option<Shape> {
    let (q, k) = (&graph.ty(attention.q).shape, &graph.ty(attention.k).shape);
    let new = if k.rank() == 4 { &k[2] } else { &k[1] };
    let keys = match attention.past_key {
        Some(past) => graph.ty(past).shape[2].checked_add(new)?,
        None => new.clone(),
    };
    let heads = Dim::constant(i64::try_from(attention.heads).ok()?);
    Some(Shape::new([q[0].clone(), heads, q[1].clone(), keys]))
}

/// Which keys a summand of the bias leaves in, or which condition in it attention does not have.
fn seen_through(graph: &Graph, attention: &Attention, term: ValueId) -> Result<Seen, String> {
    let name = |value: ValueId| &graph.value(value).name;
    let unknown =
        || format!("`{}` is added to the scores, and it is not made of numbers that conditions choose", name(term));
    let scores = scores(graph, attention).ok_or_else(unknown)?;
    let elements = Elements::new(graph, scores.clone());
    let Some(Element::Number(number)) = elements.at(term) else { return Err(unknown()) };
    if number.constant != 0.0 {
        return Err(unknown());
    }
    let mut seen = Seen::default();
    let mut after = Vec::new();
    for (condition, [then, otherwise]) in number.choices {
        let kept = match () {
            () if then == 0.0 && otherwise <= MASKED => Some(condition),
            () if otherwise == 0.0 && then <= MASKED => condition.not(),
            () => return Err(unknown()),
        };
        let several = || format!("`{}` leaves out a key only where several conditions fail together", name(term));
        let Some(Truth::All(facts)) = kept else { return Err(several()) };
        for fact in facts {
            match fact {
                Fact::AtLeastZero(number) => after.push(number),
                Fact::Holds(entry, is) if is_padding(graph, &entry, &scores) => seen.padding.push((entry, is)),
                Fact::Holds(entry, _) => {
                    let (name, other, at) = (name(term), name(entry.value), place(&entry.index));
                    return Err(format!(
                        "`{name}` leaves out keys by `{other}` at {at}, and a mask of keys has [batch, key]"
                    ));
                }
            }
        }
    }
    positions(graph, attention, &scores, after, &mut seen).ok_or_else(|| {
        format!("`{}` leaves out keys by their position, in a way that is neither causal nor a window", name(term))
    })?;
    Ok(seen)
}

/// An index in words: of which query and key it depends on.
fn place(index: &[Dim]) -> String {
    let words = ["batch", "head", "query", "key"];
    let word = |dim: &Dim| {
        words
            .iter()
            .enumerate()
            .fold(dim.to_string(), |text, (axis, word)| text.replace(&Elements::index(axis).to_string(), word))
    };
    format!("[{}]", index.iter().map(word).collect::<Vec<String>>().join(", "))
}

/// Causality and windows, where conditions on positions are these.
fn positions(
    graph: &Graph,
    attention: &Attention,
    scores: &Shape,
    at_least_zero: Vec<Dim>,
    seen: &mut Seen,
) -> Option<()> {
    // How far a key is after the query.
    let past = scores[3].checked_sub(&scores[2])?;
    let distance = past.checked_add(&Elements::index(2))?.checked_sub(&Elements::index(3))?;
    for number in at_least_zero {
        let window = number.checked_add(&distance)?.as_constant();
        match window.and_then(|last| usize::try_from(last + 1).ok()) {
            _ if number == distance => seen.causal = true,
            Some(window) if window > 0 => seen.window = [seen.window, Some(window)].into_iter().flatten().min(),
            _ => return None,
        }
    }
    let k = &graph.ty(attention.k).shape;
    let as_many = scores[2] == if k.rank() == 4 { k[2].clone() } else { k[1].clone() };
    let causal = seen.causal || attention.causal.0;
    ((!seen.causal || as_many) && (seen.window.is_none() || causal)).then_some(())
}

/// Whether an element is that of a key, in a tensor of all keys. It may have more rows than the batch, by the name of
/// its size: those of the batch are the first.
fn is_padding(graph: &Graph, entry: &Entry, scores: &Shape) -> bool {
    let one = Dim::constant(1);
    let own = graph.ty(entry.value).shape.iter().zip(entry.index.iter().cloned()).filter(|(size, _)| **size != one);
    let of_keys = [0, 3].map(|axis| (&scores[axis], Elements::index(axis)));
    let of_keys = of_keys.into_iter().filter(|(size, _)| **size != one);
    let (own, of_keys): (Vec<_>, Vec<_>) = (own.collect(), of_keys.collect());
    own.len() == of_keys.len()
        && own.iter().zip(&of_keys).all(|((size, index), (wanted, along))| {
            index == along && (size == wanted || *index == Elements::index(0) && size.as_constant().is_none())
        })
}

/// The mask of keys, bool[batch, keys], from one of their elements.
fn padding(
    graph: &mut Rewriter<'_>,
    attention: &Attention,
    entry: Entry,
    like: ValueId,
) -> Result<ValueId, BuildError> {
    let Some(scores) = scores(graph, attention) else { return Ok(entry.value) };
    let mut rows = entry.value;
    if let Some(axis) = entry.index.iter().position(|index| *index == Elements::index(0))
        && graph.ty(rows).shape[axis] != scores[0]
    {
        rows = graph.part(Slice { x: rows, axis, start: Dim::constant(0), end: scores[0].clone() }, like)?;
    }
    let mask = reshape_once(graph, rows, [scores[0].clone(), scores[3].clone()])?;
    if graph.ty(mask).dtype == DType::Bool {
        return Ok(mask);
    }
    graph.part(Cast { x: mask, to: DType::Bool }, like)
}
