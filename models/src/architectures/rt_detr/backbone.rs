//! The backbone of a detector of this kind.

use planish_ir::ValueId;
use serde_json::Value;

use super::super::detr::backbone::stages;
use super::super::{hgnet_v2, resnet};
use super::Settings;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::convolution;
use crate::{ModelError, accept};

/// What the names of its tensors begin with.
const PATH: &str = "backbone.model.";

/// The key of its configuration.
const KEY: &str = "backbone_config";

/// The maps of a ResNet, the smallest last.
pub(super) fn of_resnet(b: &mut Builder<'_>, s: &Settings) -> Result<Vec<ValueId>, ModelError> {
    let whole = b.config;
    let section = accept::section(whole, &[KEY], &resnet::DEEP)?;
    let settings = resnet::Settings::read_deep(&section)?;
    let taken = taken(whole, &section, settings.hidden.len())?;
    accept::end_section(whole, &section, &resnet::DEEP);
    let channels: Vec<usize> =
        taken.iter().filter_map(|stage| settings.hidden.get(stage - 1)).map(|size| size.value).collect();
    if channels != s.maps.iter().map(|size| size.value).collect::<Vec<_>>() {
        return Err(whole
            .error(format!("the backbone gives maps of {channels:?} channels, and `encoder_in_channels` has others")));
    }
    let pixels = convolution::pixels(b, settings.channels)?;
    let maps = resnet::maps(b, &settings, pixels, PATH)?;
    Ok(taken.into_iter().map(|stage| maps[stage - 1]).collect())
}

/// A HGNetV2 and the stages that are taken of it, by numbers from 1 on, with the channels of these. Of `encoder_in_channels` only
/// the count is one of the model.
pub(super) fn read_hgnet(
    whole: &Config<'_>,
    count: usize,
) -> Result<(hgnet_v2::Settings, Vec<usize>, Vec<Size>), ModelError> {
    let section = accept::section(whole, &[KEY], &hgnet_v2::ARCHITECTURE)?;
    let settings = hgnet_v2::Settings::read(&section)?;
    let taken = taken(whole, &section, settings.outs().len())?;
    accept::end_section(whole, &section, &hgnet_v2::ARCHITECTURE);
    if taken.len() != count {
        let given = taken.len();
        return Err(
            whole.error(format!("the backbone gives {given} maps, and `encoder_in_channels` has {count} entries"))
        );
    }
    for pair in taken.windows(2) {
        let ratio = settings.ratio([pair[0], pair[1]]);
        if ratio != 2 {
            let [before, stage] = [pair[0], pair[1]];
            return Err(whole.error(format!(
                "maps of stage {stage} of the backbone are {ratio} times smaller than those of stage {before}, not twice, as the \
                 encoder joins them"
            )));
        }
    }
    let outs: Vec<Size> = settings.outs().collect();
    let channels = taken.iter().map(|stage| outs[stage - 1]).collect();
    Ok((settings, taken, channels))
}

/// The maps of a HGNetV2, the smallest last.
pub(super) fn of_hgnet(
    b: &mut Builder<'_>,
    settings: &hgnet_v2::Settings,
    taken: &[usize],
) -> Result<Vec<ValueId>, ModelError> {
    let pixels = convolution::pixels(b, settings.channels)?;
    let maps = hgnet_v2::maps(b, settings, pixels, PATH)?;
    Ok(taken.iter().map(|stage| maps[stage - 1]).collect())
}

/// The stages that are taken, by numbers from 1 on: all but the first one where there is no configuration of the backbone.
fn taken(whole: &Config<'_>, section: &Config<'_>, count: usize) -> Result<Vec<usize>, ModelError> {
    let given = ["out_features", "out_indices"].iter().any(|key| section.get(key).is_some_and(Value::is_array));
    match whole.get(KEY) {
        None if !given => Ok(vec![2, 3, 4]),
        _ => stages(section, count),
    }
}
