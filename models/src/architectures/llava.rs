//! LLaVA (Liu et al. 2023, arXiv:2304.08485), as `transformers/models/llava` has it: places of images as a tower's layers see them go
//! through two layers, and take the places of tokens.

use planish_ir::ops::Concat;
use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::eyes::{self, Tower, VISION};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::patches;
use crate::layers::sight::{self, Seen};
use crate::{ModelError, PlacesForm, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "llava",
    class_prefix: "Llava",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ImageTextToText],
    keys: &[sight::TOKEN_KEYS, &[VISION, BIAS, ACTIVATION, LAYER, STRATEGY, "tie_word_embeddings"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: eyes::IRRELEVANT,
    unused_tensors: &[],
    pad_token_id: None,
    gguf: None,
    build,
};

const BIAS: &str = "multimodal_projector_bias";
const ACTIVATION: &str = "projector_hidden_act";
const LAYER: &str = "vision_feature_layer";
const STRATEGY: &str = "vision_feature_select_strategy";

/// The projection of what a tower sees.
struct Projector {
    /// The layers that are looked through, from 0 for what the first one takes.
    layers: Vec<usize>,
    /// Whether the first place is left out.
    without_first: bool,
    bias: bool,
    activation: Activation,
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    // What it says is in the configuration of the text model.
    b.config.get("tie_word_embeddings");
    let token = sight::token(b.config, sight::TOKEN_KEYS, 32_000)?;
    let without_first = match b.config.text(STRATEGY, "default")? {
        "default" => true,
        "full" => false,
        other => {
            return Err(b.config.error(format!("`{STRATEGY}` is \"{other}\", expected \"default\" or \"full\"")));
        }
    };
    let bias = b.config.boolean(BIAS, true)?;
    let activation = Activation::read(b.config, ACTIVATION, "gelu")?;
    let named = b.config.get(LAYER);
    let tower = Tower::read(b.config, "clip_vision_model")?;
    let layers = feature_layers(b.config, named, tower.depth())?;
    let projector = Projector { layers, without_first, bias, activation };
    let (properties, hidden) = sight::text(b, Seen::InOrder)?;
    projector.build(b, &tower, hidden)?;
    Ok(Properties { places: Some(token.written(PlacesForm::Plain)), ..properties })
}

/// The layers of a key that has one or several, of a tower of so many; negative numbers count from the end.
fn feature_layers(config: &Config<'_>, value: Option<&Value>, depth: usize) -> Result<Vec<usize>, ModelError> {
    let default = Value::from(-2);
    let value = value.unwrap_or(&default);
    let layer = |value: &Value| {
        let number = value.as_i64()?;
        let count = i64::try_from(depth).ok()?.checked_add(1)?;
        let number = if number < 0 { number.checked_add(count)? } else { number };
        usize::try_from(number).ok().filter(|number| *number <= depth)
    };
    let layers = match value {
        Value::Array(all) => all.iter().map(layer).collect::<Option<Vec<usize>>>(),
        one => layer(one).map(|layer| vec![layer]),
    };
    layers
        .filter(|layers| !layers.is_empty())
        .ok_or_else(|| config.unexpected(LAYER, value, &format!("a layer, or several, from -{} to {depth}", depth + 1)))
}

impl Projector {
    /// The part of images.
    fn build(&self, b: &mut Builder<'_>, tower: &Tower, hidden: Size) -> Result<(), ModelError> {
        let count = self.layers.iter().copied().max().unwrap_or(0);
        let states = tower.states(b, count)?;
        let mut seen: Vec<_> = self.layers.iter().map(|layer| states[*layer]).collect();
        if self.without_first {
            let [rows, columns] = tower.grid();
            let end = match tower {
                Tower::Clip(_) => rows * columns + 1,
                Tower::Siglip(_) => rows * columns,
            };
            for (i, x) in seen.iter_mut().enumerate() {
                *x = patches::between(b, *x, [1, end], &format!("image_features.places.{i}"))?;
            }
        }
        let size = Size::derived(seen.len() * tower.hidden().value, "layers of `vision_feature_layer` * hidden_size");
        let x = match seen[..] {
            [one] => one,
            _ => b.emit(Concat { parts: seen, axis: 2 }, "image_features.layers")?,
        };
        let x = b.projection(x, "multi_modal_projector.linear_1", [hidden, size], self.bias)?;
        let x = self.activation.apply(b, x, "multi_modal_projector.act")?;
        let x = b.projection(x, "multi_modal_projector.linear_2", [hidden, hidden], self.bias)?;
        sight::finish(b, x, hidden)
    }
}
