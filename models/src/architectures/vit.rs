//! ViT (Dosovitskiy et al. 2020, arXiv:2010.11929), as `transformers/models/vit` has it: a
//! transformer over patches of an image, with norms before attention and feed-forward.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions};
use crate::layers::resample::Filter;
use crate::layers::vision::{self, Context, Defaults, Layers, Names, RENAMED};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vit",
    class_prefix: "ViT",
    base: "vit",
    other_bases: &[],
    renamed: RENAMED,
    tasks: TASKS,
    keys: KEYS,
    older_keys: &[],
    only: &[],
    // Of the head that reconstructs images.
    irrelevant_keys: &["encoder_stride"],
    // What masked patches are replaced by in training, then heads of other tasks.
    unused_tensors: &["embeddings.mask_token", "pooler.", "classifier.", "decoder."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The tasks of models of images alone.
pub(crate) const TASKS: &[Task] = &[Task::FeatureExtraction, Task::ImageClassification];

/// The table of positions.
pub(crate) const POSITIONS: &str = "embeddings.position_embeddings";

/// Keys of the layers, then of the pooler, which a classifier does without.
pub(crate) const KEYS: &[&[&str]] =
    &[vision::KEYS, patches::KEYS, &["qkv_bias"], &["pooler_act", "pooler_output_size"]];

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let (images, s) = read(b, &Defaults::VIT)?;
    let hidden = encode(b, &images, &s, &["embeddings.cls_token"])?;
    match task {
        Task::ImageClassification => classify_first(b, s.hidden, hidden)?,
        _ => features(b, &s, hidden)?,
    }
    Ok(Properties::default())
}

/// The configuration of ViT and of models with the same keys.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<(Images, Layers), ModelError> {
    let images = Images::resizable(b.config, 224, 16, false)?;
    let mut s = Layers::read(b.config, defaults, &Names::VIT)?;
    s.qkv_bias = [b.config.boolean("qkv_bias", true)?; 3];
    Ok((images, s))
}

/// The patches of an image after the tokens of some weights, with a position each, through all layers and the last norm:
/// [batch_size, tokens, hidden].
pub(crate) fn encode(b: &mut Builder<'_>, images: &Images, s: &Layers, before: &[&str]) -> Result<ValueId, ModelError> {
    let x = embed(b, images, s, before, Positions { before: before.len(), filter: Filter::Cubic, is_square: false })?;
    let x = s.apply(b, x, Context::default())?;
    b.layer_norm(x, "layernorm", s.hidden, s.eps)
}

/// What the first layer takes.
pub(crate) fn embed(
    b: &mut Builder<'_>,
    images: &Images,
    s: &Layers,
    before: &[&str],
    positions: Positions,
) -> Result<ValueId, ModelError> {
    const PATCHES: &str = "embeddings.patch_embeddings";
    let patches = images.embed(b, PATCHES, &format!("{PATCHES}.projection"), s.hidden, true)?;
    let mut parts = before.iter().map(|name| patches::tokens(b, name, 1, s.hidden)).collect::<Result<Vec<_>, _>>()?;
    parts.push(patches);
    let tokens = patches::join(b, parts, "embeddings.tokens")?;
    patches::add_resampled_positions(b, tokens, POSITIONS, images, s.hidden, positions)
}

/// `logits` of labels of the first token.
pub(crate) fn classify_first(b: &mut Builder<'_>, size: Size, hidden: ValueId) -> Result<(), ModelError> {
    let first = heads::first_token(b, hidden, "classifier")?;
    heads::classify(b, size, first, "classifier")
}

/// `last_hidden_state`, and `pooler_output` where the checkpoint has a pooler.
pub(crate) fn features(b: &mut Builder<'_>, s: &Layers, hidden: ValueId) -> Result<(), ModelError> {
    b.give(names::HIDDEN, hidden);
    let activation = Activation::read(b.config, "pooler_act", "tanh")?;
    let size = b.config.size_or("pooler_output_size", s.hidden)?;
    if b.tensors.contains("pooler.dense.weight") {
        let first = heads::first_token(b, hidden, "pooler.dense")?;
        let pooled = b.linear(first, "pooler.dense", size, s.hidden)?;
        let active = activation.apply(b, pooled, "pooler.dense.activation")?;
        b.give(names::POOLED, active);
    }
    Ok(())
}
