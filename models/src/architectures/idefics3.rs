//! Idefics3 (Laurençon et al. 2024, arXiv:2408.12637) and SmolVLM (Marafioti et al. 2025, arXiv:2504.05299), as
//! `transformers/models/idefics3` and `smolvlm` have them: SigLIP's tower, of which squares of patches become one place.

use planish_ir::ops::Gather;
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::eyes::{self, VISION};
use crate::architectures::{llava, siglip};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{BATCH, Builder};
use crate::layers::patches::{self, Images, dim};
use crate::layers::sight::{self, Seen};
use crate::layers::towers::IMAGE_LAYERS;
use crate::layers::vision::{self, Context, Defaults, Layers};
use crate::names;
use crate::{ModelError, PlacesForm, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "idefics3",
    class_prefix: "Idefics3",
    keys: &[sight::TOKEN_KEYS, &[VISION, SCALE, "tie_word_embeddings"]],
    irrelevant_keys: &[
        "_pad_token_id",
        "image_seq_length",
        "initializer_range",
        "pad_token_id",
        "text_config",
        "use_cache",
        "vocab_size",
    ],
    build,
    ..llava::ARCHITECTURE
};

pub(crate) const SMOLVLM: Architecture =
    Architecture { model_type: "smolvlm", class_prefix: "SmolVLM", ..ARCHITECTURE };

/// The tower, under the names that configurations have for it.
const TOWERS: [Architecture; 4] =
    [tower("idefics3_vision"), tower("smolvlm_vision"), tower("idefics3"), tower("smolvlm")];

const fn tower(model_type: &'static str) -> Architecture {
    Architecture {
        model_type,
        keys: &[vision::KEYS, patches::KEYS],
        // How pictures become images, which preprocessor_config.json says.
        irrelevant_keys: &["max_image_size", "size", "tie_word_embeddings"],
        ..siglip::IMAGE
    }
}

const SCALE: &str = "scale_factor";

const DEFAULTS: Defaults = Defaults { hidden: 1152, heads: 16, ..siglip::DEFAULTS };

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    // What it says is in the configuration of the text model.
    b.config.get("tie_word_embeddings");
    let token = sight::token(b.config, sight::TOKEN_KEYS, 128_257)?;
    let scale = b.config.size(SCALE, 2)?;
    if b.config.get(VISION).is_none() {
        return Err(b.config.error(format!("`{VISION}` is missing: it has the sizes of the tower of images")));
    }
    let (layers, images) = read_tower(b.config)?;
    let [rows, columns] = images.grid();
    if rows != columns || !rows.is_multiple_of(scale.value) {
        return Err(b.config.error(format!(
            "{scale}, which does not divide {rows} x {columns} patches of an image; take images of other sides, which are squares"
        )));
    }
    let (properties, hidden) = sight::text(b, Seen::InOrder)?;
    eyes::begin(b);
    let x = encode(b, &layers, &images)?;
    eyes::end(b);
    let x = gather_squares(b, x, rows, scale.value, layers.hidden)?;
    let size = Size::derived(layers.hidden.value * scale.value * scale.value, "hidden_size * scale_factor^2");
    let x = b.projection(x, "connector.modality_projection.proj", [hidden, size], false)?;
    sight::finish(b, x, hidden)?;
    Ok(Properties { places: Some(token.written(PlacesForm::Tiles)), ..properties })
}

fn read_tower(config: &Config<'_>) -> Result<(Layers, Images), ModelError> {
    let kind = config.section(&[VISION])?.text("model_type", TOWERS[0].model_type)?;
    let architecture = TOWERS.iter().find(|tower| tower.model_type == kind).unwrap_or(&TOWERS[0]);
    let own = section(config, &[VISION], architecture)?;
    let layers = Layers::read(&own, &DEFAULTS, &IMAGE_LAYERS)?;
    let images = Images::resizable(&own, 224, 32, true)?;
    end_section(config, &own, architecture);
    Ok((layers, images))
}

/// Adds the input of pixels, f32[batch_size, num_images, channels, height, width]: what the tower gives, [batch_size * num_images,
/// patches, hidden].
fn encode(b: &mut Builder<'_>, s: &Layers, images: &Images) -> Result<ValueId, ModelError> {
    const MODULE: &str = "vision_model.embeddings";
    let size = s.hidden;
    let (rows, of_row) = (Dim::symbol(BATCH), Dim::symbol(names::IMAGES_OF_ROW));
    let [height, width] = images.image.map(dim);
    let sides = [dim(images.channels.value), height, width];
    let dims = [rows.clone(), of_row.clone()].into_iter().chain(sides.clone());
    let pixels = b.floats(names::PIXELS.0, names::PIXELS.1, dims);
    let all = sight::product(b, &rows, &of_row)?;
    let pixels = b.reshape(pixels, [all].into_iter().chain(sides), "vision_model.images")?;
    let patches = images.project(b, pixels, [MODULE, "vision_model.embeddings.patch_embedding"], size, true)?;
    let [trained, grid] = [images.trained_grid(), images.grid()];
    let count = Size::derived(trained[0] * trained[0], "patches of a square by `image_size` and `patch_size`");
    let mut positions = b.weight(&["vision_model.embeddings.position_embedding.weight"], &[count, size])?;
    if grid != [trained[0]; 2] {
        // Coordinates are parts of a side.
        let place = |at: usize, count: usize| at * trained[0] / count;
        let places = (0..grid[0]).flat_map(|row| (0..grid[1]).map(move |column| [row, column]));
        let rows = places.map(|[row, column]| place(row, grid[0]) * trained[0] + place(column, grid[1]));
        let numbers: Vec<f64> = rows.map(|row| row as f64).collect();
        let indices = Weight::numbers(DType::I64, vec![numbers.len()], &numbers);
        let indices = indices.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
        let indices = b.graph.add_weight("vision_model.embeddings.position_ids", indices, Origin::Unknown);
        positions = b.emit(Gather { x: positions, indices, axis: 0 }, "vision_model.embeddings.position_embedding")?;
    }
    let x = b.add(patches, positions, "vision_model.embeddings.add")?;
    let x = s.apply(b, x, Context::default())?;
    b.layer_norm(x, "vision_model.post_layernorm", size, s.eps)
}

/// Squares of patches as one place with the features of all: [images, side * side, hidden] to [images, places, hidden * scale * scale].
fn gather_squares(
    b: &mut Builder<'_>,
    x: ValueId,
    side: usize,
    scale: usize,
    hidden: Size,
) -> Result<ValueId, ModelError> {
    let images = b.graph.ty(x).shape[0].clone();
    let (squares, size) = (side / scale, dim(hidden.value));
    let parts = [images.clone(), dim(squares), dim(scale), dim(squares), dim(scale), size];
    let x = b.reshape(x, parts, "connector.squares")?;
    let x = b.transpose(x, &[0, 1, 3, 2, 4, 5], "connector.by_square")?;
    let features = dim(hidden.value * scale * scale);
    b.reshape(x, [images, dim(squares * squares), features], "connector.places")
}
