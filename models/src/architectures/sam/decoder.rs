//! The prompt encoder and the mask decoder: points become tokens, which attend to the image, and it to them; what becomes of the token
//! of a mask is multiplied with each place of the enlarged image.

use planish_ir::ops::{Attention, BinaryKind, Concat, Expand, MatMul, Real, Select, Slice};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::encoder::{EPS, feed_forward};
use super::{Shared, encode_places};
use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution;
use crate::layers::patches::dim;
use crate::layers::transposed;
use crate::names;

/// The keys of `mask_decoder_config`.
pub(super) const KEYS: &[&str] = &[
    "attention_downsample_rate",
    "hidden_act",
    "hidden_size",
    "iou_head_depth",
    "iou_head_hidden_dim",
    "layer_norm_eps",
    "mlp_dim",
    "num_attention_heads",
    "num_hidden_layers",
    "num_multimask_outputs",
];

const PROMPT: &str = "prompt_encoder";
const PATH: &str = "mask_decoder";

/// What the last norm of the transformer adds to the variance, whatever the configuration says.
const LAST_EPS: f64 = 1e-5;

/// How many times as many features tokens have as queries, keys and values between tokens and image in the layers, whatever the
/// configuration says.
const LAYERS_RATE: usize = 2;

/// The layers of the networks that make filters of the tokens of masks.
const FILTER_DEPTH: usize = 3;

/// `mask_decoder_config`.
pub(super) struct Decoder {
    pub(super) hidden: Size,
    intermediate: Size,
    heads: Size,
    layers: Size,
    /// How many times as many features tokens have as queries, keys and values of the last attention.
    rate: usize,
    /// The masks that are given, of which there is one more.
    masks: Size,
    head_hidden: Size,
    head_depth: Size,
    activation: Activation,
    eps: f64,
}

/// The sizes of a run.
struct Run {
    prompts: Dim,
    points: Dim,
    /// All prompts of all images.
    rows: Dim,
}

/// Tokens or places, and what positions add to them.
#[derive(Clone, Copy)]
struct Side {
    x: ValueId,
    positions: ValueId,
}

impl Decoder {
    pub(super) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let s = Self {
            hidden: config.size("hidden_size", 256)?,
            intermediate: config.size("mlp_dim", 2048)?,
            heads: config.size("num_attention_heads", 8)?,
            layers: config.size("num_hidden_layers", 2)?,
            rate: config.size("attention_downsample_rate", LAYERS_RATE)?.value,
            masks: config.size("num_multimask_outputs", 3)?,
            head_hidden: config.size("iou_head_hidden_dim", 256)?,
            head_depth: config.size("iou_head_depth", 3)?,
            activation: Activation::read(config, "hidden_act", "relu")?,
            eps: config.positive("layer_norm_eps", EPS)?,
        };
        for inner in [1, LAYERS_RATE, s.rate].map(|rate| s.hidden.value / rate) {
            if inner == 0 || !inner.is_multiple_of(s.heads.value) {
                return Err(config.error(format!("{inner} features of attention are not those of {}", s.heads)));
            }
        }
        if s.hidden.value < 8 {
            return Err(config.error(format!("{}: the enlarged image has an eighth of the features", s.hidden)));
        }
        Ok(s)
    }

    /// The part: `iou_scores` f32[batch_size, point_batch_size, masks] and `pred_masks` f32[batch_size, point_batch_size, masks, 4 *
    /// rows of patches, 4 * columns of patches].
    pub(super) fn build(&self, b: &mut Builder<'_>, shared: &Shared, frequencies: &[&str]) -> Result<(), ModelError> {
        let [batch, prompts, points] = [BATCH, names::PROMPTS, names::POINTS].map(Dim::symbol);
        let Some(rows) = batch.checked_mul(&prompts) else { unreachable!("symbols have a product") };
        let run = Run { prompts, points, rows };
        let (grid, hidden) = (shared.sides.grid, self.hidden);
        let prompted = self.points(b, shared, &run, frequencies)?;
        let map = [batch.clone(), dim(hidden.value), dim(grid), dim(grid)];
        let image = b.floats(names::IMAGE_STATES.0.0, names::IMAGE_STATES.0.1, map.clone());
        let positions = b.floats(names::IMAGE_POSITIONS.0.0, names::IMAGE_POSITIONS.0.1, map);
        let image = convolution::tokens(b, image, "image")?;
        let positions = convolution::tokens(b, positions, "image.positions")?;
        let one = Size::derived(1, "one embedding");
        let no_mask = b.weight(&[&format!("{PROMPT}.no_mask_embed.weight")], &[one, hidden])?;
        let image = b.add(image, no_mask, &format!("{PROMPT}.no_mask_embed.add"))?;
        let image = for_prompts(b, image, &run, "image.prompts")?;
        let positions = for_prompts(b, positions, &run, "image.positions.prompts")?;

        let count = Size::derived(self.masks.value + 1, "num_multimask_outputs + 1");
        let iou = b.weight(&[&format!("{PATH}.iou_token.weight")], &[one, hidden])?;
        let masks = b.weight(&[&format!("{PATH}.mask_tokens.weight")], &[count, hidden])?;
        let outputs = b.emit(Concat { parts: vec![iou, masks], axis: 0 }, &format!("{PATH}.outputs"))?;
        let shape = Shape::new([run.rows.clone(), dim(1 + count.value), dim(hidden.value)]);
        let outputs = b.emit(Expand { x: outputs, shape }, &format!("{PATH}.outputs.expand"))?;
        let tokens = b.emit(Concat { parts: vec![outputs, prompted], axis: 1 }, &format!("{PATH}.tokens"))?;

        let tokens = Side { x: tokens, positions: tokens };
        let (tokens, image) = self.transformer(b, tokens, Side { x: image, positions })?;
        let scores = self.scores(b, tokens, &run)?;
        b.give(names::IOU_SCORES, scores);
        let masks = self.masks(b, tokens, image, grid, &run)?;
        b.give(names::PRED_MASKS, masks);
        Ok(())
    }

    /// The embeddings of the points of each prompt, and of one that is none: [rows, points + 1, hidden].
    fn points(
        &self,
        b: &mut Builder<'_>,
        shared: &Shared,
        run: &Run,
        frequencies: &[&str],
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{PROMPT}.{name}");
        let sizes = [Dim::symbol(BATCH), run.prompts.clone(), run.points.clone()];
        let points = sizes.iter().cloned().chain([dim(2)]);
        let points = b.floats(names::POINT_PLACES.0, names::POINT_PLACES.1, points);
        let labels = b.integers(names::POINT_LABELS, sizes);
        let points = b.reshape(points, [run.rows.clone(), run.points.clone(), dim(2)], &at("points"))?;
        let labels = b.reshape(labels, [run.rows.clone(), run.points.clone(), dim(1)], &at("labels"))?;
        // The centres of pixels, from -1 to 1.
        let scaled = 2.0 / shared.sides.image as f64;
        let places = b.with_number(BinaryKind::Mul, points, scaled, &at("points.scaled"), "image_size")?;
        let places = b.with_number(BinaryKind::Add, places, 0.5 * scaled - 1.0, &at("points.centred"), "image_size")?;
        let places = encode_places(b, places, frequencies, shared.frequencies, &at("shared_embedding"))?;

        let one = Size::derived(1, "one embedding");
        let embedding =
            |b: &mut Builder<'_>, name: &str| b.weight(&[&at(&format!("{name}.weight"))], &[one, self.hidden]);
        let none = embedding(b, "not_a_point_embed")?;
        let (background, object) = (embedding(b, "point_embed.0")?, embedding(b, "point_embed.1")?);
        let is = |b: &mut Builder<'_>, label: i64, name: &str| {
            let label = b.graph.add_scalar(&at(&format!("labels.{name}")), DType::I64, label as f64);
            b.binary(BinaryKind::Equal, [labels, label], &at(&format!("labels.is_{name}")))
        };
        let (is_none, is_padding) = (is(b, -1, "none")?, is(b, -10, "padding")?);
        let (is_background, is_object) = (is(b, 0, "background")?, is(b, 1, "object")?);
        let zero = b.graph.add_scalar(&at("labels.zero"), DType::F32, 0.0);
        // What the label adds: of other labels nothing, as in transformers.
        let of_object = b.emit(Select { condition: is_object, a: object, b: zero }, &at("point_embed.object"))?;
        let of_label =
            b.emit(Select { condition: is_background, a: background, b: of_object }, &at("point_embed.of_label"))?;
        let point = b.add(places, of_label, &at("point_embed"))?;
        let point = b.emit(Select { condition: is_none, a: none, b: point }, &at("not_a_point_embed.select"))?;
        let point = b.emit(Select { condition: is_padding, a: zero, b: point }, &at("padding.select"))?;
        let shape = Shape::new([run.rows.clone(), dim(1), dim(self.hidden.value)]);
        let last = b.emit(Expand { x: none, shape }, &at("not_a_point_embed.expand"))?;
        b.emit(Concat { parts: vec![point, last], axis: 1 }, PROMPT)
    }

    /// Tokens and the places of the image after layers in which each attends to the other.
    fn transformer(
        &self,
        b: &mut Builder<'_>,
        mut tokens: Side,
        mut image: Side,
    ) -> Result<(ValueId, ValueId), ModelError> {
        const STACK: &str = "mask_decoder.transformer";
        for index in 0..self.layers.value {
            let at = |name: &str| format!("{STACK}.layers.{index}.{name}");
            let norm = |b: &mut Builder<'_>, x, name: &str| b.layer_norm(x, &at(name), self.hidden, self.eps);
            let own = if index == 0 { tokens.x } else { tokens.placed(b, &at("self_attn.query"))? };
            let attended = self.attend(b, [own, own, tokens.x], 1, &at("self_attn"))?;
            // The first layer goes on with what attention gives alone.
            let sum = if index == 0 { attended } else { b.add(attended, tokens.x, &at("self_attn.add"))? };
            tokens.x = norm(b, sum, "layer_norm1")?;

            let query = tokens.placed(b, &at("cross_attn_token_to_image.query"))?;
            let key = image.placed(b, &at("cross_attn_token_to_image.key"))?;
            let attended = self.attend(b, [query, key, image.x], LAYERS_RATE, &at("cross_attn_token_to_image"))?;
            let sum = b.add(attended, tokens.x, &at("cross_attn_token_to_image.add"))?;
            tokens.x = norm(b, sum, "layer_norm2")?;

            let mlp = feed_forward(b, tokens.x, &at("mlp"), [self.intermediate, self.hidden], self.activation)?;
            let sum = b.add(mlp, tokens.x, &at("mlp.add"))?;
            tokens.x = norm(b, sum, "layer_norm3")?;

            let query = tokens.placed(b, &at("cross_attn_image_to_token.key"))?;
            let attended = self.attend(b, [key, query, tokens.x], LAYERS_RATE, &at("cross_attn_image_to_token"))?;
            let sum = b.add(attended, image.x, &at("cross_attn_image_to_token.add"))?;
            image.x = norm(b, sum, "layer_norm4")?;
        }
        let at = |name: &str| format!("{STACK}.{name}");
        let query = tokens.placed(b, &at("final_attn_token_to_image.query"))?;
        let key = image.placed(b, &at("final_attn_token_to_image.key"))?;
        let attended = self.attend(b, [query, key, image.x], self.rate, &at("final_attn_token_to_image"))?;
        let sum = b.add(attended, tokens.x, &at("final_attn_token_to_image.add"))?;
        Ok((b.layer_norm(sum, &at("layer_norm_final_attn"), self.hidden, LAST_EPS)?, image.x))
    }

    /// `SamAttention`: queries, keys and values have fewer features than what they are of.
    fn attend(
        &self,
        b: &mut Builder<'_>,
        [q, k, v]: [ValueId; 3],
        rate: usize,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let inner = Size::derived(self.hidden.value / rate, "features of attention");
        let q = b.linear(q, &at("q_proj"), inner, self.hidden)?;
        let k = b.linear(k, &at("k_proj"), inner, self.hidden)?;
        let v = b.linear(v, &at("v_proj"), inner, self.hidden)?;
        let scale = Real(((inner.value / self.heads.value) as f64).powf(-0.5));
        let attended = b.emit(Attention::new(q, k, v, self.heads.value, scale), path)?;
        b.linear(attended, &at("out_proj"), self.hidden, inner)
    }

    /// How well each mask is expected to fit: [batch_size, point_batch_size, masks].
    fn scores(&self, b: &mut Builder<'_>, tokens: ValueId, run: &Run) -> Result<ValueId, ModelError> {
        let path = format!("{PATH}.iou_prediction_head");
        let token = nth(b, tokens, 0, &format!("{path}.token"))?;
        let count = Size::derived(self.masks.value + 1, "num_multimask_outputs + 1");
        let all = network(b, token, &path, [self.hidden, self.head_hidden, count], self.head_depth.value)?;
        let end = dim(count.value);
        let scores = b.emit(Slice { x: all, axis: 2, start: dim(1), end }, &format!("{path}.masks"))?;
        let shape = [Dim::symbol(BATCH), run.prompts.clone(), dim(self.masks.value)];
        b.reshape(scores, shape, &format!("{path}.prompts"))
    }

    /// The products of the enlarged image with the filter of each mask.
    fn masks(
        &self,
        b: &mut Builder<'_>,
        tokens: ValueId,
        image: ValueId,
        grid: usize,
        run: &Run,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{PATH}.{name}");
        let [quarter, eighth] =
            [4, 8].map(|part| Size::derived(self.hidden.value / part, "channels of enlarged images"));
        let map = transposed::conv_transpose(
            b,
            image,
            [dim(grid), dim(grid)],
            &at("upscale_conv1"),
            [quarter, self.hidden],
            2,
        )?;
        let x = convolution::tokens(b, map, &at("upscale_conv1.tokens"))?;
        let x = b.layer_norm(x, &at("upscale_layer_norm"), quarter, EPS)?;
        let x = Activation::GELU.apply(b, x, &at("upscale_layer_norm.act"))?;
        let (twice, side) = (dim(2 * grid), 4 * grid);
        let map = transposed::conv_transpose(b, x, [twice.clone(), twice], &at("upscale_conv2"), [eighth, quarter], 2)?;
        let map = Activation::GELU.apply(b, map, &at("upscale_conv2.act"))?;
        let map = b.reshape(map, [run.rows.clone(), dim(eighth.value), dim(side * side)], &at("upscaled"))?;
        let mut filters = Vec::new();
        for mask in 1..=self.masks.value {
            let path = at(&format!("output_hypernetworks_mlps.{mask}"));
            let token = nth(b, tokens, 1 + mask, &format!("{path}.token"))?;
            filters.push(network(b, token, &path, [self.hidden, self.hidden, eighth], FILTER_DEPTH)?);
        }
        let filters = b.emit(Concat { parts: filters, axis: 1 }, &at("output_hypernetworks_mlps"))?;
        let masks = b.emit(MatMul { a: filters, b: map }, &at("masks"))?;
        let shape = [Dim::symbol(BATCH), run.prompts.clone(), dim(self.masks.value), dim(side), dim(side)];
        b.reshape(masks, shape, &at("masks.prompts"))
    }
}

impl Side {
    /// With what positions add.
    fn placed(self, b: &mut Builder<'_>, module: &str) -> Result<ValueId, ModelError> {
        b.add(self.x, self.positions, module)
    }
}

/// The places of each image once for each of its prompts: [batch_size, places, features] to [rows, places, features].
fn for_prompts(b: &mut Builder<'_>, x: ValueId, run: &Run, module: &str) -> Result<ValueId, ModelError> {
    let [batch, places, features] = [0, 1, 2].map(|axis| b.graph.ty(x).shape[axis].clone());
    let apart = [batch.clone(), Dim::constant(1), places.clone(), features.clone()];
    let x = b.reshape(x, apart, &format!("{module}.apart"))?;
    let shape = Shape::new([batch, run.prompts.clone(), places.clone(), features.clone()]);
    let x = b.emit(Expand { x, shape }, &format!("{module}.expand"))?;
    b.reshape(x, [run.rows.clone(), places, features], module)
}

/// A token of each row: [rows, 1, features].
fn nth(b: &mut Builder<'_>, tokens: ValueId, index: usize, module: &str) -> Result<ValueId, ModelError> {
    b.emit(Slice { x: tokens, axis: 1, start: dim(index), end: dim(index + 1) }, module)
}

/// `SamFeedForward`: linear layers with `relu` between them, at least two.
fn network(
    b: &mut Builder<'_>,
    x: ValueId,
    path: &str,
    [input, inner, output]: [Size; 3],
    depth: usize,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let x = b.linear(x, &at("proj_in"), inner, input)?;
    let mut x = Activation::RELU.apply(b, x, &at("proj_in.act"))?;
    for layer in 0..depth.saturating_sub(2) {
        let name = format!("layers.{layer}");
        x = b.linear(x, &at(&name), inner, inner)?;
        x = Activation::RELU.apply(b, x, &at(&format!("{name}.act")))?;
    }
    b.linear(x, &at("proj_out"), output, inner)
}
