//! BLIP's captioner (Li et al. 2022, arXiv:2201.12086), as `BlipForConditionalGeneration` of the transformers library has it: a
//! transformer over patches of an image, with norms before attention and feed-forward, and a BERT that attends to what it gives.

use planish_ir::ValueId;
use planish_ir::ops::{Attention, Real};

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::vision_encoder_decoder::{self as pair, BLIP_TEXT};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions};
use crate::layers::resample::Filter;
use crate::layers::towers::SECTIONS;
use crate::layers::vision;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "blip",
    class_prefix: "Blip",
    base: "blip",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ImageToText],
    keys: &[SECTIONS],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // Of models that compare images and texts.
        "image_text_hidden_size",
        "logit_scale_init_value",
        "projection_dim",
        // Training.
        "initializer_factor",
        "label_smoothing",
        // Older names of sections, which count for less.
        "text_config_dict",
        "vision_config_dict",
    ],
    unused_tensors: &[],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The encoder of images.
pub(crate) const IMAGE: Architecture = Architecture {
    model_type: "blip_vision_model",
    class_prefix: "BlipVision",
    tasks: &[Task::FeatureExtraction],
    keys: &[vision::KEYS, patches::KEYS],
    irrelevant_keys: &["projection_dim"],
    build: |b, _| build_image(b),
    ..ARCHITECTURE
};

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let [text, image] = [SECTIONS[0], SECTIONS[1]];
    let text_config = section(b.config, &[text], &BLIP_TEXT.architecture)?;
    let image_config = section(b.config, &[image], &IMAGE)?;
    let given = b.of_model(&image_config, &IMAGE, "vision_model", |b| pair::encode(b, &IMAGE))?;
    let properties =
        b.of_model(&text_config, &BLIP_TEXT.architecture, "text_decoder", |b| pair::decode(b, &BLIP_TEXT, given))?;
    end_section(b.config, &text_config, &BLIP_TEXT.architecture);
    end_section(b.config, &image_config, &IMAGE);
    Ok(properties)
}

/// The sizes of the encoder.
struct Settings {
    images: Images,
    hidden: Size,
    intermediate: Size,
    heads: Size,
    layers: Size,
    activation: Activation,
    eps: f64,
}

fn build_image(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let config = b.config;
    let s = Settings {
        images: Images::resizable(config, 384, 16, false)?,
        hidden: config.size("hidden_size", 768)?,
        intermediate: config.size("intermediate_size", 3072)?,
        heads: config.size("num_attention_heads", 12)?,
        layers: config.size("num_hidden_layers", 12)?,
        activation: Activation::read(config, "hidden_act", "gelu")?,
        eps: config.positive("layer_norm_eps", 1e-5)?,
    };
    if !s.hidden.value.is_multiple_of(s.heads.value) {
        return Err(config.error(format!("{} is not divisible by {}", s.hidden, s.heads)));
    }
    let patches = s.images.embed(b, "embeddings", "embeddings.patch_embedding", s.hidden, true)?;
    let class = patches::tokens(b, "embeddings.class_embedding", 1, s.hidden)?;
    let tokens = patches::join(b, vec![class, patches], "embeddings.tokens")?;
    let positions = Positions { before: 1, filter: Filter::Cubic, is_square: false };
    let table = "embeddings.position_embedding";
    let x = patches::add_resampled_positions(b, tokens, table, &s.images, s.hidden, positions)?;
    let x = (0..s.layers.value).try_fold(x, |x, layer| block(b, &s, x, &format!("encoder.layers.{layer}")))?;
    let x = b.layer_norm(x, "post_layernorm", s.hidden, s.eps)?;
    b.give(names::HIDDEN, x);
    if !b.is_bare {
        let first = heads::first_token(b, x, "pooler")?;
        let pooled = b.layer_norm(first, "post_layernorm", s.hidden, s.eps)?;
        b.give(names::POOLED, pooled);
    }
    Ok(Properties::default())
}

/// The layer of a path.
fn block(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let packed = Size::derived(3 * s.hidden.value, "3 * hidden_size");
    let normal = b.layer_norm(x, &at("layer_norm1"), s.hidden, s.eps)?;
    let packed = b.linear(normal, &at("self_attn.qkv"), packed, s.hidden)?;
    let [q, k, v] = b.thirds(packed, s.hidden, &at("self_attn.split"))?;
    let scale = Real(1.0 / ((s.hidden.value / s.heads.value) as f64).sqrt());
    let attended = b.emit(Attention::new(q, k, v, s.heads.value, scale), &at("self_attn"))?;
    let projected = b.linear(attended, &at("self_attn.projection"), s.hidden, s.hidden)?;
    let x = b.add(projected, x, &at("self_attn.add"))?;

    let normal = b.layer_norm(x, &at("layer_norm2"), s.hidden, s.eps)?;
    let up = b.linear(normal, &at("mlp.fc1"), s.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("mlp.activation"))?;
    let down = b.linear(active, &at("mlp.fc2"), s.hidden, s.intermediate)?;
    b.add(down, x, &at("mlp.add"))
}
