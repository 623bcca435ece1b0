//! Attention to the latest keys only, in some layers or all.

use serde_json::Value;

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};

/// The configuration keys that say which layers attend to a window, and how many keys it has.
pub(crate) const KEYS: &[&str] = &["layer_types", "sliding_window"];

/// The configuration keys of models in which every so-manieth layer attends to all keys.
pub(crate) const PATTERN_KEYS: &[&str] = &["_sliding_window_pattern", "sliding_window_pattern"];

/// Of how many layers the last attends to all keys, where no list says which layers do.
pub(crate) fn pattern(config: &Config<'_>, default: usize) -> Result<usize, ModelError> {
    // What transformers 5 writes begins with `_`.
    Ok(config.given_size(PATTERN_KEYS)?.map_or(default, |size| size.value))
}

/// How many keys a window has, where `use_sliding_window` says that there are windows.
pub(crate) fn switched(config: &Config<'_>) -> Result<Option<usize>, ModelError> {
    const SIZE: &str = "sliding_window";
    // Where there are none, the transformers library writes 0 or null.
    config.get(SIZE);
    if config.boolean("use_sliding_window", false)? { config.optional_size(SIZE, Some(4096)) } else { Ok(None) }
}

/// The kind of each layer, one of the `known` ones: that which the key of the configuration lists, or the usual one where there is
/// no list.
pub(crate) fn kinds<const N: usize>(
    config: &Config<'_>,
    key: &'static str,
    layers: Size,
    known: [&'static str; N],
    usual: impl Fn(usize) -> &'static str,
) -> Result<Vec<&'static str>, ModelError> {
    let Some(value) = config.get(key) else { return Ok((0..layers.value).map(usual).collect()) };
    let kind = |kind: &Value| {
        let found = known.iter().find(|known| kind.as_str() == Some(known));
        found.copied().ok_or_else(|| {
            let known: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
            config.error(format!("`{key}` has {kind}, expected {}", known.join(" or ")))
        })
    };
    let kinds = value.as_array().ok_or_else(|| config.unexpected(key, value, "a list"))?;
    let kinds = kinds.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    match kinds.len() == layers.value {
        true => Ok(kinds),
        false => Err(config.error(format!("`{key}` lists {} layers, but {layers}", kinds.len()))),
    }
}

/// Which layers attend to the latest keys only, and how many these are.
#[derive(Default)]
pub(crate) struct Windows {
    size: Option<usize>,
    /// Whether each layer has one; the layers after these have none.
    slides: Vec<bool>,
}

impl Windows {
    /// Windows of a size, in the layers that `layer_types` lists, or, where there is no list, in those
    /// that `slides` says.
    pub(crate) fn read(
        config: &Config<'_>,
        layers: Size,
        size: Option<usize>,
        slides: impl Fn(usize) -> bool,
    ) -> Result<Self, ModelError> {
        const LISTED: &str = "layer_types";
        let Some(value) = config.get(LISTED) else {
            return Ok(Self { size, slides: (0..layers.value).map(slides).collect() });
        };
        let slides = |kind: &Value| match kind.as_str() {
            Some("full_attention") => Ok(false),
            Some("sliding_attention") if size.is_some() => Ok(true),
            _ => Err(config.error(format!(
                "`{LISTED}` has {kind}, expected \"full_attention\", or \"sliding_attention\" where \
                 `sliding_window` says how many keys"
            ))),
        };
        let kinds = value.as_array().ok_or_else(|| config.unexpected(LISTED, value, "a list"))?;
        let slides = kinds.iter().map(slides).collect::<Result<Vec<bool>, _>>()?;
        if slides.len() != layers.value {
            return Err(config.error(format!("`{LISTED}` lists {} layers, but {layers}", slides.len())));
        }
        Ok(Self { size, slides })
    }

    /// Windows of a size in all layers, where there is one.
    pub(crate) fn everywhere(layers: Size, size: Option<usize>) -> Self {
        Self { size, slides: vec![true; layers.value] }
    }

    /// Windows of a size, in these layers.
    pub(crate) fn in_layers(size: usize, slides: Vec<bool>) -> Self {
        Self { size: Some(size), slides }
    }

    /// The window of a layer.
    pub(crate) fn of(&self, layer: usize) -> Option<usize> {
        self.size.filter(|_| self.slides.get(layer).copied().unwrap_or(false))
    }
}
