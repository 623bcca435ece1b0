//! DINOv3's vision transformers (Siméoni et al. 2025, arXiv:2508.10104), as `transformers/models/dinov3_vit` has them: queries
//! and keys of patches turn with the places of the patches in the image; those of the class and of registers do not.

use planish_ir::{DType, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::MAX_SIZE;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images};
use crate::layers::rope::Angles;
use crate::layers::vision::{self, Context, Defaults, Gate, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "dinov3_vit",
    class_prefix: "DINOv3ViT",
    // No class has it within another one.
    base: "dinov3_vit",
    other_bases: &[],
    renamed: &[("layer.", "model.layer.")],
    tasks: &[Task::FeatureExtraction],
    keys: &[
        vision::KEYS,
        patches::KEYS,
        &[
            "key_bias",
            "mlp_bias",
            "num_register_tokens",
            "proj_bias",
            "query_bias",
            "rope_theta",
            "use_gated_mlp",
            "value_bias",
        ],
    ],
    older_keys: &[],
    only: &[],
    irrelevant_keys: ONLY_TRAINING,
    unused_tensors: &["embeddings.mask_token"],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What training and uses as a part of other models read.
const ONLY_TRAINING: &[&str] = &[
    "apply_layernorm",
    "drop_path_rate",
    "layerscale_value",
    "out_features",
    "out_indices",
    "pos_embed_jitter",
    "pos_embed_rescale",
    "pos_embed_shift",
    "reshape_hidden_states",
    "stage_names",
];

const NAMES: Names = Names {
    layers: "layer",
    attention_norm: "norm1",
    qkv: ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    output: "attention.o_proj",
    output_norm: "norm2",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    factors: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
};

const DEFAULTS: Defaults =
    Defaults { hidden: 384, intermediate: 1536, heads: 6, layers: 12, activation: "gelu", eps: 1e-5 };

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let config = b.config;
    let images = Images::resizable(config, 224, 16, true)?;
    let mut s = Layers::read(config, &DEFAULTS, &NAMES)?;
    s.qkv_bias =
        [config.boolean("query_bias", true)?, config.boolean("key_bias", false)?, config.boolean("value_bias", true)?];
    s.output_bias = config.boolean("proj_bias", true)?;
    s.feed_forward_bias = config.boolean("mlp_bias", true)?;
    if config.boolean("use_gated_mlp", false)? {
        s.gate = Gate::Apart("mlp.gate_proj");
    }
    let registers = config.whole("num_register_tokens", 0)?;
    let patches = images.embed(b, "embeddings", "embeddings.patch_embeddings", s.hidden, true)?;
    let mut parts = vec![patches::tokens(b, "embeddings.cls_token", 1, s.hidden)?];
    if registers > 0 {
        parts.push(patches::tokens(b, "embeddings.register_tokens", registers, s.hidden)?);
    }
    parts.push(patches);
    let x = patches::join(b, parts, "embeddings.tokens")?;
    let angles = angles(b, &images, &s, 1 + registers)?;
    let x = s.apply(b, x, Context { angles: Some(angles), ..Context::default() })?;
    let hidden = b.layer_norm(x, "norm", s.hidden, s.eps)?;
    b.give(names::HIDDEN, hidden);
    let pooled = heads::first_token(b, hidden, "pooler")?;
    b.give(names::POOLED, pooled);
    Ok(Properties::default())
}

/// The angles of all tokens, f32[1, before + patches, head size / 2]: half of the pairs turn with the row, half with the column.
/// Centres of patches are from -1 to 1; the first tokens have an angle of 0.
fn angles(b: &mut Builder<'_>, images: &Images, s: &Layers, before: usize) -> Result<Angles, ModelError> {
    let theta = b.config.positive("rope_theta", 100.0)?;
    let size = s.head_size();
    if !size.is_multiple_of(4) {
        return Err(b.config.error(format!(
            "{} / {} is {size}, but rows and columns turn a quarter of the features of a head each: use a multiple of 4",
            s.hidden, s.heads
        )));
    }
    let frequencies = (0..size / 4).map(|i| theta.powf(-4.0 * i as f64 / size as f64)).collect::<Vec<_>>();
    let [rows, columns] = images.grid();
    let tokens = before + rows * columns;
    if tokens.saturating_mul(size / 2) > MAX_SIZE {
        return Err(b.config.error(format!(
            "images of {tokens} tokens have more angles than {MAX_SIZE}, {} of each token; set `image_size` and `patch_size` to those of \
             the checkpoint",
            size / 2
        )));
    }
    let centre = |i: usize, count: usize| 2.0 * (i as f64 + 0.5) / count as f64 - 1.0;
    let mut angles = vec![0.0; before * size / 2];
    for row in 0..rows {
        for column in 0..columns {
            for at in [centre(row, rows), centre(column, columns)] {
                angles.extend(frequencies.iter().map(|f| std::f64::consts::TAU * at * f));
            }
        }
    }
    let mut table = |name: &str, turn: fn(f64) -> f64| -> ValueId {
        let values: Vec<f64> = angles.iter().map(|angle| turn(*angle)).collect();
        let weight = Weight::numbers(DType::F32, vec![1, tokens, size / 2], &values);
        let weight = weight.unwrap_or_else(|| unreachable!("there are as many angles as the shape says"));
        b.graph.add_weight(name, weight, Origin::Config("rope_theta".into()))
    };
    Ok(Angles::stored(table("rope_embeddings.cos", f64::cos), table("rope_embeddings.sin", f64::sin)))
}
