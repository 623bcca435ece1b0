//! Linear attention as a Scan over the tokens.

use planish_ir::ValueId;
use planish_ir::ops::LinearAttention;

use super::body::{Body, Scan};
use crate::export::Emitter;
use crate::export::nodes::size;
use crate::proto::NodeProto;

/// The Scan of the results `y` and the last state.
pub(super) fn scan(e: &mut Emitter<'_>, op: &LinearAttention, [y, next]: [ValueId; 2]) -> Result<NodeProto, String> {
    let (state, key, value) = super::state(e, op)?;
    let (groups, each) = (size(op.key_heads), size(op.heads / op.key_heads.max(1)));
    let result = e.name(y).to_owned();
    let mut body = Body::new(&result);
    let mut over = Vec::new();
    let mut part = |e: &mut Emitter<'_>, value: ValueId, name: &str| {
        let inside = e.fresh(&format!("{result}/{name}"));
        over.push([e.name(value).to_owned(), inside.clone()]);
        inside
    };
    let query = part(e, op.q, "query");
    let keys = part(e, op.k, "key");
    let values = part(e, op.v, "value");
    let decay = op.decay.map(|decay| part(e, decay, "decay"));
    let beta = op.beta.map(|beta| part(e, beta, "beta"));
    let before = e.fresh(&format!("{result}/before"));

    // [batch, groups, heads of a group, .., ..], where the heads of a group share queries and keys.
    let mut all = body.reshape(e, &before, &[0, groups, each, key, value]);
    let query = body.reshape(e, &query, &[0, groups, 1, 1, key]);
    let mut values = body.reshape(e, &values, &[0, groups, each, 1, value]);
    if let Some(decay) = decay {
        let by_element = op.decay.is_some_and(|decay| op.decays_by_element(&e.graph.ty(decay).shape));
        let kept = body.plain(e, "Exp", &[&decay]);
        let kept = body.reshape(e, &kept, &[0, groups, each, if by_element { key } else { 1 }, 1]);
        all = body.plain(e, "Mul", &[&all, &kept]);
    }
    if let Some(beta) = beta {
        let row = body.reshape(e, &keys, &[0, groups, 1, 1, key]);
        let held = body.plain(e, "MatMul", &[&row, &all]);
        let beta = body.reshape(e, &beta, &[0, groups, each, 1, 1]);
        let change = body.plain(e, "Sub", &[&values, &held]);
        values = body.plain(e, "Mul", &[&change, &beta]);
    }
    let column = body.reshape(e, &keys, &[0, groups, 1, key, 1]);
    let added = body.plain(e, "Mul", &[&column, &values]);
    all = body.plain(e, "Add", &[&all, &added]);
    let mut read = body.plain(e, "MatMul", &[&query, &all]);
    if let Some(scale) = super::scale(e, op)? {
        read = body.plain(e, "Mul", &[&read, &scale]);
    }
    let read = body.reshape(e, &read, &[0, groups * each * value]);
    let after = body.reshape(e, &all, &[0, groups * each, key, value]);
    let scan = Scan {
        dtype: e.graph.ty(y).dtype,
        axis: 1,
        state: [e.name(state), &before],
        over: &over,
        results: [&after, &read],
        outputs: [e.name(next).to_owned(), result],
    };
    Ok(scan.with(body))
}
