//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864) as `config.json` describes it:
//! `rope_parameters`, or before transformers 5 `rope_theta` and `rope_scaling`.

use std::f64::consts::TAU;

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Rotary, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};
use serde_json::{Map, Value};

use crate::ModelError;
use crate::builder::{BATCH, Builder, SEQUENCE};
use crate::config::{Config, Size};

/// Keys that are read elsewhere or say nothing of the frequencies.
const OTHER_KEYS: &[&str] = &["rope_type", "type", "rope_theta", "partial_rotary_factor", "max_position_embeddings"];

/// Cosines and sines of a batch's angles, [batch_size, sequence_length, pairs]: the same for all layers.
#[derive(Clone, Copy)]
pub(crate) struct Angles {
    cos: ValueId,
    sin: ValueId,
}

impl Angles {
    /// The angles of positions, i64[batch_size, sequence_length], for heads of some size.
    pub(crate) fn new(b: &mut Builder<'_>, position_ids: ValueId, size: Size) -> Result<Self, ModelError> {
        Self::with_defaults(b, position_ids, size, Defaults { theta: 10_000.0, part: 1.0 })
    }

    /// The same where a configuration that does not say means something else.
    pub(crate) fn with_defaults(
        b: &mut Builder<'_>,
        position_ids: ValueId,
        size: Size,
        defaults: Defaults,
    ) -> Result<Self, ModelError> {
        const MODULE: &str = "rotary_emb";
        let at = |name: &str| format!("{MODULE}.{name}");
        let frequencies = frequencies(b.config, size, defaults)?;
        let weight = Weight::numbers(DType::F32, vec![frequencies.len()], &frequencies);
        let weight = weight.unwrap_or_else(|| unreachable!("a vector has as many elements as its dimension says"));
        let frequencies = b.graph.add_weight(&at("inv_freq"), weight, Origin::Config("rope_theta".into()));

        let positions = b.emit(Cast { x: position_ids, to: DType::F32 }, &at("position_ids"))?;
        let shape = Shape::new([Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)]);
        let positions = b.emit(Reshape { x: positions, shape }, &at("positions"))?;
        let angles = b.emit(Binary { kind: BinaryKind::Mul, a: positions, b: frequencies }, &at("angles"))?;
        let cos = b.emit(Unary { kind: UnaryKind::Cos, x: angles }, &at("cos"))?;
        let sin = b.emit(Unary { kind: UnaryKind::Sin, x: angles }, &at("sin"))?;
        Ok(Self { cos, sin })
    }

    /// Rotates the pairs of each head.
    pub(crate) fn rotate(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        heads: Size,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let rotary = Rotary { x, cos: self.cos, sin: self.sin, heads: heads.value, interleaved: Default::default() };
        b.emit(rotary, module)
    }
}

/// What a configuration without these keys means.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    /// `rope_theta`.
    pub(crate) theta: f64,
    /// `partial_rotary_factor`.
    pub(crate) part: f64,
}

/// The object that describes the embedding, under the name it goes by.
struct Parameters<'a> {
    config: &'a Config<'a>,
    key: &'static str,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> Parameters<'a> {
    fn read(config: &'a Config<'a>) -> Result<Self, ModelError> {
        for key in ["rope_parameters", "rope_scaling"] {
            match config.get(key) {
                Some(Value::Object(values)) => return Ok(Self { config, key, values: Some(values) }),
                Some(value) => return Err(config.unexpected(key, value, "an object")),
                None => {}
            }
        }
        Ok(Self { config, key: "rope_parameters", values: None })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values?.get(key).filter(|v| !v.is_null())
    }

    /// A positive number, where it is given.
    fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
        let full = format!("{}.{key}", self.key);
        number.map(Some).ok_or_else(|| self.config.unexpected(&full, value, "a positive number"))
    }

    fn required(&self, key: &str) -> Result<f64, ModelError> {
        self.number(key)?.ok_or_else(|| self.config.error(format!("`{}.{key}` is missing", self.key)))
    }

    /// Refuses keys that the embedding's type does not have.
    fn only(&self, keys: &[&str]) -> Result<(), ModelError> {
        let known = |key: &&String| OTHER_KEYS.contains(&key.as_str()) || keys.contains(&key.as_str());
        match self.values.into_iter().flatten().find(|(key, value)| !value.is_null() && !known(key)) {
            Some((key, _)) => Err(self.config.error(format!("`{}.{key}` is not supported", self.key))),
            None => Ok(()),
        }
    }
}

/// The angle of each pair at position 1, in radians.
fn frequencies(config: &Config<'_>, size: Size, defaults: Defaults) -> Result<Vec<f64>, ModelError> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let parameters = Parameters::read(config)?;
    let theta = config.positive("rope_theta", defaults.theta)?;
    let theta = parameters.number("rope_theta")?.unwrap_or(theta);
    let part = config.positive("partial_rotary_factor", defaults.part)?;
    let part = parameters.number("partial_rotary_factor")?.unwrap_or(part);
    // Beyond 1, more features would turn than there are.
    let turning = (size.value as f64 * part.min(2.0)) as usize;
    if turning == 0 || turning > size.value || !turning.is_multiple_of(2) {
        return Err(config.error(format!(
            "rotary embedding turns pairs, but {turning} features of {size} turn (`partial_rotary_factor` is {part})"
        )));
    }
    let plain = (0..turning / 2).map(|i| theta.powf(-(2.0 * i as f64) / turning as f64));
    let original = config.positive(ORIGINAL, 0.5)?;

    let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
    let kind = kind.map_or(Ok("default"), |v| v.as_str().ok_or(v));
    match kind {
        Ok("default") => {
            parameters.only(&[ORIGINAL])?;
            Ok(plain.collect())
        }
        Ok("linear") => {
            parameters.only(&["factor", ORIGINAL])?;
            let factor = parameters.required("factor")?;
            Ok(plain.map(|f| f / factor).collect())
        }
        Ok("llama3") => {
            parameters.only(&["factor", "low_freq_factor", "high_freq_factor", ORIGINAL])?;
            let [factor, low, high] = [
                parameters.required("factor")?,
                parameters.required("low_freq_factor")?,
                parameters.required("high_freq_factor")?,
            ];
            let length = match parameters.number(ORIGINAL)? {
                Some(length) => length,
                None if original >= 1.0 => original,
                None => parameters.required(ORIGINAL)?,
            };
            Ok(plain.map(|f| llama3(f, factor, [low, high], length)).collect())
        }
        Ok(other) => Err(config.error(format!(
            "`{}` asks for the rotary embedding \"{other}\", which is not supported: known are default, linear, llama3",
            parameters.key
        ))),
        Err(value) => Err(config.unexpected(&format!("{}.rope_type", parameters.key), value, "a text")),
    }
}

/// The frequency that Llama 3.1 turns a pair with: waves longer than the original context are
/// stretched by `factor`, short ones stay, and between them it goes over gradually.
fn llama3(frequency: f64, factor: f64, [low, high]: [f64; 2], length: f64) -> f64 {
    let waves = length * frequency / TAU;
    if waves > high {
        frequency
    } else if waves < low {
        frequency / factor
    } else {
        let share = (waves - low) / (high - low);
        (1.0 - share) * frequency / factor + share * frequency
    }
}
