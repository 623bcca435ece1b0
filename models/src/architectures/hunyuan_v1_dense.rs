//! Hunyuan dense (Tencent 2025), as `transformers/models/hunyuan_v1_dense` has it: Llama with heads of queries and keys that are
//! normalized after they are rotated.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "hunyuan_v1_dense",
    class_prefix: "HunYuanDenseV1",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[
        "pretraining_tp",
        // Ids that the tokenizer puts in.
        "eod_token_id",
        "im_end_id",
        "im_newline_id",
        "im_start_id",
        "image_token_id",
        "mask_init_id",
        "org_vocab_size",
        "text_end_id",
        "text_start_id",
    ],
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(b, &Defaults { vocab_size: 290_943, eps: ("rms_norm_eps", 1e-5), ..Defaults::LLAMA })?;
    s.read_attention_bias(b, false)?;
    (s.head_norms, s.norms_rotated) = (HeadNorms::Each, true);
    s.names.head_norms = ["query_layernorm", "key_layernorm"];
    s.rope = rope::Defaults { fixed_alpha: true, ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
