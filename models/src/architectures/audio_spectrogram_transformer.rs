//! The audio spectrogram transformer (Gong et al. 2021, arXiv:2104.01778), as `transformers/models/audio_spectrogram_transformer`
//! has it: ViT over patches of a spectrogram, which overlap.

use planish_ir::ops::Conv;
use planish_ir::{Dim, Shape, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution;
use crate::layers::heads;
use crate::layers::patches;
use crate::layers::sounds;
use crate::layers::vision::{self, Context, Defaults, Layers, Names, RENAMED};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "audio-spectrogram-transformer",
    class_prefix: "AST",
    base: "audio_spectrogram_transformer",
    other_bases: &[],
    renamed: RENAMED,
    tasks: &[Task::FeatureExtraction, Task::AudioClassification],
    keys: &[vision::KEYS, &["frequency_stride", "max_length", "num_mel_bins", "patch_size", "qkv_bias", "time_stride"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[],
    unused_tensors: &["classifier."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// Spectrograms and their patches.
struct Spectrograms {
    /// Frames, and bands of frequencies.
    frames: Size,
    bands: Size,
    /// The side of a patch.
    patch: Size,
    /// The distances between patches along bands and along frames.
    strides: [usize; 2],
}

impl Spectrograms {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let s = Self {
            frames: config.size("max_length", 1024)?,
            bands: config.size("num_mel_bins", 128)?,
            patch: config.size("patch_size", 16)?,
            strides: [config.size("frequency_stride", 10)?.value, config.size("time_stride", 10)?.value],
        };
        match [s.bands, s.frames].into_iter().find(|side| side.value < s.patch.value) {
            Some(side) => Err(config.error(format!("no patch fits a spectrogram: {side}, but {}", s.patch))),
            None => Ok(s),
        }
    }

    /// Rows and columns of patches: along bands and along frames.
    fn grid(&self) -> [usize; 2] {
        let places = |side: Size, stride: usize| (side.value - self.patch.value) / stride + 1;
        [places(self.bands, self.strides[0]), places(self.frames, self.strides[1])]
    }

    /// Adds the input of spectrograms, f32[batch_size, frames, bands], and projects their patches: [batch_size, patches, hidden].
    fn embed(&self, b: &mut Builder<'_>, hidden: Size) -> Result<ValueId, ModelError> {
        const MODULE: &str = "embeddings.patch_embeddings";
        const PROJECTION: &str = "embeddings.patch_embeddings.projection";
        let [rows, frames, bands] = [Dim::symbol(BATCH), convolution::dim(self.frames), convolution::dim(self.bands)];
        let x = sounds::features(b, names::WAVEFORM.0, [frames.clone(), bands.clone()])?;
        let x = b.transpose(x, &[0, 2, 1], &format!("{MODULE}.bands"))?;
        let x = b.reshape(x, [rows, Dim::constant(1), bands, frames], &format!("{MODULE}.channel"))?;
        let one = Size::derived(1, "the channel of a spectrogram");
        let weight = b.weight(&[&format!("{PROJECTION}.weight")], &[hidden, one, self.patch, self.patch])?;
        let bias = Some(b.weight(&[&format!("{PROJECTION}.bias")], &[hidden])?);
        let conv = Conv {
            x,
            weight,
            bias,
            strides: self.strides.to_vec(),
            dilations: vec![1; 2],
            pads: vec![0; 4],
            groups: 1,
            sizes: Shape::new(self.grid().map(patches::dim)),
        };
        let map = b.emit(conv, PROJECTION)?;
        convolution::tokens(b, map, MODULE)
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Layers::read(b.config, &Defaults::VIT, &Names::VIT)?;
    s.qkv_bias = [b.config.boolean("qkv_bias", true)?; 3];
    let spectrograms = Spectrograms::read(b.config)?;
    let x = spectrograms.embed(b, s.hidden)?;
    let mut tokens = Vec::new();
    for name in ["embeddings.cls_token", "embeddings.distillation_token"] {
        tokens.push(patches::tokens(b, name, 1, s.hidden)?);
    }
    tokens.push(x);
    let x = patches::join(b, tokens, "embeddings.tokens")?;
    let [rows, columns] = spectrograms.grid();
    let count = Size::derived(2 + rows * columns, "tokens by `max_length`, `num_mel_bins`, `patch_size` and strides");
    let one = Size::derived(1, "one spectrogram");
    let positions = b.weight(&["embeddings.position_embeddings"], &[one, count, s.hidden])?;
    let x = b.add(x, positions, "embeddings.add")?;
    let x = s.apply(b, x, Context::default())?;
    let hidden = b.layer_norm(x, "layernorm", s.hidden, s.eps)?;
    let both = patches::between(b, hidden, [0, 2], "pooler.tokens")?;
    let pooled = patches::mean(b, both, "pooler")?;
    if task == Task::AudioClassification {
        let normal = b.layer_norm(pooled, "classifier.layernorm", s.hidden, s.eps)?;
        heads::classify(b, s.hidden, normal, "classifier.dense")?;
    } else {
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, pooled);
    }
    Ok(Properties::default())
}
