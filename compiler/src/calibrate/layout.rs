//! Which rows of an input of linear layers are tokens, and of which sample.

use std::ops::Range;

use anyhow::{Context, Result};
use planish_eval::Tensor;
use planish_ir::{Dim, Graph, InputRole, PartRole, Shape, ValueId};
use planish_passes::calibration::RowId;
use planish_runtimes::RuntimeValue;

/// Whether an input has a row of tokens for each sample.
fn has_tokens(role: InputRole) -> bool {
    role.is_token_ids() || role == InputRole::Embeddings
}

/// How the rows of an input follow from samples and tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many columns it has, where that is fixed.
    pub(super) columns: Option<usize>,
    /// The shape in the graph.
    pub(super) shape: Shape,
    /// The tokens; absent where every row counts.
    tokens: Option<Tokens>,
}

/// Rows that belong to tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tokens {
    /// The input of the part whose second dimension counts the tokens.
    port: String,
    mask: Mask,
    /// Whether the tokens of a sample are neighbours; else the samples of a token are.
    batch_major: bool,
}

/// What tells tokens from padding.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mask {
    /// An input of the part; of a longer row its end.
    Input(String),
    /// What is known of the decoder's tokens.
    Decoder,
}

/// What one run of a part was given.
pub(super) struct Given<'a> {
    /// The samples.
    pub(super) samples: Range<usize>,
    /// The inputs of the part.
    pub(super) inputs: &'a [(&'a str, &'a RuntimeValue)],
    /// Which of the decoder's ids are tokens.
    pub(super) decoder_mask: Option<&'a Tensor>,
}

impl Layout {
    /// That of a value of a canonical graph.
    pub(super) fn of(graph: &Graph, value: ValueId) -> Self {
        let shape = graph.ty(value).shape.clone();
        let columns = shape.last().and_then(Dim::as_constant).and_then(|columns| usize::try_from(columns).ok());
        let tokens = candidates(graph).find_map(|(port, mask)| {
            let dims = graph.ty(port).shape.clone();
            let batch_major = batch_major(&shape[..shape.rank().saturating_sub(1)], &dims[0], &dims[1])?;
            Some(Tokens { port: graph.value(port).name.clone(), mask, batch_major })
        });
        Self { columns, shape, tokens }
    }

    /// That of a feature map, [batch, channels, ..], whose rows are channels: every row counts.
    pub(super) fn of_map(graph: &Graph, value: ValueId) -> Self {
        let shape = graph.ty(value).shape.clone();
        let channels = shape.get(1).and_then(Dim::as_constant).and_then(|channels| usize::try_from(channels).ok());
        let dims = shape.iter().take(1).chain(shape.iter().skip(2)).chain(shape.get(1)).cloned();
        Self { columns: channels, shape: Shape::new(dims), tokens: None }
    }

    /// What each of so many rows is.
    pub(super) fn ids(&self, rows: usize, given: &Given<'_>) -> Result<Vec<Option<RowId>>> {
        let (first, batch) = (given.samples.start as u64, given.samples.len().max(1));
        let Some(Tokens { port, mask, batch_major }) = &self.tokens else {
            // Rows of one sample are neighbours, where they are of one.
            let each = if rows.is_multiple_of(batch) { rows / batch } else { rows }.max(1);
            let id = |row: usize| RowId { sample: first + (row / each) as u64, token: (row % each) as u64 };
            return Ok((0..rows).map(|row| Some(id(row))).collect());
        };
        let input = |name: &str| {
            let value = given.inputs.iter().find(|(other, _)| *other == name);
            Ok::<_, anyhow::Error>(value.with_context(|| format!("there is no input `{name}`"))?.1)
        };
        let tokens = input(port)?.shape().get(1).copied().unwrap_or(1).max(1);
        let known = match mask {
            Mask::Input(name) => input(name)?.to_tensor(),
            Mask::Decoder => given.decoder_mask.cloned(),
        };
        let mask: Option<(usize, Vec<bool>)> = known.map(|mask| {
            let width = mask.shape().get(1).copied().unwrap_or(1);
            (width, mask.to_f64().into_iter().map(|on| on != 0.0).collect())
        });
        // Several rows may belong to one token, such as those of its heads.
        let each = (rows / (batch * tokens)).max(1);
        let id = |row: usize| {
            let (sample, token) = match batch_major {
                true => (row / (tokens * each), row / each % tokens),
                false => (row / each % batch, row / (batch * each)),
            };
            let counts = mask.as_ref().is_none_or(|(width, on)| {
                let column = (width + token).checked_sub(tokens);
                column.and_then(|column| on.get(sample * width + column)).copied().unwrap_or(true)
            });
            let token = (token * each + row % each) as u64;
            counts.then_some(RowId { sample: first + sample as u64, token })
        };
        Ok((0..rows).map(id).collect())
    }
}

/// The inputs of a part that have tokens, with what tells them from padding.
fn candidates(graph: &Graph) -> impl Iterator<Item = (ValueId, Mask)> {
    let named = |value: &ValueId| graph.value(*value).name.as_str();
    let role = move |value: &ValueId| graph.interface.input(named(value));
    let after_encoder = matches!(graph.interface.role, PartRole::FirstStep | PartRole::NextStep);
    let masks = graph.inputs().iter().copied().filter(move |value| {
        role(value).is_mask() && graph.ty(*value).shape.rank() == 2 && !graph.ty(*value).dtype.is_float()
    });
    let by_mask = masks.clone().map(move |mask| (mask, Mask::Input(named(&mask).to_owned())));
    let own = masks.clone().find(move |value| role(value) == InputRole::Mask);
    let ids = graph.inputs().iter().copied().filter(move |v| has_tokens(role(v)) && graph.ty(*v).shape.rank() >= 2);
    let by_ids = ids.filter_map(move |port| match (after_encoder, own) {
        (true, _) => Some((port, Mask::Decoder)),
        (false, Some(mask)) => Some((port, Mask::Input(named(&mask).to_owned()))),
        (false, None) => None,
    });
    by_ids.chain(by_mask)
}

/// Whether rows of these dimensions are those of a batch of tokens, and the tokens of a sample neighbours.
fn batch_major(dims: &[Dim], batch: &Dim, tokens: &Dim) -> Option<bool> {
    match dims {
        [a, b, ..] if (a, b) == (batch, tokens) => Some(true),
        [a, b, ..] if (a, b) == (tokens, batch) => Some(false),
        [all, ..] if batch.checked_mul(tokens).as_ref() == Some(all) => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::text;

    use super::*;

    fn layout(inputs: &str, shape: &str, after_encoder: bool) -> Layout {
        let graph = format!(
            "graph \"g\" {{\n{inputs}\n input %x: f32[{shape}]\n %y = relu(%x) : f32[{shape}]\n output y = %y\n}}"
        );
        let mut graph = text::parse(&graph, &text::no_files).unwrap();
        let role = if after_encoder { PartRole::FirstStep } else { PartRole::Model };
        graph.interface = planish_onnx::interface::of_graph(&graph, role);
        let x = *graph.inputs().last().unwrap();
        Layout::of(&graph, x)
    }

    fn matrix(rows: usize, ones: &[i64]) -> RuntimeValue {
        Tensor::new(vec![rows, ones.len() / rows], ones.to_vec()).unwrap().into()
    }

    /// Rows as (sample, token), padding left out.
    fn kept(
        layout: &Layout,
        rows: usize,
        inputs: &[(&str, &RuntimeValue)],
        decoder: Option<&Tensor>,
    ) -> Vec<(u64, u64)> {
        let given = Given { samples: 4..6, inputs, decoder_mask: decoder };
        layout.ids(rows, &given).unwrap().into_iter().flatten().map(|id| (id.sample, id.token)).collect()
    }

    const TEXT: &str = "input %input_ids: i64[b, s]\n input %attention_mask: i64[b, s]";

    #[test]
    fn the_mask_tells_which_rows_are_tokens() {
        let (ids, mask) = (matrix(2, &[0; 6]), matrix(2, &[1, 1, 0, 1, 1, 1]));
        let inputs = [("input_ids", &ids), ("attention_mask", &mask)];
        let tokens = [(4, 0), (4, 1), (5, 0), (5, 1), (5, 2)];
        assert_eq!(kept(&layout(TEXT, "b, s, 8", false), 6, &inputs, None), tokens);
        assert_eq!(kept(&layout(TEXT, "b*s, 8", false), 6, &inputs, None), tokens);
        let mut sequence_major = kept(&layout(TEXT, "s, b, 8", false), 6, &inputs, None);
        assert_eq!(sequence_major, [(4, 0), (5, 0), (4, 1), (5, 1), (5, 2)]);
        sequence_major.sort_unstable();
        assert_eq!(sequence_major, tokens, "a token is the same in whatever order");
        let heads = kept(&layout(TEXT, "b, s, 2, 4", false), 12, &inputs, None);
        assert_eq!((heads.len(), &heads[..5]), (10, &[(4, 0), (4, 1), (4, 2), (4, 3), (5, 0)][..]));
        assert_eq!(kept(&layout(TEXT, "b, 8", false), 2, &inputs, None), [(4, 0), (5, 0)], "a row a sample");
        assert_eq!(layout(TEXT, "b, s, 8", false).columns, Some(8));
    }

    #[test]
    fn the_mask_of_a_cache_ends_with_the_tokens() {
        let inputs = "input %input_ids: i64[b, s]\n input %attention_mask: i64[b, p + s]";
        let (ids, mask) = (matrix(2, &[0; 4]), matrix(2, &[0, 0, 0, 1, 1, 1, 1, 1]));
        let given = [("input_ids", &ids), ("attention_mask", &mask)];
        assert_eq!(kept(&layout(inputs, "b, s, 8", false), 4, &given, None), [(4, 1), (5, 0), (5, 1)]);
    }

    #[test]
    fn a_decoder_has_tokens_of_its_own() {
        let inputs = "input %encoder_attention_mask: i64[b, e]\n input %input_ids: i64[b, d]";
        let (mask, ids) = (matrix(2, &[1, 0, 1, 1]), matrix(2, &[0; 4]));
        let given = [("encoder_attention_mask", &mask), ("input_ids", &ids)];
        let own = Tensor::new(vec![2, 2], vec![1i64, 1, 1, 0]).unwrap();
        let of_decoder = layout(inputs, "b, d, 8", true);
        assert_eq!(kept(&of_decoder, 4, &given, Some(&own)), [(4, 0), (4, 1), (5, 0)]);
        assert_eq!(kept(&of_decoder, 4, &given, None).len(), 4, "nothing is known of them");
        assert_eq!(kept(&layout(inputs, "b, e, 8", true), 4, &given, Some(&own)), [(4, 0), (5, 0), (5, 1)]);
    }

    #[test]
    fn every_row_counts_without_a_mask() {
        let images = layout("input %pixels: f32[b, 3, 2, 2]", "b, 5, 8", false);
        assert_eq!(kept(&images, 10, &[], None).len(), 10);
        assert_eq!(kept(&images, 10, &[], None)[5], (5, 0));
    }
}
