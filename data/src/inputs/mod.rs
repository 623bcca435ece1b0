//! Inputs made from a seed, for verification, benchmarks and calibration without data.

mod sampling;
mod sizes;
pub mod tensor_file;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use planish_eval::{Data, Tensor};
use planish_ir::{DType, Dim, InputRole, PartInterface, Type};
use planish_runtimes::Port;

use sizes::{bindings_after, grids, too_large};

pub use sampling::{Sampling, may_not_fit};
pub use sizes::{
    Open, Sizes, TokenSamples, bound_shapes, graph_bindings, has_cache, has_sequence, is_of_sequence, is_plain,
    open_sizes, shape_bindings, shapes,
};

/// The most bytes that the inputs of one run have together.
pub const MAX_BYTES: u64 = 1 << 30;

/// An input of a model and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// Name, element type and dimensions.
    pub port: Port,
    /// What its elements are.
    pub values: Values,
    /// What the tensors of its part are.
    pub of: Arc<PartInterface>,
    /// The samples of sound that stand for a token, where that is known.
    pub samples: Option<TokenSamples>,
}

impl InputSpec {
    /// What it is.
    #[must_use]
    pub fn role(&self) -> InputRole {
        self.of.input(&self.port.name)
    }
}

/// What the tensors of the part of these inputs are.
#[must_use]
pub fn interface_of(specs: &[InputSpec]) -> Arc<PartInterface> {
    specs.first().map(|spec| Arc::clone(&spec.of)).unwrap_or_default()
}

/// [`specs`] of the inputs of a session, whose roles its names tell.
///
/// # Errors
/// As of [`specs`].
pub fn session_specs(
    session: &dyn planish_runtimes::Session,
    ids: &BTreeMap<String, Values>,
) -> Result<Vec<InputSpec>, InputError> {
    specs(session.inputs(), ids, inferred(session.inputs(), session.outputs()))
}

/// What the tensors of a model are whose inputs and outputs have these names and types.
#[must_use]
pub fn inferred(inputs: &[Port], outputs: &[Port]) -> PartInterface {
    let [inputs, outputs] = [inputs, outputs]
        .map(|ports| ports.iter().map(|port| (port.name.as_str(), Some(&port.ty))).collect::<Vec<_>>());
    planish_onnx::interface::infer(planish_ir::PartRole::Model, &inputs, &outputs)
}

/// What the elements of an input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Identifiers, drawn evenly from the range. Padded positions have `pad`, which is drawn
    /// nowhere else, so that models that count from it see the mask's padding.
    Ids {
        /// The valid ones, e.g. `0..vocab_size`.
        range: Range<i64>,
        /// The id of padding.
        pad: Option<i64>,
    },
    /// 1 where there is a token, 0 where there is padding.
    Mask,
    /// 0 for the first half of the tokens and the last segment for the rest; padding is 0.
    Segments {
        /// How many segments the model knows.
        count: i64,
    },
    /// 0, 1, 2, ... from each row's first token on; 0 before it.
    Positions,
    /// Left, upper, right and lower sides of boxes, drawn evenly from the range.
    Boxes {
        /// The places that sides have.
        range: Range<i64>,
    },
    /// Frames, rows and columns of the patches of images, so that all patches there are belong to one: in squares of this side.
    Grids {
        /// The side of a square in patches.
        side: usize,
    },
    /// What points are, as [`InputRole::PointLabels`] has it.
    PointLabels,
    /// Real numbers drawn evenly from -1 to 1; for booleans and integers 0 or 1; for texts words, as bytes in one
    /// dimension more.
    Noise,
}

/// The most rows, and columns, of patches of an image that is made up; it has one at least.
const MOST_ROWS: i64 = 32;

/// Why no inputs were made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// An input of identifiers whose range nobody gave.
    #[error(
        "the valid values of the integers in the input `{input}` are not known, because they do not select rows of a table"
    )]
    NoRange {
        /// The input.
        input: String,
    },
    /// A range without a value to draw.
    #[error("the input `{input}` has no valid value in {range:?}")]
    EmptyRange {
        /// The input.
        input: String,
        /// Its range.
        range: Range<i64>,
    },
    /// A dimension that neither the model nor the request fixes.
    #[error(
        "the size of the dimension `{dimension}` of the input `{input}` is not known: compile with --shapes {input}=..."
    )]
    Dimension {
        /// The input.
        input: String,
        /// The dimension.
        dimension: Dim,
    },
    /// An input that is not a tensor of a known number of dimensions.
    #[error(
        "planish cannot make values for the input `{input}`, {ty}; if it is a tensor, compile with --shapes {input}=..."
    )]
    Type {
        /// The input.
        input: String,
        /// Its type.
        ty: Type,
    },
    /// A batch whose inputs and outputs do not fit.
    #[error(
        "the inputs and outputs of a run may have {limit} bytes at most, and with `{tensor}`, {dtype}{shape:?}, they would \
         have more: choose a smaller batch"
    )]
    Batch {
        /// The largest of them.
        tensor: String,
        /// Its element type.
        dtype: DType,
        /// Its sizes.
        shape: Vec<usize>,
        /// The most bytes.
        limit: u64,
    },
    /// More elements than inputs are made of.
    #[error(
        "the inputs of one run may have {limit} bytes at most, and with `{input}`, {dtype}{shape:?}, they would have more{advice}",
        limit = MAX_BYTES,
        advice = if *is_open { ": choose smaller sizes, of an ONNX graph with --shapes" } else { "" }
    )]
    TooLarge {
        /// The input.
        input: String,
        /// Its element type.
        dtype: DType,
        /// Its sizes.
        shape: Vec<usize>,
        /// Whether the model leaves some of them open.
        is_open: bool,
    },
}

/// The inputs of a part with their values by their roles; `ids` has the values of the others that are integers, by name.
///
/// # Errors
/// When an integer input has no role that tells its values, and is not in `ids`.
pub fn specs(ports: &[Port], ids: &BTreeMap<String, Values>, of: PartInterface) -> Result<Vec<InputSpec>, InputError> {
    let of = Arc::new(of);
    let spec = |port: &Port| {
        let values = match (ids.get(&port.name), of.input(&port.name)) {
            (Some(Values::Ids { range, .. }), InputRole::Boxes) => Values::Boxes { range: range.clone() },
            (_, InputRole::PatchGrid) if port.ty.shape.get(1) == Some(&Dim::constant(3)) => {
                let pixels = ports.iter().find(|port| of.input(&port.name) == InputRole::Pixels);
                let squares =
                    pixels.and_then(|port| port.ty.shape.first()?.as_multiple()).map_or(1, |(_, count)| count);
                Values::Grids { side: usize::try_from(squares).map_or(1, usize::isqrt) }
            }
            (Some(Values::Ids { range, .. }), InputRole::PatchGrid) => {
                Values::Ids { range: 1..range.end.min(MOST_ROWS + 1), pad: None }
            }
            (Some(values), _) => values.clone(),
            (None, role) if role.is_mask() => Values::Mask,
            (None, InputRole::Positions) => Values::Positions,
            (None, InputRole::PointLabels) => Values::PointLabels,
            (None, InputRole::TokenTypes) => Values::Segments { count: 1 },
            (None, _) if port.ty.dtype.is_integer() => return Err(InputError::NoRange { input: port.name.clone() }),
            (None, _) => Values::Noise,
        };
        Ok(InputSpec { port: port.clone(), values, of: Arc::clone(&of), samples: None })
    };
    ports.iter().map(spec).collect()
}

/// Inputs of `batch` rows of `sequence` tokens; the same arguments give the same tensors.
///
/// With `padding`, each row but the first ends in a number of padded positions that the seed
/// decides, at most all but one; where there is a cache of keys and values it begins with them, as
/// batches of prompts do. Symbols that count rows stand for `batch`, those of a past for 0, and other lengths of
/// sequences for `sequence`.
///
/// # Errors
/// When a dimension has no size or a range no value, and when the inputs have more than [`MAX_BYTES`].
pub fn seeded_inputs(
    specs: &[InputSpec],
    batch: usize,
    sequence: usize,
    seed: u64,
    padding: bool,
) -> Result<Vec<(String, Tensor)>, InputError> {
    sized_inputs(specs, Sizes { batch, sequence, side: None }, seed, padding)
}

/// [`seeded_inputs`] of these sizes.
///
/// # Errors
/// Those of [`seeded_inputs`].
pub fn sized_inputs(
    specs: &[InputSpec],
    sizes: Sizes,
    seed: u64,
    padding: bool,
) -> Result<Vec<(String, Tensor)>, InputError> {
    let rows = rows(sizes.batch, sizes.sequence, seed, padding, has_cache(specs));
    filled(specs, shapes(specs, sizes)?, &rows, seed)
}

/// [`sized_inputs`] without padding, after `past` cached tokens.
///
/// # Errors
/// Those of [`seeded_inputs`].
pub fn inputs_after(
    specs: &[InputSpec],
    sizes: Sizes,
    past: usize,
    seed: u64,
) -> Result<Vec<(String, Tensor)>, InputError> {
    let shapes = bound_shapes(specs, &bindings_after(specs, sizes, past))?;
    let rows = rows(sizes.batch, sizes.sequence.saturating_add(past), seed, false, false);
    filled(specs, shapes, &rows, seed)
}

/// Inputs of these shapes, of which `rows` are the positions in each row that are not padding.
fn filled(
    specs: &[InputSpec],
    shapes: Vec<Vec<usize>>,
    rows: &[Range<usize>],
    seed: u64,
) -> Result<Vec<(String, Tensor)>, InputError> {
    let pixels = specs.iter().zip(&shapes).find(|(spec, _)| spec.role() == InputRole::Pixels);
    let patches = pixels.and_then(|(_, shape)| shape.first().copied()).unwrap_or(0);
    let make = |(index, (spec, shape)): (usize, (&InputSpec, Vec<usize>))| {
        // Each input has a stream of its own: one more input does not change the others.
        let mut random = fastrand::Rng::with_seed(seed ^ (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if spec.port.ty.dtype == DType::String {
            return words(spec, shape, &mut random);
        }
        if let Values::Grids { side } = spec.values {
            let numbers = grids(patches, side, shape.first().copied().unwrap_or(0));
            let tensor = Tensor::from_f64(spec.port.ty.dtype, shape.clone(), &numbers);
            return Ok((spec.port.name.clone(), tensor.ok_or_else(|| too_large(spec, shape))?));
        }
        let count = shape.iter().product();
        let data = fill(spec, &shape, count, rows, &mut random)?;
        let tensor = Tensor::new(shape.clone(), data).ok_or_else(|| too_large(spec, shape))?;
        Ok((spec.port.name.clone(), tensor))
    };
    specs.iter().zip(shapes).enumerate().map(make).collect()
}

/// The positions in each row that are not padding.
fn rows(batch: usize, sequence: usize, seed: u64, padding: bool, left: bool) -> Vec<Range<usize>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let row = |row: usize| {
        let length = match padding && row > 0 && sequence > 1 {
            true => random.usize(1..sequence),
            false => sequence,
        };
        if left { sequence - length..sequence } else { 0..length }
    };
    (0..batch).map(row).collect()
}

fn fill(
    spec: &InputSpec,
    shape: &[usize],
    count: usize,
    rows: &[Range<usize>],
    random: &mut fastrand::Rng,
) -> Result<Data, InputError> {
    let width = shape.last().copied().unwrap_or(1).max(1);
    // A tensor of [batch, sequence] follows the rows, one of [batch, choices, sequence] takes them in turn for its texts; in
    // others every element is real.
    let text = |at: usize| match shape {
        [batch, _] if *batch == rows.len() => Some(at / width),
        [_, batch, _] if *batch == rows.len() && spec.role() == InputRole::Positions => Some(at / width % batch),
        [batch, _, _] if *batch == rows.len() && spec.role().is_of_each_token() => Some(at / width % batch),
        _ => None,
    };
    let tokens = |at: usize| text(at).map_or(0..width, |text| rows[text].start..rows[text].end.min(width));
    let is_token = |at: usize| tokens(at).contains(&(at % width));
    let integers = |value: &mut dyn FnMut(usize) -> i64| (0..count).map(value).collect::<Vec<i64>>();
    let numbers = match &spec.values {
        Values::Ids { range, pad } => {
            // The pad is taken out of the range by drawing one fewer and stepping over it.
            let hole = pad.filter(|pad| range.contains(pad));
            let drawn = range.start..range.end - i64::from(hole.is_some());
            if drawn.is_empty() {
                return Err(InputError::EmptyRange { input: spec.port.name.clone(), range: range.clone() });
            }
            integers(&mut |at| {
                let id = random.i64(drawn.clone());
                let id = id + i64::from(hole.is_some_and(|hole| id >= hole));
                if is_token(at) { id } else { pad.unwrap_or(id) }
            })
        }
        Values::Mask => integers(&mut |at| i64::from(is_token(at))),
        Values::Boxes { range } if range.is_empty() => {
            return Err(InputError::EmptyRange { input: spec.port.name.clone(), range: range.clone() });
        }
        Values::Boxes { range } => {
            let mut sides = integers(&mut |_| random.i64(range.clone()));
            for [left, upper, right, lower] in sides.as_chunks_mut().0 {
                [*left, *right] = [(*left).min(*right), (*left).max(*right)];
                [*upper, *lower] = [(*upper).min(*lower), (*upper).max(*lower)];
            }
            sides
        }
        Values::Grids { .. } => unreachable!("grids are made of all patches"),
        Values::PointLabels => integers(&mut |_| random.choice([1, 0, -1, -10]).unwrap_or(1)),
        Values::Segments { count } => integers(&mut |at| {
            let tokens = tokens(at);
            let second = at % width >= tokens.start + tokens.len().div_ceil(2);
            if second && is_token(at) { (count - 1).max(0) } else { 0 }
        }),
        Values::Positions => integers(&mut |at| {
            let position = (at % width).saturating_sub(tokens(at).start);
            // Coordinates of a token differ, as those of images do.
            let coordinate = if shape.len() == 3 { at / width / rows.len().max(1) } else { 0 };
            i64::try_from(position / (coordinate + 1)).unwrap_or(i64::MAX)
        }),
        Values::Noise if spec.port.ty.dtype.is_float() => {
            let noise: Vec<f64> = (0..count).map(|_| random.f64() * 2.0 - 1.0).collect();
            return Ok(converted(spec.port.ty.dtype, &noise));
        }
        Values::Noise => integers(&mut |_| i64::from(random.bool())),
    };
    if spec.port.ty.dtype == DType::I64 {
        return Ok(Data::I64(numbers));
    }
    Ok(converted(spec.port.ty.dtype, &numbers.iter().map(|&n| n as f64).collect::<Vec<f64>>()))
}

/// The most letters of a word.
const LETTERS: usize = 8;

/// Words of some letters, as the runtime takes texts.
fn words(spec: &InputSpec, mut shape: Vec<usize>, random: &mut fastrand::Rng) -> Result<(String, Tensor), InputError> {
    let word = |_| {
        let mut word = [0; LETTERS];
        let length = random.usize(1..=LETTERS);
        word[..length].fill_with(|| random.u8(b'a'..=b'z'));
        word
    };
    let bytes: Vec<u8> = (0..shape.iter().product::<usize>()).flat_map(word).collect();
    shape.push(LETTERS);
    let tensor = Tensor::new(shape.clone(), bytes).ok_or_else(|| too_large(spec, shape))?;
    Ok((spec.port.name.clone(), tensor))
}

/// The numbers as elements of a type.
fn converted(dtype: DType, numbers: &[f64]) -> Data {
    let tensor = Tensor::from_f64(dtype, vec![numbers.len()], numbers);
    tensor.map_or_else(|| Vec::<u8>::new().into(), |tensor| tensor.data().clone())
}

#[cfg(test)]
mod tests;
