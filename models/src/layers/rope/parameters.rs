//! The rotary embedding in `config.json`: `rope_parameters`, or before transformers 5
//! `rope_theta` and `rope_scaling`.

use planish_ir::ValueId;
use serde_json::{Map, Value};

use super::coordinates::{self, Coordinates};
use super::kinds::{Absent, proportional};
use super::long::{longrope, short_longrope, stretched, yarn};
use super::{AttentionFactor, Frequencies, Rope, scaling};
use crate::ModelError;
use crate::checkpoint::config::{Config, POSITIVE, Size, positive};

/// The configuration keys that are read here, where the base of the frequencies is under its usual name.
pub(crate) const KEYS: &[&str] = &[ORIGINAL, "partial_rotary_factor", "rope_parameters", "rope_scaling", THETA];

/// The same without the base.
pub(crate) const SHARED_KEYS: &[&str] = &[ORIGINAL, "partial_rotary_factor", "rope_parameters", "rope_scaling"];

const THETA: &str = "rope_theta";

/// The types of layers that parameters may be given by.
const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];

/// Keys that are read elsewhere or say nothing of the frequencies.
const OTHER_KEYS: &[&str] = &["rope_type", "type", "rope_theta", "partial_rotary_factor", "max_position_embeddings"];

pub(super) const ORIGINAL: &str = "original_max_position_embeddings";

/// `beta_fast` and `beta_slow` of "yarn" where the configuration does not say.
pub(super) const BETAS: [f64; 2] = [32.0, 1.0];

/// The layers that an embedding is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layers {
    All,
    /// Those that attend to all tokens. Parameters that are not given by the types of layers are theirs.
    Full,
    /// Those with windows. `scaled` says whether parameters that are not given by the types of layers are theirs too.
    Sliding {
        scaled: bool,
    },
}

impl Layers {
    /// The name of their type, where it is one.
    fn name(self) -> Option<&'static str> {
        match self {
            Layers::All => None,
            Layers::Full => Some(LAYER_TYPES[0]),
            Layers::Sliding { .. } => Some(LAYER_TYPES[1]),
        }
    }
}

/// How far positions are stretched.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) factor: f64,
    /// The length of the original context.
    pub(crate) original: f64,
}

/// In what an architecture differs.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    /// The layers with this embedding.
    pub(crate) layers: Layers,
    /// The key of the base of the frequencies, beside the parameters.
    pub(crate) theta_key: &'static str,
    /// The base where the configuration does not say.
    pub(crate) theta: f64,
    /// `partial_rotary_factor` where the configuration does not say. `None`: heads turn as a whole, and the transformers
    /// library ignores the key.
    pub(crate) part: Option<f64>,
    /// Other names of "default".
    pub(crate) plain_names: &'static [&'static str],
    /// Another name of "longrope".
    pub(crate) longrope_names: &'static [&'static str],
    /// The original length where the configuration does not have it at its top level.
    pub(crate) original: Option<f64>,
    pub(crate) absent: Absent,
    /// Keys among the parameters that are read elsewhere.
    pub(crate) other_keys: &'static [&'static str],
    /// Whether the transformers library computes the cache anew where a text of "longrope" outgrows the
    /// original length.
    pub(crate) recomputes: bool,
    /// Whether "longrope" has its frequencies for short texts at all lengths, and `short_mscale` and `long_mscale` in the place
    /// of one factor, as Phi-3.5-MoE.
    pub(crate) mscales: bool,
    /// Whether "dynamic" has a fixed `alpha`, as Hunyuan.
    pub(crate) fixed_alpha: bool,
    /// The coordinates that pairs turn by in a model that sees, where they do.
    pub(crate) coordinates: Option<Coordinates>,
}

impl Defaults {
    /// The embedding of models of images, whose pairs turn by coordinates: in texts all coordinates are the position.
    pub(crate) fn by_coordinates() -> Self {
        Self { plain_names: &["mrope"], other_keys: &[coordinates::SECTIONS, "mrope_interleaved"], ..Self::default() }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            layers: Layers::All,
            theta_key: THETA,
            theta: 10_000.0,
            part: None,
            plain_names: &[],
            longrope_names: &[],
            original: None,
            absent: Absent::Plain,
            other_keys: &[],
            recomputes: false,
            mscales: false,
            fixed_alpha: false,
            coordinates: None,
        }
    }
}

/// The object that describes the embedding, under the name it goes by.
pub(super) struct Parameters<'a> {
    pub(super) config: &'a Config<'a>,
    pub(super) key: String,
    pub(super) values: Option<&'a Map<String, Value>>,
    /// Keys that are read elsewhere.
    other_keys: &'static [&'static str],
}

impl<'a> Parameters<'a> {
    /// Where there are both, the older one counts, unless it is empty.
    pub(super) fn read(config: &'a Config<'a>, layers: Layers) -> Result<Self, ModelError> {
        let mut found = Self { config, key: "rope_parameters".to_owned(), values: None, other_keys: &[] };
        for key in ["rope_parameters", "rope_scaling"] {
            match config.get(key) {
                Some(Value::Object(values)) if values.is_empty() => {}
                Some(Value::Object(values)) => {
                    found = Self { key: key.to_owned(), values: Some(values), ..found };
                }
                Some(value) => return Err(config.unexpected(key, value, "an object")),
                None => {}
            }
        }
        found.of_layers(layers)
    }

    /// The parameters of some layers, where they are given by the types of layers.
    fn of_layers(self, layers: Layers) -> Result<Self, ModelError> {
        let Some(values) = self.values else { return Ok(self) };
        let by_type = |key: &String| LAYER_TYPES.contains(&key.as_str());
        if !values.keys().any(by_type) {
            let values = if layers == (Layers::Sliding { scaled: false }) { None } else { self.values };
            return Ok(Self { values, ..self });
        }
        let mut found: Option<(&String, &'a Map<String, Value>)> = None;
        for (name, value) in values.iter().filter(|(_, value)| !value.is_null()) {
            let Value::Object(own) = value else { return Err(self.unexpected(name, value, "an object")) };
            if !by_type(name) {
                let known = LAYER_TYPES.join(" and ");
                return Err(self.config.error(format!(
                    "`{}` is given by the types of layers and has `{name}`; known types are {known}",
                    self.key
                )));
            }
            if layers.name().is_some_and(|wanted| wanted != name) {
                continue;
            }
            match found {
                Some((first, other)) if other != own => {
                    return Err(self.config.error(format!(
                        "`{}` differs between layers of the types {first} and {name}: this architecture has one rotary \
                         embedding for all layers",
                        self.key
                    )));
                }
                _ => found = Some((name, own)),
            }
        }
        let key = found.map_or_else(|| self.key.clone(), |(name, _)| format!("{}.{name}", self.key));
        Ok(Self { key, values: found.map(|(_, own)| own), ..self })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.values?.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn unexpected(&self, key: &str, value: &Value, expected: &str) -> ModelError {
        self.config.unexpected(&format!("{}.{key}", self.key), value, expected)
    }

    /// A positive number, where it is given.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        positive(value).map(Some).ok_or_else(|| self.unexpected(key, value, POSITIVE))
    }

    pub(super) fn missing(&self, key: &str) -> ModelError {
        self.config.error(format!("`{}.{key}` is missing", self.key))
    }

    pub(super) fn required(&self, key: &str) -> Result<f64, ModelError> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A positive number for each pair.
    pub(super) fn each(&self, key: &str, pairs: usize) -> Result<Vec<f64>, ModelError> {
        let value = self.get(key).ok_or_else(|| self.missing(key))?;
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(positive).collect());
        numbers
            .filter(|numbers| numbers.len() == pairs)
            .ok_or_else(|| self.unexpected(key, value, &format!("a list of {pairs} positive numbers, one a pair")))
    }

    pub(super) fn boolean(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.unexpected(key, value, "true or false"))
    }

    /// Refuses keys that the embedding's type does not have.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), ModelError> {
        let known = |key: &&String| [OTHER_KEYS, self.other_keys, keys].iter().any(|keys| keys.contains(&key.as_str()));
        match self.values.into_iter().flatten().find(|(key, value)| !value.is_null() && !known(key)) {
            Some((key, _)) => Err(self.config.error(format!("`{}.{key}` is not supported", self.key))),
            None => Ok(()),
        }
    }
}

impl Rope {
    /// The embedding of all of a head, with plain frequencies.
    pub(crate) fn plain(size: Size, longest: Size, theta: f64) -> Self {
        let pairs = size.value / 2;
        let frequencies = (0..pairs).map(|i| theta.powf(-(i as f64) / pairs as f64)).collect();
        Self { frequencies: Frequencies::Fixed(frequencies), attention_factor: AttentionFactor::NONE, longest }
    }

    /// The embedding of all of a head, with stored frequencies: [pairs].
    pub(crate) fn stored(frequencies: ValueId, longest: Size) -> Self {
        Self { frequencies: Frequencies::Stored(frequencies), attention_factor: AttentionFactor::NONE, longest }
    }

    /// The coordinate that each pair turns by, of heads of some size.
    pub(crate) fn coordinates(config: &Config<'_>, size: Size, defaults: Defaults) -> Result<Vec<usize>, ModelError> {
        let Some(coordinates) = defaults.coordinates else {
            return Err(
                config.error("this text model has positions of one coordinate, and the model that sees of three")
            );
        };
        coordinates.of_pairs(&Parameters::read(config, defaults.layers)?, size.value / 2)
    }

    /// The embedding of heads of some size, in a model whose configuration names its longest text.
    pub(crate) fn read(config: &Config<'_>, size: Size, longest: Size, defaults: Defaults) -> Result<Self, ModelError> {
        let parameters = Parameters { other_keys: defaults.other_keys, ..Parameters::read(config, defaults.layers)? };
        let theta = config.positive(defaults.theta_key, defaults.theta)?;
        let theta = parameters.number("rope_theta")?.unwrap_or(theta);
        let given = parameters.get("rope_type").or_else(|| parameters.get("type"));
        if given.and_then(Value::as_str) == Some("proportional") {
            return proportional(&parameters, size, theta, longest);
        }
        if let (None, Absent::Proportional(part)) = (parameters.values, defaults.absent) {
            return Ok(Self::proportional(size, (part, 1.0), theta, longest));
        }
        let pairs = pairs(&parameters, size, defaults.part)?;
        let plain: Vec<f64> = (0..pairs).map(|i| theta.powf(-(i as f64) / pairs as f64)).collect();
        // What is beside the other parameters counts before what is among them.
        let original = match config.get(ORIGINAL) {
            Some(_) => Some(config.positive(ORIGINAL, 1.0)?),
            None => defaults.original,
        };
        let original = match original {
            Some(original) => original,
            None => parameters.number(ORIGINAL)?.unwrap_or(longest.value as f64),
        };
        if parameters.values.is_none() && !matches!(defaults.absent, Absent::Plain) {
            return Ok(defaults.absent.embedding(&plain, theta, longest));
        }
        let fixed = |frequencies| Self {
            frequencies: Frequencies::Fixed(frequencies),
            attention_factor: AttentionFactor::NONE,
            longest,
        };
        let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
        let kind = match kind.map_or(Ok("default"), |v| v.as_str().ok_or(v)) {
            Ok(name) if defaults.longrope_names.contains(&name) => Ok("longrope"),
            Ok(name) if defaults.plain_names.contains(&name) => Ok("default"),
            kind => kind,
        };
        match kind {
            Ok("default") => {
                parameters.only(&[ORIGINAL])?;
                Ok(fixed(plain))
            }
            Ok("linear") => {
                parameters.only(&["factor", ORIGINAL])?;
                let factor = parameters.required("factor")?;
                Ok(fixed(plain.iter().map(|f| f / factor).collect()))
            }
            Ok("dynamic") if defaults.fixed_alpha && parameters.get("alpha").is_some() => {
                // What is beside `alpha` in published configurations does not count then.
                parameters.only(&["alpha", "beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim"])?;
                let (alpha, size) = (parameters.required("alpha")?, 2.0 * pairs as f64);
                let grown = alpha.powf(size / (size - 2.0));
                Ok(fixed((0..pairs).map(|i| (theta * grown).powf(-(i as f64) / pairs as f64)).collect()))
            }
            Ok("dynamic") => {
                parameters.only(&["factor", ORIGINAL])?;
                let factor = parameters.required("factor")?;
                if pairs == 1 {
                    return Err(config.error("the rotary embedding \"dynamic\" turns at least 2 pairs, but there is 1"));
                }
                let original = longest.value as f64;
                let frequencies = Frequencies::Stretched { plain, factor, original };
                Ok(Self {
                    frequencies,
                    attention_factor: AttentionFactor::NONE,
                    longest: stretched(longest, original, factor),
                })
            }
            Ok("llama3") => {
                parameters.only(&["factor", "low_freq_factor", "high_freq_factor", ORIGINAL])?;
                let factor = parameters.required("factor")?;
                let bounds = [parameters.required("low_freq_factor")?, parameters.required("high_freq_factor")?];
                Ok(fixed(plain.iter().map(|f| scaling::llama3(*f, factor, bounds, original)).collect()))
            }
            Ok("yarn") => yarn(&parameters, plain, theta, original, longest),
            Ok("longrope") if defaults.mscales => short_longrope(&parameters, plain, original, longest),
            Ok("longrope") => longrope(&parameters, plain, original, longest),
            Ok(other) => Err(config.error(format!(
                "`{}` asks for the rotary embedding \"{other}\", which is not supported: known are default, linear, \
                 dynamic, yarn, longrope, llama3, proportional",
                parameters.key
            ))),
            Err(value) => Err(parameters.unexpected("rope_type", value, "a text")),
        }
    }
}

/// How many pairs of each head turn.
fn pairs(parameters: &Parameters<'_>, size: Size, default: Option<f64>) -> Result<usize, ModelError> {
    const KEY: &str = "partial_rotary_factor";
    let part = parameters.config.positive(KEY, default.unwrap_or(1.0))?;
    let part = parameters.number(KEY)?.unwrap_or(part);
    if default.is_none() && part != 1.0 {
        return Err(parameters.config.error(format!(
            "`{KEY}` is {part}, but all of a head turns in this architecture; remove the key, which the transformers library \
             ignores here unless frequencies are scaled"
        )));
    }
    // Beyond 1, more features would turn than there are.
    let turning = (size.value as f64 * part.min(2.0)) as usize;
    if turning == 0 || turning > size.value || !turning.is_multiple_of(2) {
        return Err(parameters.config.error(format!(
            "rotary embedding turns pairs, but {turning} features of {size} turn (`partial_rotary_factor` is {part})"
        )));
    }
    Ok(turning / 2)
}
