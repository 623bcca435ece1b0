//! `Scan` of tensors whose lengths are known.

use planish_ir::ops::Transpose;

use super::super::super::foreign;
use super::super::super::scope::Scope;
use super::super::{Node, axis};
use super::body::Body;
use super::give;
use super::stack::{Pieces, blank_stack, stack};

/// Writes out the rounds. Operands are what a round passes on to the next, and tensors that are cut along an axis,
/// a piece a round; results are what the last one passes on, and what each gives besides, along a new axis.
/// Opset 8 has another form of it.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.version < 9 {
        return Ok(false);
    }
    let cut = node.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    let carried = cut.and_then(|cut| node.proto.input.len().checked_sub(cut));
    let carried = carried.ok_or("its `num_scan_inputs` is not among its operands")?;
    let mut body = Body::new(scope, node, "body")?;
    body.expect(node.proto.input.len(), node.proto.output.len())?;
    let gathered = node.proto.output.len().checked_sub(carried).ok_or("it has fewer results than it passes on")?;
    let (state, cut) = node.proto.input.split_at(carried);
    let pieces = pieces(scope, node, cut)?;
    let Some(rounds) = length(&pieces)? else { return stays(scope, node, state, &pieces) };
    body.share_constants(scope)?;
    if !body.takes(scope, rounds) {
        return Ok(false);
    }
    let axes = integers(node, "scan_output_axes", gathered)?;
    let backward = integers(node, "scan_output_directions", gathered)?;
    let mut state = state.to_vec();
    let mut rows = Vec::new();
    // One round is written for the types alone where there is none.
    for round in 0..rounds.max(1) {
        let mut operands = state.clone();
        for (index, pieces) in pieces.iter().enumerate() {
            let name = body.name(scope, round, &format!("piece_{index}"));
            match rounds {
                0 => pieces.blank(scope, &name)?,
                _ => pieces.take(scope, &name, if pieces.backward { rounds - 1 - round } else { round })?,
            }
            operands.push(name);
        }
        let mut passed = body.instance(scope, &round.to_string(), &operands)?;
        rows.push(passed.split_off(carried));
        if rounds > 0 {
            state = passed;
        }
    }
    let (carried, stacked) = node.proto.output.split_at(carried);
    for (index, name) in stacked.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let column = rows.iter().map(|row| &row[index]);
        match (rounds, backward[index]) {
            (0, _) => blank_stack(scope, name, &rows[0][index], axes[index])?,
            (_, 0) => stack(scope, name, column, axes[index])?,
            _ => stack(scope, name, column.rev(), axes[index])?,
        }
    }
    give(scope, carried, &state);
    Ok(true)
}

/// Leaves the operator as it is, but that it cuts its operands along their first axis: where there is nothing to cut along
/// another one, ONNX Runtime ends the process by SIGFPE, and along the first one it reports an error.
fn stays(scope: &mut Scope, node: &Node<'_>, state: &[String], pieces: &[Pieces]) -> Result<bool, String> {
    if pieces.iter().all(|piece| piece.axis == 0) {
        return Ok(false);
    }
    let mut proto = node.proto.clone();
    proto.input = state.to_vec();
    for Pieces { of, ty, axis, .. } in pieces {
        if *axis == 0 {
            proto.input.push(of.clone());
            continue;
        }
        let name = scope.unused(&format!("{of}/cut"));
        let x = scope.value(of)?;
        let perm = std::iter::once(*axis).chain((0..ty.shape.rank()).filter(|at| at != axis)).collect();
        let value = scope.emit(Transpose { x, perm }, &name)?;
        scope.set(&name, value);
        proto.input.push(name);
    }
    proto.attribute.retain(|attribute| attribute.name != "scan_input_axes");
    foreign::pass_through(scope, &Node { proto: &proto, version: node.version })?;
    Ok(true)
}

/// How operands are cut.
fn pieces(scope: &Scope, node: &Node<'_>, operands: &[String]) -> Result<Vec<Pieces>, String> {
    let axes = integers(node, "scan_input_axes", operands.len())?;
    let backward = integers(node, "scan_input_directions", operands.len())?;
    let one = |((name, at), backward): ((&String, i64), i64)| {
        let ty = scope.ty(name)?;
        let axis = axis(at, ty.shape.rank())?;
        Ok(Pieces { of: name.clone(), ty, axis, backward: backward != 0 })
    };
    operands.iter().zip(axes).zip(backward).map(one).collect()
}

/// The number of rounds, where one of the operands has a size that is known.
fn length(pieces: &[Pieces]) -> Result<Option<i64>, String> {
    let sizes: Vec<i64> = pieces.iter().filter_map(|p| p.ty.shape[p.axis].as_constant()).collect();
    match sizes.iter().all(|size| *size == sizes[0]) {
        true => Ok(sizes.first().copied()),
        false => Err(format!("it cuts operands into different numbers of pieces: {sizes:?}")),
    }
}

/// Integers of which there is one for each of so many tensors; 0 where none are given.
fn integers(node: &Node<'_>, name: &str, count: usize) -> Result<Vec<i64>, String> {
    match node.ints(name)? {
        Some(given) if given.len() != count => {
            Err(format!("its `{name}` are {} numbers, expected {count}", given.len()))
        }
        given => Ok(given.unwrap_or_else(|| vec![0; count])),
    }
}
