//! Elements, or slices along an axis, each once.

use std::cmp::Ordering;

use planish_ir::DType;

use super::{Maybe, Node, Results, around, axis, integers, of_integers, pick};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Unique" => unique(node).map(Some),
        _ => Ok(None),
    }
}

/// What is there once, in order or as it came first; where each was first; which of them each slice is; how often
/// each is there. NaN elements are equal to each other and come last.
fn unique(node: &Node<'_>) -> Results {
    let x = node.operand(0)?;
    let along = node.op.setting("axis").map(|_| axis(node.int("axis", 0), x.shape().len())).transpose()?;
    let (outer, count, inner) = along.map_or((1, x.data().len(), 1), |a| around(x.shape(), a));
    let at = |slice: usize| (0..outer).flat_map(move |o| (0..inner).map(move |i| (o * count + slice) * inner + i));
    let order: Box<dyn Fn(usize, usize) -> Ordering> = if x.dtype().is_float() {
        // Both zeros are one.
        let values: Vec<f64> = x.to_f64().into_iter().map(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }).collect();
        Box::new(move |a, b| {
            at(a).zip(at(b)).map(|(a, b)| values[a].total_cmp(&values[b])).fold(Ordering::Equal, Ordering::then)
        })
    } else {
        let values = integers(x)?;
        Box::new(move |a, b| {
            at(a).zip(at(b)).map(|(a, b)| values[a].cmp(&values[b])).fold(Ordering::Equal, Ordering::then)
        })
    };
    let mut slices: Vec<usize> = (0..count).collect();
    slices.sort_by(|&a, &b| order(a, b));
    // Sorting is stable: the first of equal slices is where it was first.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for slice in slices {
        match groups.last_mut() {
            Some(group) if order(group[0], slice) == Ordering::Equal => group.push(slice),
            _ => groups.push(vec![slice]),
        }
    }
    if node.int("sorted", 1) == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let mut shape = x.shape().to_vec();
    match along {
        Some(a) => shape[a] = groups.len(),
        None => shape = vec![groups.len()],
    }
    let mut places = Vec::with_capacity(node.count(&shape)?);
    for o in 0..outer {
        for group in &groups {
            places.extend((0..inner).map(|i| Some((o * count + group[0]) * inner + i)));
        }
    }
    let mut inverse = vec![0; count];
    for (index, group) in groups.iter().enumerate() {
        group.iter().for_each(|&slice| inverse[slice] = index as i128);
    }
    let firsts: Vec<i128> = groups.iter().map(|group| group[0] as i128).collect();
    let counts: Vec<i128> = groups.iter().map(|group| group.len() as i128).collect();
    let list = |values: &[i128]| of_integers(DType::I64, vec![values.len()], values);
    Ok(vec![pick(x, None, shape, &places)?, list(&firsts)?, list(&inverse)?, list(&counts)?])
}
