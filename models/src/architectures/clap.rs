//! CLAP (Wu et al. 2022, arXiv:2211.06687), as `transformers/models/clap` has it: a tower of recordings, which are Swin's images (HTS-AT,
//! Chen et al. 2022, arXiv:2202.00874), and a tower of texts, which is RoBERTa, whose vectors are compared. Each tower is a model of
//! its own too, with or without the projection of its vector.

mod audio;

use planish_ir::ops::{BinaryKind, MatMul, Unary, UnaryKind};
use planish_ir::{Dim, PartRole, ValueId};

use crate::Towers::Apart;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::architectures::roberta;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::encoder::{self, Context, Settings};
use crate::layers::heads;
use crate::layers::towers;
use crate::names;
use crate::sentence::build::normalize;
use crate::{ModelError, Task};
use audio::Audio;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "clap",
    class_prefix: "Clap",
    // Of the tower of texts, whose modules have the names of BERT.
    base: "text_model",
    other_bases: &["audio_model"],
    renamed: &[],
    tasks: &[Task::ZeroShotAudioClassification, Task::FeatureExtraction],
    keys: &[&["audio_config", "text_config"], PROJECTION],
    older_keys: &[],
    only: &[],
    // Sizes of the towers, and what weights begin with in training.
    irrelevant_keys: &["hidden_size", "initializer_factor", "logit_scale_init_value", "num_hidden_layers"],
    // Buffers, and what towers alone leave out.
    unused_tensors: &[
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        ".num_batches_tracked",
        ".relative_position_index",
        "logit_scale_",
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The tower of recordings.
pub(crate) const AUDIO: Architecture = Architecture {
    model_type: "clap_audio_model",
    class_prefix: "ClapAudio",
    base: "audio_model",
    other_bases: &[],
    tasks: &[Task::FeatureExtraction],
    keys: &[audio::KEYS, PROJECTION],
    only: audio::ONLY,
    irrelevant_keys: audio::IRRELEVANT,
    build: |b, _| {
        let projection = Projection::read(b.config)?;
        let audio = Audio::read(b.config)?;
        give_audio(b, &audio, projection)?;
        Ok(Properties::default())
    },
    ..ARCHITECTURE
};

/// The tower of texts.
pub(crate) const TEXT: Architecture = Architecture {
    model_type: "clap_text_model",
    class_prefix: "ClapText",
    other_bases: &[],
    tasks: &[Task::FeatureExtraction],
    keys: &[bert::KEYS, PROJECTION],
    only: bert::ONLY,
    irrelevant_keys: &["initializer_factor"],
    build: |b, _| {
        let projection = Projection::read(b.config)?;
        let text = Text::read(b.config)?;
        give_text(b, &text, projection)
    },
    ..ARCHITECTURE
};

/// The keys of the projections of vectors.
const PROJECTION: &[&str] = &["projection_dim", "projection_hidden_act"];

const DEFAULTS: Defaults = Defaults {
    vocab_size: 50265,
    pad_token_id: 1,
    max_position_embeddings: 514,
    layer_norm_eps: 1e-12,
    ..Defaults::BERT
};

/// The projections of vectors, of both towers by the configuration of the whole.
#[derive(Clone, Copy)]
struct Projection {
    features: Size,
    activation: Activation,
}

impl Projection {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let activation = Activation::read(config, "projection_hidden_act", "relu")?;
        Ok(Self { features: config.size("projection_dim", 512)?, activation })
    }

    /// [rows, hidden] to [rows, features].
    fn apply(self, b: &mut Builder<'_>, x: ValueId, module: &str, hidden: Size) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let x = b.linear(x, &at("linear1"), self.features, hidden)?;
        let x = self.activation.apply(b, x, &at("activation"))?;
        b.linear(x, &at("linear2"), self.features, self.features)
    }
}

/// A tower of texts.
struct Text {
    layers: Settings,
    types: Size,
}

impl Text {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        Ok(Self { layers: bert::settings(config, &DEFAULTS)?, types: config.size("type_vocab_size", 1)? })
    }

    /// The vectors of all tokens, [texts, tokens, hidden], and that of each text, [texts, hidden].
    fn encode(&self, b: &mut Builder<'_>, ids: ValueId, mask: ValueId) -> Result<[ValueId; 2], ModelError> {
        let s = &self.layers;
        let pad = roberta::padding(b, s)?;
        let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let types = roberta::type_of_all(b, self.types, s.hidden)?;
        let places = roberta::position_ids(b, ids, pad, &Dim::constant(0))?;
        let positions = b.embedding(places, "embeddings.position_embeddings", s.positions, s.hidden)?;
        let x = encoder::embeddings(b, s, words, &[types, positions])?;
        let hidden = encoder::layers(b, s, &LAYER, x, Context::of_mask(mask))?;
        let pooled = heads::pool(b, s.hidden, hidden, "pooler.dense", Activation::TANH)?;
        Ok([hidden, pooled])
    }

    fn properties(&self, b: &Builder<'_>) -> Result<Properties, ModelError> {
        let pad = usize::try_from(roberta::padding(b, &self.layers)?).unwrap_or(usize::MAX);
        Ok(self.layers.properties(self.layers.positions.value.saturating_sub(pad.saturating_add(1))))
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let projection = Projection::read(b.config)?;
    let text_config = section(b.config, &["text_config"], &TEXT)?;
    let audio_config = section(b.config, &["audio_config"], &AUDIO)?;
    // Those of the whole are taken instead.
    for config in [&text_config, &audio_config] {
        PROJECTION.iter().for_each(|key| {
            config.get(key);
        });
    }
    let text = Text::read(&text_config)?;
    let audio = Audio::read(&audio_config)?;
    end_section(b.config, &text_config, &TEXT);
    end_section(b.config, &audio_config, &AUDIO);
    if b.towers == Some(Apart) && task == Task::FeatureExtraction {
        give_audio(b, &audio, projection)?;
        b.finish_as(names::AUDIO_TOWER, PartRole::Model);
        let properties = give_text(b, &text, projection)?;
        b.finish_as(names::TEXT_TOWER, PartRole::Model);
        return Ok(properties);
    }
    let ids = towers::ids(b, names::TEXTS, text.layers.vocabulary);
    let [_, pooled] = audio.encode(b)?;
    let recordings = projection.apply(b, pooled, "audio_projection", audio.hidden)?;
    let mask = towers::mask(b, names::TEXTS)?;
    let [_, pooled] = text.encode(b, ids, mask)?;
    let texts = projection.apply(b, pooled, "text_projection", text.layers.hidden)?;
    let texts = normalize(b, texts, "text_embeds")?;
    let recordings = normalize(b, recordings, "audio_embeds")?;
    let columns = b.transpose(recordings, &[1, 0], "audio_embeds.columns")?;
    let cosines = b.emit(MatMul { a: texts, b: columns }, "logits_per_text.cosines")?;
    let scaled = |b: &mut Builder<'_>, cosines, scale: &str, module: &str| {
        let weight = b.weight(&[scale], &[])?;
        let factor = b.emit(Unary { kind: UnaryKind::Exp, x: weight }, &format!("{scale}.exp"))?;
        b.binary(BinaryKind::Mul, [cosines, factor], module)
    };
    let per_text = scaled(b, cosines, "logit_scale_t", "logits_per_text.scaled")?;
    let turned = b.transpose(cosines, &[1, 0], "logits_per_audio.cosines")?;
    let per_recording = scaled(b, turned, "logit_scale_a", "logits_per_audio.scaled")?;
    b.give(names::LOGITS_PER_AUDIO, per_recording);
    b.give(names::LOGITS_PER_TEXT, per_text);
    b.give(names::TEXT_EMBEDDING, texts);
    b.give(names::AUDIO_EMBEDDING, recordings);
    text.properties(b)
}

/// The inputs and the outputs of a tower of texts alone.
fn give_text(b: &mut Builder<'_>, text: &Text, projection: Projection) -> Result<Properties, ModelError> {
    let ids = towers::ids(b, BATCH, text.layers.vocabulary);
    let mask = towers::mask(b, BATCH)?;
    let [hidden, pooled] = text.encode(b, ids, mask)?;
    if b.tensors.contains("text_projection.linear1.weight") {
        let projected = projection.apply(b, pooled, "text_projection", text.layers.hidden)?;
        b.give(names::TEXT_EMBEDDING, projected);
        b.give(names::HIDDEN, hidden);
    } else {
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, pooled);
    }
    text.properties(b)
}

/// The inputs and the outputs of a tower of recordings alone.
fn give_audio(b: &mut Builder<'_>, audio: &Audio, projection: Projection) -> Result<(), ModelError> {
    let [hidden, pooled] = audio.encode(b)?;
    if b.tensors.contains("audio_projection.linear1.weight") {
        let projected = projection.apply(b, pooled, "audio_projection", audio.hidden)?;
        b.give(names::AUDIO_EMBEDDING, projected);
        b.give(names::HIDDEN, hidden);
    } else {
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, pooled);
    }
    Ok(())
}
