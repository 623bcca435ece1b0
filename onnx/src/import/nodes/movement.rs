//! Operators that move elements.

use planish_ir::ops::{
    Binary, BinaryKind, Concat, Embedding, Expand, Gather, Iota, Reshape, Select, Slice, Split, Transpose, broadcast,
};
use planish_ir::{DType, Dim, Op, Shape, ValueId};

use super::super::known::{Known, is_length, is_size};
use super::super::scope::Scope;
use super::{Node, axis};

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "Transpose" => transpose(scope, node),
        "Expand" => expand(scope, node),
        "Tile" => tile(scope, node),
        "Concat" => {
            let parts = node.proto.input.iter().map(|n| scope.value(n)).collect::<Result<Vec<_>, _>>()?;
            let rank = parts.first().map_or(0, |v| scope.graph.ty(*v).shape.rank());
            let axis = axis(node.int_or("axis", if node.version < 4 { 1 } else { 0 })?, rank)?;
            match parts.as_slice() {
                [one] => {
                    scope.set(node.output()?, *one);
                    Ok(true)
                }
                _ => emit(scope, node, Concat { parts, axis }),
            }
        }
        "Split" => split(scope, node),
        "Slice" => slice(scope, node),
        "Gather" => gather(scope, node),
        "Trilu" => trilu(scope, node),
        _ => Ok(false),
    }
}

fn emit(scope: &mut Scope, node: &Node<'_>, op: impl Into<Op>) -> Result<bool, String> {
    let name = node.output()?;
    let value = scope.emit(op, name)?;
    scope.set(name, value);
    Ok(true)
}

fn transpose(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let x = scope.value(node.input(0)?)?;
    let rank = scope.graph.ty(x).shape.rank();
    let perm = match node.ints("perm")? {
        Some(perm) => perm.iter().map(|&p| axis(p, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    if perm.iter().copied().eq(0..rank) {
        scope.set(node.output()?, x);
        return Ok(true);
    }
    emit(scope, node, Transpose { x, perm })
}

fn expand(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let Some(asked) = scope.known(node.input(1)?) else { return Ok(false) };
    let x = node.input(0)?;
    let from = scope.ty(x)?.shape;
    // A size of 1 keeps what is there; exporters write -1 for the same.
    let dims = asked.elements.into_iter().map(|d| if d.as_constant() == Some(-1) { Dim::constant(1) } else { d });
    let shape = broadcast(&from, &Shape::new(dims))?;
    if shape == from {
        scope.alias(node.output()?, x);
        return Ok(true);
    }
    let x = scope.value(x)?;
    emit(scope, node, Expand { x, shape })
}

/// Repeats: a dimension of repeats before each repeated one, which then becomes part of it.
fn tile(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let Some(repeats) = scope.known(node.input(1)?) else { return Ok(false) };
    let name = node.output()?;
    let x = scope.value(node.input(0)?)?;
    let from = scope.graph.ty(x).shape.clone();
    if repeats.elements.len() != from.rank() {
        return Err(format!("{} repeats of {from}", repeats.elements.len()));
    }
    let (mut apart, mut repeated, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for (dim, times) in from.iter().zip(&repeats.elements) {
        if times.as_constant() != Some(1) {
            apart.push(Dim::constant(1));
            repeated.push(times.clone());
        }
        apart.push(dim.clone());
        repeated.push(dim.clone());
        joined.push(dim.checked_mul(times).ok_or("its size does not fit 64 bits")?);
    }
    let mut value = x;
    if apart != repeated {
        value = scope.emit(Reshape { x: value, shape: Shape::new(apart) }, name)?;
        value = scope.emit(Expand { x: value, shape: Shape::new(repeated) }, name)?;
        value = scope.emit(Reshape { x: value, shape: Shape::new(joined) }, name)?;
    }
    scope.set(name, value);
    Ok(true)
}

fn split(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let x = scope.value(node.input(0)?)?;
    let shape = scope.graph.ty(x).shape.clone();
    let axis = axis(node.int_or("axis", 0)?, shape.rank())?;
    let outputs = node.proto.output.len();
    let sizes = match node.parameter(scope, "split", 1, 13)? {
        Some(sizes) => {
            let size =
                |&s: &i64| usize::try_from(s).map_err(|_| format!("its sizes are {sizes:?}, expected none below 0"));
            sizes.iter().map(size).collect::<Result<Vec<_>, String>>()?
        }
        None => {
            let size = shape[axis].as_constant().and_then(|d| usize::try_from(d).ok());
            let size =
                size.ok_or_else(|| format!("it cuts {shape} into {outputs} parts of sizes that are not known"))?;
            let part = size.div_ceil(outputs.max(1));
            (0..outputs).map(|i| part.min(size.saturating_sub(i * part))).collect()
        }
    };
    if sizes.len() != outputs || node.proto.output.iter().any(String::is_empty) {
        return Ok(false);
    }
    let values = scope.emit_all(Split { x, axis, sizes }, node.output()?)?;
    for (name, value) in node.proto.output.iter().zip(values) {
        scope.graph.rename(value, name);
        scope.set(name, value);
    }
    Ok(true)
}

fn slice(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let bounds = |index: usize, attribute: &str| -> Result<Option<Vec<Dim>>, String> {
        match node.version {
            ..10 => Ok(node.ints(attribute)?.map(|v| v.into_iter().map(Dim::constant).collect())),
            _ if !node.has(index) => Ok(None),
            _ => match scope.known(node.input(index)?) {
                Some(known) => Ok(Some(known.elements)),
                None => Err(format!("its {attribute} are not known")),
            },
        }
    };
    let (starts, ends) = (bounds(1, "starts")?.ok_or("it has no starts")?, bounds(2, "ends")?.ok_or("it has no ends")?);
    let axes = match bounds(3, "axes")? {
        Some(axes) => {
            axes.iter().map(|a| a.as_constant().ok_or("its axes are not constant")).collect::<Result<_, _>>()?
        }
        None => (0..).take(starts.len()).collect::<Vec<i64>>(),
    };
    let steps = if node.version < 10 { None } else { bounds(4, "steps")? };
    if steps.is_some_and(|s| s.iter().any(|s| s.as_constant() != Some(1))) {
        return Ok(false);
    }
    let mut x = scope.value(node.input(0)?)?;
    let mut cuts = Vec::new();
    for ((start, end), at) in starts.iter().zip(&ends).zip(axes) {
        let shape = &scope.graph.ty(x).shape;
        let axis = axis(at, shape.rank())?;
        let size = &shape[axis];
        let tokens = last_of_input(scope, start, size);
        let (Some(start), Some(end)) = (tokens.or_else(|| bound(start, size)), bound(end, size)) else {
            return Ok(false);
        };
        if size.as_constant().is_none() && !end.checked_sub(&start).is_some_and(|taken| is_length(&taken)) {
            return Ok(false);
        }
        if start != Dim::constant(0) || end != *size {
            cuts.push((axis, start, end));
        }
    }
    for (axis, start, end) in cuts {
        x = scope.emit(Slice { x, axis, start, end }, name)?;
    }
    scope.set(name, x);
    Ok(true)
}

/// Where the last elements of an axis begin that are as many as an axis of an input has: both are axes of inputs, and the first is
/// taken to have as many, as a mask of a cache and new tokens has more than the new tokens.
fn last_of_input(scope: &Scope, start: &Dim, size: &Dim) -> Option<Dim> {
    let is_given = |dim: &Dim| {
        let of = |input: &ValueId| scope.graph.type_of(*input).as_tensor().is_some_and(|ty| ty.shape.contains(dim));
        dim.as_symbol().is_some() && scope.graph.inputs().iter().any(of)
    };
    let taken = size.checked_sub(start)?;
    (is_given(size) && is_given(&taken)).then(|| start.clone())
}

/// Where a slice begins or ends: counted from the end where negative, and at most the size. `None` where that depends on
/// what only a run knows. An axis of no known size is taken to have its first and last element, and one of a known
/// size, as a table of positions has, those up to a bound that is symbolic.
fn bound(given: &Dim, size: &Dim) -> Option<Dim> {
    match (given.as_constant(), size.as_constant()) {
        (Some(given), Some(size)) => {
            Some(Dim::constant(if given < 0 { given.saturating_add(size) } else { given }.clamp(0, size)))
        }
        // Beyond any size that a run can have.
        (Some(given), None) if given >= i64::from(i32::MAX) => Some(size.clone()),
        (Some(given), None) if given <= -i64::from(i32::MAX) => Some(Dim::constant(0)),
        _ => {
            let from_end = is_size(&Dim::constant(0).checked_sub(given)?) && *given != Dim::constant(0);
            let at = if from_end { size.checked_add(given)? } else { given.clone() };
            let inside = is_length(&at) && is_length(&size.checked_sub(&at)?);
            (inside || size.as_constant().is_some()).then_some(at)
        }
    }
}

/// Rows of a table of floats are an embedding. Indices that are known count from the front afterwards.
fn gather(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let ty = scope.ty(data)?;
    let axis = axis(node.int_or("axis", 0)?, ty.shape.rank())?;
    let known = scope.known(indices).and_then(|k| Some((k.shape.clone(), k.constants()?)));
    let ids = match (known, ty.shape[axis].as_constant()) {
        (Some((shape, picked)), Some(size)) if picked.iter().any(|&i| i < 0) => {
            let front = picked.iter().map(|&i| Dim::constant(if i < 0 { i + size } else { i })).collect();
            let front = Known::new(DType::I64, shape, front).ok_or("its indices are too many")?;
            scope.tensor(&format!("{indices}/from_front"), &front)?
        }
        // Counted from an end that is not known.
        (Some((shape, picked)), None) if picked.iter().any(|&i| i < 0) => {
            let ([], [at]) = (shape.as_slice(), picked.as_slice()) else { return Ok(false) };
            let size = ty.shape[axis].clone();
            let start = size.checked_add(&Dim::constant(*at)).ok_or("its index does not fit 64 bits")?;
            let end = start.checked_add(&Dim::constant(1)).ok_or("its index does not fit 64 bits")?;
            let x = scope.value(data)?;
            let x = scope.emit(Slice { x, axis, start, end }, node.output()?)?;
            let rest = ty.shape.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone());
            return emit(scope, node, Reshape { x, shape: Shape::new(rest) });
        }
        _ => scope.value(indices)?,
    };
    let is_table = scope.weight(data).is_some() && ty.shape.rank() == 2 && axis == 0 && ty.dtype.is_float();
    let x = scope.value(data)?;
    match is_table {
        true => emit(scope, node, Embedding { weight: x, ids }),
        false => emit(scope, node, Gather { x, indices: ids, axis }),
    }
}

/// Keeps the elements above or below a diagonal: where columns and rows compare so.
fn trilu(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let diagonal = match node.has(1) {
        true => scope.known(node.input(1)?).and_then(|k| k.scalar().cloned()),
        false => Some(Dim::constant(0)),
    };
    let Some(diagonal) = diagonal else { return Ok(false) };
    let x = scope.value(node.input(0)?)?;
    let ty = scope.graph.ty(x).clone();
    let [.., rows, columns] = &ty.shape[..] else { return Err(format!("{ty} is not a matrix")) };
    let rows_at = scope.emit(Iota { dtype: DType::I64, length: rows.clone() }, name)?;
    let mut rows_at = scope.emit(Reshape { x: rows_at, shape: Shape::new([rows.clone(), Dim::constant(1)]) }, name)?;
    let columns_at = scope.emit(Iota { dtype: DType::I64, length: columns.clone() }, name)?;
    if diagonal != Dim::constant(0) {
        let diagonal = Known { dtype: DType::I64, shape: Vec::new(), elements: vec![diagonal] };
        let b = scope.tensor(&format!("{name}/diagonal"), &diagonal)?;
        rows_at = scope.emit(Binary { kind: BinaryKind::Add, a: rows_at, b }, name)?;
    }
    let kind = if node.int_or("upper", 1)? == 1 { BinaryKind::GreaterOrEqual } else { BinaryKind::LessOrEqual };
    let kept = scope.emit(Binary { kind, a: columns_at, b: rows_at }, name)?;
    if ty.dtype == DType::Bool {
        return emit(scope, node, Binary { kind: BinaryKind::And, a: x, b: kept });
    }
    let zero = scope.number(name, ty.dtype, 0.0);
    emit(scope, node, Select { condition: kept, a: x, b: zero })
}
