//! Which tower of a model of images or recordings and texts predicts, and of what.

use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::chain::Chain;
use planish_data::is_of_media;
use planish_ir::{InputRole, PartRole};

use super::{PredictOptions, Unfit};

/// The tower that data is for, of an artifact whose parts are models of their own: that of pictures for pictures, that of recordings
/// for recordings, and else that of texts. `None` of an artifact of other parts.
///
/// # Errors
/// When a folder of the data cannot be read.
pub(super) fn tower(artifact: &Artifact, data: &Path) -> Result<Option<Artifact>> {
    let parts = &artifact.manifest.parts;
    if parts.len() < 2 || parts.iter().any(|part| part.role != PartRole::Model) {
        return Ok(None);
    }
    let wanted = is_of_media(data)?;
    let mut tower = artifact.clone();
    tower.manifest.parts.retain(|part| {
        let media = [InputRole::Pixels, InputRole::Image, InputRole::Features];
        media.iter().any(|role| part.input_of(*role).is_some()) == wanted
    });
    Ok(Some(tower))
}

/// What a model predicts of, in words, if that is no text.
pub(super) fn sample(chain: &Chain<'_>) -> Option<&'static str> {
    let takes = |roles: &[InputRole]| chain.inputs().iter().any(|(_, of)| roles.contains(&of.role));
    let pictures = takes(&[InputRole::Pixels, InputRole::Image]).then_some("picture");
    let recordings = [InputRole::Recording, InputRole::Waveform, InputRole::Features];
    pictures.or(takes(&recordings).then_some("recording"))
}

/// Refuses options of texts for a model of other samples.
///
/// # Errors
/// When one is given.
pub(super) fn refuse_of_texts(options: &PredictOptions, sample: &str, artifact: &Artifact) -> Result<()> {
    let of_texts = [("--batch-tokens", options.batch_tokens.is_some()), ("--prompt-name", options.prompt.is_some())];
    if let Some((option, _)) = of_texts.iter().find(|(_, is_given)| *is_given) {
        bail!(Unfit(format!("{option} is for texts, and {} takes {sample}s", artifact.folder.display())));
    }
    Ok(())
}
