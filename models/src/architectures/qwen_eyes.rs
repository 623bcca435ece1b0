//! The towers of images of Qwen2-VL (Wang et al. 2024, arXiv:2409.12191), Qwen2.5-VL (Bai et al. 2025, arXiv:2502.13923) and Qwen3-VL
//! (Qwen Team 2025, arXiv:2511.21631): images of any shape in one row of patches, of which squares become one place.

use planish_ir::ops::{Attention, BinaryKind, Concat, GeluForm, Linear, Real};
use planish_ir::{Dim, InputRole, PartRole, ValueId};
use serde_json::Value;

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::packed::{self, Places};
use crate::layers::patches::dim;
use crate::layers::rope::Angles;
use crate::names::{self, Named};

/// The keys that all towers read.
pub(crate) const KEYS: &[&str] = &[
    "depth",
    "hidden_act",
    "hidden_size",
    "in_channels",
    "num_heads",
    "patch_size",
    "rope_parameters",
    "spatial_merge_size",
    "temporal_patch_size",
];

/// Names that transformers reads some of them under too.
pub(crate) const OLDER_KEYS: &[(&str, &str)] = &[("num_attention_heads", "num_heads"), ("num_hidden_layers", "depth")];

/// What transformers ignores in towers.
pub(crate) const IRRELEVANT: &[&str] = &["in_chans", "initializer_range", "spatial_patch_size", "tokens_per_second"];

/// Added to variances and mean squares in all norms.
const EPS: f64 = 1e-6;

/// The modules of the two layers of a merger, and of its norm.
struct Merger {
    norm: &'static str,
    up: &'static str,
    down: &'static str,
}

const OF_QWEN2: Merger = Merger { norm: "ln_q", up: "mlp.0", down: "mlp.2" };
const OF_QWEN3: Merger = Merger { norm: "norm", up: "linear_fc1", down: "linear_fc2" };

/// Windows of patches.
struct Windows {
    /// Rows and columns of squares of a window.
    side: usize,
    /// The layers without windows.
    full: Vec<usize>,
}

/// What is read of a tower that others have not.
struct Own {
    hidden: Size,
    out: Size,
    intermediate: Size,
    norm: Norm,
    /// The names of the layers of the feed-forward: a gate where there are three.
    feed_forward: &'static [&'static str],
    merger: &'static Merger,
    /// Whether patches have a bias.
    bias: bool,
    /// The side of a square table of positions, where there is one.
    table: Option<usize>,
    windows: Option<Windows>,
    /// The layers whose patches decoder layers get too, in the order of their mergers.
    deep: Vec<usize>,
    grid: Named<InputRole>,
}

/// A tower.
pub(crate) struct Tower {
    own: Own,
    depth: Size,
    heads: Size,
    activation: Activation,
    channels: Size,
    /// The side of a patch in pixels, and its frames.
    patch: Size,
    frames: Size,
    /// The side of squares of patches that become one place.
    pub(crate) merge: Size,
    theta: f64,
}

/// That of Qwen2-VL.
pub(crate) fn read_qwen2(config: &Config<'_>) -> Result<Tower, ModelError> {
    let hidden = config.size("embed_dim", 1280)?;
    let ratio = config.size("mlp_ratio", 4)?;
    let intermediate = hidden.value.checked_mul(ratio.value);
    let intermediate = intermediate.ok_or_else(|| config.error("`embed_dim` * `mlp_ratio` is too large"))?;
    let own = Own {
        hidden,
        out: config.size("hidden_size", 3584)?,
        intermediate: Size::derived(intermediate, "embed_dim * mlp_ratio"),
        norm: Norm::Layer { bias: true },
        feed_forward: &["fc1", "fc2"],
        merger: &OF_QWEN2,
        bias: false,
        table: None,
        windows: None,
        deep: Vec::new(),
        grid: names::GRID_OF_QWEN2_VL,
    };
    Tower::read(config, own, (32, "quick_gelu", 14))
}

/// That of Qwen2.5-VL.
pub(crate) fn read_qwen2_5(config: &Config<'_>) -> Result<Tower, ModelError> {
    let full = layers(config, "fullatt_block_indexes", &[7, 15, 23, 31])?;
    let own = Own {
        hidden: config.size("hidden_size", 3584)?,
        out: config.size("out_hidden_size", 3584)?,
        intermediate: config.size("intermediate_size", 3420)?,
        norm: Norm::Rms,
        feed_forward: &["gate_proj", "up_proj", "down_proj"],
        merger: &OF_QWEN2,
        bias: false,
        table: None,
        windows: Some(Windows { side: config.size("window_size", 112)?.value, full }),
        deep: Vec::new(),
        grid: names::IMAGE_GRID,
    };
    let mut tower = Tower::read(config, own, (32, "silu", 14))?;
    let (merge, patch) = (tower.merge, tower.patch);
    if let Some(windows) = &mut tower.own.windows {
        let pixels = windows.side;
        windows.side = pixels / merge.value / patch.value;
        if windows.side == 0 {
            return Err(config.error(format!(
                "`window_size` is {pixels} pixels, and no place has so few: {merge} patches of {patch} pixels are one"
            )));
        }
    }
    Ok(tower)
}

/// That of Qwen3-VL.
pub(crate) fn read_qwen3(config: &Config<'_>) -> Result<Tower, ModelError> {
    let positions = config.size("num_position_embeddings", 2304)?;
    let side = positions.value.isqrt();
    if side * side != positions.value {
        return Err(config.error(format!("{positions}, which is no square: positions are those of a square grid")));
    }
    let own = Own {
        hidden: config.size("hidden_size", 1152)?,
        out: config.size("out_hidden_size", 3584)?,
        intermediate: config.size("intermediate_size", 4304)?,
        norm: Norm::Layer { bias: true },
        feed_forward: &["linear_fc1", "linear_fc2"],
        merger: &OF_QWEN3,
        bias: true,
        table: Some(side),
        windows: None,
        deep: layers(config, "deepstack_visual_indexes", &[8, 16, 24])?,
        grid: names::IMAGE_GRID,
    };
    Tower::read(config, own, (27, "gelu_pytorch_tanh", 16))
}

/// A list of layers.
fn layers(config: &Config<'_>, key: &'static str, usual: &[usize]) -> Result<Vec<usize>, ModelError> {
    let Some(value) = config.get(key) else { return Ok(usual.to_vec()) };
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let numbers = value.as_array().and_then(|list| list.iter().map(number).collect());
    numbers.ok_or_else(|| config.unexpected(key, value, "a list of numbers of layers"))
}

impl Tower {
    fn read(config: &Config<'_>, own: Own, usual: (usize, &'static str, usize)) -> Result<Self, ModelError> {
        const ROPE: &str = "rope_parameters";
        let (depth, activation, patch) = usual;
        let mut theta = 10_000.0;
        match config.get(ROPE) {
            None => {}
            Some(Value::Object(values)) => {
                for (key, value) in values.iter().filter(|(_, value)| !value.is_null()) {
                    match (key.as_str(), value.as_f64().filter(|number| *number > 0.0), value.as_str()) {
                        ("rope_theta", Some(number), _) => theta = number,
                        ("rope_type" | "type", _, Some("axial" | "default")) => {}
                        _ => {
                            return Err(config.error(format!(
                                "`{ROPE}.{key}` is {value}: of towers only \"axial\" and `rope_theta` are supported"
                            )));
                        }
                    }
                }
            }
            Some(value) => return Err(config.unexpected(ROPE, value, "an object")),
        }
        let s = Self {
            own,
            depth: config.size("depth", depth)?,
            heads: config.size("num_heads", 16)?,
            activation: Activation::read(config, "hidden_act", activation)?,
            channels: config.size("in_channels", 3)?,
            patch: config.size("patch_size", patch)?,
            frames: config.size("temporal_patch_size", 2)?,
            merge: config.size("spatial_merge_size", 2)?,
            theta,
        };
        let (hidden, heads) = (s.own.hidden, s.heads);
        if !hidden.value.is_multiple_of(heads.value) || !(hidden.value / heads.value).is_multiple_of(4) {
            return Err(config.error(format!(
                "{hidden} over {heads} is no multiple of 4: a half of the pairs of a head turns by rows, the other by columns"
            )));
        }
        let numbers =
            [s.frames, s.patch, s.patch].iter().try_fold(s.channels.value, |n, size| n.checked_mul(size.value));
        let squares = s.merge.value.checked_mul(s.merge.value).and_then(|n| n.checked_mul(hidden.value));
        match numbers.zip(squares) {
            Some(_) => Ok(s),
            None => Err(config.error("patches, or squares of them, have more numbers than sizes are written in")),
        }
    }

    /// How many layers of the decoder get features of images.
    pub(crate) fn deep(&self) -> usize {
        self.deep_layers().len()
    }

    /// The layers whose patches decoder layers get.
    fn deep_layers(&self) -> Vec<usize> {
        (0..self.depth.value).filter(|layer| self.own.deep.contains(layer)).collect()
    }

    /// The numbers of a patch.
    fn numbers(&self) -> usize {
        self.channels.value * self.frames.value * self.patch.value * self.patch.value
    }

    /// The part of images: patches, f32[patches, numbers], and their grids, i64[images, 3], to [places, features].
    pub(crate) fn build(&self, b: &mut Builder<'_>, hidden: Size) -> Result<(), ModelError> {
        let s = &self.own;
        if s.out.value != hidden.value {
            let text = hidden.value;
            return Err(b.config.error(format!(
                "places of images have {} features (`vision_config`), and those of tokens {text}: they are as many",
                s.out.value
            )));
        }
        b.tensors.turn_to(&["visual"], &[]);
        let patches = packed::count(self.merge.value);
        let pixels = b.floats(names::PIXELS.0, names::PIXELS.1, [patches.clone(), dim(self.numbers())]);
        let grid = b.ids(s.grid, [Dim::symbol(names::IMAGES_OF_ROW), dim(3)], GRID_END);
        let places = Places::new(b, grid, self.merge.value)?;
        let mut x = self.embed(b, pixels)?;
        if let Some(side) = s.table {
            let positions = places.interpolated(b, "pos_embed", side, s.hidden)?;
            x = b.add(x, positions, "pos_embed.add")?;
        }
        let mut x = b.reshape(x, [dim(1), patches, dim(s.hidden.value)], "patches")?;
        let angles = places.angles(b, s.hidden.value / self.heads.value, self.theta)?;
        let is_full = |layer: usize| s.windows.as_ref().is_none_or(|windows| windows.full.contains(&layer));
        let layers = 0..self.depth.value;
        let bias = if layers.clone().any(is_full) { Some(places.bias(b)?) } else { None };
        let windows = s.windows.as_ref().filter(|_| !layers.clone().all(is_full));
        let window_bias = windows.map(|windows| places.window_bias(b, windows.side)).transpose()?;
        let deep = self.deep_layers();
        let mut features = Vec::new();
        for layer in layers {
            let bias = if is_full(layer) { bias } else { window_bias };
            x = self.layer(b, x, layer, angles, bias)?;
            if deep.contains(&layer) {
                let number = s.deep.iter().position(|other| *other == layer).unwrap_or_default();
                features.push(self.merge(b, x, &format!("deepstack_merger_list.{number}"), true)?);
            }
        }
        for number in (0..s.deep.len()).filter(|number| !deep.contains(&s.deep[*number])) {
            b.tensors.leave(&format!("deepstack_merger_list.{number}"));
        }
        features.insert(0, self.merge(b, x, "merger", false)?);
        let x = match features[..] {
            [one] => one,
            _ => b.emit(Concat { parts: features, axis: 1 }, "deepstack")?,
        };
        b.give(names::IMAGE_FEATURES, x);
        b.finish(PartRole::VisionEncoder);
        b.put_first();
        b.tensors.turn_to(&[], &[]);
        Ok(())
    }

    /// Patches as vectors: the convolution of the library does not overlap, so it is a linear layer.
    fn embed(&self, b: &mut Builder<'_>, pixels: ValueId) -> Result<ValueId, ModelError> {
        const MODULE: &str = "patch_embed.proj";
        let size = self.own.hidden;
        let shape = [size, self.channels, self.frames, self.patch, self.patch];
        let weight = b.weight(&[&format!("{MODULE}.weight")], &shape)?;
        let weight = b.reshape(weight, [dim(size.value), dim(self.numbers())], &format!("{MODULE}.matrix"))?;
        let bias = self.own.bias.then(|| b.weight(&[&format!("{MODULE}.bias")], &[size])).transpose()?;
        b.emit(Linear::new(pixels, weight, bias), MODULE)
    }

    /// A layer: [1, patches, hidden] to the same.
    fn layer(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        angles: Angles,
        bias: Option<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let (s, at) = (&self.own, |name: &str| format!("blocks.{layer}.{name}"));
        let (size, heads) = (s.hidden, self.heads);
        let normal = s.norm.apply(b, x, &at("norm1"), size, EPS)?;
        let all = Size::derived(3 * size.value, "queries, keys and values");
        let packed = b.linear(normal, &at("attn.qkv"), all, size)?;
        let [q, k, v] = b.thirds(packed, size, &at("attn.thirds"))?;
        let q = angles.rotate(b, q, heads, false, &at("attn.rotary_q"))?;
        let k = angles.rotate(b, k, heads, false, &at("attn.rotary_k"))?;
        let scale = Real(1.0 / ((size.value / heads.value) as f64).sqrt());
        let attention = Attention { bias, ..Attention::new(q, k, v, heads.value, scale) };
        let attended = b.emit(attention, &at("attn"))?;
        let attended = b.linear(attended, &at("attn.proj"), size, size)?;
        let x = b.add(attended, x, &at("attn.add"))?;
        let normal = s.norm.apply(b, x, &at("norm2"), size, EPS)?;
        let mlp = |name: &str| at(&format!("mlp.{name}"));
        let (down, ups) = s.feed_forward.split_last().unwrap_or_else(|| unreachable!("there are two layers or three"));
        let first = b.linear(normal, &mlp(ups[0]), s.intermediate, size)?;
        let mut active = self.activation.apply(b, first, &mlp("act"))?;
        if let Some(up) = ups.get(1) {
            let up = b.linear(normal, &mlp(up), s.intermediate, size)?;
            active = b.binary(BinaryKind::Mul, [active, up], &mlp("gated"))?;
        }
        let down = b.linear(active, &mlp(down), size, s.intermediate)?;
        b.add(down, x, &at("mlp.add"))
    }

    /// Squares of patches as places: [1, patches, hidden] to [places, features]. The norm is of squares where they are `whole`, else of
    /// patches.
    fn merge(&self, b: &mut Builder<'_>, x: ValueId, module: &str, whole: bool) -> Result<ValueId, ModelError> {
        let (s, at) = (&self.own, |name: &str| format!("{module}.{name}"));
        let squares = self.merge.value * self.merge.value;
        let size = Size::derived(squares * s.hidden.value, "hidden size of a tower * spatial_merge_size^2");
        let to_places = |b: &mut Builder<'_>, x: ValueId| {
            b.reshape(x, [Dim::symbol(names::PLACES), dim(size.value)], &at("squares"))
        };
        let x = if whole {
            let x = to_places(b, x)?;
            s.norm.apply(b, x, &at(s.merger.norm), size, EPS)?
        } else {
            let x = s.norm.apply(b, x, &at(s.merger.norm), s.hidden, EPS)?;
            to_places(b, x)?
        };
        let x = b.linear(x, &at(s.merger.up), size, size)?;
        let x = Activation::Gelu(GeluForm::Erf).apply(b, x, &at("act"))?;
        b.linear(x, &at(s.merger.down), s.out, size)
    }
}

/// The end of the sides of images in patches.
const GRID_END: i64 = 1 << 14;
