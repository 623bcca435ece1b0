//! Constants, and what is computed from shapes: it is followed symbolically.

use planish_ir::ops::{Binary, BinaryKind, Expand, Iota, Reshape};
use planish_ir::{DType, Dim, Shape, Weight};

use super::super::known::{Known, MAX_ELEMENTS, is_length};
use super::super::order::label;
use super::super::scope::Scope;
use super::super::tensors;
use super::Node;
use crate::proto::{AttributeType, TensorProto};

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "Constant" => constant(scope, node),
        "Shape" => shape(scope, node),
        "Size" => {
            let elements = scope.ty(node.input(0)?)?.shape.elements().ok_or("its size does not fit 64 bits")?;
            set(scope, node, Known::new(DType::I64, Vec::new(), vec![elements]))
        }
        "ConstantOfShape" => constant_of_shape(scope, node),
        "Range" => range(scope, node),
        "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => reshaped(scope, node),
        _ => Ok(false),
    }
}

/// Takes the result, where it is known.
fn set(scope: &mut Scope, node: &Node<'_>, known: Option<Known>) -> Result<bool, String> {
    let Some(known) = known else { return Ok(false) };
    scope.set_known(node.output()?, known);
    Ok(true)
}

fn constant(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let [attribute] = node.proto.attribute.as_slice() else {
        return Err("a constant has one value".to_owned());
    };
    let floats = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let weight = match attribute.name.as_str() {
        "value" => {
            let tensor = attribute.t.as_ref().ok_or("it has no tensor")?;
            scope.constant(name, tensor)?;
            return Ok(true);
        }
        "value_int" => Known::new(DType::I64, Vec::new(), vec![attribute.i.into()]).and_then(|k| k.weight()),
        "value_ints" => Some(Weight::integers(&attribute.ints)),
        "value_float" => Some(Weight::scalar(DType::F32, attribute.f.into())),
        "value_floats" => Weight::numbers(DType::F32, vec![attribute.floats.len()], &floats(&attribute.floats)),
        "value_string" => Weight::text(Vec::new(), &[&attribute.s]),
        "value_strings" => Weight::text(vec![attribute.strings.len()], &attribute.strings),
        other => return Err(format!("constants given as {other} are not supported")),
    };
    scope.set_weight(name, weight.ok_or("its value is malformed")?);
    Ok(true)
}

fn shape(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let shape = scope.ty(node.input(0)?)?.shape;
    let rank = i64::try_from(shape.rank()).unwrap_or(i64::MAX);
    let bound = |value: i64| usize::try_from(if value < 0 { value + rank } else { value }.clamp(0, rank)).unwrap_or(0);
    let (start, end) = (bound(node.int_or("start", 0)?), bound(node.int_or("end", rank)?));
    set(scope, node, Known::vector(shape.get(start..end).unwrap_or_default().to_vec()))
}

fn constant_of_shape(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let value = match node.attribute("value", AttributeType::Tensor)? {
        Some(attribute) => {
            let tensor: &TensorProto = attribute.t.as_ref().ok_or("it has no tensor")?;
            tensors::inline(tensor, tensors::dtype(tensor.data_type)?)?
        }
        None => Weight::scalar(DType::F32, 0.0),
    };
    let value = value.reshape(&[]).ok_or("its value is not a single element")?;
    let Some(dims) = scope.known(node.input(0)?) else { return Ok(false) };
    let sizes: Option<Vec<usize>> = dims.elements.iter().map(|d| usize::try_from(d.as_constant()?).ok()).collect();
    let count = sizes.as_ref().and_then(|s| s.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    if let (Some(sizes), Some(count), Some(known)) = (sizes, count, Known::of_weight(&value))
        && count <= MAX_ELEMENTS
    {
        return set(scope, node, Known::new(known.dtype, sizes, vec![known.elements[0].clone(); count]));
    }
    let x = scope.graph.add_weight(&format!("{name}/const"), value, planish_ir::Origin::Unknown);
    let value = scope.emit(Expand { x, shape: Shape::new(dims.elements) }, name)?;
    scope.set(name, value);
    Ok(true)
}

fn range(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let one = |scope: &Scope, index| -> Result<Option<Known>, String> { Ok(scope.known(node.input(index)?)) };
    let [Some(start), Some(limit), Some(step)] = [one(scope, 0)?, one(scope, 1)?, one(scope, 2)?] else {
        return Ok(false);
    };
    let dtype = start.dtype;
    let (Some(start), Some(limit), Some(step)) = (start.scalar(), limit.scalar(), step.scalar()) else {
        return Err("its bounds are not scalars".to_owned());
    };
    if let (Some(start), Some(limit), Some(step)) = (start.as_constant(), limit.as_constant(), step.as_constant()) {
        if step == 0 {
            return Err("its step is 0".to_owned());
        }
        let (span, step) = (i128::from(limit) - i128::from(start), i128::from(step));
        // Rounded up, and none where the step leads away.
        let count = usize::try_from((span + step - step.signum()) / step).unwrap_or(0);
        if count <= MAX_ELEMENTS {
            let element = |i: usize| i64::try_from(i128::from(start) + step * i as i128).ok().map(Dim::constant);
            let elements = (0..count).map(element).collect::<Option<Vec<_>>>();
            return set(scope, node, elements.and_then(|e| Known::new(dtype, vec![e.len()], e)));
        }
    }
    if step.as_constant() != Some(1) {
        return Ok(false);
    }
    let length = limit.checked_sub(start).ok_or("its length does not fit 64 bits")?;
    // With a limit before the start there would be no element.
    if !is_length(&length) {
        return Ok(false);
    }
    let mut value = scope.emit(Iota { dtype, length }, name)?;
    if start.as_constant() != Some(0) {
        let known = Known { dtype, shape: Vec::new(), elements: vec![start.clone()] };
        let b = scope.tensor(&format!("{name}/start"), &known)?;
        value = scope.emit(Binary { kind: BinaryKind::Add, a: value, b }, name)?;
    }
    scope.set(name, value);
    Ok(true)
}

/// The same elements under another shape.
fn reshaped(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let x = node.input(0)?;
    let from = scope.ty(x)?.shape;
    let to = match node.proto.op_type.as_str() {
        "Squeeze" => match squeezed(scope, node, &from)? {
            Some(shape) => shape,
            None => return Ok(false),
        },
        "Unsqueeze" => unsqueezed(scope, node, &from)?,
        "Flatten" => flattened(node, &from)?,
        _ => match target(scope, node, &from)? {
            Some(shape) => shape,
            None => return Ok(false),
        },
    };
    if let Some(known) = scope.known(x)
        && let Some(sizes) = to.iter().map(|d| usize::try_from(d.as_constant()?).ok()).collect()
    {
        return set(scope, node, known.reshape(sizes));
    }
    if to == from {
        scope.alias(node.output()?, x);
        return Ok(true);
    }
    let x = scope.value(x)?;
    let value = scope.emit(Reshape { x, shape: to }, node.output()?)?;
    scope.set(node.output()?, value);
    Ok(true)
}

/// Without axes what is 1 goes; a size that is not known is taken to be another. `None` where an axis that is named is of
/// such a size.
fn squeezed(scope: &mut Scope, node: &Node<'_>, from: &Shape) -> Result<Option<Shape>, String> {
    let is_one = |a: &usize| from[*a].as_constant() == Some(1);
    let axes = match node.parameter(scope, "axes", 1, 13)? {
        Some(axes) => super::axes(&axes, from.rank())?,
        None => {
            let axes: Vec<usize> = (0..from.rank()).filter(is_one).collect();
            let open = from.iter().any(|d| d.as_constant().is_none());
            if open && axes.is_empty() {
                return Err(format!("it squeezes what is 1 of {from}, which is not known"));
            }
            if open {
                let what = format!("{} squeezes what is 1 of {from}", label(node.proto));
                scope.warnings.push(format!("{what}: taken to be the axes {axes:?}, whatever the sizes are"));
            }
            axes
        }
    };
    let rest = from.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d.clone());
    Ok(axes.iter().all(is_one).then(|| Shape::new(rest)))
}

fn unsqueezed(scope: &Scope, node: &Node<'_>, from: &Shape) -> Result<Shape, String> {
    let given = node.parameter(scope, "axes", 1, 13)?.ok_or("it has no axes")?;
    let rank = from.rank().checked_add(given.len()).ok_or("it has too many axes")?;
    let axes = super::axes(&given, rank)?;
    let mut rest = from.iter();
    let dims = (0..rank).map(|i| if axes.contains(&i) { Some(Dim::constant(1)) } else { rest.next().cloned() });
    dims.collect::<Option<Vec<_>>>().map(Shape::new).ok_or_else(|| "its axes do not fit".to_owned())
}

fn flattened(node: &Node<'_>, from: &Shape) -> Result<Shape, String> {
    let at = node.int_or("axis", 1)?;
    // The axis may lie after the last one.
    let rank = i64::try_from(from.rank()).unwrap_or(i64::MAX);
    let at = if at < 0 { at + rank } else { at };
    let at = usize::try_from(at).ok().filter(|&a| a <= from.rank()).ok_or_else(|| format!("axis {at} of {from}"))?;
    let product = |dims: &[Dim]| Shape::new(dims.to_vec()).elements().ok_or("its size does not fit 64 bits");
    Ok(Shape::new([product(&from[..at])?, product(&from[at..])?]))
}

/// The shape that a reshape asks for, where it is known: 0 keeps a dimension, one -1 is what remains.
fn target(scope: &Scope, node: &Node<'_>, from: &Shape) -> Result<Option<Shape>, String> {
    let Some(asked) = scope.known(node.input(1)?) else { return Ok(None) };
    let keep_zero = node.int_or("allowzero", 0)? == 1;
    let mut dims = Vec::new();
    let mut open = None;
    for (i, dim) in asked.elements.iter().enumerate() {
        dims.push(match dim.as_constant() {
            Some(0) if !keep_zero => {
                from.get(i).cloned().ok_or_else(|| format!("it keeps dimension {i} of {from}, which does not exist"))?
            }
            Some(-1) if open.replace(i).is_some() => return Err("two dimensions are left open".to_owned()),
            Some(-1) => Dim::constant(1),
            Some(size) if size < 0 => return Err(format!("dimension {i} is {size}")),
            _ => dim.clone(),
        });
    }
    if let Some(open) = open {
        let overflow = "its size does not fit 64 bits";
        let total = from.elements().ok_or(overflow)?;
        let rest = Shape::new(dims.clone()).elements().ok_or(overflow)?;
        match total.exact_div(&rest) {
            Some(dim) => dims[open] = dim,
            None => return Err(format!("{from} is not a multiple of {rest}")),
        }
    }
    Ok(Some(Shape::new(dims)))
}
