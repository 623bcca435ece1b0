//! How many chunks some tokens are, and constants of the size of a chunk.

use std::collections::HashMap;

use planish_ir::weight::WeightError;
use planish_ir::{DType, Dim, Weight};

use super::body::Body;
use crate::export::Emitter;
use crate::export::nodes::{int, size};

/// The tokens of a chunk, where there are as many: of 16, 32 and 64 the fastest length on processors (docs/measurements.md).
/// A power of two.
pub(super) const MOST: usize = 32;

/// What has been computed already, by the number of tokens and the element type.
#[derive(Default)]
pub(crate) struct Cache {
    chunks: HashMap<(Dim, DType), Chunks>,
    shapes: HashMap<(Dim, [i64; 3]), String>,
    zeros: HashMap<([Dim; 2], DType, [i64; 2]), String>,
}

/// The names of values that depend on the number of tokens only. The length of a chunk is that of all tokens, if they are fewer.
#[derive(Clone)]
pub(super) struct Chunks {
    tokens: Dim,
    /// The tokens of all chunks: a vector of one element.
    pub(super) whole: String,
    /// The tokens that are missing: a vector of one element.
    missing: String,
    /// The number of chunks, and the tokens of one.
    count: String,
    length: String,
    /// [tokens, tokens] of a chunk: 1 for a token and those before it, and for those before it only.
    pub(super) up_to: String,
    pub(super) before: String,
    /// The unit matrix.
    pub(super) unit: String,
    /// 1 where a row is in the second half, and a column in the first half, of the same block, for blocks of 2, 4, .. tokens.
    pub(super) halves: Vec<String>,
}

impl Chunks {
    /// Those of so many tokens.
    pub(super) fn of(e: &mut Emitter<'_>, tokens: &Dim, dtype: DType) -> Result<Self, String> {
        let key = (tokens.clone(), dtype);
        if let Some(known) = e.states.chunks.get(&key) {
            return Ok(known.clone());
        }
        let made = Self::new(e, tokens, dtype).map_err(|error| error.to_string())?;
        e.states.chunks.insert(key, made.clone());
        Ok(made)
    }

    fn new(e: &mut Emitter<'_>, dim: &Dim, dtype: DType) -> Result<Self, WeightError> {
        let b = &mut Body::new("chunks");
        let (tokens, one, most) = (e.dim(dim), e.constant(&[1]), e.constant(&[size(MOST)]));
        // A chunk has a token, and there is a chunk: to a reshape, 0 is a size that stays.
        let some = b.plain(e, "Max", &[&tokens, &one]);
        let length = b.plain(e, "Min", &[&some, &most]);
        let with = b.plain(e, "Add", &[&some, &length]);
        let with = b.plain(e, "Sub", &[&with, &one]);
        let count = b.plain(e, "Div", &[&with, &length]);
        let whole = b.plain(e, "Mul", &[&count, &length]);
        let missing = b.plain(e, "Sub", &[&whole, &tokens]);
        let (start, end) = (e.constant(&[0, 0]), b.node(e, "Concat", &[&length, &length], vec![int("axis", 0)]));
        let mut matrix = |e: &mut Emitter<'_>, is_one: &dyn Fn(usize, usize) -> bool| {
            let ones = (0..MOST * MOST).map(|at| f64::from(u8::from(is_one(at / MOST, at % MOST))));
            let whole = e.matrix(dtype, [MOST; 2], &ones.collect::<Vec<_>>())?;
            Ok::<_, WeightError>(b.plain(e, "Slice", &[&whole, &start, &end]))
        };
        let up_to = matrix(e, &|row, column| column <= row)?;
        let before = matrix(e, &|row, column| column < row)?;
        let unit = matrix(e, &|row, column| column == row)?;
        let sizes = (0..MOST.trailing_zeros()).map(|power| 1 << power);
        let halves = sizes.map(|half: usize| {
            let is_lower = |row: usize, column: usize| {
                let [of_row, of_column] = [row / half, column / half];
                of_row == of_column + 1 && of_column.is_multiple_of(2)
            };
            matrix(e, &is_lower)
        });
        let halves = halves.collect::<Result<_, _>>()?;
        e.nodes.append(&mut b.nodes);
        Ok(Self { tokens: dim.clone(), whole, missing, count, length, up_to, before, unit, halves })
    }

    /// Zeros for the tokens that are missing, [batch, heads, tokens, size]. ONNX Runtime's CUDA provider has no Pad beyond opset 18.
    pub(super) fn zeros(
        &self,
        e: &mut Emitter<'_>,
        batch: &Dim,
        dtype: DType,
        [heads, size]: [i64; 2],
    ) -> Result<String, String> {
        let key = ([self.tokens.clone(), batch.clone()], dtype, [heads, size]);
        if let Some(known) = e.states.zeros.get(&key) {
            return Ok(known.clone());
        }
        let b = &mut Body::new("chunks");
        let (batch, heads, size) = (e.dim(batch), e.constant(&[heads]), e.constant(&[size]));
        let shape = b.node(e, "Concat", &[&batch, &heads, &self.missing, &size], vec![int("axis", 0)]);
        let zero = e.number(dtype, 0.0).ok_or_else(|| format!("{dtype} has no 0"))?;
        let zeros = b.plain(e, "Expand", &[&zero, &shape]);
        e.nodes.append(&mut b.nodes);
        e.states.zeros.insert(key, zeros.clone());
        Ok(zeros)
    }

    /// The shape [batch, groups, heads of a group, chunks, tokens of a chunk, size].
    pub(super) fn shape(&self, e: &mut Emitter<'_>, [groups, each, size]: [i64; 3]) -> String {
        let key = (self.tokens.clone(), [groups, each, size]);
        if let Some(known) = e.states.shapes.get(&key) {
            return known.clone();
        }
        let b = &mut Body::new("chunks");
        let (heads, size) = (e.constant(&[0, groups, each]), e.constant(&[size]));
        let shape = b.node(e, "Concat", &[&heads, &self.count, &self.length, &size], vec![int("axis", 0)]);
        e.nodes.append(&mut b.nodes);
        e.states.shapes.insert(key, shape.clone());
        shape
    }
}

impl Emitter<'_> {
    /// The name of a matrix of numbers.
    fn matrix(&mut self, dtype: DType, sizes: [usize; 2], numbers: &[f64]) -> Result<String, WeightError> {
        let weight = Weight::numbers(dtype, sizes.to_vec(), numbers);
        let bytes = weight.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says")).read()?;
        Ok(self.initializer("const/chunk", sizes.map(size).to_vec(), crate::export::data_type(dtype), bytes))
    }
}
