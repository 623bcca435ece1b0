//! K-EXAONE (LG AI Research 2026, arXiv:2601.01739), as `transformers/models/exaone_moe` has it: the attention of EXAONE 4.0 with
//! norms as in Llama, and the experts of DeepSeek-V3. Layers that predict further tokens are left out.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{deepseek_v3, exaone4, llama};
use crate::layers::blocks::{self, Around};
use crate::layers::builder::Builder;
use crate::layers::windows;
use crate::layers::{decoder, experts, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "exaone_moe",
    class_prefix: "ExaoneMoe",
    tasks: decoder::WITHOUT_LABELS,
    renamed: &[("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias")],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["hidden_act", "rms_norm_eps", exaone4::PATTERN, experts::KINDS],
    ],
    older_keys: &[("num_experts", "n_routed_experts"), ("num_shared_experts", "n_shared_experts")],
    only: &deepseek_v3::ONLY,
    irrelevant_keys: &[
        // Of layers that predict further tokens.
        "num_nextn_predict_layers",
        // What `mlp_layer_types` says too.
        "is_moe_layer",
    ],
    unused_tensors: &["mtp.", "score.", "qa_outputs."],
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = exaone4::read(b, 2048)?;
    s.attention_norms = Around::before("input_layernorm");
    s.feed_forward_norms = Around::before("post_attention_layernorm");
    let numbers = deepseek_v3::Numbers {
        experts: Some(64),
        taken: Some(8),
        inner: 1024,
        shared: Some(1),
        groups: [1, 1],
        dense: 1,
        factor: 2.5,
        normalizes: true,
    };
    let mut mixture = deepseek_v3::mixture(b, &s, &numbers)?;
    mixture.dense = experts::dense_listed(b.config, &s, (Some("first_k_dense_replace"), 1))?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
