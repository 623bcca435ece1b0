//! From an element to what it is computed from.

use std::cell::Cell;
use std::cmp::Ordering;

use planish_ir::ops::{Binary, BinaryKind, Cast, Foreign, Gather, Select, Setting, Unary, UnaryKind};
use planish_ir::{DType, Def, Dim, Graph, Op, Shape, ValueId};

use super::index::Indices;
use super::{Element, Entry, Fact, Number, Truth, constant};

/// How many elements are looked at for one: values that many others use are looked at for each.
const STEPS: usize = 4096;

/// After how many operators.
const DEPTH: usize = 100;

/// The most that a number is which, added to a score, leaves a key out: far below any score.
pub(in super::super) const MASKED: f64 = -1e4;

/// Looks at elements of a graph's tensors.
pub(in super::super) struct Elements<'g> {
    graph: &'g Graph,
    indices: Indices,
    steps: Cell<usize>,
    depth: Cell<usize>,
}

impl<'g> Elements<'g> {
    /// Of tensors that broadcast to a shape.
    pub(in super::super) fn new(graph: &'g Graph, extents: Shape) -> Self {
        Self { graph, indices: Indices { extents }, steps: Cell::new(STEPS), depth: Cell::new(DEPTH) }
    }

    /// The index along a dimension.
    pub(in super::super) fn index(axis: usize) -> Dim {
        Indices::along(axis)
    }

    /// The element of a tensor at the indices that run over the shape, to which it broadcasts.
    pub(in super::super) fn at(&self, value: ValueId) -> Option<Element> {
        let index: Vec<Dim> = (0..self.indices.extents.rank()).map(Self::index).collect();
        self.broadcast(value, &index)
    }

    fn broadcast(&self, value: ValueId, index: &[Dim]) -> Option<Element> {
        let skipped = index.len().checked_sub(self.graph.ty(value).shape.rank())?;
        self.of(value, index.get(skipped..)?.to_vec())
    }

    fn of(&self, value: ValueId, index: Vec<Dim>) -> Option<Element> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        self.depth.set(self.depth.get().checked_sub(1)?);
        let element = self.looked_at(value, index);
        self.depth.set(self.depth.get() + 1);
        element
    }

    fn looked_at(&self, value: ValueId, mut index: Vec<Dim>) -> Option<Element> {
        let ty = self.graph.ty(value);
        for (index, size) in index.iter_mut().zip(ty.shape.iter()) {
            if *size == Dim::constant(1) {
                *index = Dim::constant(0);
            }
        }
        let known = match &self.graph.value(value).def {
            Def::Weight(weight) => constant::element(weight, &index),
            Def::Node { node, index: result } => self.computed(&self.graph.node(*node).op, *result, value, &index),
            Def::Input => None,
        };
        let entry = || match ty.dtype {
            DType::Bool => Some(Element::Truth(Truth::All(vec![Fact::Holds(Entry { value, index }, true)]))),
            dtype => dtype.is_integer().then_some(Element::Entry(Entry { value, index })),
        };
        known.or_else(entry)
    }

    fn computed(&self, op: &Op, result: usize, value: ValueId, index: &[Dim]) -> Option<Element> {
        let shape = |value: ValueId| &self.graph.ty(value).shape;
        match op {
            Op::Iota(_) => Some(Element::Integer(index[0].clone())),
            Op::Sizes(sizes) => {
                let at = usize::try_from(index[0].as_constant()?).ok()?;
                Some(Element::Integer(sizes.of.get(at)?.clone()))
            }
            Op::Reshape(p) => self.of(p.x, self.indices.under(shape(value), index, shape(p.x))?),
            Op::Transpose(p) => {
                let mut of = vec![Dim::constant(0); index.len()];
                p.perm.iter().zip(index).for_each(|(&axis, index)| of[axis] = index.clone());
                self.of(p.x, of)
            }
            Op::Expand(p) => self.broadcast(p.x, index),
            Op::Slice(p) => self.shifted(p.x, index, p.axis, &p.start),
            Op::Split(p) => {
                let start: usize = p.sizes.iter().take(result).sum();
                self.shifted(p.x, index, p.axis, &Dim::constant(i64::try_from(start).ok()?))
            }
            Op::Concat(p) => {
                let mut at = index[p.axis].as_constant()?;
                let mut parts = p.parts.iter();
                let part = parts.find_map(|&part| {
                    let size = shape(part)[p.axis].as_constant();
                    match size {
                        Some(size) if size <= at => {
                            at -= size;
                            None
                        }
                        size => Some(size.map(|_| part)),
                    }
                })??;
                let mut of = index.to_vec();
                of[p.axis] = Dim::constant(at);
                self.of(part, of)
            }
            Op::Gather(p) => self.gathered(p, index),
            Op::Foreign(p) if p.is("GatherND") => self.gathered_by_row(p, index),
            Op::Foreign(p) if p.is("ScatterND") => self.scattered(p, index),
            Op::Cast(p) => self.cast(p, index),
            Op::Unary(Unary { kind: UnaryKind::Not, x }) => match self.broadcast(*x, index)? {
                Element::Truth(truth) => truth.not().map(Element::Truth),
                _ => None,
            },
            Op::Binary(p) => self.binary(p, index),
            Op::Select(p) => self.select(p, index),
            _ => None,
        }
    }

    fn shifted(&self, x: ValueId, index: &[Dim], axis: usize, by: &Dim) -> Option<Element> {
        let mut of = index.to_vec();
        of[axis] = of[axis].checked_add(by)?;
        self.of(x, of)
    }

    fn gathered(&self, p: &Gather, index: &[Dim]) -> Option<Element> {
        let rank = self.graph.ty(p.indices).shape.rank();
        let (before, rest) = index.split_at(p.axis);
        let (at, after) = rest.split_at(rank);
        let Element::Integer(at) = self.of(p.indices, at.to_vec())? else { return None };
        self.of(p.x, [before, &[at], after].concat())
    }

    /// ONNX's `GatherND`: the last dimension of the indices is an index of `x`, or the first part of one.
    fn gathered_by_row(&self, p: &Foreign, index: &[Dim]) -> Option<Element> {
        let [Some(x), Some(indices)] = p.inputs[..] else { return None };
        let batched = p.setting("batch_dims").is_some_and(|dims| *dims != Setting::Int(0));
        let shape = &self.graph.ty(indices).shape;
        let (row, rest) = index.split_at_checked(shape.rank().checked_sub(1).filter(|_| !batched)?)?;
        let mut of = self.row(indices, row)?;
        of.extend_from_slice(rest);
        self.of(x, of)
    }

    /// ONNX's `ScatterND` where it replaces each element by the update of the same index.
    fn scattered(&self, p: &Foreign, index: &[Dim]) -> Option<Element> {
        let [Some(x), Some(indices), Some(updates)] = p.inputs[..] else { return None };
        let (_, rows) = self.graph.ty(indices).shape.split_last()?;
        let replaced = p.setting("reduction").is_none() && *rows == self.graph.ty(x).shape[..];
        (replaced && self.row(indices, index)? == index).then(|| self.of(updates, index.to_vec()))?
    }

    /// A row of a tensor of integers.
    fn row(&self, value: ValueId, at: &[Dim]) -> Option<Vec<Dim>> {
        let width = self.graph.ty(value).shape.last()?.as_constant()?;
        let column = |k: i64| match self.of(value, [at, &[Dim::constant(k)]].concat())? {
            Element::Integer(number) => Some(number),
            _ => None,
        };
        (0..width.min(8)).map(column).collect()
    }

    fn cast(&self, p: &Cast, index: &[Dim]) -> Option<Element> {
        let x = self.broadcast(p.x, index)?;
        match (x, p.to) {
            (Element::Truth(truth), DType::Bool) => Some(Element::Truth(truth)),
            (Element::Entry(entry), DType::Bool) => Some(Element::Truth(Truth::All(vec![Fact::Holds(entry, true)]))),
            (x @ (Element::Integer(_) | Element::Entry(_)), to) if to.is_integer() => Some(x),
            (x, DType::Bool) => {
                let (condition, numbers) = self.number(x)?.as_choice()?;
                condition.choose(numbers.map(|n| n != 0.0)).map(Element::Truth)
            }
            (x, _) => self.number(x).map(Element::Number),
        }
    }

    /// An element as a number. Integers that the graph takes as a mask are 0 or 1.
    fn number(&self, element: Element) -> Option<Number> {
        match element {
            Element::Number(number) => Some(number),
            Element::Truth(truth) => Some(Number::choice(truth, [1.0, 0.0])),
            Element::Integer(dim) => Some(Number::constant(dim.as_constant()? as f64)),
            Element::Entry(entry) if self.graph.value(entry.value).def == Def::Input => {
                Some(Number::choice(Truth::All(vec![Fact::Holds(entry, true)]), [1.0, 0.0]))
            }
            Element::Entry(_) => None,
        }
    }

    fn binary(&self, p: &Binary, index: &[Dim]) -> Option<Element> {
        let (a, b) = (self.broadcast(p.a, index)?, self.broadcast(p.b, index)?);
        match (p.kind, a, b) {
            (BinaryKind::And, Element::Truth(a), Element::Truth(b)) => a.and(b).map(Element::Truth),
            (BinaryKind::Or, Element::Truth(a), Element::Truth(b)) => a.or(b).map(Element::Truth),
            (kind, Element::Integer(a), Element::Integer(b)) => match kind {
                BinaryKind::Add => a.checked_add(&b).map(Element::Integer),
                BinaryKind::Sub => a.checked_sub(&b).map(Element::Integer),
                BinaryKind::Mul => a.checked_mul(&b).map(Element::Integer),
                _ => self.compared(kind, &a, &b).map(Element::Truth),
            },
            // A condition on another tensor's element is an element itself.
            (kind, Element::Entry(_), _) | (kind, _, Element::Entry(_)) if kind.is_predicate() => None,
            (kind, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                match kind {
                    BinaryKind::Add => Some(Element::Number(a.plus(b))),
                    BinaryKind::Sub => Some(Element::Number(a.minus(b))),
                    BinaryKind::Mul => a.product(b).map(Element::Number),
                    _ => {
                        let (condition, numbers) = a.minus(b).as_choice()?;
                        let holds = |n: f64| n.partial_cmp(&0.0).and_then(|order| ordered(kind, order));
                        let [then, otherwise] = numbers.map(holds);
                        condition.choose([then?, otherwise?]).map(Element::Truth)
                    }
                }
            }
        }
    }

    fn select(&self, p: &Select, index: &[Dim]) -> Option<Element> {
        let Element::Truth(condition) = self.broadcast(p.condition, index)? else { return None };
        if let Some(holds) = condition.as_constant() {
            return self.broadcast(if holds { p.a } else { p.b }, index);
        }
        let (a, b) = (self.number(self.broadcast(p.a, index)?)?, self.number(self.broadcast(p.b, index)?)?);
        let (a, b) = (a.given(&condition, true), b.given(&condition, false));
        let number = match (a.as_constant(), b.as_constant()) {
            (Some(a), Some(b)) => Number::choice(condition, [a, b]),
            // What is left out is left out, whatever else would be added.
            (Some(a), None) if a <= MASKED => b.plus(Number::choice(condition, [a, 0.0])),
            (None, Some(b)) if b <= MASKED => a.plus(Number::choice(condition, [0.0, b])),
            _ => return None,
        };
        Some(Element::Number(number))
    }

    fn compared(&self, kind: BinaryKind, a: &Dim, b: &Dim) -> Option<Truth> {
        let one = Dim::constant(1);
        let number = match kind {
            BinaryKind::LessOrEqual => b.checked_sub(a)?,
            BinaryKind::Less => b.checked_sub(a)?.checked_sub(&one)?,
            BinaryKind::GreaterOrEqual => a.checked_sub(b)?,
            BinaryKind::Greater => a.checked_sub(b)?.checked_sub(&one)?,
            _ => return None,
        };
        let opposite = Dim::constant(-1).checked_sub(&number)?;
        Some(if self.indices.is_at_least_zero(&number) {
            Truth::constant(true)
        } else if self.indices.is_at_least_zero(&opposite) {
            Truth::constant(false)
        } else {
            Truth::All(vec![Fact::AtLeastZero(number)])
        })
    }
}

/// Whether a comparison holds of two numbers in an order.
fn ordered(kind: BinaryKind, order: Ordering) -> Option<bool> {
    Some(match kind {
        BinaryKind::Equal => order.is_eq(),
        BinaryKind::Less => order.is_lt(),
        BinaryKind::LessOrEqual => order.is_le(),
        BinaryKind::Greater => order.is_gt(),
        BinaryKind::GreaterOrEqual => order.is_ge(),
        _ => return None,
    })
}
