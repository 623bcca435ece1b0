//! VaultGemma (Sinha et al. 2025, arXiv:2510.15001), as `transformers/models/vaultgemma` has it: Gemma 2 without the norms after
//! attention and feed-forward.

use crate::architecture::{Architecture, Properties};
use crate::architectures::gemma2;
use crate::layers::blocks::{self, Around};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vaultgemma",
    class_prefix: "VaultGemma",
    tasks: decoder::WITHOUT_LABELS,
    gguf: None,
    build,
    ..gemma2::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = gemma2::with_windows(b)?;
    s.attention_norms = Around::before("input_layernorm");
    s.feed_forward_norms = Around::before("pre_feedforward_layernorm");
    blocks::decoder(b, &s, task)
}
