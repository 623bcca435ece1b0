//! Linear attention as products within chunks of tokens, and a Scan over the chunks (Yang et al. 2024, arXiv:2406.06484 and
//! arXiv:2412.06464; Dao and Gu 2024, arXiv:2405.21060).
//!
//! Within a chunk, with `kept[i, j]` what is left at token `i` of what token `j` adds, values that are added to the state are
//! the solution of `(I + A) u = beta * (v - first * k S)`, where `A[i, j] = beta[i] * kept[i, j] * k[i] k[j]` for `j < i`, `S` is
//! the state before the chunk and `first[i]` what is left of it at token `i`. Without `beta` they are the values.

use planish_ir::ValueId;
use planish_ir::ops::LinearAttention;

use super::body::{Body, Scan};
use super::lengths::Chunks;
use crate::export::Emitter;
use crate::export::nodes::{int, size};

/// Exchanges the last two of six axes.
const TURNED: [i64; 6] = [0, 1, 2, 3, 5, 4];
/// The axes of chunks and of tokens, of [batch, groups, heads of a group, chunks, tokens, size].
const CHUNKS: i64 = 3;
const TOKENS: i64 = 4;

/// Appends the nodes of the results `y` and the last state.
pub(super) fn emit(e: &mut Emitter<'_>, op: &LinearAttention, [y, next]: [ValueId; 2]) -> Result<(), String> {
    let (state, key, value) = super::state(e, op)?;
    let (groups, each) = (size(op.key_heads), size(op.heads / op.key_heads.max(1)));
    let (ty, result) = (e.graph.ty(y).clone(), e.name(y).to_owned());
    let chunks = Chunks::of(e, &ty.shape[1], ty.dtype)?;
    let l = &mut Layer { b: Body::new(&result), result: result.clone(), chunks };

    let mut q = l.heads(e, op.q, [groups, 1, key])?;
    if let Some(scale) = super::scale(e, op)? {
        q = l.b.plain(e, "Mul", &[&q, &scale]);
    }
    let k = l.heads(e, op.k, [groups, 1, key])?;
    let v = l.heads(e, op.v, [groups, each, value])?;
    let decay = op.decay.map(|decay| l.heads(e, decay, [groups, each, 1])).transpose()?;
    let decay = decay.map(|decay| l.decays(e, &decay));
    let kept = decay.as_ref().map_or_else(|| l.chunks.up_to.clone(), |decay| decay.kept.clone());
    let turned = l.b.transpose(e, &k, &TURNED);

    let scores = l.b.plain(e, "MatMul", &[&q, &turned]);
    let scores = l.b.plain(e, "Mul", &[&scores, &kept]);
    let (mut values, mut held) = (v, None);
    if let Some(beta) = op.beta {
        let beta = l.heads(e, beta, [groups, each, 1])?;
        let inverse = l.inverse(e, [&k, &turned], &kept, &beta);
        values = l.b.plain(e, "Mul", &[&values, &beta]);
        values = l.b.plain(e, "MatMul", &[&inverse, &values]);
        let share = decay.as_ref().map(|decay| l.b.plain(e, "Mul", &[&beta, &decay.first])).unwrap_or(beta);
        let shares = l.b.plain(e, "Mul", &[&k, &share]);
        held = Some(l.b.plain(e, "MatMul", &[&inverse, &shares]));
    }
    let (mut read, mut added, mut left) = (q, turned, None);
    if let Some(decay) = &decay {
        read = l.b.plain(e, "Mul", &[&read, &decay.first]);
        let last = l.last(e, &decay.kept);
        added = l.b.plain(e, "Mul", &[&added, &last]);
        left = Some(l.last(e, &decay.first));
    }
    let state = e.name(state).to_owned();
    let before = l.b.reshape(e, &state, &[0, groups, each, key, value]);
    let [after, read] = l.scan(e, ty.dtype, &before, &Over { read, scores, added, values, held, left });

    let heads = e.constant(&[0, groups * each]);
    let features = e.constant(&[value]);
    let shape = [heads.as_str(), &l.chunks.whole, &features];
    let shape = l.b.node(e, "Concat", &shape, vec![int("axis", 0)]);
    let merged = l.b.plain(e, "Reshape", &[&read, &shape]);
    let (start, end, axis) = (e.constant(&[0]), e.dim(&ty.shape[1]), e.constant(&[2]));
    let real = l.b.plain(e, "Slice", &[&merged, &start, &end, &axis]);
    let by_token = l.b.transpose(e, &real, &[0, 2, 1, 3]);
    let shape = e.shape(&ty.shape);
    l.b.named("Reshape", &[&by_token, &shape], Vec::new(), &result);
    let (shape, name) = (e.shape(&e.graph.ty(next).shape.clone()), e.name(next).to_owned());
    l.b.named("Reshape", &[&after, &shape], Vec::new(), &name);
    e.nodes.append(&mut l.b.nodes);
    Ok(())
}

/// What chunks have in the Scan.
struct Over {
    /// Queries that read the state before, and scores that read values: [.., tokens, key] and [.., tokens, tokens].
    read: String,
    scores: String,
    /// Keys by which the state after the chunk has values, [.., key, tokens], and values, [.., tokens, value].
    added: String,
    values: String,
    /// What of the state before is in the values, [.., tokens, key]; absent without `beta`.
    held: Option<String>,
    /// What is left of the state before, [.., 1, 1]; absent without decays.
    left: Option<String>,
}

/// Decays within a chunk, as factors.
struct Decays {
    /// What is left at a token of what another one adds: [.., tokens, tokens], 0 where the other is a later one.
    kept: String,
    /// What is left at a token of the state before: [.., tokens, 1].
    first: String,
}

struct Layer {
    b: Body,
    /// What names begin with.
    result: String,
    chunks: Chunks,
}

impl Layer {
    /// [batch, tokens, heads * size] as [batch, groups, heads of a group, chunks, tokens, size], with zeros after the last token.
    fn heads(&mut self, e: &mut Emitter<'_>, x: ValueId, sizes: [i64; 3]) -> Result<String, String> {
        let [groups, each, size] = sizes;
        let (ty, x) = (e.graph.ty(x).clone(), e.name(x).to_owned());
        let x = self.b.reshape(e, &x, &[0, 0, groups * each, size]);
        let x = self.b.transpose(e, &x, &[0, 2, 1, 3]);
        let zeros = self.chunks.zeros(e, &ty.shape[0], ty.dtype, [groups * each, size])?;
        let x = self.b.node(e, "Concat", &[&x, &zeros], vec![int("axis", 2)]);
        let shape = self.chunks.shape(e, sizes);
        Ok(self.b.plain(e, "Reshape", &[&x, &shape]))
    }

    /// The last token of each chunk.
    fn last(&mut self, e: &mut Emitter<'_>, x: &str) -> String {
        let (start, end, axis) = (e.constant(&[-1]), e.constant(&[i64::MAX]), e.constant(&[TOKENS]));
        self.b.plain(e, "Slice", &[x, &start, &end, &axis])
    }

    /// The products are sums of the decays between two tokens and of nothing else: differences of sums from the first token on
    /// would lose small decays beside large ones.
    fn decays(&mut self, e: &mut Emitter<'_>, decay: &str) -> Decays {
        let (up_to, before) = (self.chunks.up_to.clone(), self.chunks.before.clone());
        let after = self.b.plain(e, "Mul", &[decay, &before]);
        let between = self.b.plain(e, "MatMul", &[&up_to, &after]);
        let kept = self.b.plain(e, "Exp", &[&between]);
        let kept = self.b.plain(e, "Mul", &[&kept, &up_to]);
        let sum = self.b.plain(e, "MatMul", &[&up_to, decay]);
        Decays { kept, first: self.b.plain(e, "Exp", &[&sum]) }
    }

    /// The inverse of `I + A`, from blocks of one token to blocks of twice the tokens: the inverse of `[[P, 0], [B, Q]]` has
    /// `-Q^-1 B P^-1` below. Numbers stay as large as those of the inverse, which those of powers of `A` do not.
    fn inverse(&mut self, e: &mut Emitter<'_>, [k, turned]: [&str; 2], kept: &str, beta: &str) -> String {
        let a = self.b.plain(e, "MatMul", &[k, turned]);
        let a = self.b.plain(e, "Mul", &[&a, kept]);
        let a = self.b.plain(e, "Mul", &[&a, beta]);
        let mut inverse = self.chunks.unit.clone();
        for (at, half) in self.chunks.halves.clone().into_iter().enumerate() {
            let mut below = self.b.plain(e, "Mul", &[&a, &half]);
            // Blocks of one token are their own inverse.
            if at > 0 {
                below = self.b.plain(e, "MatMul", &[&below, &inverse]);
                below = self.b.plain(e, "MatMul", &[&inverse, &below]);
            }
            inverse = self.b.plain(e, "Sub", &[&inverse, &below]);
        }
        inverse
    }

    /// The state after the last chunk, and the results of all chunks.
    fn scan(&mut self, e: &mut Emitter<'_>, dtype: planish_ir::DType, before: &str, of: &Over) -> [String; 2] {
        let prefix = self.result.clone();
        let mut body = Body::new(&prefix);
        let mut over = Vec::new();
        let mut part = |e: &mut Emitter<'_>, value: &String, name: &str| {
            let inside = e.fresh(&format!("{prefix}/{name}"));
            over.push([value.clone(), inside.clone()]);
            inside
        };
        let (query, scores) = (part(e, &of.read, "query"), part(e, &of.scores, "scores"));
        let (keys, mut values) = (part(e, &of.added, "keys"), part(e, &of.values, "values"));
        let held = of.held.as_ref().map(|held| part(e, held, "held"));
        let left = of.left.as_ref().map(|left| part(e, left, "left"));
        let state = e.fresh(&format!("{prefix}/before"));
        if let Some(held) = held {
            let held = body.plain(e, "MatMul", &[&held, &state]);
            values = body.plain(e, "Sub", &[&values, &held]);
        }
        let read = body.plain(e, "MatMul", &[&query, &state]);
        let own = body.plain(e, "MatMul", &[&scores, &values]);
        let read = body.plain(e, "Add", &[&read, &own]);
        let kept = left.map_or_else(|| state.clone(), |left| body.plain(e, "Mul", &[&state, &left]));
        let added = body.plain(e, "MatMul", &[&keys, &values]);
        let after = body.plain(e, "Add", &[&kept, &added]);
        let outputs = ["after", "read"].map(|name| e.fresh(&format!("{prefix}/{name}")));
        let scan = Scan {
            dtype,
            axis: CHUNKS,
            state: [before, &state],
            over: &over,
            results: [&after, &read],
            outputs: outputs.clone(),
        };
        self.b.nodes.push(scan.with(body));
        outputs
    }
}
