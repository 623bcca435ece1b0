//! YOLOS (Fang et al. 2021, arXiv:2106.00666), as `transformers/models/yolos` has it: ViT with a token for each object that may be
//! found. It takes images of any size: positions are interpolated.

use planish_ir::ops::Slice;
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::detection;
use crate::layers::heads;
use crate::layers::patches::{self, height_and_width};
use crate::layers::resize::{Interpolation, resize};
use crate::layers::vision::{self, Context, Defaults, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "yolos",
    class_prefix: "Yolos",
    base: "vit",
    other_bases: &[],
    renamed: RENAMED,
    tasks: &[Task::ObjectDetection, Task::FeatureExtraction],
    keys: &[vision::KEYS, patches::KEYS, &["num_detection_tokens", "qkv_bias", "use_mid_position_embeddings"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: detection::LOSSES,
    unused_tensors: &["pooler.", "class_labels_classifier.", "bbox_predictor."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What transformers 5 calls the modules, where they have another name than in checkpoints.
const RENAMED: &[(&str, &str)] =
    &[("encoder.mid_position_embeddings", "encoder.interpolation.mid_position_embeddings")];

/// The table of positions that is added before each layer but the first, where there is one.
const MIDDLE: &str = "encoder.mid_position_embeddings";

/// A table of positions of all tokens.
struct Table {
    /// Rows and columns of patches that it has positions for.
    grid: [usize; 2],
    /// The tokens of objects after those of patches.
    objects: usize,
    features: Size,
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Layers::read(b.config, &Defaults::VIT, &Names::VIT)?;
    s.qkv_bias = [b.config.boolean("qkv_bias", true)?; 3];
    let channels = b.config.size("num_channels", 3)?;
    let objects = b.config.size("num_detection_tokens", 100)?;
    let [patch, other] = height_and_width(b.config, "patch_size", 16)?;
    let image = match b.config.get("image_size") {
        Some(_) => height_and_width(b.config, "image_size", 512)?,
        None => [512, 864],
    };
    if patch != other {
        return Err(b.config.error(format!("`patch_size` is {patch} x {other}, and positions are of square patches")));
    }
    let table = Table { grid: image.map(|side| side / patch), objects: objects.value, features: s.hidden };
    let count = table.grid[0] * table.grid[1];
    if count == 0 {
        let [height, width] = image;
        return Err(b.config.error(format!(
            "images of {height} x {width} (`image_size`) are smaller than a patch of {patch} x {patch} (`patch_size`)"
        )));
    }
    if 1 + count + objects.value > MAX_SIZE {
        return Err(b.config.error(format!(
            "{objects} and {count} patches (`image_size`, `patch_size`) are more tokens than {MAX_SIZE}; set them to those of \
             the checkpoint"
        )));
    }
    let has_middle = b.config.boolean("use_mid_position_embeddings", true)? && s.count.value > 1;
    if has_middle && image[0] * image[1] / (patch * patch) != count {
        let [height, width] = image;
        return Err(b.config.error(format!(
            "`use_mid_position_embeddings` is true, and images of {height} x {width} are not made of patches of {patch} x {patch}"
        )));
    }

    let pixels = convolution::pixels(b, channels)?;
    let projection = "embeddings.patch_embeddings.projection";
    let map = convolution::conv(b, pixels, projection, [s.hidden, channels], Window::patches(patch), true)?;
    let [_, _, height, width] = convolution::dims(b, map)?;
    let sides = [height, width];
    let of_patches = convolution::tokens(b, map, "embeddings.patch_embeddings")?;
    let first = patches::tokens(b, "embeddings.cls_token", 1, s.hidden)?;
    let of_objects = patches::tokens(b, "embeddings.detection_tokens", objects.value, s.hidden)?;
    let tokens = patches::join(b, vec![first, of_patches, of_objects], "embeddings.tokens")?;
    let positions = table.read(b, "embeddings.position_embeddings", None, &sides)?;
    let mut x = b.add(tokens, positions[0], "embeddings.add")?;
    let middle = match has_middle {
        true => table.read(b, MIDDLE, Some(s.count.value - 1), &sides)?,
        false => Vec::new(),
    };
    for layer in 0..s.count.value {
        x = s.layer(b, layer, x, Context::default())?;
        if let Some(positions) = middle.get(layer) {
            x = b.add(x, *positions, &format!("{MIDDLE}.{layer}.add"))?;
        }
    }
    let x = b.layer_norm(x, "layernorm", s.hidden, s.eps)?;
    match task {
        Task::ObjectDetection => {
            let Some(end) = b.graph.ty(x).shape.get(1).cloned() else { unreachable!("tokens have a number") };
            let Some(start) = end.checked_sub(&Dim::constant(objects.signed())) else {
                return Err(b.config.error("images have more places than 64 bits count"));
            };
            let found = b.emit(Slice { x, axis: 1, start, end }, "objects")?;
            let labels = b.config.labels()?;
            let classes = Size::derived(labels.value + 1, "labels and no object");
            let logits = detection::perceptron(b, found, "class_labels_classifier", [classes, s.hidden], 3)?;
            b.give(names::LOGITS, logits);
            detection::boxes(b, found, "bbox_predictor", s.hidden)?;
        }
        _ => {
            b.give(names::HIDDEN, x);
            if b.tensors.contains("pooler.dense.weight") {
                let first = heads::first_token(b, x, "pooler.dense")?;
                let pooled = b.linear(first, "pooler.dense", s.hidden, s.hidden)?;
                let active = Activation::TANH.apply(b, pooled, "pooler.dense.activation")?;
                b.give(names::POOLED, active);
            }
        }
    }
    Ok(Properties::default())
}

impl Table {
    /// The positions of images of a number of rows and columns of patches, [1, tokens, features], of a table for each layer, or of
    /// one.
    fn read(
        &self,
        b: &mut Builder<'_>,
        name: &str,
        layers: Option<usize>,
        sides: &[Dim; 2],
    ) -> Result<Vec<ValueId>, ModelError> {
        let count = self.grid[0] * self.grid[1];
        let all =
            Size::derived(1 + count + self.objects, "tokens by `image_size`, `patch_size` and `num_detection_tokens`");
        let (one, tables) = (Size::derived(1, "one image"), layers.unwrap_or(1));
        let mut shape = vec![one, all, self.features];
        let of_layers = layers.map(|count| Size::derived(count, "num_hidden_layers - 1"));
        shape.splice(0..0, of_layers);
        let mut table = b.weight(&[name], &shape)?;
        let dim = patches::dim;
        let features = convolution::dim(self.features);
        if layers.is_some() {
            table =
                b.reshape(table, [dim(tables), convolution::dim(all), features.clone()], &format!("{name}.tables"))?;
        }
        let first = patches::between(b, table, [0, 1], &format!("{name}.first"))?;
        let of_patches = patches::between(b, table, [1, 1 + count], &format!("{name}.patches"))?;
        let objects = patches::between(b, table, [1 + count, all.value], &format!("{name}.objects"))?;
        let form = [dim(tables), dim(self.grid[0]), dim(self.grid[1]), features.clone()];
        let map = b.reshape(of_patches, form, &format!("{name}.map"))?;
        let map = b.transpose(map, &[0, 3, 1, 2], &format!("{name}.channels_first"))?;
        let map = resize(b, map, sides.clone(), Interpolation::Cubic, &format!("{name}.resize"))?;
        let of_patches = convolution::tokens(b, map, &format!("{name}.tokens"))?;
        let joined = patches::join(b, vec![first, of_patches, objects], &format!("{name}.all"))?;
        let slice = |at: usize| Slice { x: joined, axis: 0, start: dim(at), end: dim(at + 1) };
        match layers {
            None => Ok(vec![joined]),
            Some(count) => (0..count).map(|at| b.emit(slice(at), &format!("{name}.{at}"))).collect(),
        }
    }
}
