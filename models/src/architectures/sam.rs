//! SAM (Kirillov et al. 2023, arXiv:2304.02643), as `transformers/models/sam` has it, in two parts: the vision encoder, which an
//! image needs once, and the prompt encoder with the mask decoder, which gives masks of points in that image.

mod decoder;
mod encoder;

use planish_ir::ops::{BinaryKind, Concat, Flag, Linear, Unary, UnaryKind};
use planish_ir::{PartRole, ValueId};

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::patches::MAX_SIDE;
use crate::{ModelError, Task};

use decoder::Decoder;
use encoder::Encoder;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "sam",
    class_prefix: "Sam",
    base: "sam",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::FeatureExtraction],
    keys: &[&["mask_decoder_config", "prompt_encoder_config", "tie_word_embeddings", "vision_config"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &["initializer_factor"],
    unused_tensors: &[
        // Of prompts that are masks or boxes, which the exported graph does not take.
        "prompt_encoder.mask_embed.",
        "prompt_encoder.point_embed.2.",
        "prompt_encoder.point_embed.3.",
        // Of the mask that is given alone if a caller asks for one mask.
        "mask_decoder.output_hypernetworks_mlps.0.",
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

const VISION: Architecture = Architecture {
    model_type: "sam_vision_model",
    keys: &[encoder::KEYS, SIDES],
    // What weights begin with, and what an older configuration has besides.
    irrelevant_keys: &["initializer_factor", "intermediate_size", "projection_dim", "scale"],
    ..ARCHITECTURE
};

const PROMPT: Architecture = Architecture {
    model_type: "sam_prompt_encoder",
    keys: &[SIDES, &["hidden_size", "image_embedding_size", "num_point_embeddings"]],
    // Of prompts that are masks.
    irrelevant_keys: &["hidden_act", "layer_norm_eps", "mask_input_channels"],
    ..ARCHITECTURE
};

const MASKS: Architecture =
    Architecture { model_type: "sam_mask_decoder", keys: &[decoder::KEYS], irrelevant_keys: &[], ..ARCHITECTURE };

const SIDES: &[&str] = &["image_size", "patch_size"];

/// The images that a part of the model is made for, which are squares.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sides {
    /// Rows of pixels.
    image: usize,
    /// Rows of patches.
    grid: usize,
    /// Rows of pixels of a patch.
    patch: usize,
}

impl Sides {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let (image, patch) = (config.size("image_size", 1024)?, config.size("patch_size", 16)?);
        let [image, patch] = [image, patch].map(|size| size.value);
        if !u64::try_from(image).is_ok_and(|image| image <= MAX_SIDE) {
            return Err(config.error(format!("`image_size` is {image}: at most {MAX_SIDE} is supported")));
        }
        if !image.is_multiple_of(patch) {
            return Err(config.error(format!("`image_size` is {image}, which `patch_size`, {patch}, does not divide")));
        }
        Ok(Self { image, grid: image / patch, patch })
    }
}

/// The configuration of what both parts share.
#[derive(Clone, Copy)]
struct Shared {
    sides: Sides,
    /// The channels of what the encoder gives.
    hidden: Size,
    /// Random frequencies, which sines and cosines of places are of.
    frequencies: Size,
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let vision = section(b.config, &["vision_config"], &VISION)?;
    let encoder = Encoder::read(&vision)?;
    end_section(b.config, &vision, &VISION);
    let prompt = section(b.config, &["prompt_encoder_config"], &PROMPT)?;
    let (sides, hidden) = (Sides::read(&prompt)?, prompt.size("hidden_size", 256)?);
    let grid = prompt.size("image_embedding_size", sides.grid)?;
    let kinds = prompt.size("num_point_embeddings", 4)?;
    end_section(b.config, &prompt, &PROMPT);
    let masks = section(b.config, &["mask_decoder_config"], &MASKS)?;
    let decoder = Decoder::read(&masks)?;
    end_section(b.config, &masks, &MASKS);
    if sides != encoder.sides || grid.value != sides.grid {
        return Err(b.config.error(format!(
            "`prompt_encoder_config` has images of {} with {} patches on a side, and `vision_config` of {} with {}: they are the \
             same images",
            sides.image, grid.value, encoder.sides.image, encoder.sides.grid
        )));
    }
    let features = [encoder.output, decoder.hidden, Size::derived(2 * encoder.frequencies.value, "2 * num_pos_feats")];
    if let Some(other) = features.iter().find(|other| other.value != hidden.value) {
        return Err(b.config.error(format!(
            "{hidden} of `prompt_encoder_config`, but {other}: images, their positions, prompts and masks have as many features"
        )));
    }
    if kinds.value < 2 {
        return Err(prompt.error(format!("{kinds}: points of the background and of an object have an embedding each")));
    }
    let shared = Shared { sides, hidden, frequencies: encoder.frequencies };
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    encoder.build(b, &shared, &frequencies(tied, [OF_IMAGES, OF_POINTS]))?;
    b.finish(PartRole::VisionEncoder);
    decoder.build(b, &shared, &frequencies(tied, [OF_POINTS, OF_IMAGES]))?;
    b.finish(PartRole::MaskDecoder);
    Ok(Properties::default())
}

const OF_IMAGES: &str = "shared_image_embedding.positional_embedding";
const OF_POINTS: &str = "prompt_encoder.shared_embedding.positional_embedding";

/// The names of a table of frequencies: its own, and where tables are tied that of the other.
fn frequencies(tied: bool, [own, other]: [&'static str; 2]) -> Vec<&'static str> {
    if tied { vec![own, other] } else { vec![own] }
}

/// Sines and then cosines of random frequencies (Tancik et al. 2020, arXiv:2006.10739) of places, of which x and y are from -1 to 1:
/// [.., 2] to [.., 2 * frequencies].
fn encode_places(
    b: &mut Builder<'_>,
    places: ValueId,
    names: &[&str],
    frequencies: Size,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let weight = b.weight(names, &[Size::derived(2, "x and y"), frequencies])?;
    let waves = b.emit(Linear { transposed: Flag(true), ..Linear::new(places, weight, None) }, &at("waves"))?;
    let angles = b.with_number(BinaryKind::Mul, waves, std::f64::consts::TAU, &at("angles"), "model_type")?;
    let sines = b.emit(Unary { kind: UnaryKind::Sin, x: angles }, &at("sin"))?;
    let cosines = b.emit(Unary { kind: UnaryKind::Cos, x: angles }, &at("cos"))?;
    let axis = b.graph.ty(angles).shape.rank() - 1;
    b.emit(Concat { parts: vec![sines, cosines], axis }, module)
}
