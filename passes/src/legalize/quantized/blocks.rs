//! Layers and tables of codes with a scale for each block, as ONNX Runtime's own operators.

use planish_ir::ops::{Foreign, Linear, Setting};
use planish_ir::weight::{Channels, Dequantized, code_range};
use planish_ir::{BuildError, DType, Rewriter, TensorType, ValueId, Weight};

use super::emit::{MICROSOFT, attributes, foreign};
use crate::build::Builder;
use crate::{BlockInputs, PassError};

/// The product with a weight that has a scale for each block.
const PRODUCT: &str = "MatMulNBits";

/// The lookup of rows of such a table.
const ROWS: &str = "GatherBlockQuantized";

/// The fewest elements of a block that MatMulNBits and GatherBlockQuantized take; the number is a power of two.
const LEAST_BLOCK: usize = 16;

/// The most elements of a block where the codes have a scale for each row.
const ROW_BLOCK: usize = 128;

/// A matrix of codes as MatMulNBits and GatherBlockQuantized take it: unsigned, with half of the range as the zero point
/// unless there is another one.
pub(super) struct Blocks {
    /// u8, [rows, blocks, bytes of a block]: the codes, those of the last block filled up.
    codes: Weight,
    /// [rows, blocks].
    scales: Weight,
    /// u8, [rows, bytes of the zero points of a row].
    zero_points: Option<Weight>,
    rows: usize,
    columns: usize,
    block: usize,
    bits: usize,
}

impl Blocks {
    /// Of a matrix with codes for blocks of a row. `None` where the operators do not take it.
    pub(super) fn new(weight: &Dequantized) -> Option<Self> {
        let [rows, columns] = *weight.codes.shape() else { return None };
        let dtype = weight.codes.dtype();
        let (least, _) = code_range(dtype)?;
        let (bits, signed) = (dtype.bits(), least < 0);
        let floats = weight.scales.dtype();
        let fits = matches!(bits, 2 | 4 | 8) && matches!(floats, DType::F32 | DType::F16 | DType::Bf16);
        let Channels::Blocks { axis: 1, size } = weight.channels else { return None };
        if !fits || weight.codes.elements() == 0 {
            return None;
        }
        // One scale for each row is repeated: there are fast kernels for small blocks only.
        let whole = size >= columns && (size > ROW_BLOCK || !size.is_power_of_two() || size < LEAST_BLOCK);
        let block = if whole { columns.next_power_of_two().clamp(LEAST_BLOCK, ROW_BLOCK) } else { size };
        if !block.is_power_of_two() || block < LEAST_BLOCK {
            return None;
        }
        let spread = |w: &Weight| if whole { w.gather(1, &vec![0; columns.div_ceil(block)]) } else { Some(w.clone()) };
        let scales = spread(&weight.scales)?;
        let zeros = match (&weight.zero_points, signed) {
            (Some(zeros), true) => Some(spread(&zeros.flip_sign()?)?),
            (Some(zeros), false) => Some(spread(zeros)?),
            (None, true) => None,
            (None, false) => Weight::numbers(dtype, scales.shape().to_vec(), &vec![0.0; scales.elements()]),
        };
        let blocks = columns.div_ceil(block);
        let filled = weight.codes.pad(&[rows, blocks * block], 0.0)?;
        let codes = if signed { filled.flip_sign()? } else { filled };
        let zero_points = match zeros {
            Some(zeros) => {
                let bytes = (blocks * bits).div_ceil(8);
                Some(zeros.pad(&[rows, bytes * 8 / bits], 0.0)?.as_bytes(&[rows, bytes])?)
            }
            None => None,
        };
        let codes = codes.as_bytes(&[rows, blocks, block * bits / 8])?;
        Some(Self { codes, scales, zero_points, rows, columns, block, bits })
    }

    fn settings(&self) -> Vec<(String, Setting)> {
        attributes([("bits", self.bits), ("block_size", self.block)])
    }

    /// `x * weight^T + bias` by MatMulNBits, which rounds blocks of `x` to integers of 8 bits where `integers` says so.
    pub(super) fn product(
        &self,
        graph: &mut Rewriter<'_>,
        linear: &Linear,
        like: ValueId,
        integers: bool,
    ) -> Result<ValueId, BuildError> {
        let l = &mut Builder::at(graph, like);
        let (codes, scales, zeros) = self.values(l, linear.weight);
        let inputs = match linear.bias {
            Some(bias) => vec![Some(linear.x), Some(codes), Some(scales), zeros, None, Some(bias)],
            None => {
                [Some(linear.x), Some(codes), Some(scales), zeros].into_iter().take_while(Option::is_some).collect()
            }
        };
        let level = if integers { INTEGERS } else { FLOATS };
        let sizes = attributes([("K", self.columns), ("N", self.rows)]);
        let settings = [sizes, attributes([("accuracy_level", level)]), self.settings()].concat();
        let ty = l.graph.ty(like).clone();
        Ok(foreign(l, (MICROSOFT, PRODUCT, 1), inputs, settings, vec![ty])?[0])
    }

    /// Rows by GatherBlockQuantized; `None` where the rows do not end with their last block.
    pub(super) fn rows(
        &self,
        graph: &mut Rewriter<'_>,
        [table, indices]: [ValueId; 2],
        like: ValueId,
    ) -> Result<Option<ValueId>, PassError> {
        let bytes = self.columns * self.bits / 8;
        let flat = self.columns.is_multiple_of(self.block).then(|| self.codes.reshape(&[self.rows, bytes])).flatten();
        let Some(flat) = flat else { return Ok(None) };
        let l = &mut Builder::at(graph, like);
        let data = l.graph.weight_like(flat, table);
        let (_, scales, zeros) = self.values(l, table);
        let inputs = [Some(data), Some(indices), Some(scales), zeros].into_iter().take_while(Option::is_some).collect();
        let settings = [attributes([("gather_axis", 0), ("quantize_axis", 1)]), self.settings()].concat();
        let ty = TensorType::new(self.scales.dtype(), l.graph.ty(like).shape.clone());
        Ok(Some(foreign(l, (MICROSOFT, ROWS, 1), inputs, settings, vec![ty])?[0]))
    }

    fn values(&self, l: &mut Builder<'_, '_>, weight: ValueId) -> (ValueId, ValueId, Option<ValueId>) {
        let codes = l.graph.weight_like(self.codes.clone(), weight);
        let scales = l.graph.weight_part(self.scales.clone(), weight);
        (codes, scales, self.zero_points.clone().map(|zeros| l.graph.weight_part(zeros, weight)))
    }
}

/// What MatMulNBits of ONNX Runtime multiplies its weight with; `None` of another operator.
#[must_use]
pub fn product_inputs(op: &Foreign) -> Option<BlockInputs> {
    let rounds = op.setting("accuracy_level") == Some(&Setting::Int(INTEGERS));
    (op.op.0 == PRODUCT).then_some(if rounds { BlockInputs::Integers } else { BlockInputs::Floats })
}

/// The bits of the codes that MatMulNBits, GatherBlockQuantized or MatMulBnb4 of ONNX Runtime take; `None` of another operator.
#[must_use]
pub fn block_bits(op: &Foreign) -> Option<i64> {
    match (op.op.0.as_str(), op.setting("bits")) {
        (PRODUCT | ROWS, Some(Setting::Int(bits))) => Some(*bits),
        (PRODUCT | ROWS | "MatMulBnb4", _) => Some(4),
        _ => None,
    }
}

/// The values of `accuracy_level`: inputs are rounded to integers of 8 bits by block, or stay floats.
const INTEGERS: i64 = 4;
const FLOATS: i64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_without_rows_takes_no_memory() {
        for columns in [1 << 50, usize::MAX / 2 + 2] {
            let empty = |dtype: DType, columns: usize| Weight::numbers(dtype, vec![0, columns], &[]).unwrap();
            let weight = Dequantized {
                codes: empty(DType::I8, columns),
                scales: empty(DType::F32, columns.div_ceil(32)),
                zero_points: None,
                channels: Channels::Blocks { axis: 1, size: 32 },
            };
            assert!(Blocks::new(&weight).is_none());
        }
    }
}
