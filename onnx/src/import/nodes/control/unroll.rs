//! `Loop` of a number of rounds that is known.

use planish_ir::{DType, Dim};

use super::super::super::known::Known;
use super::super::super::scope::Scope;
use super::super::Node;
use super::body::Body;
use super::give;
use super::stack::{blank_stack, stack};

/// Writes out the rounds. Operands are the number of rounds, a condition, and what a round passes on to the next;
/// results are what the last one passes on, and what each gives besides, along a new first axis.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let number = |index: usize| scope.known(node.proto.input.get(index)?)?.scalar()?.as_constant();
    let limit = if node.has(0) { number(0) } else { Some(i64::MAX) };
    let condition = if node.has(1) { number(1) } else { Some(1) };
    let rounds = match (limit, condition) {
        (_, Some(0)) | (Some(..=0), _) => 0,
        (Some(limit), Some(_)) => limit,
        _ => return Ok(false),
    };
    let mut state = node.proto.input.get(2..).unwrap_or_default().to_vec();
    let mut body = Body::new(scope, node, "body")?;
    body.expect(2 + state.len(), 1 + node.proto.output.len())?;
    body.share_constants(scope)?;
    if !body.takes(scope, rounds) {
        return Ok(false);
    }
    // What a round gives: whether another one follows, what it passes on, and the rest.
    let run = |scope: &mut Scope, round: i64, state: &[String]| {
        let given = [("round", DType::I64, round), ("condition", DType::Bool, 1)].map(|(of, dtype, value)| {
            let name = body.name(scope, round, of);
            scope.set_known(&name, Known { dtype, shape: Vec::new(), elements: vec![Dim::constant(value)] });
            name
        });
        let mut passed = body.instance(scope, &round.to_string(), &[&given, state].concat())?;
        let rest = passed.split_off(1 + state.len());
        Ok::<_, String>((passed.remove(0), passed, rest))
    };
    let mut rows = Vec::new();
    for round in 0..rounds {
        let (condition, passed, rest) = run(scope, round, &state)?;
        state = passed;
        rows.push(rest);
        match scope.known(&condition).and_then(|k| k.scalar()?.as_constant()) {
            _ if round + 1 == rounds => {}
            Some(0) => break,
            Some(_) => {}
            None => return Ok(false),
        }
    }
    let (carried, stacked) = node.proto.output.split_at(state.len());
    if rounds == 0 && !stacked.is_empty() {
        // Only its types are of interest.
        rows.push(run(scope, 0, &state)?.2);
    }
    for (index, name) in stacked.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        match rounds {
            0 => blank_stack(scope, name, &rows[0][index], 0)?,
            _ => stack(scope, name, rows.iter().map(|row| &row[index]), 0)?,
        }
    }
    give(scope, carried, &state);
    Ok(true)
}
