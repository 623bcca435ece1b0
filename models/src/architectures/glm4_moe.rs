//! GLM-4.5 (GLM-4.5 Team 2025, arXiv:2508.06471), as `transformers/models/glm4_moe` has it: the experts of DeepSeek-V3 after an
//! attention of which a part of each head turns.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{deepseek_v3, llama};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, experts, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "glm4_moe",
    class_prefix: "Glm4Moe",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["attention_bias", "hidden_act", "rms_norm_eps", "use_qk_norm"],
    ],
    older_keys: &[("num_local_experts", "n_routed_experts")],
    only: &deepseek_v3::ONLY,
    // Of layers that predict further tokens.
    irrelevant_keys: &["num_mtp_layers", "num_nextn_predict_layers"],
    // The same, then heads of other tasks.
    unused_tensors: &["layers.46.", "layers.92.", "score.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 151_552,
            max_position_embeddings: Some(131_072),
            intermediate_size: Some(10944),
            num_hidden_layers: 46,
            num_attention_heads: 96,
            num_key_value_heads: Some(8),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("attention_bias", false)?;
    if b.config.boolean("use_qk_norm", false)? {
        s.head_norms = HeadNorms::Each;
    }
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    let numbers = deepseek_v3::Numbers {
        experts: Some(128),
        taken: Some(8),
        inner: 1408,
        shared: Some(1),
        groups: [1, 1],
        dense: 1,
        factor: 1.0,
        normalizes: true,
    };
    s.experts = Some(deepseek_v3::mixture(b, &s, &numbers)?);
    blocks::decoder(b, &s, task)
}
