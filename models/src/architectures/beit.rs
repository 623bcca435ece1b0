//! BEiT (Bao et al. 2021, arXiv:2106.08254) and data2vec for images (Baevski et al. 2022, arXiv:2202.03555), as
//! `transformers/models/{beit,data2vec}` have them: ViT with biases of scores by the distance of patches, and factors of what
//! attention and feed-forward give.

use planish_ir::ops::Gather;
use planish_ir::{ValueId, Weight};

use super::vit;
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions, TOO_LONG};
use crate::layers::resample::{Filter, resample};
use crate::layers::shifted;
use crate::layers::vision::{self, Context, Defaults, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "beit",
    class_prefix: "Beit",
    base: "beit",
    other_bases: &[],
    renamed: &[
        ("encoder.relative_position_bias", "shared_position_bias"),
        ("attention.attention.relative_position_bias", "relative_position_bias"),
        ("encoder.layer.", "layers."),
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
    ],
    tasks: vit::TASKS,
    keys: &[vision::KEYS, patches::KEYS, KEYS],
    older_keys: &[],
    only: &[],
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build: |b, task| build(b, task, true),
};

pub(crate) const DATA2VEC: Architecture = Architecture {
    model_type: "data2vec-vision",
    class_prefix: "Data2VecVision",
    base: "data2vec_vision",
    renamed: &[],
    build: |b, task| build(b, task, false),
    ..ARCHITECTURE
};

const KEYS: &[&str] = &[
    "head_dim",
    "layer_scale_init_value",
    "use_absolute_position_embeddings",
    "use_mean_pooling",
    "use_relative_position_bias",
    "use_shared_relative_position_bias",
];

/// Of training, of heads of other tasks, and of what a backbone gives.
const IRRELEVANT: &[&str] = &[
    "add_fpn",
    "auxiliary_channels",
    "auxiliary_concat_input",
    "auxiliary_loss_weight",
    "auxiliary_num_convs",
    "drop_path_rate",
    "out_features",
    "out_indices",
    "pool_scales",
    "reshape_hidden_states",
    "segmentation_indices",
    "semantic_loss_ignore_index",
    "stage_names",
    "use_auxiliary_head",
    "use_mask_token",
    "vocab_size",
];

/// A buffer that older files have, what masked patches are replaced by in training, and heads of other tasks.
const UNUSED: &[&str] = &[
    ".relative_position_index",
    "embeddings.mask_token",
    "pooler.",
    "classifier.",
    "layernorm.",
    "lm_head.",
    "auxiliary_head.",
    "decode_head.",
    "fpn",
];

const SCALED: Names = Names { factors: Some(["lambda_1", "lambda_2"]), ..Names::VIT };

fn build(b: &mut Builder<'_>, task: Task, has_pooler: bool) -> Result<Properties, ModelError> {
    let images = Images::resizable(b.config, 224, 16, true)?;
    let names = if b.config.number("layer_scale_init_value", 0.1)? > 0.0 { &SCALED } else { &Names::VIT };
    let mut s = Layers::read(b.config, &Defaults::VIT, names)?;
    s.qkv_bias = [true, false, true];
    if let Some(size) = b.config.given_size(&["head_dim"])?.filter(|size| size.value != s.head_size()) {
        return Err(b.config.error(format!("{size}, but {} / {} is another number", s.hidden, s.heads)));
    }
    let mut x = embeddings(b, &images, &s)?;
    let has_shared = b.config.boolean("use_shared_relative_position_bias", false)?;
    let has_own = b.config.boolean("use_relative_position_bias", false)?;
    let distances = if has_shared || has_own { Some(distances(b, &images)?) } else { None };
    let bias = |b: &mut Builder<'_>, path: &str, is_there: bool| {
        let distances = distances.filter(|_| is_there);
        distances.map(|distances| bias(b, &images, &s, distances, path)).transpose()
    };
    let shared = bias(b, "encoder", has_shared)?;
    for index in 0..s.count.value {
        let path = format!("{}.{index}.attention.attention", s.names.layers);
        let own = bias(b, &path, has_own)?;
        let bias = match (shared, own) {
            (Some(shared), Some(own)) => Some(b.add(shared, own, &format!("{path}.bias"))?),
            (shared, own) => shared.or(own),
        };
        x = s.layer(b, index, x, Context { bias, ..Context::default() })?;
    }
    finish(b, &images, &s, x, task, has_pooler)?;
    Ok(Properties::default())
}

/// The token of the class and those of patches: [batch_size, 1 + patches, hidden].
fn embeddings(b: &mut Builder<'_>, images: &Images, s: &Layers) -> Result<ValueId, ModelError> {
    const PATCHES: &str = "embeddings.patch_embeddings";
    let patches = images.embed(b, PATCHES, &format!("{PATCHES}.projection"), s.hidden, true)?;
    let class = patches::tokens(b, "embeddings.cls_token", 1, s.hidden)?;
    let tokens = patches::join(b, vec![class, patches], "embeddings.tokens")?;
    if !b.config.boolean("use_absolute_position_embeddings", false)? {
        return Ok(tokens);
    }
    let positions = Positions { before: 1, filter: Filter::Cubic, is_square: true };
    patches::add_resampled_positions(b, tokens, vit::POSITIONS, images, s.hidden, positions)
}

/// The pairs of a token of the class with others, and with itself: the last rows of a table.
const OF_CLASS: usize = 3;

/// The row of a table of distances for each pair of tokens, the same in all layers: i64[tokens, tokens].
fn distances(b: &mut Builder<'_>, images: &Images) -> Result<ValueId, ModelError> {
    let tokens = 1 + images.patches();
    shifted::check_pairs(b, tokens, tokens)?;
    Ok(shifted::indices(b, &pairs(images.grid()), &[tokens, tokens], "encoder.relative_position_bias.distances"))
}

/// A learned number for each distance of patches and head, as attention adds it: [heads, tokens, tokens].
fn bias(b: &mut Builder<'_>, images: &Images, s: &Layers, indices: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let module = format!("{path}.relative_position_bias");
    let name = format!("{module}.relative_position_bias_table");
    let distances = |grid: [usize; 2]| grid.map(|side| 2 * side - 1);
    let [rows, columns] = distances(images.trained_grid());
    let count = rows * columns;
    let all = Size::derived(count + OF_CLASS, "distances of patches by `image_size` and `patch_size`");
    // The library has rows and columns of the stored table the other way round, and resamples it where these differ.
    let (from, to) = ([columns, rows], distances(images.grid()));
    let table = if from == to {
        b.weight(&[&name], &[all, s.heads])?
    } else {
        let (stored, origin) = b.tensors.take(&[&name], &[all, s.heads])?;
        let resampled = || {
            let patches = resample(&stored.rows(0..count)?, from, to, Filter::Linear)?;
            Weight::concat(&[patches, stored.rows(count..count + OF_CLASS)?], 0)
        };
        let weight = resampled().ok_or_else(|| b.config.error(format!("tensor `{name}`: {TOO_LONG}")))?;
        b.graph.add_weight(&name, weight, origin)
    };
    let table = b.transpose(table, &[1, 0], &format!("{module}.by_head"))?;
    b.emit(Gather { x: table, indices, axis: 1 }, &module)
}

/// The row of a table of distances for each pair of tokens, of which the first is that of the class.
fn pairs(grid: [usize; 2]) -> Vec<usize> {
    let [rows, columns] = grid.map(|side| 2 * side - 1);
    let (count, patches) = (rows * columns, grid[0] * grid[1]);
    let mut pairs = vec![count; patches + 1];
    pairs[0] = count + 2;
    for row in shifted::pairs(grid).chunks_exact(patches) {
        pairs.push(count + 1);
        pairs.extend(row);
    }
    pairs
}

/// Adds the outputs of a task; `has_pooler` says whether features have a pooled one.
fn finish(
    b: &mut Builder<'_>,
    images: &Images,
    s: &Layers,
    x: ValueId,
    task: Task,
    has_pooler: bool,
) -> Result<(), ModelError> {
    let by_mean = b.config.boolean("use_mean_pooling", true)?;
    let hidden = if by_mean { x } else { b.layer_norm(x, "layernorm", s.hidden, s.eps)? };
    let is_features = task == Task::FeatureExtraction;
    if is_features {
        b.give(names::HIDDEN, hidden);
        if !has_pooler || by_mean && !b.tensors.contains("pooler.layernorm.weight") {
            return Ok(());
        }
    }
    let pooled = if by_mean {
        let patches = patches::between(b, hidden, [1, 1 + images.patches()], "pooler.patches")?;
        let mean = patches::mean(b, patches, "pooler.mean")?;
        b.layer_norm(mean, "pooler.layernorm", s.hidden, s.eps)?
    } else {
        heads::first_token(b, hidden, "pooler")?
    };
    match is_features {
        true => b.give(names::POOLED, pooled),
        false => heads::classify(b, s.hidden, pooled, "classifier")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_the_token_of_the_class_have_rows_of_their_own() {
        // A row of two patches has three distances.
        assert_eq!(pairs([1, 2]), [5, 3, 3, 4, 1, 0, 4, 2, 1]);
    }
}
