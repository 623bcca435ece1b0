//! What a model without a task is for.

use planish_artifact::manifest::Output;
use planish_ir::OutputRole;
use planish_models::Task;

/// The task of a model that has none, by its outputs.
pub(super) fn guessed_task(outputs: &[Output]) -> Option<Task> {
    let of = |role: OutputRole| outputs.iter().find(|output| output.role == role);
    if of(OutputRole::StartLogits).is_some() && of(OutputRole::EndLogits).is_some() {
        return Some(Task::QuestionAnswering);
    }
    if of(OutputRole::Depth).is_some() {
        return Some(Task::DepthEstimation);
    }
    match of(OutputRole::Logits) {
        Some(_) if of(OutputRole::Boxes).is_some() => Some(Task::ObjectDetection),
        Some(logits) => (logits.value.dims().len() == 2).then_some(Task::TextClassification),
        None => of(OutputRole::HiddenStates).map(|_| Task::FeatureExtraction),
    }
}
