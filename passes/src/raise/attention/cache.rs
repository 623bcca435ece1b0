//! Keys and values that the graph gives back.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::{Attention, Flag};
use planish_ir::{Graph, Op, Step, ValueId};

use super::heads::{behind, side_by_side};
use crate::PassError;

/// Takes outputs that are an attention's keys and values, those of the cache and the new ones, from the
/// attention. Returns how many attentions this changed.
pub(super) fn raise(graph: &mut Graph) -> Result<usize, PassError> {
    let given_back = given_back(graph);
    let mut outputs: HashMap<ValueId, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let Op::Attention(attention) = graph.node(node).op.clone() else { return Ok::<_, PassError>(Step::Keep) };
        let Attention { k, v, past_key, past_value, present: Flag(false), .. } = attention else {
            return Ok(Step::Keep);
        };
        let keys = given_back.iter().find(|(_, parts)| *parts == (past_key, k));
        let values = given_back.iter().find(|(_, parts)| *parts == (past_value, v));
        let (Some((keys, _)), Some((values, _))) = (keys, values) else { return Ok(Step::Keep) };
        let result = graph.node(node).outputs[0];
        let results = graph.emit_all(Attention { present: Flag(true), ..attention }, result)?;
        outputs.extend([(*keys, results[1]), (*values, results[2])]);
        Ok(Step::Replace(vec![results[0]]))
    })?;
    graph.substitute(&outputs);
    graph.compact();
    Ok(changed)
}

/// What the graph computes, gives back and uses nowhere else: the value, what its positions are put
/// behind, and these as attention takes them.
fn given_back(graph: &Graph) -> Vec<(ValueId, (Option<ValueId>, ValueId))> {
    let mut uses = graph.use_counts();
    graph.outputs().iter().for_each(|output| uses[output.value.index()] -= 1);
    let outputs = graph.outputs().iter().map(|output| output.value);
    let only_outputs = outputs.filter(|value| uses[value.index()] == 0 && graph.producer(*value).is_some());
    let parts = |value| match behind(graph, value) {
        Some([past, new]) => (value, (Some(past), side_by_side(graph, new))),
        None => (value, (None, side_by_side(graph, value))),
    };
    only_outputs.map(parts).collect()
}
