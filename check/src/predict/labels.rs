//! Labels that a user gives, for models that compare pictures or recordings with texts (`ZeroShotImageClassificationPipeline` and
//! `ZeroShotAudioClassificationPipeline` of the transformers library).

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::chain::Chain;
use planish_data::ComparedTexts;
use planish_eval::Tensor;
use planish_ir::InputRole;

use super::config::Config;
use super::{OF_SOUNDS, PredictOptions, TEMPLATE, Unfit};

/// What stands for the label in a template.
const PLACE: &str = "{}";

/// The tokens that the pipeline fills texts of SigLIP up to, which reads padding.
const SIGLIP_TOKENS: usize = 64;

/// The labels, each of which has a name of its own.
///
/// # Errors
/// [`Unfit`] when there are none, two are the same, one is blank, or the template has no place for them.
pub(super) fn checked(options: &PredictOptions, folder: &Path) -> Result<Rc<[String]>> {
    let folder = folder.display();
    if options.labels.is_empty() {
        bail!(Unfit(format!(
            "{folder} compares pictures or recordings with texts: say with --labels what these may be"
        )));
    }
    let mut seen = BTreeSet::new();
    for label in &options.labels {
        if label.trim().is_empty() {
            bail!(Unfit("--labels has a blank label; remove it".to_owned()));
        }
        if !seen.insert(label) {
            bail!(Unfit(format!("--labels has \"{label}\" twice; remove one")));
        }
    }
    if let Some(template) = options.template.as_ref().filter(|template| !template.contains(PLACE)) {
        bail!(Unfit(format!("--template \"{template}\" has no {PLACE}, where the label belongs")));
    }
    Ok(options.labels.iter().cloned().collect())
}

/// Whether a model is a SigLIP, by config.json, as the pipeline tells it: its scores are apart from each other, and it reads
/// padding.
pub(super) fn is_siglip(folder: &Path) -> Result<bool> {
    Ok(Config::read(folder)?.model_type().is_some_and(|model_type| model_type.contains("siglip")))
}

/// The labels as inputs, a row each.
pub(super) fn inputs(
    artifact: &Artifact,
    chain: &Chain<'_>,
    options: &PredictOptions,
) -> Result<Vec<(String, Tensor)>> {
    let usual = if chain.inputs().iter().any(|(_, of)| of.role == InputRole::Features) { OF_SOUNDS } else { TEMPLATE };
    let template = options.template.as_deref().unwrap_or(usual);
    let texts = options.labels.iter().map(|label| template.replace(PLACE, label)).collect();
    let filled_to = is_siglip(&artifact.folder)?.then_some(SIGLIP_TOKENS);
    let how = ComparedTexts { max_length: options.max_length, filled_to };
    how.inputs(texts, chain, (&artifact.manifest).into(), &artifact.folder)
}
