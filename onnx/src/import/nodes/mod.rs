//! The operators of ONNX that the IR has counterparts of, one file a group.
//!
//! A rule emits what a node means and answers `true`, or answers `false` where the IR has no form for
//! it; the node then passes through. An error is a reason why it has none.

mod collective;
mod contrib;
mod control;
mod conv;
mod elementwise;
mod movement;
mod nn;
mod order;
mod picked;
mod shape;
mod states;

use std::str::FromStr;

use super::legacy::{BATCHED_SCAN, MODERN, SCAN, is_batched, modern, scan};
use super::order::label;
use super::scope::Scope;
use super::{CONTRIB, foreign, is_default};
use planish_ir::{DType, Op, Type};

use crate::proto::{AttributeProto, AttributeType, NodeProto};

/// A node with the version of its domain.
pub(super) struct Node<'a> {
    pub(super) proto: &'a NodeProto,
    pub(super) version: i64,
}

impl<'a> Node<'a> {
    /// Whether an operand is given.
    pub(super) fn has(&self, index: usize) -> bool {
        self.proto.input.get(index).is_some_and(|name| !name.is_empty())
    }

    /// The name of an operand.
    pub(super) fn input(&self, index: usize) -> Result<&'a str, String> {
        match self.proto.input.get(index) {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err(format!("operand {index} is missing")),
        }
    }

    /// The name of the first result.
    pub(super) fn output(&self) -> Result<&'a str, String> {
        match self.proto.output.first() {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err("it has no first result".to_owned()),
        }
    }

    /// Whether a result is asked for.
    pub(super) fn wants(&self, index: usize) -> bool {
        self.proto.output.get(index).is_some_and(|name| !name.is_empty())
    }

    pub(super) fn attribute(&self, name: &str, kind: AttributeType) -> Result<Option<&'a AttributeProto>, String> {
        let Some(attribute) = self.proto.attribute.iter().find(|a| a.name == name) else { return Ok(None) };
        if attribute.kind != i32::from(kind) {
            return Err(format!("attribute `{name}` is not of kind {kind:?}"));
        }
        Ok(Some(attribute))
    }

    pub(super) fn int(&self, name: &str) -> Result<Option<i64>, String> {
        Ok(self.attribute(name, AttributeType::Int)?.map(|a| a.i))
    }

    pub(super) fn int_or(&self, name: &str, default: i64) -> Result<i64, String> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, String> {
        Ok(self.attribute(name, AttributeType::Ints)?.map(|a| a.ints.clone()))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, String> {
        Ok(self.attribute(name, AttributeType::Floats)?.map(|a| a.floats.clone()))
    }

    fn float_or(&self, name: &str, default: f32) -> Result<f64, String> {
        Ok(self.attribute(name, AttributeType::Float)?.map_or(default, |a| a.f).into())
    }

    pub(super) fn text_or(&self, name: &str, default: &str) -> Result<String, String> {
        let attribute = self.attribute(name, AttributeType::String)?;
        Ok(attribute.map_or(default.to_owned(), |a| String::from_utf8_lossy(&a.s).into_owned()))
    }

    /// Integers that are an attribute before some opset and an operand from then on; `None` where they
    /// are not given.
    ///
    /// # Errors
    /// When they are not known.
    pub(super) fn parameter(
        &self,
        scope: &Scope,
        name: &str,
        operand: usize,
        since: i64,
    ) -> Result<Option<Vec<i64>>, String> {
        if self.version < since {
            return self.ints(name);
        }
        if !self.has(operand) {
            return Ok(None);
        }
        let known = scope.known(self.input(operand)?).and_then(|k| k.constants());
        known.map(Some).ok_or_else(|| format!("its {name} are not constant"))
    }
}

/// The kind that an operator of ONNX is, such as `BinaryKind::Add` for `Add`.
pub(super) fn kind<K: FromStr>(operator: &str) -> Option<K> {
    Op::rows().find(|row| row.onnx == Some(operator))?.mnemonic.parse().ok()
}

/// An axis counted from either end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let size = i64::try_from(rank).unwrap_or(i64::MAX);
    let from_front = if axis < 0 { axis + size } else { axis };
    usize::try_from(from_front).ok().filter(|&a| a < rank).ok_or_else(|| format!("axis {axis} of {rank} dimensions"))
}

/// Where a slice of an axis of a known size begins, and how many elements it takes. A start that is out of range becomes
/// the nearest element, or the end of the axis where the step is positive; an end may also be the place in front of the
/// first element where the step is negative.
///
/// # Errors
/// When the step is 0.
pub(super) fn slice_of(size: i64, start: i64, end: i64, step: i64) -> Result<(i64, i64), String> {
    if step == 0 {
        return Err("its step is 0".to_owned());
    }
    if size <= 0 {
        return Ok((0, 0));
    }
    let from_front = |place: i64| if place < 0 { place.saturating_add(size) } else { place };
    let (start, end) = match step {
        1.. => (from_front(start).clamp(0, size), from_front(end).clamp(0, size)),
        _ => (from_front(start).clamp(0, size - 1), from_front(end).clamp(-1, size - 1)),
    };
    let (span, step) = (i128::from(end) - i128::from(start), i128::from(step));
    let count = ((span + step - step.signum()) / step).max(0);
    Ok((start, i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Several axes, ascending.
pub(super) fn axes(given: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let mut axes = given.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    match axes.windows(2).all(|w| w[0] != w[1]) {
        true => Ok(axes),
        false => Err(format!("axes {given:?} repeat one")),
    }
}

/// The opset from which on the axes of a reduction are an operand.
pub(super) fn axes_since(op: &str) -> i64 {
    if op == "ReduceSum" { 13 } else { 18 }
}

/// Imports a node; what cannot be imported is noted.
pub(super) fn import(scope: &mut Scope, node: &NodeProto) {
    // Only the first reason of a chain is of interest.
    if !scope.problems.is_empty() && super::order::used(node).any(|name| scope.failed(&name)) {
        return scope.fail(node);
    }
    let version = scope.version(&node.domain);
    let modern = match is_default(&node.domain) && version < MODERN {
        true => match modern(node, version) {
            Ok(modern) => Some(modern),
            Err(problem) => {
                scope.problems.push(format!("{}: {problem}", label(node)));
                return scope.fail(node);
            }
        },
        false => None,
    };
    let version = if modern.is_some() { MODERN } else { version };
    let node = modern.as_ref().unwrap_or(node);
    let is_early = version == BATCHED_SCAN && node.op_type == "Scan" && is_default(&node.domain);
    let scanned = if is_early { scan(node) } else { None };
    // One inside of what another became is of the later form.
    let version = if scanned.is_some() || is_early && !is_batched(node) { SCAN } else { version };
    let node = scanned.as_ref().unwrap_or(node);
    let view = Node { proto: node, version };
    let reason = match rule(scope, &view) {
        Ok(true) => return,
        Ok(false) => None,
        Err(reason) => Some(reason),
    };
    if let Err(problem) = foreign::pass_through(scope, &view) {
        let reason = reason.filter(|r| *r != problem).map(|r| format!("{r}; ")).unwrap_or_default();
        scope.problems.push(format!("{}: {reason}{problem}", label(node)));
        scope.fail(node);
    }
}

/// Rules of a group of operators: whether the IR has the node's meaning, which is then emitted.
type Rule = fn(&mut Scope, &Node<'_>) -> Result<bool, String>;

/// Whether the IR has the node's meaning, which is then emitted.
fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.proto.domain == CONTRIB {
        return Ok(operands(scope, node) == Operands::Numbers && contrib::rule(scope, node)?);
    }
    if !is_default(&node.proto.domain) {
        return Ok(false);
    }
    let groups: &[Rule] = match operands(scope, node) {
        Operands::Numbers => &[
            shape::rule,
            picked::rule,
            elementwise::rule,
            movement::rule,
            nn::rule,
            conv::rule,
            order::rule,
            states::rule,
            collective::rule,
            control::rule,
        ],
        Operands::Text => &[elementwise::same, shape::rule, movement::rule, control::rule],
        Operands::Others => &[elementwise::same, control::rule],
    };
    for group in groups {
        if group(scope, node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a node's operands are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operands {
    /// Tensors that operators compute with.
    Numbers,
    /// Some are text, which operators move.
    Text,
    /// Some are of elements that are only stored, or no tensors of a known number of dimensions: only operators that pass
    /// through take them.
    Others,
}

fn operands(scope: &Scope, node: &Node<'_>) -> Operands {
    let kind = |name: &String| match scope.type_of(name) {
        Ok(Type::Tensor(ty)) if ty.dtype == DType::String => Operands::Text,
        Ok(Type::Tensor(ty)) if !ty.dtype.is_computed() => Operands::Others,
        // What is not defined is reported where it is used.
        Ok(Type::Tensor(_)) | Err(_) => Operands::Numbers,
        Ok(_) => Operands::Others,
    };
    let given = node.proto.input.iter().filter(|name| !name.is_empty());
    given.map(kind).max().unwrap_or(Operands::Numbers)
}
