//! Apertus (Hernández-Cano et al. 2025, arXiv:2509.14233), as `transformers/models/apertus` has it: Llama with heads of queries
//! and keys that are normalized, and a feed-forward with xIELU.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, FeedForward, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::rope::{self, Absent, Stretch};
use crate::layers::{decoder, xielu};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "apertus",
    class_prefix: "Apertus",
    tasks: TASKS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", ACTIVATION, "rms_norm_eps"]],
    irrelevant_keys: &[
        // What published configurations have besides: no class reads it.
        "mlp_bias",
        "post_norm",
        "qk_norm",
    ],
    gguf: None,
    build,
    pad_token_id: Some(3),
    ..llama::ARCHITECTURE
};

const TASKS: &[Task] = &[Task::TextGeneration, Task::FeatureExtraction, Task::TokenClassification];
const ACTIVATION: &str = "hidden_act";
const XIELU: &str = "xielu";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let is_xielu = Activation::name(b.config, ACTIVATION, XIELU)? == XIELU;
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 131_072,
            max_position_embeddings: Some(65536),
            intermediate_size: Some(14336),
            fixed_activation: is_xielu.then_some(Activation::Linear),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.attention_norms = Around::before("attention_layernorm");
    s.feed_forward_norms = Around::before("feedforward_layernorm");
    s.head_norms = HeadNorms::Each;
    s.feed_forward = match is_xielu {
        true => FeedForward::Own(feed_forward),
        false => FeedForward::Plain { up: "up_proj", down: "down_proj" },
    };
    let absent = Absent::Llama3(Stretch { factor: 8.0, original: 8192.0 }, [1.0, 4.0]);
    s.rope = rope::Defaults { theta: 12e6, absent, ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}

/// `down(xielu(up(x)))`.
fn feed_forward(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let up = b.projection(x, &at("up_proj"), [s.intermediate, s.hidden], false)?;
    let active = xielu::apply(b, up, &at("act_fn"))?;
    b.projection(active, &at("down_proj"), [s.hidden, s.intermediate], false)
}
