//! Fixing dimensions of inputs, before anything is made of the graph.

use std::collections::{BTreeMap, HashSet};

use planish_ir::Dim;

use super::names::unknown;
use crate::proto::{
    DimensionProto, DimensionValue, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// A size that stays what it is.
const KEPT: i64 = -1;

/// Gives inputs their sizes. Names that their dimensions have stand for the same sizes wherever the graph
/// declares types, also in sums of which every part is known then.
///
/// # Errors
/// When there is no such input, or its declaration cannot have these sizes.
pub(super) fn fix(graph: &mut GraphProto, shapes: &BTreeMap<String, Vec<i64>>) -> Result<(), String> {
    if shapes.is_empty() {
        return Ok(());
    }
    let constants: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let given = graph.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    let names: Vec<String> = given.clone().map(|input| input.name.clone()).collect();
    if let Some(name) = shapes.keys().find(|name| !names.contains(name)) {
        return Err(unknown("input", name, names.iter().map(String::as_str)));
    }
    let symbols = given.flat_map(dims).filter_map(symbol).collect();
    let mut sizes = Sizes { symbols, known: BTreeMap::new() };
    let mut sums = Vec::new();
    for input in &mut graph.input {
        if let Some(wanted) = shapes.get(&input.name) {
            fix_input(input, wanted, &mut sizes, &mut sums)?;
        }
    }
    for Sum { text, size, place } in sums {
        match sizes.of(&text).as_ref().map(Dim::as_constant) {
            Some(Some(found)) if found == size => {}
            Some(Some(found)) => return Err(format!("{place} is `{text}`, which is {found} here, and not {size}")),
            _ => return Err(format!("{place} is `{text}`: give the sizes of its parts, at the inputs that have them")),
        }
    }
    sizes.replace(graph);
    Ok(())
}

/// A dimension made of several names, and the size that it is to have.
struct Sum {
    text: String,
    size: i64,
    /// How messages name the dimension.
    place: String,
}

fn fix_input(input: &mut ValueInfoProto, wanted: &[i64], sizes: &mut Sizes, sums: &mut Vec<Sum>) -> Result<(), String> {
    let name = &input.name;
    let tensor = input.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
    let tensor = tensor.ok_or_else(|| format!("the input `{name}` is not a tensor: it has no shape to be fixed"))?;
    let shape = tensor.shape.get_or_insert_with(|| TensorShapeProto { dim: wanted.iter().map(fixed).collect() });
    if shape.dim.len() != wanted.len() {
        return Err(format!(
            "the input `{name}` has {} dimensions, and the shape to fix has {}",
            shape.dim.len(),
            wanted.len()
        ));
    }
    for (axis, (dim, &size)) in shape.dim.iter_mut().zip(wanted).enumerate() {
        if size == KEPT {
            continue;
        }
        let place = format!("dimension {axis} of the input `{name}`");
        match &dim.value {
            Some(DimensionValue::DimValue(found)) if *found == size => {}
            Some(DimensionValue::DimValue(found)) if *found >= 0 => {
                return Err(format!("{place} is {found} in the graph, and cannot be {size}"));
            }
            Some(DimensionValue::DimParam(text)) if sizes.is_sum(text) => {
                sums.push(Sum { text: text.clone(), size, place });
            }
            Some(DimensionValue::DimParam(text)) if !text.trim().is_empty() => {
                match sizes.known.insert(text.trim().to_owned(), size) {
                    Some(other) if other != size => {
                        return Err(format!("{place} is `{text}`, which is {other} at another input, and not {size}"));
                    }
                    _ => {}
                }
            }
            _ => *dim = fixed(&size),
        }
    }
    Ok(())
}

fn fixed(size: &i64) -> DimensionProto {
    DimensionProto { value: Some(DimensionValue::DimValue(*size)) }
}

fn dims(value: &ValueInfoProto) -> impl Iterator<Item = &DimensionProto> {
    let shape = value.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref()?.shape.as_ref());
    shape.into_iter().flat_map(|shape| &shape.dim)
}

/// The text of a dimension that is one name.
fn symbol(dim: &DimensionProto) -> Option<String> {
    let Some(DimensionValue::DimParam(text)) = &dim.value else { return None };
    text.parse::<Dim>().ok()?.as_symbol().map(ToString::to_string)
}

/// Sizes of dimensions by their text.
struct Sizes {
    /// The names that are alone at an input: what is made of them is a sum.
    symbols: HashSet<String>,
    known: BTreeMap<String, i64>,
}

impl Sizes {
    /// A text that is made of several names, each of which is alone at some input.
    fn sum(&self, text: &str) -> Option<Dim> {
        let dim = text.parse::<Dim>().ok()?;
        let is_sum = dim.as_symbol().is_none() && dim.as_constant().is_none();
        (is_sum && dim.symbols().all(|s| self.symbols.contains(&**s))).then_some(dim)
    }

    fn is_sum(&self, text: &str) -> bool {
        self.sum(text).is_some()
    }

    /// What a text stands for with the known sizes put in; `None` where it has nothing to do with them.
    fn of(&self, text: &str) -> Option<Dim> {
        if let Some(size) = self.known.get(text.trim()) {
            return Some(Dim::constant(*size));
        }
        let sum = self.sum(text)?;
        if !sum.symbols().any(|s| self.known.contains_key(&**s)) {
            return None;
        }
        sum.summands().try_fold(Dim::constant(0), |total, (coefficient, symbols)| {
            let factor = |s: &planish_ir::Symbol| {
                self.known.get(&**s).map_or_else(|| Dim::symbol(s), |size| Dim::constant(*size))
            };
            let product = symbols.iter().try_fold(Dim::constant(coefficient), |p, s| p.checked_mul(&factor(s)))?;
            total.checked_add(&product)
        })
    }

    /// Puts the known sizes into the types that a graph and those in its nodes declare.
    fn replace(&self, graph: &mut GraphProto) {
        for value in graph.input.iter_mut().chain(&mut graph.value_info).chain(&mut graph.output) {
            let Some(TypeProto { tensor_type: Some(TensorTypeProto { shape: Some(shape), .. }), .. }) =
                &mut value.r#type
            else {
                continue;
            };
            for dim in &mut shape.dim {
                let Some(DimensionValue::DimParam(text)) = &dim.value else { continue };
                if let Some(size) = self.of(text) {
                    dim.value = Some(
                        size.as_constant()
                            .map_or_else(|| DimensionValue::DimParam(size.to_string()), DimensionValue::DimValue),
                    );
                }
            }
        }
        let inner = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
        inner.filter_map(|attribute| attribute.g.as_mut()).for_each(|graph| self.replace(graph));
    }
}
