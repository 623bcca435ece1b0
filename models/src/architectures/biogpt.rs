//! BioGPT (Luo et al. 2022, arXiv:2210.10341), as `transformers/models/biogpt` has it: XGLM with a table of positions.

use crate::architecture::{Architecture, Properties};
use crate::architectures::xglm;
use crate::layers::blocks::{self, Defaults, Places};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "biogpt",
    class_prefix: "BioGpt",
    base: "biogpt",
    renamed: &[("lm_head.", "output_projection.")],
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, blocks::KEYS, &["hidden_act", xglm::SCALED]],
    older_keys: &[],
    irrelevant_keys: &[
        // Training.
        "activation_dropout",
        "layerdrop",
        // No class reads it: norms add 1e-5 to variances.
        "layer_norm_eps",
    ],
    // Heads of other tasks.
    unused_tensors: &["output_projection.", "score.", "classifier."],
    build,
    ..xglm::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = xglm::read(
        b,
        &Defaults {
            vocab_size: 42384,
            max_position_embeddings: Some(1024),
            hidden_size: 1024,
            intermediate_size: Some(4096),
            num_hidden_layers: 24,
            num_attention_heads: 16,
            activation: ("hidden_act", "gelu"),
            ..Defaults::LLAMA
        },
    )?;
    s.places = Places::Table { module: "embed_positions", first: 2 };
    s.token_classifier = Classifier::Own;
    blocks::decoder(b, &s, task)
}
