//! ViT-MSN (Assran et al. 2022, arXiv:2204.07141), as `transformers/models/vit_msn` has it: ViT without a pooler.

use super::vit;
use crate::architecture::{Architecture, Properties};
use crate::layers::builder::Builder;
use crate::layers::patches;
use crate::layers::vision::{self, Defaults, RENAMED};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vit_msn",
    class_prefix: "ViTMSN",
    base: "vit",
    other_bases: &[],
    renamed: RENAMED,
    tasks: vit::TASKS,
    keys: &[vision::KEYS, patches::KEYS, &["qkv_bias"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[],
    // What masked patches are replaced by in training, then the head of another task.
    unused_tensors: &["embeddings.mask_token", "classifier."],
    pad_token_id: None,
    gguf: None,
    build,
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let (images, s) = vit::read(b, &Defaults { eps: 1e-6, ..Defaults::VIT })?;
    let hidden = vit::encode(b, &images, &s, &["embeddings.cls_token"])?;
    match task {
        Task::ImageClassification => vit::classify_first(b, s.hidden, hidden)?,
        _ => b.give(names::HIDDEN, hidden),
    }
    Ok(Properties::default())
}
