//! Scales and zero points of blocks of codes, fitted to a weight alone.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::codes::{CodeWriter, code_range, singles};
use super::read::{Sink, WeightError};
use super::{CHUNK_BYTES, Channels, Dequantized, Weight, WeightExpr};
use crate::DType;

/// How a matrix becomes codes with scales, of blocks of neighbours in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockFit {
    /// The type of the codes, of 2, 4 or 8 bits. Codes of a signed type have a scale; those of an unsigned type have a scale
    /// and a zero point.
    pub codes: DType,
    /// The elements of a block, more than 0.
    pub size: usize,
    /// How scales and zero points are chosen.
    pub search: Search,
    /// Whether scales of signed codes may be negative: then the element with the largest magnitude of a block becomes the
    /// least code, which has no positive counterpart.
    pub negative: bool,
}

/// How the scale and the zero point of a block are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// The codes span the elements: from the least to the largest, or to the largest magnitude.
    Range,
    /// Ranges up to a third smaller are tried, each with the scale that has the least mean square error for its codes.
    LeastSquares,
    /// Half-quadratic quantization (HQQ, Badri and Shaji 2023): few elements with a large error count less than in a mean
    /// square error. The error is the sum of the square roots of the magnitudes of errors, which alternating updates
    /// of codes, errors, the scale and the zero point minimize.
    HalfQuadratic,
}

impl Search {
    const NAMES: [(&'static str, Self); 3] =
        [("range", Self::Range), ("least_squares", Self::LeastSquares), ("half_quadratic", Self::HalfQuadratic)];
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, search)| search == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Search {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, search)| *search).ok_or_else(|| format!("`{text}` is not a search for scales"))
    }
}

/// What of a fit a weight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fitted {
    /// The scales: f32, [rows, blocks].
    Scales,
    /// The zero points: of the type of the codes, [rows, blocks].
    ZeroPoints,
}

impl BlockFit {
    /// Whether blocks have zero points.
    #[must_use]
    pub fn has_zero_points(&self) -> bool {
        matches!(self.codes, DType::U2 | DType::U4 | DType::U8)
    }

    /// The scales and zero points of the blocks of rows, [rows, blocks], with the importance of their columns.
    #[must_use]
    pub fn of_rows(&self, rows: &[f32], columns: usize, importance: Option<&[f32]>) -> (Vec<f32>, Vec<f32>) {
        let fitter = Fitter::new(*self);
        let mut found = (Vec::new(), Vec::new());
        for row in rows.chunks(columns.max(1)) {
            for (at, block) in row.chunks(self.size.max(1)).enumerate() {
                let own = importance.map(|all| &all[at * self.size..][..block.len()]);
                let Block { scale, zero } = fitter.fit(block, own);
                found.0.push(scale);
                found.1.push(zero);
            }
        }
        found
    }

    /// The blocks of a matrix.
    #[must_use]
    pub fn channels(&self) -> Channels {
        Channels::Blocks { axis: 1, size: self.size }
    }
}

impl Weight {
    /// The codes, scales and zero points of a matrix of floats, [rows, columns]. `importance`, floats, `[columns]`, says how
    /// much the square error of each column counts. `None` where types or shapes do not fit.
    #[must_use]
    pub fn fit(&self, fit: BlockFit, importance: Option<&Self>) -> Option<Dequantized> {
        let scales = self.fitted(fit, importance, Fitted::Scales)?;
        let zero_points = match fit.has_zero_points() {
            true => Some(self.fitted(fit, importance, Fitted::ZeroPoints)?),
            false => None,
        };
        let codes = self.quantize(fit.codes, fit.channels(), &scales, zero_points.as_ref())?;
        Some(Dequantized { codes, scales, zero_points, channels: fit.channels() })
    }

    /// The scales or the zero points of [`fit`](Self::fit). `None` where types or shapes do not fit.
    #[must_use]
    pub fn fitted(&self, fit: BlockFit, importance: Option<&Self>, part: Fitted) -> Option<Self> {
        let [_, columns] = *self.shape() else { return None };
        let codes = matches!(fit.codes, DType::I2 | DType::U2 | DType::I4 | DType::U4 | DType::I8 | DType::U8);
        let weighted = importance.is_none_or(|w| w.dtype().is_float() && w.shape() == [columns]);
        let shape = fit.channels().of(self.shape()).filter(|_| self.dtype().is_float() && codes && weighted)?;
        let dtype = match part {
            Fitted::Scales => DType::F32,
            Fitted::ZeroPoints if fit.has_zero_points() => fit.codes,
            Fitted::ZeroPoints => return None,
        };
        let parts = [self].into_iter().chain(importance).cloned().collect();
        Some(Self::build(dtype, shape, WeightExpr::Fitted(parts, fit, part)))
    }
}

/// Streams the scales or zero points of a fit to `parts[0]`, with the importance of columns `parts[1]`.
pub(super) fn stream(parts: &[Weight], fit: BlockFit, part: Fitted, sink: Sink<'_>) -> Result<(), WeightError> {
    let mut scales: Vec<u8> = Vec::new();
    let mut zeros = CodeWriter::new(fit.codes);
    fit_rows(parts, fit, &mut |_, fitted| match part {
        Fitted::Scales => {
            fitted.iter().for_each(|block| scales.extend_from_slice(&block.scale.to_le_bytes()));
            if scales.len() < CHUNK_BYTES {
                return Ok(());
            }
            let result = scales.chunks(CHUNK_BYTES).try_for_each(&mut *sink);
            scales.clear();
            result
        }
        Fitted::ZeroPoints => {
            fitted.iter().for_each(|block| zeros.unpacked().push(block.zero as i32 as u8));
            zeros.hand_on(sink)
        }
    })?;
    scales.chunks(CHUNK_BYTES).try_for_each(&mut *sink)?;
    Ok(zeros.finish(sink)?)
}

/// Streams the codes of the matrix `parts[0]`, whose scales and zero points are those of a fit to it.
pub(super) fn stream_codes(parts: &[Weight], fit: BlockFit, sink: Sink<'_>) -> Result<(), WeightError> {
    let mut codes = CodeWriter::new(fit.codes);
    fit_rows(parts, fit, &mut |row, fitted| {
        for (block, Block { scale, zero }) in row.chunks(fit.size).zip(fitted) {
            codes.encode(block, *scale, f64::from(*zero));
        }
        codes.hand_on(sink)
    })?;
    Ok(codes.finish(sink)?)
}

/// The scale and the zero point of a block: element `x` is `(code - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) scale: f32,
    pub(super) zero: f32,
}

/// Calls `f` on each row of the matrix `parts[0]`, with what is fitted to its blocks.
fn fit_rows(
    parts: &[Weight],
    fit: BlockFit,
    f: &mut dyn FnMut(&[f32], &[Block]) -> io::Result<()>,
) -> Result<(), WeightError> {
    let of = &parts[0];
    let importance = match parts.get(1) {
        Some(weight) => Some(singles(weight.dtype(), &weight.read()?, weight.elements())),
        None => None,
    };
    let columns = of.shape()[1];
    if of.elements() == 0 {
        return Ok(());
    }
    let fitter = Fitter::new(fit);
    let mut fitted = Vec::new();
    let mut row = |row: &[f32]| {
        fitted.clear();
        let mut at = 0;
        for block in row.chunks(fit.size) {
            let importance = importance.as_ref().map(|all| &all[at..at + block.len()]);
            fitted.push(fitter.fit(block, importance));
            at += block.len();
        }
        f(row, &fitted)
    };
    let mut rest: Vec<f32> = Vec::new();
    of.stream(&mut |bytes| {
        rest.extend(singles(of.dtype(), bytes, bytes.len() / of.dtype().size()));
        let whole = rest.len() - rest.len() % columns;
        rest[..whole].chunks(columns).try_for_each(&mut row)?;
        rest.drain(..whole);
        Ok(())
    })
}

/// Adding and subtracting this rounds a number of a magnitude below 2^22 to nearest even.
pub(super) const ROUND: f32 = 12_582_912.0;

/// How many ranges are tried, each this much smaller than the one before.
const RANGES: usize = 8;
const RANGE_STEP: f32 = 0.05;

/// How often half-quadratic quantization updates the scale or zero point.
const UPDATES: usize = 20;

/// The weight of the quadratic term of half-quadratic quantization: at first, for errors in units of the scale, and its
/// growth by update.
const PENALTY: f32 = 2.0;
const PENALTY_GROWTH: f32 = 1.05;

/// Fits blocks.
struct Fitter {
    fit: BlockFit,
    low: f32,
    high: f32,
}

impl Fitter {
    fn new(fit: BlockFit) -> Self {
        let (low, high) = code_range(fit.codes).unwrap_or((0, 0));
        Self { fit, low: low as f32, high: high as f32 }
    }

    fn fit(&self, block: &[f32], importance: Option<&[f32]>) -> Block {
        // What is not a number or infinite counts as 0.
        let (least, largest) = block.iter().fold((0f32, 0f32), |(least, largest), &x| {
            if x.is_finite() { (least.min(x), largest.max(x)) } else { (least, largest) }
        });
        if least == 0.0 && largest == 0.0 {
            let zero = if self.fit.has_zero_points() { ((self.high + 1.0) / 2.0).floor() } else { 0.0 };
            return Block { scale: 1.0, zero };
        }
        let search = if block.iter().all(|x| x.is_finite()) { self.fit.search } else { Search::Range };
        match self.fit.has_zero_points() {
            true => self.with_zero_point(block, importance, [least, largest], search),
            false => self.symmetric(block, importance, [least, largest], search),
        }
    }

    /// A scale for signed codes.
    fn symmetric(
        &self,
        block: &[f32],
        importance: Option<&[f32]>,
        [least, largest]: [f32; 2],
        search: Search,
    ) -> Block {
        let extreme = if -least > largest { least } else { largest };
        let range = match self.fit.negative {
            true => extreme / self.low,
            false => (least / self.low).max(largest / self.high),
        };
        let start = Block { scale: normal(range), zero: 0.0 };
        match search {
            Search::Range => start,
            Search::LeastSquares => {
                let mut best = Best::new(self, block, importance, start);
                for step in 0..RANGES {
                    let factor = 1.0 - step as f32 * RANGE_STEP;
                    best.offer(Block { scale: normal(start.scale * factor), zero: 0.0 });
                    if self.fit.negative {
                        best.offer(Block { scale: normal(-start.scale * factor), zero: 0.0 });
                    }
                }
                best.settled()
            }
            Search::HalfQuadratic => self.half_quadratic(block, importance, start),
        }
    }

    /// A scale and a zero point for unsigned codes.
    fn with_zero_point(
        &self,
        block: &[f32],
        importance: Option<&[f32]>,
        [least, largest]: [f32; 2],
        search: Search,
    ) -> Block {
        let of_range = |least: f32, largest: f32| {
            let scale = normal((largest - least) / self.high);
            Block { scale, zero: (-least / scale).round_ties_even().clamp(self.low, self.high) }
        };
        let start = of_range(least, largest);
        match search {
            Search::Range => start,
            Search::LeastSquares => {
                let mut best = Best::new(self, block, importance, start);
                for step in 0..RANGES {
                    let factor = 1.0 - step as f32 * RANGE_STEP;
                    let Block { scale, zero } = of_range(least * factor, largest * factor);
                    for zero in [zero - 1.0, zero, zero + 1.0] {
                        if (self.low..=self.high).contains(&zero) {
                            best.offer(Block { scale, zero });
                        }
                    }
                }
                best.settled()
            }
            Search::HalfQuadratic => self.half_quadratic(block, importance, start),
        }
    }

    /// Half-quadratic quantization from a start: the errors are split into a part that the shrinkage of square roots takes
    /// and a part whose squares the scale and the zero point minimize.
    fn half_quadratic(&self, block: &[f32], importance: Option<&[f32]>, start: Block) -> Block {
        let weight = |i: usize| importance.map_or(1.0, |all| all[i]);
        let cost = |at: Block| -> f32 {
            let error = |x: f32| (x / at.scale - (self.code(x, at) - at.zero)).abs();
            block.iter().enumerate().map(|(i, x)| weight(i) * error(*x).sqrt()).sum::<f32>() * at.scale.abs().sqrt()
        };
        let (mut best, mut least) = (start, cost(start));
        let (mut at, mut penalty) = (start, PENALTY);
        for _ in 0..UPDATES {
            let Some(next) = self.updated(block, importance, at, penalty).filter(|next| *next != at) else { break };
            at = next;
            let found = cost(at);
            if found < least {
                (best, least) = (at, found);
            }
            penalty *= PENALTY_GROWTH;
        }
        best
    }

    /// One update of the zero point and the scale, with the codes and errors of both as they are.
    fn updated(&self, block: &[f32], importance: Option<&[f32]>, at: Block, penalty: f32) -> Option<Block> {
        let (mut total, mut shift, mut codes, mut targets) = (0f32, 0f32, 0f32, 0f32);
        let (mut squares, mut products) = (0f32, 0f32);
        for (i, x) in block.iter().enumerate() {
            let t = x / at.scale;
            let code = self.code(*x, at);
            let error = t - (code - at.zero);
            let size = error.abs();
            let shrunk = if size > 0.0 { (size - 1.0 / (2.0 * penalty * size.sqrt())).max(0.0) } else { 0.0 };
            // The element without the part of its error that shrinkage takes, in units of the scale.
            let target = t - shrunk.copysign(error);
            let w = importance.map_or(1.0, |all| all[i]);
            (total, shift) = (total + w, shift + w * (code - target));
            (codes, targets) = (codes + w * code, targets + w * target);
            (squares, products) = (squares + w * code * code, products + w * code * target);
        }
        let zero = match self.fit.has_zero_points() {
            true if total > 0.0 => (shift / total).round_ties_even().clamp(self.low, self.high),
            _ => at.zero,
        };
        // The sums of codes less the zero point.
        let squares = squares - 2.0 * zero * codes + zero * zero * total;
        let products = products - zero * targets;
        let scale = if squares > 0.0 { normal(at.scale * (products / squares)) } else { at.scale };
        (zero.is_finite() && scale.is_finite()).then_some(Block { scale, zero })
    }

    /// The code of an element, as a float.
    fn code(&self, x: f32, at: Block) -> f32 {
        ((x / at.scale).clamp(self.low - at.zero, self.high - at.zero) + at.zero + ROUND) - ROUND
    }
}

/// A scale that can be divided by.
fn normal(scale: f32) -> f32 {
    if scale.abs() < f32::MIN_POSITIVE { f32::MIN_POSITIVE.copysign(scale) } else { scale }
}

/// The scale and zero point with the least square error of those that were tried.
struct Best<'a> {
    fitter: &'a Fitter,
    block: &'a [f32],
    importance: Option<&'a [f32]>,
    found: Block,
    /// How much of the weighted sum of squares of the elements the codes take away.
    gain: f32,
}

impl<'a> Best<'a> {
    fn new(fitter: &'a Fitter, block: &'a [f32], importance: Option<&'a [f32]>, start: Block) -> Self {
        Self { fitter, block, importance, found: start, gain: f32::NEG_INFINITY }
    }

    /// Tries the codes that a scale and a zero point give, with the scale that is best for these codes.
    fn offer(&mut self, at: Block) {
        let (products, squares) = self.sums(at);
        if squares > 0.0 {
            let gain = products * products / squares;
            if gain > self.gain {
                (self.gain, self.found) = (gain, Block { scale: normal(products / squares), ..at });
            }
        }
    }

    /// The best one, with codes and scale fitted to each other once more.
    fn settled(mut self) -> Block {
        self.offer(self.found);
        self.found
    }

    /// The weighted sums of elements times codes and of squares of codes, less the zero point.
    fn sums(&self, at: Block) -> (f32, f32) {
        let (low, high) = (self.fitter.low - at.zero, self.fitter.high - at.zero);
        let inverse = 1.0 / at.scale;
        // Several sums side by side are vectors.
        const LANES: usize = 16;
        let (mut products, mut squares) = ([0f32; LANES], [0f32; LANES]);
        let mut add = |lane: usize, x: f32, w: f32| {
            let t = x * inverse;
            let t = if t > low { t } else { low };
            let t = if t < high { t } else { high };
            let q = (t + ROUND) - ROUND;
            let wq = w * q;
            products[lane] += wq * x;
            squares[lane] += wq * q;
        };
        match self.importance {
            None => {
                let (chunks, rest) = self.block.as_chunks::<LANES>();
                for chunk in chunks {
                    (0..LANES).for_each(|lane| add(lane, chunk[lane], 1.0));
                }
                rest.iter().enumerate().for_each(|(lane, x)| add(lane, *x, 1.0));
            }
            Some(importance) => {
                let ((chunks, rest), (weights, last)) =
                    (self.block.as_chunks::<LANES>(), importance.as_chunks::<LANES>());
                for (chunk, weights) in chunks.iter().zip(weights) {
                    (0..LANES).for_each(|lane| add(lane, chunk[lane], weights[lane]));
                }
                rest.iter().zip(last).enumerate().for_each(|(lane, (x, w))| add(lane, *x, *w));
            }
        }
        (products.iter().sum(), squares.iter().sum())
    }
}
