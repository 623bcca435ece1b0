//! Scales and zero points of blocks of codes, fitted to a weight alone.

use std::io;

use super::codes::{CodeWriter, singles};
use super::finite::{NumberOf, Watch};
use super::read::{Sink, WeightError};
use super::search::{self, Block};
use super::{CHUNK_BYTES, Channels, Dequantized, Weight, WeightExpr};
use crate::DType;
use crate::named::named;

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

named! {
    /// How the scale and the zero point of a block are chosen.
    Search {
        /// The codes span the elements: from the least to the largest, or to the largest magnitude.
        Range = "range",
        /// Ranges up to 30 % smaller are tried, each with the scale that has the least mean square error for its codes.
        LeastSquares = "least_squares",
        /// Half-quadratic quantization (HQQ, Badri and Shaji 2023): few elements with a large error count less than in a mean
        /// square error. The error is the sum of the square roots of the magnitudes of errors, which alternating updates
        /// of codes, errors, the scale and the zero point minimize.
        HalfQuadratic = "half_quadratic",
    }
}

/// Which result of a fit the weight holds.
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

    /// The scales and zero points of the blocks of rows of finite numbers, [rows, blocks], with the importance of their columns.
    #[must_use]
    pub fn of_rows(&self, rows: &[f32], columns: usize, importance: Option<&[f32]>) -> (Vec<f32>, Vec<f32>) {
        search::fit(*self, rows, columns, importance).iter().map(|block| (block.scale, block.zero)).unzip()
    }

    /// The blocks of a matrix.
    #[must_use]
    pub fn channels(&self) -> Channels {
        Channels::Blocks { axis: 1, size: self.size }
    }
}

impl Weight {
    /// The codes, scales and zero points of a matrix of floats, [rows, columns]. `importance`, floats, `[columns]`, says how
    /// much the square error of each column counts; with `[groups, columns]`, the rows are as many groups of the same size, and
    /// each has a row of it. `None` where types or shapes do not fit.
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
        let [rows, columns] = *self.shape() else { return None };
        let codes = matches!(fit.codes, DType::I2 | DType::U2 | DType::I4 | DType::U4 | DType::I8 | DType::U8);
        let fits = |shape: &[usize]| match *shape {
            [own] => own == columns,
            [groups, own] => own == columns && groups > 0 && rows.is_multiple_of(groups),
            _ => false,
        };
        let weighted = importance.is_none_or(|w| w.dtype().is_float() && fits(w.shape()));
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

/// Streams the scales or zero points of a fit to `parts[0]`, with the importance of columns `parts[1]`, of all rows or by groups.
pub(super) fn stream(parts: &[Weight], fit: BlockFit, part: Fitted, sink: Sink<'_>) -> Result<(), WeightError> {
    let mut zeros = CodeWriter::new(fit.codes);
    fit_rows(parts, fit, &mut |_, fitted| match part {
        Fitted::Scales => {
            let scales: Vec<u8> = fitted.iter().flat_map(|block| block.scale.to_le_bytes()).collect();
            scales.chunks(CHUNK_BYTES).try_for_each(&mut *sink)
        }
        Fitted::ZeroPoints => {
            zeros.unpacked().extend(fitted.iter().map(|block| block.zero as i32 as u8));
            zeros.hand_on(sink)
        }
    })?;
    Ok(zeros.finish(sink)?)
}

/// Streams the codes of the matrix `parts[0]`, whose scales and zero points are those of a fit to it.
pub(super) fn stream_codes(parts: &[Weight], fit: BlockFit, sink: Sink<'_>) -> Result<(), WeightError> {
    let columns = parts[0].shape()[1];
    let mut codes = CodeWriter::new(fit.codes);
    fit_rows(parts, fit, &mut |rows, fitted| {
        let blocks = rows.chunks(columns).flat_map(|row| row.chunks(fit.size));
        for (block, Block { scale, zero }) in blocks.zip(fitted) {
            codes.encode(block, *scale, f64::from(*zero));
        }
        codes.hand_on(sink)
    })?;
    Ok(codes.finish(sink)?)
}

/// What takes rows and what is fitted to their blocks.
type RowSink<'a> = &'a mut dyn FnMut(&[f32], &[Block]) -> io::Result<()>;

/// Calls `f` on rows of the matrix `parts[0]`, with what is fitted to their blocks.
fn fit_rows(parts: &[Weight], fit: BlockFit, f: RowSink<'_>) -> Result<(), WeightError> {
    let of = &parts[0];
    let importance = match parts.get(1) {
        Some(weight) => Some(singles(weight.dtype(), &weight.read()?, weight.elements())),
        None => None,
    };
    let [count, columns] = [of.shape()[0], of.shape()[1]];
    if of.elements() == 0 {
        return Ok(());
    }
    let groups = importance.as_ref().map_or(1, |importance| importance.len() / columns);
    let (group_rows, mut row) = (count / groups, 0);
    let mut rest: Vec<f32> = Vec::new();
    let scales_of = fit.channels().of(of.shape()).unwrap_or_default();
    let (mut elements, mut scales) =
        (Watch::new(NumberOf::Elements, of.shape()), Watch::new(NumberOf::Scales, &scales_of));
    let streamed = of.stream(&mut |bytes| {
        let start = rest.len();
        rest.extend(singles(of.dtype(), bytes, bytes.len() / of.dtype().size()));
        elements.see(&rest[start..])?;
        let whole = rest.len() - rest.len() % columns;
        let mut rows = &rest[..whole];
        while !rows.is_empty() {
            // The rest of a group, or all of it that there is.
            let of_group = (group_rows - row % group_rows).min(rows.len() / columns);
            let (own, after) = rows.split_at(of_group * columns);
            let importance = importance.as_ref().map(|all| &all[row / group_rows * columns..][..columns]);
            let fitted = search::fit(fit, own, columns, importance);
            // A range of finite numbers may leave float32.
            scales.see(&fitted.iter().map(|block| block.scale).collect::<Vec<_>>())?;
            f(own, &fitted)?;
            (row, rows) = (row + of_group, after);
        }
        rest.drain(..whole);
        Ok(())
    });
    elements.end(scales.end(streamed))
}
