//! Models that are cut for ranks: each part becomes a graph for each rank.

use anyhow::{Result, bail};
use planish_artifact::ranks::{RankManifest, ShardedPart, TensorParallel};
use planish_ir::{Graph, Op};
use planish_models::Loaded;
use planish_passes::shard;
use planish_passes::{LAST_LOGITS, Options};

use super::{LoweredPart, LoweredRank};

/// The graphs to be made: for each part of the source one, or one for each rank.
pub(super) fn places(parts: usize, ranks: Option<usize>) -> impl Iterator<Item = (usize, Option<usize>)> {
    let of = move |part: usize| match ranks {
        Some(ranks) => (0..ranks).map(|rank| (part, Some(rank))).collect(),
        None => vec![(part, None)],
    };
    (0..parts).flat_map(of)
}

/// Makes a graph that has been raised that of a rank, `cut` being the number of ranks and the rank.
pub(super) fn shard(
    graph: &mut Graph,
    part: &str,
    (ranks, rank): (usize, usize),
    passes: &Options,
) -> Result<LoweredRank> {
    // The scores of ranks are put together where they are computed, which the pass does not look through.
    LAST_LOGITS.apply(graph, passes)?;
    let (own, plan) = shard::shard(graph, ranks, rank)?;
    *graph = own;
    Ok(LoweredRank { described: RankManifest { part: part.to_owned(), rank }, plan })
}

/// Checks that ranks exchange the same tensors in the same order, after passes that decide by weights.
pub(super) fn check(parts: &[LoweredPart]) -> Result<()> {
    let exchanged = |graph: &Graph| -> Vec<String> {
        let collectives = graph.nodes().filter(|(_, node)| matches!(node.op, Op::AllReduce(_) | Op::AllGather(_)));
        let text = |op: &Op| format!("{} of {}", op.mnemonic(), graph.ty(op.operands()[0]));
        collectives.map(|(_, node)| text(&node.op)).collect()
    };
    for pair in parts.windows(2) {
        let (a, b) = (exchanged(&pair[0].graph), exchanged(&pair[1].graph));
        if pair[0].of == pair[1].of && a != b {
            let differ = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
            bail!(
                "{} and {} exchange different tensors ({} and {}). Half precision may keep other weights in float32 on one of \
                 them: then name these with --keep PATTERN=fp32",
                pair[0].name,
                pair[1].name,
                a.get(differ).map_or("none", String::as_str),
                b.get(differ).map_or("none", String::as_str)
            );
        }
    }
    Ok(())
}

/// What the manifest says of the ranks; absent where the model is whole.
pub(super) fn described(source: &Loaded, lowered: &[LoweredPart]) -> Option<TensorParallel> {
    let first = |part: &&LoweredPart| part.rank.as_ref().is_some_and(|rank| rank.described.rank == 0);
    let plans: Vec<_> =
        lowered.iter().filter(first).filter_map(|part| Some((part.of, &part.rank.as_ref()?.plan))).collect();
    let (_, plan) = plans.first()?;
    let parts = plans.iter().map(|(of, plan)| ShardedPart::of(source.parts[*of].name, plan));
    Some(TensorParallel { ranks: plan.ranks, parts: parts.collect() })
}
