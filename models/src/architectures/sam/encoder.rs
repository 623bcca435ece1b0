//! The vision encoder: ViT over a square grid, of which most layers attend within windows and some to the whole image, with biases of
//! attention by the distance in rows and in columns (Li et al. 2022, arXiv:2203.16527).

use planish_ir::ops::{Attention, Expand, Gather, MatMul, Real};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use super::{Shared, Sides, encode_places};
use crate::ModelError;
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::patches::{Images, dim};
use crate::layers::shifted::{self, Windows};
use crate::layers::transposed;
use crate::names;

/// The keys of `vision_config`, those of images apart.
pub(super) const KEYS: &[&str] = &[
    "global_attn_indexes",
    "hidden_act",
    "hidden_size",
    "layer_norm_eps",
    "mlp_dim",
    "mlp_ratio",
    "num_attention_heads",
    "num_channels",
    "num_hidden_layers",
    "num_pos_feats",
    "output_channels",
    "qkv_bias",
    "use_abs_pos",
    "use_rel_pos",
    "window_size",
];

/// What the norms over channels add to the variance, whatever the configuration says.
pub(super) const EPS: f64 = 1e-6;

/// `vision_config`.
pub(super) struct Encoder {
    pub(super) sides: Sides,
    /// The channels of the result.
    pub(super) output: Size,
    pub(super) frequencies: Size,
    channels: Size,
    hidden: Size,
    intermediate: Size,
    heads: Size,
    layers: Size,
    /// Rows and columns of a window; 0 where all layers attend to the whole image.
    window: usize,
    /// The layers that attend to the whole image.
    whole: Vec<usize>,
    activation: Activation,
    eps: f64,
    qkv_bias: bool,
    positions: bool,
    distances: bool,
}

impl Encoder {
    pub(super) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        const WHOLE: &str = "global_attn_indexes";
        let sides = Sides::read(config)?;
        let hidden = config.size("hidden_size", 768)?;
        let heads = config.size("num_attention_heads", 12)?;
        if !hidden.value.is_multiple_of(heads.value) {
            return Err(config.error(format!("{hidden} is not divisible by {heads}")));
        }
        let ratio = config.positive("mlp_ratio", 4.0)?;
        let intermediate = match config.given_size(&["mlp_dim"])? {
            Some(size) => size,
            None => {
                let features = (hidden.value as f64 * ratio).floor();
                if !(1.0..=MAX_SIZE as f64).contains(&features) {
                    let message = format!("`mlp_ratio` gives {features} features of {hidden}: at most {MAX_SIZE}");
                    return Err(config.error(message));
                }
                Size::derived(features as usize, "hidden_size * mlp_ratio")
            }
        };
        let window = config.whole("window_size", 14)?;
        if window > sides.image {
            return Err(
                config.error(format!("`window_size` is {window} patches, and images have {} pixels", sides.image))
            );
        }
        Ok(Self {
            sides,
            output: config.size("output_channels", 256)?,
            frequencies: config.size("num_pos_feats", 128)?,
            channels: config.size("num_channels", 3)?,
            hidden,
            intermediate,
            heads,
            layers: config.size("num_hidden_layers", 12)?,
            window,
            whole: config.layer_numbers(WHOLE)?.unwrap_or_else(|| vec![2, 5, 8, 11]),
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", EPS)?,
            qkv_bias: config.boolean("qkv_bias", true)?,
            positions: config.boolean("use_abs_pos", true)?,
            distances: config.boolean("use_rel_pos", true)?,
        })
    }

    /// The part: `image_embeddings` and `image_positional_embeddings`, both f32[batch_size, features, rows, columns] of patches.
    pub(super) fn build(&self, b: &mut Builder<'_>, shared: &Shared, frequencies: &[&str]) -> Result<(), ModelError> {
        const PATH: &str = "vision_encoder";
        let Sides { image, grid, patch } = self.sides;
        let images = Images { channels: self.channels, image: [image; 2], trained: [image; 2], patch: [patch; 2] };
        let embed = format!("{PATH}.patch_embed");
        let mut x = images.embed(b, &embed, &format!("{embed}.projection"), self.hidden, true)?;
        if self.positions {
            let side = Size::derived(grid, "image_size / patch_size");
            let name = format!("{PATH}.pos_embed");
            let table = b.weight(&[&name], &[Size::derived(1, "one image"), side, side, self.hidden])?;
            let table = b.reshape(table, [1, grid * grid, self.hidden.value].map(dim), &format!("{name}.tokens"))?;
            x = b.add(x, table, &format!("{name}.add"))?;
        }
        for index in 0..self.layers.value {
            x = self.layer(b, index, x, &format!("{PATH}.layers.{index}"))?;
        }
        let neck = self.neck(b, x, &format!("{PATH}.neck"))?;
        b.give(names::IMAGE_STATES.1, neck);
        let positions = grid_positions(b, shared, frequencies)?;
        b.give(names::IMAGE_POSITIONS.1, positions);
        Ok(())
    }

    fn layer(&self, b: &mut Builder<'_>, index: usize, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let normal = b.layer_norm(x, &at("layer_norm1"), self.hidden, self.eps)?;
        let is_whole = self.window == 0 || self.whole.contains(&index);
        let size = if is_whole { self.sides.grid } else { self.window };
        let windows = Windows { grid: [self.sides.grid; 2], size, shift: 0 };
        let attended = self.attention(b, normal, windows, &at("attn"))?;
        let x = b.add(attended, x, &at("attn.add"))?;
        let normal = b.layer_norm(x, &at("layer_norm2"), self.hidden, self.eps)?;
        let mlp = feed_forward(b, normal, &at("mlp"), [self.intermediate, self.hidden], self.activation)?;
        b.add(mlp, x, &at("add"))
    }

    /// Attention of each token to those of its window, zeros beside the grid among them.
    fn attention(&self, b: &mut Builder<'_>, x: ValueId, windows: Windows, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (count, tokens, hidden) = (windows.count(), windows.tokens(), self.hidden);
        shifted::check_pairs(b, count * tokens, tokens)?;
        let batch = Dim::symbol(BATCH);
        let Some(rows) = batch.checked_mul(&dim(count)) else {
            return Err(b.config.error("there are too many windows"));
        };
        let x = shifted::order(b, x, &windows.partition(), hidden, &at("windows"))?;
        let packed = Size::derived(3 * hidden.value, "queries, keys and values");
        let qkv = b.projection(x, &at("qkv"), [packed, hidden], self.qkv_bias)?;
        let qkv = b.reshape(qkv, [rows.clone(), dim(tokens), dim(packed.value)], &at("qkv.windows"))?;
        let [q, k, v] = b.thirds(qkv, hidden, &at("qkv.split"))?;
        let bias = if self.distances { Some(self.bias(b, q, windows.size, path)?) } else { None };
        let scale = Real(((hidden.value / self.heads.value) as f64).powf(-0.5));
        let attention = Attention { bias, ..Attention::new(q, k, v, self.heads.value, scale) };
        let attended = b.emit(attention, path)?;
        let attended = b.reshape(attended, [batch, dim(count * tokens), dim(hidden.value)], &at("tokens"))?;
        let projected = b.linear(attended, &at("proj"), hidden, hidden)?;
        shifted::order(b, projected, &windows.merge(), hidden, &at("merged"))
    }

    /// What is added to the scores of pairs in a square of `side` rows: products of the query with a vector of the distance in rows
    /// and with one of the distance in columns, f32[rows, heads, tokens, tokens].
    fn bias(&self, b: &mut Builder<'_>, q: ValueId, side: usize, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (heads, size) = (self.heads.value, self.hidden.value / self.heads.value);
        let rows = b.graph.ty(q).shape[0].clone();
        let pixels = side * side;
        let q = b.reshape(q, [rows.clone(), dim(side), dim(side), dim(heads), dim(size)], &at("query.places"))?;
        let by_row = b.transpose(q, &[0, 3, 1, 2, 4], &at("query.by_row"))?;
        let vectors = self.distances(b, side, &at("rel_pos_h"))?;
        let of_rows = b.emit(MatMul { a: by_row, b: vectors }, &at("rel_pos_h.product"))?;
        let shape = [rows.clone(), dim(heads), dim(pixels), dim(side), dim(1)];
        let of_rows = b.reshape(of_rows, shape, &at("rel_pos_h.scores"))?;

        let by_column = b.transpose(q, &[0, 3, 2, 1, 4], &at("query.by_column"))?;
        let vectors = self.distances(b, side, &at("rel_pos_w"))?;
        let of_columns = b.emit(MatMul { a: by_column, b: vectors }, &at("rel_pos_w.product"))?;
        let of_columns = b.transpose(of_columns, &[0, 1, 3, 2, 4], &at("rel_pos_w.by_row"))?;
        let shape = [rows.clone(), dim(heads), dim(pixels), dim(1), dim(side)];
        let of_columns = b.reshape(of_columns, shape, &at("rel_pos_w.scores"))?;

        let both = b.add(of_rows, of_columns, &at("rel_pos"))?;
        b.reshape(both, [rows, dim(heads), dim(pixels), dim(pixels)], &at("rel_pos.pairs"))
    }

    /// The vectors of the distances of each place of an axis to all of them: [places of queries, features of a head, places of keys].
    fn distances(&self, b: &mut Builder<'_>, side: usize, name: &str) -> Result<ValueId, ModelError> {
        let size = Size::derived(self.hidden.value / self.heads.value, "features of a head");
        let table = b.weight(&[name], &[Size::derived(2 * side - 1, "distances on a side of a window"), size])?;
        let distances: Vec<usize> =
            (0..side).flat_map(|query| (0..side).map(move |key| query + side - 1 - key)).collect();
        let indices = shifted::indices(b, &distances, &[side, side], &format!("{name}.distances"));
        let vectors = b.emit(Gather { x: table, indices, axis: 0 }, &format!("{name}.vectors"))?;
        b.transpose(vectors, &[0, 2, 1], &format!("{name}.by_query"))
    }

    /// Fewer channels, and what is around each place: [batch_size, output_channels, rows, columns].
    fn neck(&self, b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (sides, output) = ([dim(self.sides.grid), dim(self.sides.grid)], self.output);
        let x = transposed::pointwise(b, x, &at("conv1"), [output, self.hidden], false)?;
        let x = b.layer_norm(x, &at("layer_norm1"), output, EPS)?;
        let map = convolution::map(b, x, sides.clone(), output, &at("map"))?;
        let map = convolution::conv(b, map, &at("conv2"), [output; 2], Window::centred(3, 1), false)?;
        let x = convolution::tokens(b, map, &at("tokens"))?;
        let x = b.layer_norm(x, &at("layer_norm2"), output, EPS)?;
        convolution::map(b, x, sides, output, &at("output"))
    }
}

/// `SamMLPBlock`: two layers of [inner, outer] features.
pub(super) fn feed_forward(
    b: &mut Builder<'_>,
    x: ValueId,
    path: &str,
    [inner, outer]: [Size; 2],
    activation: Activation,
) -> Result<ValueId, ModelError> {
    let up = b.linear(x, &format!("{path}.lin1"), inner, outer)?;
    let active = activation.apply(b, up, &format!("{path}.act"))?;
    b.linear(active, &format!("{path}.lin2"), outer, inner)
}

/// The positions of patches, the same for each image: [batch_size, features, rows, columns].
fn grid_positions(b: &mut Builder<'_>, shared: &Shared, frequencies: &[&str]) -> Result<ValueId, ModelError> {
    const PATH: &str = "shared_image_embedding";
    let grid = shared.sides.grid;
    let centre = |at: usize| 2.0 * (at as f64 + 0.5) / grid as f64 - 1.0;
    let centres: Vec<f64> = (0..grid * grid).flat_map(|at| [centre(at % grid), centre(at / grid)]).collect();
    let centres = Weight::numbers(DType::F32, vec![grid * grid, 2], &centres);
    let centres = centres.unwrap_or_else(|| unreachable!("there are x and y of each patch"));
    let origin = Origin::Config("image_embedding_size".into());
    let places = b.graph.add_weight(&format!("{PATH}.places"), centres, origin);
    let encoded = encode_places(b, places, frequencies, shared.frequencies, PATH)?;
    let by_feature = b.transpose(encoded, &[1, 0], &format!("{PATH}.by_feature"))?;
    let features = shared.hidden.value;
    let map = b.reshape(by_feature, [1, features, grid, grid].map(dim), &format!("{PATH}.map"))?;
    let shape = Shape::new([Dim::symbol(BATCH), dim(features), dim(grid), dim(grid)]);
    b.emit(Expand { x: map, shape }, &format!("{PATH}.expand"))
}
