//! The size that pictures have when they enter a model.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use planish_data::{PICTURE_SETTINGS, Processor, fit_pictures};
use planish_files::Kind;
use planish_models::ImageSize;
use serde_json::{Map, Value};

use crate::compile::Observer;

/// What all pictures become by the settings in the folder of a model; `None` where these do not say it, or are not supported.
pub(super) fn size(folder: &Path) -> Option<ImageSize> {
    let [height, width] = Processor::open(folder).ok()??.size()?;
    Some(ImageSize { height, width })
}

/// Has the settings in the folder of an artifact make pictures of a size. Where they cannot, the user is told.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn fit(folder: &Path, size: ImageSize, observer: &dyn Observer) -> Result<()> {
    for name in PICTURE_SETTINGS {
        let path = folder.join(name);
        let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { continue };
        let fitted = || -> Result<Option<String>, String> {
            let mut all: Map<String, Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let sides = [size.height, size.width];
            match all.get_mut("image_processor") {
                Some(inner) => fit_pictures(inner.as_object_mut().ok_or("`image_processor` is no object")?, sides)?,
                None if name == PICTURE_SETTINGS[0] => fit_pictures(&mut all, sides)?,
                None => return Ok(None),
            }
            let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
            Ok(Some(text + "\n"))
        };
        match fitted() {
            Ok(None) => continue,
            Ok(Some(text)) => fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?,
            Err(why) => observer.warning(&format!(
                "the graph takes images of {size}, and {name} of the artifact stays as it is: {why}; set the size of \
                 pictures there"
            )),
        }
        return Ok(());
    }
    Ok(())
}
