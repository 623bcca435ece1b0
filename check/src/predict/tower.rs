//! Which tower of a model of images and texts predicts.

use std::path::Path;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_data::is_of_pictures;
use planish_ir::{InputRole, PartRole};

/// The tower that data is for, of an artifact whose parts are models of their own: that of pictures for pictures, and else that of
/// texts. `None` of an artifact of other parts.
///
/// # Errors
/// When a folder of the data cannot be read.
pub(super) fn tower(artifact: &Artifact, data: &Path) -> Result<Option<Artifact>> {
    let parts = &artifact.manifest.parts;
    if parts.len() < 2 || parts.iter().any(|part| part.role != PartRole::Model) {
        return Ok(None);
    }
    let wanted = is_of_pictures(data)?;
    let mut tower = artifact.clone();
    tower.manifest.parts.retain(|part| {
        let takes_pictures = [InputRole::Pixels, InputRole::Image].iter().any(|role| part.input_of(*role).is_some());
        takes_pictures == wanted
    });
    Ok(Some(tower))
}
