//! Vectors of tokens for each layer, as `transformers/models/gemma4` has them.

use planish_ir::ops::{BinaryKind, Select, Split};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use super::forms::LayerInputs;
use super::settings::Settings;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{Builder, SEQUENCE};

const TABLE: &str = "embed_tokens_per_layer";
const PROJECTION: &str = "per_layer_model_projection";
const NORM: &str = "per_layer_projection_norm";
const KEY: &str = "hidden_size_per_layer_input";

impl LayerInputs {
    /// The vectors for each layer, [batch_size, sequence_length, size]. `embedded` are the embeddings that go into the first
    /// layer.
    pub(super) fn all(
        self,
        b: &mut Builder<'_>,
        s: &Settings,
        input_ids: ValueId,
        embedded: ValueId,
    ) -> Result<Vec<ValueId>, ModelError> {
        let Self { size, vocabulary } = self;
        let all = Size::derived(s.layers.value * size.value, "num_hidden_layers * hidden_size_per_layer_input");
        let mut ids = input_ids;
        if vocabulary.value < s.vocabulary.value {
            // Ids without a row have the first one.
            let rows = b.graph.add_scalar(&format!("{TABLE}.rows"), DType::I64, vocabulary.value as f64);
            let zero = b.graph.add_scalar(&format!("{TABLE}.zero"), DType::I64, 0.0);
            let condition = b.binary(BinaryKind::Greater, [rows, ids], &format!("{TABLE}.has_row"))?;
            ids = b.emit(Select { condition, a: ids, b: zero }, &format!("{TABLE}.ids"))?;
        }
        let tokens = b.embedding(ids, TABLE, vocabulary, all)?;
        let scale = root(b, size, &format!("{TABLE}.weight"), &format!("{TABLE}.scale"));
        let tokens = b.binary(BinaryKind::Mul, [tokens, scale], &format!("{TABLE}.scaled"))?;

        let projected = b.projection(embedded, PROJECTION, [all, s.hidden], false)?;
        let factor = (s.hidden.value as f64).powf(-0.5);
        let projected = b.with_number(BinaryKind::Mul, projected, factor, &format!("{PROJECTION}.scaled"), KEY)?;
        let (texts, length) = (b.texts(), Dim::symbol(SEQUENCE));
        let apart = [texts.clone(), length.clone(), s.layers.signed().into(), size.signed().into()];
        let apart = b.reshape(projected, apart, &format!("{NORM}.split"))?;
        let normal = s.norm.apply(b, apart, NORM, size, s.eps)?;
        let normal = b.reshape(normal, [texts, length, all.signed().into()], &format!("{NORM}.merge"))?;

        let sum = b.add(normal, tokens, "per_layer_inputs.add")?;
        let x = b.with_number(BinaryKind::Mul, sum, 0.5f64.sqrt(), "per_layer_inputs", KEY)?;
        b.emit_all(Split { x, axis: 2, sizes: vec![size.value; s.layers.value] }, "per_layer_inputs.split")
    }
}

/// `x` and what the layer of a path makes of it and of the vectors of tokens, [batch_size, sequence_length, hidden].
pub(super) fn add(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    input: ValueId,
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let size = s.layer_inputs.map_or(s.hidden, |inputs| inputs.size);
    let gate = b.projection(x, &at("per_layer_input_gate"), [size, s.hidden], false)?;
    let gate = s.activation.apply(b, gate, &at("per_layer_input_gate.act_fn"))?;
    let product = b.binary(BinaryKind::Mul, [gate, input], &at("per_layer_input.mul"))?;
    let projected = b.projection(product, &at("per_layer_projection"), [s.hidden, size], false)?;
    let normal = s.norm.apply(b, projected, &at("post_per_layer_input_norm"), s.hidden, s.eps)?;
    b.add(normal, x, &at("per_layer_input.add"))
}

/// The square root of a size, rounded to the element type of a tensor.
pub(super) fn root(b: &mut Builder<'_>, size: Size, of: &str, name: &str) -> ValueId {
    let stored = b.tensors.dtype(of).unwrap_or(DType::F32);
    let root = Weight::numbers(stored, Vec::new(), &[(size.value as f64).sqrt()]);
    let root = root.and_then(|root| root.cast(DType::F32));
    let root = root.unwrap_or_else(|| unreachable!("a scalar is one number"));
    b.graph.add_weight(name, root, Origin::Config(size.key.into()))
}
