//! The ResNet of a detector: of the transformers library, or of timm.

use planish_ir::ValueId;
use serde_json::Value;

use super::super::resnet;
use crate::ModelError;
use crate::accept;
use crate::checkpoint::config::{Config, Size, brief, is_off};
use crate::checkpoint::config_keys::IRRELEVANT;
use crate::layers::builder::Builder;
use crate::layers::convolution;

/// The keys that say which backbone there is.
pub(super) const KEYS: &[&str] =
    &["backbone", "backbone_config", "backbone_kwargs", "dilation", "num_channels", "use_timm_backbone"];

/// Keys of a backbone of timm besides its name.
const TIMM_KEYS: &[&str] = &[
    "architectures",
    "backbone",
    "features_only",
    "freeze_batch_norm_2d",
    "in_chans",
    "model_type",
    "num_channels",
    "out_features",
    "out_indices",
    "output_stride",
    "stage_names",
    "use_pretrained_backbone",
    "use_timm_backbone",
];

/// Settings of a backbone of timm.
const KWARGS: &str = "backbone_kwargs";

/// What the names of its tensors begin with.
const PATH: &str = "backbone.conv_encoder.model.";

/// The stride of what the last stage gives where it takes each second element in place of halving the map.
const DILATED: u64 = 16;

/// The maps that the backbone gives, with their channels, the smallest last.
pub(super) fn maps(b: &mut Builder<'_>) -> Result<Vec<(ValueId, Size)>, ModelError> {
    let whole = b.config;
    let dilates = whole.boolean("dilation", false)?;
    let kind = whole.get("backbone_config").and_then(|value| value.get("model_type")).and_then(Value::as_str);
    let is_of_timm = whole.boolean("use_timm_backbone", true)?;
    let (settings, taken) = match (whole.get("backbone_config"), kind) {
        (None, _) if is_of_timm => of_timm(whole, dilates)?,
        (Some(_), Some("timm_backbone")) => {
            let section = whole.section(&["backbone_config"])?;
            let own = of_timm_section(whole, &section)?;
            whole.take_over(&section);
            own
        }
        (None | Some(Value::Object(_)), None | Some("resnet")) => {
            if let Some(name) = whole.get("backbone") {
                let advice = "set `use_timm_backbone` to true or give `backbone_config`";
                return Err(
                    whole.error(format!("`backbone` is {} and `use_timm_backbone` false: {advice}", brief(name)))
                );
            }
            if dilates {
                return Err(whole.error("`dilation` is true, which a backbone of timm honours and no other one"));
            }
            if let Some(kwargs) = whole.get(KWARGS).filter(|value| !is_off(value)) {
                return Err(whole.error(format!("`{KWARGS}` is {}, which is for a backbone of timm", brief(kwargs))));
            }
            let section = accept::section(whole, &["backbone_config"], &resnet::ARCHITECTURE)?;
            let settings = resnet::Settings::read(&section)?;
            let taken = stages(&section, settings.hidden.len())?;
            accept::end_section(whole, &section, &resnet::ARCHITECTURE);
            (settings, taken)
        }
        (Some(value), _) => {
            let expected = "an object with the `model_type` resnet or timm_backbone";
            return Err(whole.unexpected("backbone_config", value, expected));
        }
        (None, Some(_)) => unreachable!("what is absent has no type"),
    };
    // The number that counts is that of the backbone; this one is that of a backbone of timm.
    whole.get("num_channels");
    let pixels = convolution::pixels(b, settings.channels)?;
    let maps = resnet::maps(b, &settings, pixels, PATH)?;
    let all: Vec<(ValueId, Size)> = maps.into_iter().zip(settings.hidden).collect();
    Ok(taken.into_iter().map(|stage| all[stage - 1]).collect())
}

/// A backbone of timm by the keys of the model.
fn of_timm(whole: &Config<'_>, dilates: bool) -> Result<(resnet::Settings, Vec<usize>), ModelError> {
    let mut dilates = dilates;
    let name = whole.text("backbone", "resnet50")?;
    let mut channels = whole.size("num_channels", 3)?;
    let mut taken = vec![1, 2, 3, 4];
    if whole.get(KWARGS).is_some_and(|own| !is_off(own)) {
        let section = whole.section(&[KWARGS])?;
        check_keys(&section)?;
        dilates = dilation(&section)?.unwrap_or(dilates);
        channels = section.given_size(&["in_chans"])?.or(section.given_size(&["num_channels"])?).unwrap_or(channels);
        taken = stages_of_timm(&section)?;
        whole.take_over(&section);
    }
    Ok((resnet::Settings::timm(whole, name, channels, dilates)?, taken))
}

/// The same by an object of its own.
fn of_timm_section(whole: &Config<'_>, section: &Config<'_>) -> Result<(resnet::Settings, Vec<usize>), ModelError> {
    check_keys(section)?;
    let name = section.text("backbone", "")?;
    let channels = match section.given_size(&["num_channels"])? {
        Some(channels) => channels,
        None => whole.size("num_channels", 3)?,
    };
    let dilates = dilation(section)?.unwrap_or(false);
    Ok((resnet::Settings::timm(section, name, channels, dilates)?, stages_of_timm(section)?))
}

/// Whether the last stage takes each second element, where the settings say so.
fn dilation(section: &Config<'_>) -> Result<Option<bool>, ModelError> {
    let Some(stride) = section.get("output_stride") else { return Ok(None) };
    match stride.as_u64() {
        Some(DILATED) => Ok(Some(true)),
        Some(stride) if stride == 2 * DILATED => Ok(Some(false)),
        _ => Err(section.unexpected("output_stride", stride, "16 or 32")),
    }
}

/// Refuses settings of timm that are not known: any may change what is computed.
fn check_keys(section: &Config<'_>) -> Result<(), ModelError> {
    match section.set_keys().find(|key| !TIMM_KEYS.contains(key) && !IRRELEVANT.contains(key)) {
        Some(key) => Err(section.error(format!("the setting `{key}` of a backbone of timm is not supported"))),
        None => Ok(()),
    }
}

/// The stages by numbers from 1 to 4; what timm gives before them is not taken.
fn stages_of_timm(section: &Config<'_>) -> Result<Vec<usize>, ModelError> {
    let taken = section.sizes("out_indices", &[1, 2, 3, 4])?;
    let taken: Vec<usize> = taken.iter().map(|stage| stage.value).collect();
    if taken.iter().any(|stage| *stage > 4) || taken.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(section.error("`out_indices` has to be stages from 1 to 4 in ascending order"));
    }
    Ok(taken)
}

/// The stages of so many that a backbone of the transformers library gives, by numbers from 1 on: the last one where nothing says
/// which.
pub(in super::super) fn stages(section: &Config<'_>, count: usize) -> Result<Vec<usize>, ModelError> {
    let taken = section.stages(count)?;
    match taken.first() {
        Some(0) => Err(section.error(format!(
            "`out_features` or `out_indices` names the stem, and a detector takes stages from 1 to {count}; leave the stem out"
        ))),
        _ => Ok(taken),
    }
}
