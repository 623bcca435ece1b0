//! Rotary position embedding and the cache after it.

use planish_ir::ops::{Attention, Flag, Rotary, RotaryAppend};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

use super::{Found, Uses, apply, op};
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Pass, PassError};

/// Joins the rotations of queries and keys with the cache that the keys go to.
pub const FUSE_ROTARY: Pass = Pass {
    name: "fuse-rotary",
    summary: "Joins the rotary embeddings of the queries and the keys of an attention with a cache, for target cuda. \
              One operator rotates both, and puts keys and values after those of the past. The attention then takes \
              all keys and values as caches hold them. The operator runs also without a past, where the attention \
              returns its keys and values.",
    numerics: "none",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %q: f32[b, s, 8]
            input %k: f32[b, s, 4]
            input %c: f32[b, s, 2]
            input %pk: f32[b, 1, p, 4]
            input %pv: f32[b, 1, p, 4]
            %rq = rotary(%q, %c, %c) {heads = 2} : f32[b, s, 8]
            %rk = rotary(%k, %c, %c) {heads = 1} : f32[b, s, 4]
            %y, %nk, %nv = attention(%rq, %rk, %k, past_key: %pk, past_value: %pv) {heads = 2, kv_heads = 1, scale = 0.5, causal = true, present = true} : f32[b, s, 8], f32[b, 1, p + s, 4], f32[b, 1, p + s, 4]
            output y = %y
            output keys = %nk
            output values = %nv",
        after: "
            input %q: f32[b, s, 8]
            input %k: f32[b, s, 4]
            input %c: f32[b, s, 2]
            input %pk: f32[b, 1, p, 4]
            input %pv: f32[b, 1, p, 4]
            %y/rotary_append, %y/rotary_append_1, %y/rotary_append_2 = rotary_append(%q, %k, %k, %c, %c, past_key: %pk, past_value: %pv) {heads = 2, kv_heads = 1} : f32[b, s, 8], f32[b, 1, p + s, 4], f32[b, 1, p + s, 4]
            %y = attention(%y/rotary_append, %y/rotary_append_1, %y/rotary_append_2) {heads = 2, kv_heads = 1, scale = 0.5, causal = true} : f32[b, s, 8]
            output y = %y
            output keys = %y/rotary_append_1
            output values = %y/rotary_append_2",
    },
    applies: |options| options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, options, "rotary_append", fuse))
}

fn fuse(graph: &mut Rewriter<'_>, node: NodeId, uses: &Uses) -> Found {
    let Op::Attention(attention) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let cached = attention.past_key.is_some() || attention.present.0;
    let (rotated_q, rotated_k) = (rotary(graph, attention.q), rotary(graph, attention.k));
    let (Some(q), Some(k)) = (rotated_q, rotated_k) else { return Err(NoMatch::Other) };
    if !cached {
        return Err(NoMatch::Miss("the attention has no cache".to_owned()));
    }
    for value in [attention.q, attention.k] {
        if !uses.is_single(value) {
            let name = &graph.value(value).name;
            return Err(NoMatch::Miss(format!("`{name}` has other uses than the attention")));
        }
    }
    let (heads, kv_heads) = (attention.heads, attention.kv_heads());
    let same = q.cos == k.cos && q.sin == k.sin && q.interleaved == k.interleaved;
    if !same || q.heads != heads || k.heads != kv_heads {
        let names = [attention.q, attention.k].map(|value| &graph.value(value).name);
        return Err(NoMatch::Miss(format!("`{}` and `{}` are rotated in different ways", names[0], names[1])));
    }
    let append = RotaryAppend {
        q: q.x,
        k: k.x,
        v: attention.v,
        cos: q.cos,
        sin: q.sin,
        past_key: attention.past_key,
        past_value: attention.past_value,
        heads,
        kv_heads,
        interleaved: q.interleaved,
    };
    let output = graph.node(node).outputs[0];
    let parts = graph.emit_part(append, output)?;
    let present = attention.present.0;
    let whole = Attention {
        q: parts[0],
        k: parts[1],
        v: parts[2],
        past_key: None,
        past_value: None,
        present: Flag(false),
        ..attention
    };
    let mut results = vec![graph.emit(whole, output)?];
    results.extend(parts[1..].iter().filter(|_| present));
    Ok(results)
}

/// The rotation that gives a value.
fn rotary(graph: &Graph, value: ValueId) -> Option<Rotary> {
    match op(graph, value)? {
        Op::Rotary(rotary) => Some(rotary.clone()),
        _ => None,
    }
}
