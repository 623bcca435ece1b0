//! The size that pictures have when they enter a model.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_data::{Filter, InGraph, PICTURE_SETTINGS, Processor, ResizedTo, fit_pictures};
use planish_files::Kind;
use planish_models::{ImageSize, Interpolation, PictureSize, PictureSteps};
use serde_json::{Map, Value};

use crate::compile::Observer;

/// What all pictures become by the settings in the folder of a model; `None` where these do not say it, or are not supported.
pub(super) fn size(folder: &Path) -> Option<ImageSize> {
    let [height, width] = Processor::open(folder).ok()??.size()?;
    Some(ImageSize { height, width })
}

/// Whether settings in the folder of a model say what becomes of pictures.
pub(super) fn are_described(folder: &Path) -> bool {
    Processor::open(folder).is_ok_and(|processor| processor.is_some())
}

/// Why pictures do not become inputs of a model by the settings in its folder, where these are refused.
pub(crate) fn refused(folder: &Path) -> Option<String> {
    let why = Processor::open(folder).err()?;
    Some(format!(
        "`planish generate` refuses pictures for this model: {why}; change the settings in the artifact, or process pictures before the \
         graph"
    ))
}

/// What the settings in the folder of a model do to pictures, for a graph that does it, where images are to have a size perhaps.
///
/// # Errors
/// When there are no settings, or they are such that a graph of fixed operators does not compute.
pub(super) fn steps(folder: &Path, wanted: Option<ImageSize>) -> Result<PictureSteps> {
    let Some(processor) = Processor::open(folder)? else {
        let [file, other] = PICTURE_SETTINGS;
        bail!(
            "preprocessing=graph: {} has no {file} (or {other}) that says how pictures or recordings become inputs; copy it from the \
             model's page",
            folder.display()
        );
    };
    let refuse = |why: &str| {
        format!(
            "preprocessing=graph: {why}, as the settings of the image processor in {} say; leave preprocessing out, and process \
             pictures before the graph",
            folder.display()
        )
    };
    let InGraph { resize, crop, rescale, normalize, is_bgr } =
        processor.in_graph().map_err(|why| anyhow::anyhow!(refuse(&why)))?;
    let resize = match resize {
        None => None,
        Some((size, filter)) => {
            let how = match filter {
                Filter::Nearest => bail!(refuse(
                    "pictures are resized by the nearest pixel, which runtimes round otherwise than Pillow where two are as near"
                )),
                Filter::Bilinear => Interpolation::Linear,
                Filter::Bicubic => Interpolation::Cubic,
                other => bail!(refuse(&format!("pictures are resized by {other:?}, which ONNX has no operator for"))),
            };
            let size = match size {
                ResizedTo::Sides(sides) => PictureSize::Sides(sides),
                ResizedTo::ShortestEdge(edge) => PictureSize::ShortestEdge(edge),
            };
            Some((size, how))
        }
    };
    let steps = PictureSteps { resize, crop, rescale, normalize, is_bgr };
    match (wanted, steps.size()) {
        (Some(wanted), Some([height, width])) if [wanted.height, wanted.width] != [height, width] => {
            let own = ImageSize { height, width };
            bail!(
                "image-size is {wanted}, and preprocessing=graph makes pictures {own}, as the settings of the image processor in {} \
                 say; set `size` and `crop_size` there",
                folder.display()
            )
        }
        _ => Ok(steps),
    }
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
