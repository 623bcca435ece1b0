//! Gemma 3 with its tower of images (Gemma Team 2025, arXiv:2503.19786), as `transformers/models/gemma3` has it: patches are pooled to
//! fewer places, and the tokens of an image see each other.

use planish_ir::ops::{Flag, Linear, Reduce, ReduceKind, Slice};
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::architectures::eyes::{Tower, VISION};
use crate::architectures::llava;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::patches::dim;
use crate::layers::sight::{self, Seen};
use crate::{ModelError, PlacesForm, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma3",
    class_prefix: "Gemma3",
    keys: &[sight::TOKEN_KEYS, BEGIN, END, &[VISION, PLACES, "tie_word_embeddings"]],
    irrelevant_keys: &["initializer_range", "text_config", "use_cache", "vocab_size"],
    build,
    ..llava::ARCHITECTURE
};

const PLACES: &str = "mm_tokens_per_image";

/// The keys of the tokens that begin and end an image.
const BEGIN: &[&str] = &["boi_token_id", "boi_token_index"];
const END: &[&str] = &["eoi_token_id", "eoi_token_index"];

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    // What it says is in the configuration of the text model.
    b.config.get("tie_word_embeddings");
    let token = sight::token(b.config, sight::TOKEN_KEYS, 262_144)?;
    let (begin, end) = (sight::id(b.config, BEGIN, 255_999)?, sight::id(b.config, END, 256_000)?);
    let places = b.config.size(PLACES, 256)?;
    let tower = Tower::read(b.config, "siglip_vision_model")?;
    let [rows, columns] = tower.grid();
    let side = places.value.isqrt();
    if rows != columns || rows < side {
        return Err(b.config.error(format!(
            "{places}, which {rows} x {columns} patches of an image cannot be pooled to: images are squares of at least \
             {side} x {side} patches"
        )));
    }
    let (properties, hidden) = sight::text(b, Seen::Images)?;
    let x = tower.last(b)?;
    let x = pool(b, x, [rows, rows / side], tower.hidden())?;
    let size = tower.hidden();
    let normal = b.rms_norm_around_one(x, "multi_modal_projector.mm_soft_emb_norm", size, tower.eps())?;
    let weight = b.weight(&["multi_modal_projector.mm_input_projection_weight"], &[size, hidden])?;
    let projection = Linear { transposed: Flag(true), ..Linear::new(normal, weight, None) };
    let x = b.emit(projection, "multi_modal_projector.mm_input_projection")?;
    sight::finish(b, x, hidden)?;
    Ok(Properties { places: Some(token.written(PlacesForm::Framed { begin, end })), ..properties })
}

/// The means of squares of patches, `kernel` on a side, of [images, side * side, hidden]. The last rows and columns that fill no square
/// are left out.
fn pool(b: &mut Builder<'_>, x: ValueId, [side, kernel]: [usize; 2], hidden: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("multi_modal_projector.avg_pool.{name}");
    let (images, size) = (b.graph.ty(x).shape[0].clone(), dim(hidden.value));
    let pooled = side / kernel;
    let mut x = b.reshape(x, [images.clone(), dim(side), dim(side), size.clone()], &at("grid"))?;
    if pooled * kernel < side {
        for axis in [1, 2] {
            let slice = Slice { x, axis, start: Dim::constant(0), end: dim(pooled * kernel) };
            x = b.emit(slice, &at(if axis == 1 { "rows" } else { "columns" }))?;
        }
    }
    let squares = [images.clone(), dim(pooled), dim(kernel), dim(pooled), dim(kernel), size.clone()];
    let x = b.reshape(x, squares, &at("squares"))?;
    let x = b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![2, 4], keep: false }, &at("mean"))?;
    b.reshape(x, [images, dim(pooled * pooled), size], &at("places"))
}
