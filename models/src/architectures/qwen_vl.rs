//! Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3-VL-MoE with their towers of images, as `transformers/models/qwen2_vl`, `qwen2_5_vl`,
//! `qwen3_vl` and `qwen3_vl_moe` have them: positions of tokens have three coordinates, and in Qwen3-VL what some layers of the tower see
//! is added after the first layers of the decoder.

use crate::ModelError;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::eyes::VISION;
use crate::architectures::{llava, qwen_eyes, vit};
use crate::checkpoint::config::Config;
use crate::layers::builder::Builder;
use crate::layers::sight::{self, Form, Seen};
use crate::places::PlacesForm;

pub(crate) const QWEN2: Architecture = Architecture {
    model_type: "qwen2_vl",
    class_prefix: "Qwen2VL",
    keys: &[&[VISION, "image_token_id", "tie_word_embeddings"]],
    irrelevant_keys: &[
        // Of the text model, in configurations that have its keys beside those of the tower.
        "attention_dropout",
        "bos_token_id",
        "eos_token_id",
        "hidden_act",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "max_window_layers",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "pad_token_id",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "text_config",
        "use_cache",
        "use_sliding_window",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
        "vision_token_id",
        "vocab_size",
    ],
    build: |b, _| build(b, &QWEN2_TOWERS, qwen_eyes::read_qwen2),
    ..llava::ARCHITECTURE
};

pub(crate) const QWEN2_5: Architecture = Architecture {
    model_type: "qwen2_5_vl",
    class_prefix: "Qwen2_5_VL",
    build: |b, _| build(b, &QWEN2_5_TOWERS, qwen_eyes::read_qwen2_5),
    ..QWEN2
};

pub(crate) const QWEN3: Architecture = Architecture {
    model_type: "qwen3_vl",
    class_prefix: "Qwen3VL",
    irrelevant_keys: &[
        "initializer_range",
        "text_config",
        "use_cache",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
        "vocab_size",
    ],
    build: |b, _| build(b, &QWEN3_TOWERS, qwen_eyes::read_qwen3),
    ..QWEN2
};

pub(crate) const QWEN3_MOE: Architecture =
    Architecture { model_type: "qwen3_vl_moe", class_prefix: "Qwen3VLMoe", ..QWEN3 };

/// The towers, under the names that configurations have for them.
const QWEN2_TOWERS: [Architecture; 2] = [tower("qwen2_vl_vision", QWEN2_KEYS), tower("qwen2_vl", QWEN2_KEYS)];
const QWEN2_5_TOWERS: [Architecture; 2] = [tower("qwen2_5_vl_vision", QWEN2_5_KEYS), tower("qwen2_5_vl", QWEN2_5_KEYS)];
const QWEN3_TOWERS: [Architecture; 4] = [
    tower("qwen3_vl_vision", QWEN3_KEYS),
    tower("qwen3_vl", QWEN3_KEYS),
    tower("qwen3_vl_moe_vision", QWEN3_KEYS),
    tower("qwen3_vl_moe", QWEN3_KEYS),
];

const QWEN2_KEYS: &[&[&str]] = &[qwen_eyes::KEYS, &["embed_dim", "mlp_ratio"]];
const QWEN2_5_KEYS: &[&[&str]] =
    &[qwen_eyes::KEYS, &["fullatt_block_indexes", "intermediate_size", "out_hidden_size", "window_size"]];
const QWEN3_KEYS: &[&[&str]] = &[
    qwen_eyes::KEYS,
    &["deepstack_visual_indexes", "intermediate_size", "num_position_embeddings", "out_hidden_size"],
];

const fn tower(model_type: &'static str, keys: &'static [&'static [&'static str]]) -> Architecture {
    Architecture {
        model_type,
        keys,
        older_keys: qwen_eyes::OLDER_KEYS,
        irrelevant_keys: qwen_eyes::IRRELEVANT,
        only: &[],
        ..vit::ARCHITECTURE
    }
}

type Read = fn(&Config<'_>) -> Result<qwen_eyes::Tower, ModelError>;

fn build(b: &mut Builder<'_>, towers: &[Architecture], read: Read) -> Result<Properties, ModelError> {
    // What it says is in the configuration of the text model.
    b.config.get("tie_word_embeddings");
    let token = sight::token(b.config, &["image_token_id"], 151_655)?;
    if b.config.get(VISION).is_none() {
        return Err(b.config.error(format!("`{VISION}` is missing: it has the sizes of the tower of images")));
    }
    let kind = b.config.section(&[VISION])?.text("model_type", towers[0].model_type)?;
    let architecture = towers.iter().find(|tower| tower.model_type == kind).unwrap_or(&towers[0]);
    let own = section(b.config, &[VISION], architecture)?;
    let tower = read(&own)?;
    end_section(b.config, &own, architecture);
    let form = Form { coordinates: true, deep: tower.deep() };
    let (properties, hidden) = sight::text_in_form(b, Seen::InOrder, form)?;
    tower.build(b, hidden)?;
    let places = token.written(PlacesForm::Grid { merge: tower.merge.value });
    Ok(Properties { places: Some(places), ..properties })
}
