//! The towers of images of models that see, which are architectures of their own too.

use planish_ir::ValueId;

use crate::ModelError;
use crate::accept::{end_section, section};
use crate::architecture::Architecture;
use crate::architectures::{clip, siglip};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::vision::Layers;
use crate::names;

/// The configuration of a tower, in that of a model.
pub(crate) const VISION: &str = "vision_config";

/// What configurations of models that see have besides those of text models and towers: what is read where texts are made, and what
/// weights begin with.
pub(crate) const IRRELEVANT: &[&str] = &[
    "ignore_index",
    "image_seq_length",
    "initializer_range",
    "pad_token_id",
    "text_config",
    "use_cache",
    "vocab_size",
];

/// CLIP's tower, with what configurations of models that see have besides.
const CLIP: Architecture =
    Architecture { irrelevant_keys: &["initializer_factor", "logit_scale_init_value", "vocab_size"], ..clip::IMAGE };

/// SigLIP's tower, likewise.
const SIGLIP: Architecture = Architecture {
    irrelevant_keys: &[
        "initializer_factor",
        "num_image_tokens",
        "num_positions",
        "projection_dim",
        "projector_hidden_act",
        "vocab_size",
    ],
    ..siglip::IMAGE
};

/// A tower of images.
pub(crate) enum Tower {
    /// CLIP's, with a token of the whole image before its patches.
    Clip(clip::Image),
    /// SigLIP's.
    Siglip(siglip::Image),
}

impl Tower {
    /// Reads the configuration of the tower of a model; `usual` is its type where it does not say.
    pub(crate) fn read(config: &Config<'_>, usual: &'static str) -> Result<Self, ModelError> {
        if config.get(VISION).is_none() {
            return Err(config.error(format!("`{VISION}` is missing: it has the sizes of the tower of images")));
        }
        let kind = config.section(&[VISION])?.text("model_type", usual)?;
        if kind == CLIP.model_type {
            let own = section(config, &[VISION], &CLIP)?;
            let image = clip::Image::read(&own)?;
            end_section(config, &own, &CLIP);
            return Ok(Self::Clip(image));
        }
        if kind == SIGLIP.model_type {
            let own = section(config, &[VISION], &SIGLIP)?;
            let image = siglip::Image::read(&own)?;
            end_section(config, &own, &SIGLIP);
            return Ok(Self::Siglip(image));
        }
        Err(config.error(format!(
            "`{VISION}.model_type` is \"{kind}\", only \"{}\" and \"{}\" are supported in this type of model",
            CLIP.model_type, SIGLIP.model_type
        )))
    }

    fn layers(&self) -> &Layers {
        match self {
            Self::Clip(image) => &image.layers,
            Self::Siglip(image) => &image.layers,
        }
    }

    /// The features of a place of an image.
    pub(crate) fn hidden(&self) -> Size {
        self.layers().hidden
    }

    /// The number of layers.
    pub(crate) fn depth(&self) -> usize {
        self.layers().count.value
    }

    /// What is added to variances in norms.
    pub(crate) fn eps(&self) -> f64 {
        self.layers().eps
    }

    /// Rows and columns of patches.
    pub(crate) fn grid(&self) -> [usize; 2] {
        match self {
            Self::Clip(image) => image.images.grid(),
            Self::Siglip(image) => image.images.grid(),
        }
    }

    /// Adds the input of pixels: what the first layer takes, and what the first `count` layers give, each [images, places, hidden].
    pub(crate) fn states(&self, b: &mut Builder<'_>, count: usize) -> Result<Vec<ValueId>, ModelError> {
        begin(b);
        let x = match self {
            Self::Clip(image) => image.embed(b)?,
            Self::Siglip(image) => image.embed(b)?,
        };
        let states = self.layers().states(b, x, count)?;
        ["vision_model.post_layernorm", "vision_model.head"].iter().for_each(|module| b.tensors.leave(module));
        end(b);
        Ok(states)
    }

    /// Adds the input of pixels: what the whole tower gives, [images, places, hidden].
    pub(crate) fn last(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        begin(b);
        let hidden = match self {
            Self::Clip(image) => {
                b.tensors.leave("vision_model.post_layernorm");
                image.encode(b)?
            }
            Self::Siglip(image) => {
                b.tensors.leave("vision_model.head");
                image.encode(b)?
            }
        };
        end(b);
        Ok(hidden)
    }
}

/// Tensors of a tower saved with or without `vision_model`.
const RENAMED: &[(&str, &str)] = &[("vision_model.", "")];

/// Begins the part of a tower.
pub(crate) fn begin(b: &mut Builder<'_>) {
    b.images = names::IMAGES;
    b.tensors.turn_to(&["vision_tower", "vision_model"], RENAMED);
    b.tensors.leave("vision_model.embeddings.position_ids");
}

/// Ends a tower: tensors beside it follow.
pub(crate) fn end(b: &mut Builder<'_>) {
    b.tensors.turn_to(&[], &[]);
}
