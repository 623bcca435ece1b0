//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864): angles of positions, and their
//! place in a graph. What `config.json` says of it is read in [`parameters`].
//!
//! Where frequencies depend on the length of the text, it is that of each row: the last of its
//! positions and one. So no row depends on what else is in its batch. The transformers library
//! takes the longest of a batch, which is the same where rows are equally long.

mod coordinates;
mod kinds;
mod long;
mod parameters;
mod scaling;

use planish_ir::ops::{BinaryKind, Cast, Flag, Gather, Reduce, ReduceKind, Reshape, Rotary, Select, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

pub(crate) use coordinates::Coordinates;
pub(crate) use kinds::Absent;
pub(crate) use long::latent_scale;
pub(crate) use parameters::{Defaults, KEYS, Layers, SHARED_KEYS, Stretch};

/// The module of the embedding that all layers have.
pub(crate) const MODULE: &str = "rotary_emb";

/// The embedding of a model.
pub(crate) struct Rope {
    frequencies: Frequencies,
    attention_factor: AttentionFactor,
    /// The longest text that it is made for.
    pub(crate) longest: Size,
}

/// The factor of cosines and sines.
enum AttentionFactor {
    /// The same at all lengths.
    Fixed(f64),
    /// One of two.
    Chosen {
        /// That of texts up to the original length.
        short: f64,
        long: f64,
        original: f64,
    },
}

impl AttentionFactor {
    const NONE: Self = Self::Fixed(1.0);

    /// A cosine or sine times the factor, for positions of [batch_size, sequence_length, 1].
    fn apply(&self, b: &mut Builder<'_>, x: ValueId, positions: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let at = |part: &str| format!("{name}.{part}");
        match *self {
            Self::Fixed(1.0) => Ok(x),
            Self::Fixed(factor) => with_number(b, BinaryKind::Mul, x, factor, &at("scaled")),
            Self::Chosen { short, long, original } => {
                let last = last(b, positions, &at("last_position"))?;
                let condition = with_number(b, BinaryKind::Greater, last, original - 1.0, &at("is_long"))?;
                let number = |b: &mut Builder<'_>, of, name: &str| b.number(of, &at(name), "rope_parameters");
                let (long, short) = (number(b, long, "long"), number(b, short, "short"));
                let factor = b.emit(Select { condition, a: long, b: short }, &at("factor"))?;
                b.binary(BinaryKind::Mul, [x, factor], &at("scaled"))
            }
        }
    }
}

/// The angle of each pair at position 1, in radians.
enum Frequencies {
    /// The same at all lengths.
    Fixed(Vec<f64>),
    /// The same at all lengths, in a weight.
    Stored(ValueId),
    /// Stretched with the length: "dynamic".
    Stretched {
        /// The frequencies up to the original length.
        plain: Vec<f64>,
        factor: f64,
        original: f64,
    },
    /// One of two: "longrope".
    Chosen {
        /// The frequencies up to the original length.
        short: Vec<f64>,
        long: Vec<f64>,
        original: f64,
    },
}

impl Rope {
    /// The length from which on the frequencies of a text depend on its length, where the model takes texts of that
    /// length.
    pub(crate) fn frequencies_change_at(&self) -> Option<usize> {
        match self.frequencies {
            Frequencies::Chosen { original, .. } | Frequencies::Stretched { original, .. }
                if original < self.longest.value as f64 =>
            {
                Some(original as usize + 1)
            }
            _ => match self.attention_factor {
                AttentionFactor::Chosen { short, long, original }
                    if short != long && original < self.longest.value as f64 =>
                {
                    Some(original as usize + 1)
                }
                _ => None,
            },
        }
    }

    /// The length from which longrope uses its frequencies, or its factor, of long texts.
    pub(crate) fn outgrown(&self) -> Option<usize> {
        let is_chosen = matches!(self.frequencies, Frequencies::Chosen { .. });
        let is_chosen = is_chosen || matches!(self.attention_factor, AttentionFactor::Chosen { .. });
        self.frequencies_change_at().filter(|_| is_chosen)
    }

    /// Adds the angles of positions, i64[batch_size or 1, sequence_length], in a module.
    pub(crate) fn angles(
        &self,
        b: &mut Builder<'_>,
        position_ids: ValueId,
        module: &str,
    ) -> Result<Angles, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let positions = b.emit(Cast { x: position_ids, to: DType::F32 }, &at("position_ids"))?;
        let dims = b.graph.ty(position_ids).shape.clone();
        let shape = Shape::new([dims[0].clone(), dims[1].clone(), Dim::constant(1)]);
        let positions = b.emit(Reshape { x: positions, shape }, &at("positions"))?;
        let frequencies = self.frequencies.emit(b, positions, module)?;
        let angles = b.binary(BinaryKind::Mul, [positions, frequencies], &at("angles"))?;
        let mut turn = |kind, name| {
            let x = b.emit(Unary { kind, x: angles }, &at(name))?;
            self.attention_factor.apply(b, x, positions, &at(name))
        };
        Ok(Angles { cos: turn(UnaryKind::Cos, "cos")?, sin: turn(UnaryKind::Sin, "sin")? })
    }
}

impl Rope {
    /// The angles of positions of three coordinates, i64[3, batch_size, sequence_length], of which each pair turns by one.
    ///
    /// # Errors
    /// When frequencies depend on the length of the text.
    pub(crate) fn angles_by_coordinates(
        &self,
        b: &mut Builder<'_>,
        position_ids: ValueId,
        coordinates: &[usize],
    ) -> Result<Angles, ModelError> {
        let at = |name: &str| format!("{MODULE}.{name}");
        let (Frequencies::Fixed(frequencies), AttentionFactor::Fixed(_)) = (&self.frequencies, &self.attention_factor)
        else {
            return Err(b.config.error(
                "rotary frequencies depend on the length of the text, which is not supported where positions have three coordinates",
            ));
        };
        let frequencies = vector(b, &at("inv_freq"), frequencies);
        let numbers: Vec<f64> = coordinates.iter().map(|coordinate| *coordinate as f64).collect();
        let indices = Weight::numbers(DType::I64, vec![numbers.len()], &numbers);
        let indices = indices.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
        let indices = b.graph.add_weight(&at("coordinates"), indices, Origin::Config("mrope_section".into()));
        let by_token = b.transpose(position_ids, &[1, 2, 0], &at("by_token"))?;
        let by_pair = b.emit(Gather { x: by_token, indices, axis: 2 }, &at("by_pair"))?;
        let positions = b.emit(Cast { x: by_pair, to: DType::F32 }, &at("position_ids"))?;
        let angles = b.binary(BinaryKind::Mul, [positions, frequencies], &at("angles"))?;
        let mut turn = |kind, name| {
            let x = b.emit(Unary { kind, x: angles }, &at(name))?;
            self.attention_factor.apply(b, x, positions, &at(name))
        };
        Ok(Angles { cos: turn(UnaryKind::Cos, "cos")?, sin: turn(UnaryKind::Sin, "sin")? })
    }
}

impl Frequencies {
    /// Frequencies that broadcast to [batch_size, sequence_length, pairs], for positions of
    /// [batch_size, sequence_length, 1].
    fn emit(&self, b: &mut Builder<'_>, positions: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let name = &at("inv_freq");
        match self {
            Self::Fixed(frequencies) => Ok(vector(b, name, frequencies)),
            Self::Stored(frequencies) => Ok(*frequencies),
            Self::Stretched { plain, factor, original } => {
                // The base grows with `factor * length / original - (factor - 1)`, 1 at the original
                // length, to the power of `size / (size - 2)`: exponents for `last`, which is `length - 1`.
                let last = last(b, positions, &at("last_position"))?;
                let slope = factor / original;
                let grown = with_number(b, BinaryKind::Mul, last, slope, &at("stretch.slope"))?;
                let grown = with_number(b, BinaryKind::Add, grown, slope - (factor - 1.0), &at("stretch.sum"))?;
                let stretch = with_number(b, BinaryKind::Max, grown, 1.0, &at("stretch"))?;
                let exponents = vector(b, &at("stretch.exponents"), &scaling::stretch_exponents(plain.len()));
                let share = b.binary(BinaryKind::Pow, [stretch, exponents], &at("stretch.share"))?;
                let plain = vector(b, name, plain);
                b.binary(BinaryKind::Mul, [share, plain], &at("inv_freq.stretched"))
            }
            Self::Chosen { short, long, original } => {
                let last = last(b, positions, &at("last_position"))?;
                let condition = with_number(b, BinaryKind::Greater, last, original - 1.0, &at("is_long"))?;
                let (short, long) = (vector(b, name, short), vector(b, &at("long_inv_freq"), long));
                b.emit(Select { condition, a: long, b: short }, &at("inv_freq.chosen"))
            }
        }
    }
}

/// The last position of each row, [batch_size, 1, 1].
fn last(b: &mut Builder<'_>, positions: ValueId, name: &str) -> Result<ValueId, ModelError> {
    b.emit(Reduce { kind: ReduceKind::Max, x: positions, axes: vec![1], keep: true }, name)
}

fn vector(b: &mut Builder<'_>, name: &str, values: &[f64]) -> ValueId {
    let weight = Weight::numbers(DType::F32, vec![values.len()], values);
    let weight = weight.unwrap_or_else(|| unreachable!("a vector has as many elements as its dimension says"));
    b.graph.add_weight(name, weight, Origin::Config("rope_parameters".into()))
}

fn with_number(
    b: &mut Builder<'_>,
    kind: BinaryKind,
    x: ValueId,
    number: f64,
    name: &str,
) -> Result<ValueId, ModelError> {
    b.with_number(kind, x, number, name, "rope_parameters")
}

/// Cosines and sines of a batch's angles, [batch_size, sequence_length, pairs]: the same for all layers.
#[derive(Clone, Copy)]
pub(crate) struct Angles {
    cos: ValueId,
    sin: ValueId,
}

impl Angles {
    /// Cosines and sines that a checkpoint stores as tables of positions.
    pub(crate) fn stored(cos: ValueId, sin: ValueId) -> Self {
        Self { cos, sin }
    }

    /// Those of the other direction.
    pub(crate) fn backwards(self, b: &mut Builder<'_>) -> Result<Self, ModelError> {
        let sin = b.emit(Unary { kind: UnaryKind::Neg, x: self.sin }, &format!("{MODULE}.sin.backwards"))?;
        Ok(Self { sin, ..self })
    }

    /// Rotates the pairs of each head: neighbours where `interleaved`, else features and those half a head after them.
    pub(crate) fn rotate(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        heads: Size,
        interleaved: bool,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let interleaved = Flag(interleaved);
        let rotary = Rotary { x, cos: self.cos, sin: self.sin, heads: heads.value, interleaved };
        b.emit(rotary, module)
    }
}
