//! The tower of recordings of CLAP: a spectrogram is folded into a square image, of which Swin's stages read the patches. In the fused
//! form a recording that is longer than the input has three more spectrograms, of parts of it.

use planish_ir::ops::{BinaryKind, Concat, Conv, Expand, Select, Slice};
use planish_ir::{DType, Dim, Shape, Symbol, SymbolRole, ValueId, Weight};

use crate::ModelError;
use crate::architectures::swin::{self, EPS, Settings, Version, stages::stages};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::patches::{self, dim, height_and_width};
use crate::layers::resize::{Interpolation, resize};
use crate::names;

pub(super) const KEYS: &[&str] = &[
    "aff_block_r",
    "depths",
    "enable_fusion",
    "enable_patch_layer_norm",
    "fusion_type",
    "hidden_act",
    "hidden_size",
    "layer_norm_eps",
    "mlp_ratio",
    "num_attention_heads",
    "num_mel_bins",
    "patch_embeds_hidden_size",
    "patch_size",
    "patch_stride",
    "qkv_bias",
    "spec_size",
    "window_size",
];

/// Channels of an input beside those of fusion, and patches that are no tokens, which the library's class does not compute.
pub(super) const ONLY: &[Only] = &[Only::One("patch_embed_input_channels"), Only::On("flatten_patch_embeds")];

/// Training, and what follows from other keys.
pub(super) const IRRELEVANT: &[&str] = &["drop_path_rate", "initializer_factor", "num_classes", "num_hidden_layers"];

const VERSION: Version = Version { layers: "audio_encoder.layers", ..swin::FIRST };

const PATCHES: &str = "audio_encoder.patch_embed";

/// A tower of recordings.
pub(super) struct Audio {
    stages: Settings,
    /// The features of the vector of a recording.
    pub(super) hidden: Size,
    bands: Size,
    /// The side of the image.
    side: Size,
    /// Height and width of patches, and from one to the next.
    patch: [usize; 2],
    stride: [usize; 2],
    has_patch_norm: bool,
    /// By what the features of fusion are divided; absent where there is none.
    fusion: Option<Size>,
}

impl Audio {
    /// Reads the configuration.
    pub(super) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let depths = config.sizes("depths", &[2, 2, 6, 2])?;
        let stages = Settings {
            embedded: config.size("patch_embeds_hidden_size", 96)?,
            window: config.size("window_size", 8)?,
            ratio: config.positive("mlp_ratio", 4.0)?,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", EPS)?,
            qkv_bias: config.boolean("qkv_bias", true)?,
            heads: config.as_many_sizes("num_attention_heads", &[4, 8, 16, 32], &depths)?,
            depths,
        };
        stages.check(config)?;
        let divisor = config.size("aff_block_r", 4)?;
        let fusion = config.boolean("enable_fusion", false)?.then_some(divisor);
        let kind = config.text("fusion_type", "")?;
        if fusion.is_some() && kind == "channel_map" {
            return Err(config.error(
                "`fusion_type` is \"channel_map\": the patches of the library's class take four channels then, and it gives them one",
            ));
        }
        let s = Self {
            hidden: config.size("hidden_size", 768)?,
            bands: config.size("num_mel_bins", 64)?,
            side: config.size("spec_size", 256)?,
            patch: height_and_width(config, "patch_size", 4)?,
            stride: height_and_width(config, "patch_stride", 4)?,
            has_patch_norm: config.boolean("enable_patch_layer_norm", true)?,
            fusion,
            stages,
        };
        s.check(config)?;
        Ok(s)
    }

    /// Checks what no tensor's shape shows.
    fn check(&self, config: &Config<'_>) -> Result<(), ModelError> {
        let last = self.stages.depths.len() - 1;
        let widest = self.stages.hidden(last);
        if self.hidden.value != widest.value {
            return Err(config.error(format!("{}, but the last stage has {} features", self.hidden, widest.value)));
        }
        let folds = self.folds();
        if folds == 0 || !self.side.value.is_multiple_of(folds) || self.bands.value > self.side.value / folds {
            return Err(
                config.error(format!("spectrograms of {} do not fold into an image of {}", self.bands, self.side))
            );
        }
        let places = |axis: usize| {
            let padded = self.side.value + 2 * self.padding(axis)?;
            Some(padded.checked_sub(self.patch[axis])? / self.stride[axis] + 1)
        };
        let grid = self.grid();
        if (0..2).any(|axis| places(axis) != Some(grid[axis])) {
            return Err(config.error(format!(
                "`patch_size` = {:?} and `patch_stride` = {:?} do not make {grid:?} patches of an image of {}",
                self.patch, self.stride, self.side
            )));
        }
        let steps = u32::try_from(last).ok().and_then(|last| 1usize.checked_shl(last)).unwrap_or(0);
        if steps == 0 || grid.iter().any(|side| !side.is_multiple_of(steps)) {
            return Err(config.error(format!("{grid:?} patches are not halved {last} times (`depths`)")));
        }
        let [rows, _] = self.last_grid();
        match rows >= folds && rows.is_multiple_of(rows / folds) {
            true => Ok(()),
            false => Err(config.error(format!("{rows} rows of the last stage do not unfold into bands {folds} times"))),
        }
    }

    /// How many pieces of a spectrogram are below each other in the image.
    fn folds(&self) -> usize {
        self.side.value / self.bands.value
    }

    fn padding(&self, axis: usize) -> Option<usize> {
        self.patch[axis].checked_sub(self.stride[axis]).map(|more| more / 2)
    }

    /// Rows and columns of patches.
    fn grid(&self) -> [usize; 2] {
        self.stride.map(|stride| self.side.value / stride)
    }

    fn last_grid(&self) -> [usize; 2] {
        self.grid().map(|side| side >> (self.stages.depths.len() - 1))
    }

    /// Adds the inputs. The features of places of bands and time, [batch_size, hidden, bands, time], and their mean, [batch_size, hidden].
    pub(super) fn encode(&self, b: &mut Builder<'_>) -> Result<[ValueId; 2], ModelError> {
        const TIME: &str = "num_frames";
        let parts = if self.fusion.is_some() { 4 } else { 1 };
        let batch = || Dim::symbol(BATCH);
        let (name, role) = names::FEATURES;
        let dims = [batch(), dim(parts), Dim::symbol(TIME), dim(self.bands.value)];
        let x = b.floats(name, role, dims);
        b.graph.interface.symbols.insert(Symbol::new(TIME), SymbolRole::Frames);
        let image = self.fold(b, x, parts)?;
        let map = self.embed(b, image)?;
        let mut x = convolution::tokens(b, map, PATCHES)?;
        if self.has_patch_norm {
            x = b.layer_norm(x, &format!("{PATCHES}.norm"), self.stages.embedded, EPS)?;
        }
        let grid = self.grid();
        let x = stages(b, &self.stages, &VERSION, x, [grid, grid])?;
        let x = b.layer_norm(x, "audio_encoder.norm", self.hidden, EPS)?;
        let pooled = patches::mean(b, x, "audio_encoder.avgpool")?;
        let [rows, columns] = self.last_grid();
        let bands = rows / self.folds();
        let pieces = rows / bands;
        let at = |name: &str| format!("audio_encoder.unfold.{name}");
        let features = dim(self.hidden.value);
        let x = b.transpose(x, &[0, 2, 1], &at("features"))?;
        let dims = [batch(), features.clone(), dim(pieces), dim(bands), dim(columns)];
        let x = b.reshape(x, dims, &at("pieces"))?;
        let x = b.transpose(x, &[0, 1, 3, 2, 4], &at("by_band"))?;
        let hidden = b.reshape(x, [batch(), features, dim(bands), dim(pieces * columns)], &at("places"))?;
        Ok([hidden, pooled])
    }

    /// Normalizes bands, and folds spectrograms of any length: [batch_size, parts, frames, bands] to [batch_size, parts, side, side].
    fn fold(&self, b: &mut Builder<'_>, x: ValueId, parts: usize) -> Result<ValueId, ModelError> {
        const NORM: &str = "audio_encoder.batch_norm";
        let at = |name: &str| format!("audio_encoder.fold.{name}");
        let [factors, shifts] = convolution::affine(b, None, NORM, self.bands)?;
        let vector = |b: &mut Builder<'_>, numbers: &[f64], name: &str| {
            let weight = Weight::numbers(DType::F32, vec![self.bands.value], numbers);
            let weight = weight.unwrap_or_else(|| unreachable!("there is a number for each band"));
            b.graph.add_weight(&format!("{NORM}.{name}"), weight, planish_ir::Origin::Module(NORM.into()))
        };
        let (factors, shifts) = (vector(b, &factors, "weight"), vector(b, &shifts, "bias"));
        let x = b.binary(BinaryKind::Mul, [x, factors], &format!("{NORM}.mul"))?;
        let x = b.add(x, shifts, NORM)?;
        let (folds, side) = (self.folds(), self.side.value);
        let bands = side / folds;
        let x = resize(b, x, [dim(side * folds), dim(bands)], Interpolation::CubicCorners, &at("resized"))?;
        let batch = || Dim::symbol(BATCH);
        let x = b.reshape(x, [batch(), dim(parts * folds), dim(side), dim(bands)], &at("pieces"))?;
        let x = b.transpose(x, &[0, 1, 3, 2], &at("by_band"))?;
        b.reshape(x, [batch(), dim(parts), dim(side), dim(side)], &at("image"))
    }

    /// The features of patches: [batch_size, parts, side, side] to [batch_size, embedded, rows, columns].
    fn embed(&self, b: &mut Builder<'_>, image: ValueId) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{PATCHES}.{name}");
        let Some(divisor) = self.fusion else { return self.project(b, image, "proj", 1) };
        let cut = |b: &mut Builder<'_>, [start, end]: [usize; 2], name: &str| {
            b.emit(Slice { x: image, axis: 1, start: dim(start), end: dim(end) }, &at(name))
        };
        let batch = || Dim::symbol(BATCH);
        let whole = cut(b, [0, 1], "whole")?;
        let whole = self.project(b, whole, "proj", 1)?;
        let parts = cut(b, [1, 4], "parts")?;
        let rows = batch().checked_mul(&dim(3)).unwrap_or_default();
        let side = dim(self.side.value);
        let parts = b.reshape(parts, [rows, dim(1), side.clone(), side], &at("parts.rows"))?;
        let parts = self.project(b, parts, "mel_conv2d", 3)?;
        let [_, features, height, width] = convolution::dims(b, parts)?;
        let dims = [batch(), dim(3), features.clone(), height.clone(), width.clone()];
        let parts = b.reshape(parts, dims, &at("parts.by_recording"))?;
        let parts = b.transpose(parts, &[0, 2, 3, 1, 4], &at("parts.side_by_side"))?;
        let [wide, columns] = [3 * size_of(&width), self.grid()[1]];
        let mut parts =
            b.reshape(parts, [batch(), features.clone(), height.clone(), dim(wide)], &at("parts.joined"))?;
        if wide > columns {
            parts = b.emit(Slice { x: parts, axis: 3, start: dim(0), end: dim(columns) }, &at("parts.cut"))?;
        } else if wide < columns {
            let zero = b.graph.add_scalar(&at("parts.zero"), DType::F32, 0.0);
            let shape = Shape::new([batch(), features, height, dim(columns - wide)]);
            let zeros = b.emit(Expand { x: zero, shape }, &at("parts.zeros"))?;
            parts = b.emit(Concat { parts: vec![parts, zeros], axis: 3 }, &at("parts.padded"))?;
        }
        let fused = self.fuse(b, whole, parts, divisor)?;
        let (name, role) = names::IS_LONGER;
        let is_longer = b.add_input(name, role, DType::Bool, [batch(), dim(1)]);
        let condition = b.reshape(is_longer, [batch(), dim(1), dim(1), dim(1)], &at("is_longer"))?;
        b.emit(Select { condition, a: fused, b: whole }, &at("fused"))
    }

    /// A convolution of patches, `times` as wide.
    fn project(&self, b: &mut Builder<'_>, x: ValueId, name: &str, times: usize) -> Result<ValueId, ModelError> {
        let module = format!("{PATCHES}.{name}");
        let ([height, width], [down, right]) = (self.patch, self.stride);
        let (kernel, strides) = ([height, times * width], [down, times * right]);
        let padding = [0, 1].map(|axis| self.padding(axis).unwrap_or_default());
        let sizes = [height, times * width].map(|size| Size::derived(size, "patch_size"));
        let one = Size::derived(1, "one channel");
        let weight = b.weight(&[&format!("{module}.weight")], &[self.stages.embedded, one, sizes[0], sizes[1]])?;
        let bias = Some(b.weight(&[&format!("{module}.bias")], &[self.stages.embedded])?);
        let places = |axis: usize| {
            (self.side.value + 2 * padding[axis]).checked_sub(kernel[axis]).map(|n| n / strides[axis] + 1)
        };
        let (Some(rows), Some(columns)) = (places(0), places(1)) else {
            return Err(b
                .config
                .error(format!("no patch of {} x {} fits an image of {}", kernel[0], kernel[1], self.side)));
        };
        let conv = Conv {
            x,
            weight,
            bias,
            strides: strides.to_vec(),
            dilations: vec![1; 2],
            pads: vec![padding[0], padding[1], padding[0], padding[1]],
            groups: 1,
            sizes: Shape::new([dim(rows), dim(columns)]),
        };
        b.emit(conv, &module)
    }

    /// The attentional fusion of two maps (Dai et al. 2020, arXiv:2009.14082).
    fn fuse(&self, b: &mut Builder<'_>, x: ValueId, rest: ValueId, divisor: Size) -> Result<ValueId, ModelError> {
        const MODULE: &str = "audio_encoder.patch_embed.fusion_model";
        let at = |name: &str| format!("{MODULE}.{name}");
        let wide = self.stages.embedded;
        let inner = Size::derived(wide.value / divisor.value, "patch_embeds_hidden_size / aff_block_r");
        if inner.value == 0 {
            return Err(b.config.error(format!("{divisor} leaves no feature of {wide}")));
        }
        let both = b.add(x, rest, &at("both"))?;
        let mean = convolution::mean(b, both, true, &at("global_att.0"))?;
        let weigh = |b: &mut Builder<'_>, x, name: &str, first: usize| {
            let module = |number: usize| at(&format!("{name}.{number}"));
            let window = Window::centred(1, 1);
            let modules = [module(first), module(first + 1), module(first + 3), module(first + 4)];
            let x = convolution::normalized_sum(b, x, [&modules[0], &modules[1]], [inner, wide], window, true)?;
            let x = Activation::RELU.apply(b, x, &module(first + 2))?;
            convolution::normalized_sum(b, x, [&modules[2], &modules[3]], [wide, inner], window, true)
        };
        let (local, global) = (weigh(b, both, "local_att", 0)?, weigh(b, mean, "global_att", 1)?);
        let sum = b.add(local, global, &at("sum"))?;
        let share = Activation::SIGMOID.apply(b, sum, &at("sigmoid"))?;
        // 2 * x * share + 2 * rest * (1 - share)
        let difference = b.binary(BinaryKind::Sub, [x, rest], &at("difference"))?;
        let shared = b.binary(BinaryKind::Mul, [difference, share], &at("shared"))?;
        let mixed = b.add(shared, rest, &at("mixed"))?;
        b.with_number(BinaryKind::Mul, mixed, 2.0, MODULE, "enable_fusion")
    }
}

/// A size that is known.
fn size_of(dim: &Dim) -> usize {
    dim.as_constant().and_then(|size| usize::try_from(size).ok()).unwrap_or_default()
}
