//! DeiT (Touvron et al. 2020, arXiv:2012.12877), as `transformers/models/deit` has it: ViT with one more token, which a
//! second classifier reads in a model that was distilled.

use planish_ir::ValueId;
use planish_ir::ops::BinaryKind;

use super::vit;
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches;
use crate::layers::vision::{Defaults, RENAMED};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "deit",
    class_prefix: "DeiT",
    base: "deit",
    other_bases: &[],
    renamed: RENAMED,
    tasks: vit::TASKS,
    keys: vit::KEYS,
    older_keys: &[],
    only: &[],
    // Of the head that reconstructs images.
    irrelevant_keys: &["encoder_stride"],
    // What masked patches are replaced by in training, then heads of other tasks.
    unused_tensors: &[
        "embeddings.mask_token",
        "pooler.",
        "classifier.",
        "cls_classifier.",
        "distillation_classifier.",
        "decoder.",
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let (images, s) = vit::read(b, &Defaults::VIT)?;
    let hidden = vit::encode(b, &images, &s, &["embeddings.cls_token", "embeddings.distillation_token"])?;
    match task {
        Task::ImageClassification if b.tensors.contains("cls_classifier.weight") => classify(b, s.hidden, hidden)?,
        Task::ImageClassification => vit::classify_first(b, s.hidden, hidden)?,
        _ => vit::features(b, &s, hidden)?,
    }
    Ok(Properties::default())
}

/// `logits` as the mean of two classifiers, of the token of the class and of that of the teacher
/// (`DeiTForImageClassificationWithTeacher`).
fn classify(b: &mut Builder<'_>, size: Size, hidden: ValueId) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    let first = heads::first_token(b, hidden, "cls_classifier")?;
    let first = b.linear(first, "cls_classifier", labels, size)?;
    let second = patches::between(b, hidden, [1, 2], "distillation_classifier.token")?;
    let second = patches::mean(b, second, "distillation_classifier.second_token")?;
    let second = b.linear(second, "distillation_classifier", labels, size)?;
    let sum = b.add(first, second, "logits.sum")?;
    let logits = b.with_number(BinaryKind::Div, sum, 2.0, "logits.mean", "architectures")?;
    b.give(names::LOGITS, logits);
    Ok(())
}
