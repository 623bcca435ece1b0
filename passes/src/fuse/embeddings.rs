//! Sums of embeddings and the norms of them.

use planish_ir::ops::{Binary, BinaryKind, Embedding, EmbeddingNorm, Iota, MAX_TABLES, Slice};
use planish_ir::{DType, Dim, Graph, NodeId, Op, Rewriter, TensorType, ValueId, Weight};

use super::{Found, Norms, Uses, apply, op};
use crate::build::reshape_once;
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Pass, PassError};

/// Joins norms with the sums of embeddings that they normalize.
pub const FUSE_EMBEDDINGS: Pass = Pass {
    name: "fuse-embeddings",
    summary: "Joins a norm with the sum of up to three embeddings that it normalizes, for target cuda. The sum is the \
              second result, which its other users take. Rows of a table that follow each other, as positions do, are \
              an embedding of counted ids, and a row that is added to all tokens is the embedding of zeros.",
    numerics: "none",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %ids: i64[b, s]
            weight @t = uniform(1) : f32[8, 2]
            weight @p = uniform(2) : f32[6, 2]
            weight @g = uniform(3) : f32[2]
            %w = embedding(@t, %ids) : f32[b, s, 2]
            %o = slice(@p) {axis = 0, start = 0, end = s} : f32[s, 2]
            %x = add(%w, %o) : f32[b, s, 2]
            %y = layer_norm(%x, @g) {eps = 0.1} : f32[b, s, 2]
            output y = %y",
        after: "
            input %ids: i64[b, s]
            weight @t = uniform(1) : f32[8, 2]
            weight @p = uniform(2) : f32[6, 2]
            weight @g = uniform(3) : f32[2]
            %o/iota = iota() {dtype = i64, length = s} : i64[s]
            %o/iota/reshape = reshape(%o/iota) {shape = [1, s]} : i64[1, s]
            %y, %y_1 = embedding_norm([@t, @p], [%ids, %o/iota/reshape], @g) {norm = layer, eps = 0.1} : f32[b, s, 2], f32[b, s, 2]
            output y = %y",
    },
    applies: |options| options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut norms = Norms::new(graph);
    Ok(apply(graph, options, "embedding_norm", |graph, node, uses| fuse(graph, node, uses, &mut norms)))
}

fn fuse(graph: &mut Rewriter<'_>, node: NodeId, uses: &Uses, norms: &mut Norms) -> Found {
    if let Some(normalized) = norms.done.get(&node) {
        return Ok(vec![*normalized]);
    }
    let norm = norms.at(graph, node).ok_or(NoMatch::Other)?;
    let addends = match &graph.node(node).op {
        Op::Embedding(_) => vec![graph.node(node).outputs[0]],
        Op::Binary(Binary { kind: BinaryKind::Add, a, b }) => addends(graph, [*a, *b], uses),
        _ => return Err(NoMatch::Other),
    };
    if !addends.iter().any(|addend| matches!(op(graph, *addend), Some(Op::Embedding(_)))) {
        return Err(NoMatch::Other);
    }
    if addends.len() > MAX_TABLES {
        let count = addends.len();
        return Err(NoMatch::Miss(format!("the sum has {count} addends, and {MAX_TABLES} are the most")));
    }
    let ty = graph.ty(norm.x).clone();
    // All of them are looked at before anything is emitted.
    let mut rows = Vec::new();
    for &addend in &addends {
        let single = addends.len() == 1 || uses.is_single(addend) || graph.weight(addend).is_some();
        let found = Rows::of(graph, addend, &ty).filter(|_| single);
        rows.push((addend, found.ok_or_else(|| not_rows(graph, addend, single))?));
    }
    let (mut tables, mut ids) = (Vec::new(), Vec::new());
    for (addend, rows) in rows {
        let (table, id) = rows.looked_up(graph, addend, ty.shape.rank() - 1)?;
        tables.push(table);
        ids.push(id);
    }
    let (weight, norm_bias, kind, eps) = (norm.weight, norm.bias, norm.kind, norm.eps);
    norms.fused(graph, &norm, EmbeddingNorm { tables, ids, weight, norm_bias, norm: kind, eps })
}

fn not_rows(graph: &Graph, addend: ValueId, single: bool) -> NoMatch {
    let name = &graph.value(addend).name;
    NoMatch::Miss(match single {
        true => format!("the addend `{name}` is no row of a table of weights"),
        false => format!("the addend `{name}` has other uses"),
    })
}

/// What a sum is of, in the order of its additions, as far as nothing else takes what is added in between.
fn addends(graph: &Graph, [a, b]: [ValueId; 2], uses: &Uses) -> Vec<ValueId> {
    let inner = |value: ValueId| match op(graph, value) {
        Some(Op::Binary(Binary { kind: BinaryKind::Add, a, b })) if uses.is_single(value) => Some([*a, *b]),
        _ => None,
    };
    let (first, last) = match (inner(a), inner(b)) {
        (Some(inner), _) => (inner, b),
        (None, Some(inner)) => (inner, a),
        (None, None) => return vec![a, b],
    };
    let mut all = addends(graph, first, uses);
    all.push(last);
    all
}

/// Rows of a table of weights.
enum Rows {
    /// Those of ids.
    Of { table: ValueId, ids: ValueId },
    /// Those from one to another.
    Range { table: ValueId, start: Dim, end: Dim },
    /// A weight that is one row.
    One(Weight),
}

impl Rows {
    /// The rows that an addend of a sum of a type is.
    fn of(graph: &Graph, addend: ValueId, sum: &TensorType) -> Option<Self> {
        let features = sum.shape.last()?;
        // Rows of codes are multiplied by scales of their own.
        let fits = |weight: &Weight| weight.shape().len() == 2 && weight.as_dequantized().is_none();
        let is_table = |table: ValueId| graph.weight(table).is_some_and(fits);
        if let Some(weight) = graph.weight(addend) {
            let size = usize::try_from(features.as_constant()?).ok()?;
            let row = weight.reshape(&[1, size]).filter(|_| weight.shape().last() == Some(&size))?;
            return (weight.shape().len() <= sum.shape.rank()).then_some(Self::One(row));
        }
        match op(graph, addend)? {
            Op::Embedding(Embedding { weight, ids }) if is_table(*weight) => {
                Some(Self::Of { table: *weight, ids: *ids })
            }
            Op::Slice(Slice { x, axis: 0, start, end }) if is_table(*x) => {
                Some(Self::Range { table: *x, start: start.clone(), end: end.clone() })
            }
            _ => None,
        }
    }

    /// A table and its ids of a rank.
    fn looked_up(self, graph: &mut Rewriter<'_>, addend: ValueId, rank: usize) -> Result<(ValueId, ValueId), NoMatch> {
        let one = Dim::constant(1);
        let (table, ids) = match self {
            Self::Of { table, ids } => (table, ids),
            Self::Range { table, start, end } => {
                let mut ids = graph.part(Iota { dtype: DType::I64, length: end.clone() }, addend)?;
                if start != Dim::constant(0) {
                    ids = graph.part(Slice { x: ids, axis: 0, start, end }, addend)?;
                }
                (table, ids)
            }
            Self::One(row) => {
                let table = graph.weight_like(row, addend);
                let zero = Weight::inline(DType::I64, vec![1; rank], vec![0; 8]);
                let zero = zero.ok_or_else(|| NoMatch::Miss("one id is of another size".to_owned()))?;
                (table, graph.weight_part(zero, addend))
            }
        };
        let shape = graph.ty(ids).shape.clone();
        let leading = rank.saturating_sub(shape.rank());
        if leading == 0 {
            return Ok((table, ids));
        }
        let dims = std::iter::repeat_n(one, leading).chain(shape.iter().cloned());
        Ok((table, reshape_once(graph, ids, dims)?))
    }
}
