//! Command R7B (Cohere 2025, arXiv:2504.00698), as `transformers/models/cohere2` has it: Command R with windows in three of
//! four layers, which alone have a rotary embedding.

use crate::architecture::{Architecture, Properties};
use crate::architectures::cohere;
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Form;
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "cohere2",
    class_prefix: "Cohere2",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        windows::PATTERN_KEYS,
        &["attention_bias", "hidden_act", "layer_norm_eps", "logit_scale"],
    ],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "cohere2",
        class: "Cohere2ForCausalLM",
        pairs: false,
        configure: |c| {
            let form = Form { eps: ["attention.layer_norm_epsilon", "layer_norm_eps"], ..Form::LLAMA };
            let sizes = gguf::config::decoder(c, &form)?;
            c.set("hidden_act", "silu");
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            parts::copy(c, "logit_scale", "logit_scale")?;
            parts::windows(c, sizes.window, sizes.layers)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = cohere::read(b, &cohere::DEFAULTS)?;
    let every = windows::pattern(b.config, 4)?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| !(layer + 1).is_multiple_of(every))?;
    s.unrotated = (0..s.layers.value).map(|layer| s.windows.of(layer).is_none()).collect();
    blocks::decoder(b, &s, task)
}
