//! PaliGemma (Beyer et al. 2024, arXiv:2407.07726), as `transformers/models/paligemma` has it: all patches take the places of tokens, and
//! the tokens of a prompt see each other.

use crate::architecture::{Architecture, Properties};
use crate::architectures::eyes::{Tower, VISION};
use crate::architectures::llava;
use crate::layers::builder::Builder;
use crate::layers::sight::{self, Seen};
use crate::{ModelError, PlacesForm, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "paligemma",
    class_prefix: "PaliGemma",
    keys: &[sight::TOKEN_KEYS, &[VISION, FEATURES, "tie_word_embeddings"]],
    irrelevant_keys: &[
        "bos_token_id",
        "eos_token_id",
        "hidden_size",
        "ignore_index",
        "image_seq_length",
        "initializer_range",
        "num_hidden_layers",
        "pad_token_id",
        "text_config",
        "use_cache",
        "vocab_size",
    ],
    build,
    ..llava::ARCHITECTURE
};

const FEATURES: &str = "projection_dim";

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    // What it says is in the configuration of the text model.
    b.config.get("tie_word_embeddings");
    let token = sight::token(b.config, sight::TOKEN_KEYS, 256_000)?;
    let features = b.config.size(FEATURES, 2048)?;
    let tower = Tower::read(b.config, "siglip_vision_model")?;
    let (properties, hidden) = sight::text(b, Seen::Prompt)?;
    if features.value != hidden.value {
        return Err(b
            .config
            .error(format!("places of images have {features}, and those of tokens {hidden}: they are as many")));
    }
    let x = tower.last(b)?;
    let x = b.linear(x, "multi_modal_projector.linear", features, tower.hidden())?;
    sight::finish(b, x, hidden)?;
    Ok(Properties { places: Some(token.written(PlacesForm::First)), ..properties })
}
