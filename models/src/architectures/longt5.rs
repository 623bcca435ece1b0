//! LongT5 (Guo et al. 2021, arXiv:2112.07916) with local attention, as `transformers/models/longt5` has it: T5 whose encoder
//! attends to a window on both sides.

use crate::architecture::{Architecture, Properties};
use crate::architectures::t5::{self, Defaults, Settings};
use crate::checkpoint::config_keys::Only;
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "longt5",
    class_prefix: "LongT5",
    tasks: &[Task::Text2TextGeneration, Task::FeatureExtraction],
    keys: &[t5::KEYS, &[t5::SCALED, RADIUS]],
    // The other one, "transient-global", attends to sums of blocks too.
    only: &[Only::Text("encoder_attention_type", "local")],
    // Of the other attention.
    irrelevant_keys: &["classifier_dropout", "dropout_rate", "global_block_size", "initializer_factor", "n_positions"],
    build,
    ..t5::ARCHITECTURE
};

/// How many tokens an encoder's token sees on either side.
const RADIUS: &str = "local_radius";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(b.config, Defaults::T5)?;
    let window = b.config.size(RADIUS, 127)?.value + 1;
    s.encoder_attention = ("LocalSelfAttention", Some(window));
    t5::outputs(b, &s, task)
}
