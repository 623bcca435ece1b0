//! Granite with experts and a feed-forward that all tokens take (IBM 2025), as `transformers/models/granitemoeshared` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{granite, granitemoe, llama};
use crate::checkpoint::config::Size;
use crate::layers::blocks::{self, FeedForward};
use crate::layers::builder::Builder;
use crate::layers::experts::Shared;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "granitemoeshared",
    class_prefix: "GraniteMoeShared",
    tasks: decoder::WITHOUT_LABELS,
    renamed: granitemoe::RENAMED,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        granite::KEYS,
        &["num_experts_per_tok", "num_local_experts", SHARED],
    ],
    irrelevant_keys: &["init_method"],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const SHARED: &str = "shared_intermediate_size";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = granite::read(b)?;
    s.names.feed_forward = "block_sparse_moe";
    s.feed_forward = FeedForward::Packed { both: "input_linear", last: false, down: "output_linear" };
    let mut mixture = granitemoe::mixture(b, &s)?;
    let inner = b.config.whole(SHARED, 0)?;
    mixture.shared =
        (inner > 0).then(|| Shared { module: "shared_mlp", inner: Size::derived(inner, SHARED), gate: None });
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
