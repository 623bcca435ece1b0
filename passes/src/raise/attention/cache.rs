//! Keys and values that are outputs of the graph.

use std::collections::HashMap;
use std::convert::Infallible;

use planish_ir::handle::Handle;
use planish_ir::ops::{Attention, Flag};
use planish_ir::{Graph, Op, Step, ValueId};

use super::heads::{after, side_by_side};
use crate::rules::{Miss, does_not_fit};

/// Takes outputs that are an attention's keys and values, those of the cache and the new ones, from the
/// attention. Returns how many attentions this changed, and those that cannot give them.
pub(super) fn raise(graph: &mut Graph) -> (usize, Vec<Miss>) {
    let given_back = given_back(graph);
    let mut misses = Vec::new();
    let mut outputs: HashMap<ValueId, ValueId> = HashMap::new();
    let Ok(changed) = graph.rewrite(|graph, node| {
        let Op::Attention(attention) = graph.node(node).op.clone() else { return Ok::<_, Infallible>(Step::Keep) };
        let Attention { k, v, past_key, past_value, present: Flag(false), .. } = attention else {
            return Ok(Step::Keep);
        };
        let (Some(keys), Some(values)) = (given_back.get(&(past_key, k)), given_back.get(&(past_value, v))) else {
            return Ok(Step::Keep);
        };
        let result = graph.node(node).outputs[0];
        let results = match graph.emit_all(Attention { present: Flag(true), ..attention }, result) {
            Ok(results) => results,
            Err(error) => {
                misses.push(Miss::at(graph, result, "attention", does_not_fit(&error)));
                return Ok(Step::Keep);
            }
        };
        // The same features may be split into other heads.
        let by_head = |outputs: &[ValueId], own| outputs.iter().copied().find(|v| graph.ty(*v) == graph.ty(own));
        let (Some(keys), Some(values)) = (by_head(keys, results[1]), by_head(values, results[2])) else {
            return Ok(Step::Keep);
        };
        outputs.extend([(keys, results[1]), (values, results[2])]);
        Ok(Step::Replace(vec![results[0]]))
    });
    graph.substitute(&outputs);
    graph.compact();
    (changed, misses)
}

/// Positions as attention takes them: those of a cache, and the new ones after them.
type Parts = (Option<ValueId>, ValueId);

/// What the graph computes, gives back and uses nowhere else, by what it consists of.
fn given_back(graph: &Graph) -> HashMap<Parts, Vec<ValueId>> {
    let mut uses = graph.use_counts();
    graph.outputs().iter().for_each(|output| uses[output.value.index()] -= 1);
    let mut given_back: HashMap<Parts, Vec<ValueId>> = HashMap::new();
    for value in graph.outputs().iter().map(|output| output.value) {
        if uses[value.index()] > 0 || graph.producer(value).is_none() {
            continue;
        }
        let parts = match after(graph, value) {
            Some([past, new]) => (Some(past), side_by_side(graph, new)),
            None => (None, side_by_side(graph, value)),
        };
        given_back.entry(parts).or_default().push(value);
    }
    given_back
}
