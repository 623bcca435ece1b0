//! The products of queries and keys, for targets that multiply codes of both.

use std::collections::BTreeMap;

use planish_ir::ops::Attention;
use planish_ir::{DType, Graph, Node, NodeId, Op, ValueId};

use super::losses::rounded;
use super::sites::layer;
use super::trial::{matrix, product};
use super::{Activation, PlannedAttention, Settings, quantize_rows, sites};
use crate::PassError;
use crate::calibration::InputStatistics;

/// Queries and keys are computed of the rows that calibration sampled. What other rows have may be larger by this factor.
const MARGIN: f32 = 1.25;

/// The attentions without a cache, each with its result, its queries and its keys; none where the target does not multiply
/// their codes.
pub(super) fn named(graph: &Graph, settings: &Settings) -> Vec<(NodeId, [ValueId; 3])> {
    let products = |(id, node): (NodeId, &Node)| match &node.op {
        Op::Attention(op) if op.past_key.is_none() && !op.present.0 => Some((id, [node.outputs[0], op.q, op.k])),
        _ => None,
    };
    match settings.form.codes_of_scores() {
        Some(_) => graph.nodes().filter_map(products).collect(),
        None => Vec::new(),
    }
}

/// What becomes of the product of queries and keys of each attention without a cache.
pub(super) fn planned(
    graph: &Graph,
    settings: &Settings,
    statistics: &BTreeMap<String, InputStatistics>,
) -> Result<Vec<PlannedAttention>, PassError> {
    let Some(types) = settings.form.codes_of_scores() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (id, named) in named(graph, settings) {
        let Op::Attention(attention) = &graph.node(id).op else { continue };
        let rows = |value| Rows::of(graph, value, statistics);
        let (Some(q), Some(k)) = (rows(attention.q)?, rows(attention.k)?) else { continue };
        let name = sites::name(graph, id).to_owned();
        let kept = settings.keep.float(|of| of.any(named.iter().map(|value| graph.value(*value))));
        let floats = |reason: String| [(); 2].map(|()| Activation::Float { reason: reason.clone() });
        let codes = [codes_of(&q, types[0]), codes_of(&k, types[1])];
        let loss = loss_of_scores(attention, [&q, &k], [&q.quantized(&codes[0]), &k.quantized(&codes[1])]);
        let ([queries, keys], score_loss) = match kept {
            Some(exception) => (floats(exception.reason.clone()), None),
            None if loss > settings.max_loss => {
                (floats(format!("the mean square error of its scores would be {loss:.1e}")), None)
            }
            None => (codes, Some(rounded(loss))),
        };
        all.push(PlannedAttention { attention: name, score_loss, queries, keys });
    }
    Ok(all)
}

/// What a layer gives for the rows of its input that calibration sampled.
struct Rows {
    /// [rows, features].
    values: Vec<f32>,
    features: usize,
}

impl Rows {
    /// `None` where the value is not the result of a layer whose input was measured.
    fn of(
        graph: &Graph,
        value: ValueId,
        statistics: &BTreeMap<String, InputStatistics>,
    ) -> Result<Option<Self>, PassError> {
        let Some((id, node)) = graph.nodes().find(|(_, node)| node.outputs.contains(&value)) else { return Ok(None) };
        let Some((linear, [columns, features])) = layer(graph, node) else { return Ok(None) };
        let measured = statistics.get(&graph.value(linear.x).name).filter(|s| s.columns.len() == columns);
        let Some(measured) = measured.filter(|measured| !measured.rows.is_empty()) else { return Ok(None) };
        let mut values = product(&measured.rows.matrix(), &matrix(graph, id)?, columns);
        let Some(bias) = linear.bias else { return Ok(Some(Self { values, features })) };
        let Some(weight) = graph.weight(bias) else { return Ok(None) };
        let numbers = weight.read_numbers().map_err(|source| PassError::of_weight(graph, bias, source))?;
        for row in values.chunks_exact_mut(features.max(1)) {
            row.iter_mut().zip(&numbers).for_each(|(x, b)| *x += *b as f32);
        }
        Ok(Some(Self { values, features }))
    }

    /// The least and the largest element that are expected, and 0 in any case.
    fn range(&self) -> [f32; 2] {
        self.values.iter().fold([0.0; 2], |[low, high], x| [low.min(x * MARGIN), high.max(x * MARGIN)])
    }

    /// As codes stand for them.
    fn quantized(&self, activation: &Activation) -> Self {
        let mut values = self.values.clone();
        quantize_rows(activation, &mut values, self.features);
        Self { values, ..*self }
    }

    /// The rows of a head, of so many heads.
    fn head(&self, head: usize, heads: usize) -> Vec<f32> {
        let size = self.features / heads.max(1);
        let rows = self.values.chunks_exact(self.features.max(1));
        rows.flat_map(|row| &row[head * size..][..size]).copied().collect()
    }
}

/// Codes of a type.
fn codes_of(rows: &Rows, codes: DType) -> Activation {
    if codes == DType::U8 { unsigned(rows) } else { signed(rows) }
}

/// Unsigned codes of all elements that are expected.
fn unsigned(rows: &Rows) -> Activation {
    let [low, high] = rows.range();
    let scale = positive((high - low) / 255.0);
    fixed(DType::U8, scale, (-low / scale).round_ties_even() as i64)
}

/// Signed codes of them, with a zero point of 0.
fn signed(rows: &Rows) -> Activation {
    let [low, high] = rows.range();
    fixed(DType::I8, positive(high.max(-low) / 127.0), 0)
}

/// Zeros have any scale.
fn positive(scale: f32) -> f32 {
    if scale > 0.0 { scale } else { 1.0 }
}

fn fixed(codes: DType, scale: f32, zero_point: i64) -> Activation {
    Activation::Static { codes, scale, zero_point, split: Vec::new(), smooth: Vec::new() }
}

/// The mean square error of scaled scores between all rows. It is that of what the softmax takes, and so the mean square of
/// the relative errors of probabilities.
fn loss_of_scores(attention: &Attention, exact: [&Rows; 2], given: [&Rows; 2]) -> f64 {
    let (heads, kv_heads) = (attention.heads, attention.kv_heads());
    let scores = |[q, k]: [&Rows; 2], head: usize| {
        let size = q.features / heads.max(1);
        product(&q.head(head, heads), &k.head(head * kv_heads / heads, kv_heads), size)
    };
    let (mut sum, mut count) = (0.0, 0usize);
    for head in 0..heads {
        let pairs = scores(exact, head).into_iter().zip(scores(given, head));
        let errors: Vec<f64> = pairs.map(|(a, b)| f64::from(a - b) * attention.scale.0).collect();
        sum += errors.iter().map(|error| error * error).sum::<f64>();
        count += errors.len();
    }
    sum / count.max(1) as f64
}
