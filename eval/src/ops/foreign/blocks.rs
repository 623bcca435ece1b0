//! Matrices of codes with a scale for each block of neighbours, of ONNX Runtime (its docs/ContribOperators.md).

use planish_ir::DType;
use planish_ir::weight::BNB4_TABLES;

use super::{Maybe, Node, integers, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "MatMulNBits" => one(product(node)?),
        "MatMulBnb4" => one(indexed_product(node)?),
        "GatherBlockQuantized" => one(rows(node)?),
        _ => Ok(None),
    }
}

/// The sizes of a matrix of codes.
struct Layout {
    rows: usize,
    columns: usize,
    bits: usize,
    block: usize,
    /// The block of each column, where blocks are no neighbours.
    groups: Option<Vec<usize>>,
    /// Whether codes and zero points take an element each; they share bytes otherwise.
    is_wide: bool,
}

impl Layout {
    fn of(node: &Node<'_>, rows: usize, columns: usize) -> Result<Self, String> {
        let int = |name: &str, default: i64| usize::try_from(node.int(name, default)).unwrap_or(0);
        let (bits, block) = (int("bits", 4), int("block_size", 128));
        if !matches!(bits, 2 | 4 | 8) || block < 16 || !block.is_power_of_two() {
            return Err(format!("codes of {bits} bits in blocks of {block} are not known"));
        }
        // Bits of rows, and of whole blocks, are counted.
        let bits_of_row = columns.checked_add(block).and_then(|columns| columns.checked_mul(bits));
        if bits_of_row.is_none() {
            return Err(format!("rows of {columns} codes in blocks of {block} are too long"));
        }
        Ok(Self { rows, columns, bits, block, groups: None, is_wide: false })
    }

    /// With the block of each column.
    fn grouped(self, groups: &Tensor) -> Result<Self, String> {
        let block = |group: i128| usize::try_from(group).ok().filter(|block| *block < self.blocks());
        let blocks: Option<Vec<usize>> = integers(groups)?.into_iter().map(block).collect();
        match blocks.filter(|blocks| blocks.len() >= self.columns) {
            Some(blocks) => Ok(Self { groups: Some(blocks), ..self }),
            None => {
                Err(format!("{} does not give a block of {} for {} columns", groups.ty(), self.blocks(), self.columns))
            }
        }
    }

    fn blocks(&self) -> usize {
        self.columns.div_ceil(self.block)
    }

    /// The code at a place of a row of bytes.
    fn code(&self, row: &[f64], at: usize) -> f64 {
        if self.is_wide {
            return row[at];
        }
        let byte = row[at * self.bits / 8] as u8;
        f64::from(byte >> (at * self.bits % 8) & (u8::MAX >> (8 - self.bits)))
    }

    /// The elements that so many codes take.
    fn elements(&self, codes: usize) -> usize {
        if self.is_wide { codes } else { (codes * self.bits).div_ceil(8) }
    }

    /// The numbers of a matrix, [rows, columns]; the codes of a row take so many elements.
    fn numbers(
        &self,
        codes: &Tensor,
        bytes: usize,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> Result<Vec<f64>, String> {
        let (blocks, zero_bytes) = (self.blocks(), self.elements(self.blocks()));
        let fits = |tensor: &Tensor, row: usize| Some(tensor.data().len()) == self.rows.checked_mul(row);
        if !fits(codes, bytes) || !fits(scales, blocks) || bytes < self.elements(self.columns) {
            return Err(format!(
                "codes {} and scales {} do not fit {} x {}",
                codes.ty(),
                scales.ty(),
                self.rows,
                self.columns
            ));
        }
        let packed = zeros.is_some_and(|zeros| zeros.dtype() == codes.dtype());
        if let Some(zeros) = zeros.filter(|zeros| !fits(zeros, if packed { zero_bytes } else { blocks })) {
            return Err(format!("zero points {} do not fit scales {}", zeros.ty(), scales.ty()));
        }
        let middle = if self.is_wide { 0.0 } else { f64::from(1u32 << (self.bits - 1)) };
        let (codes, scales, zeros) = (codes.to_f64(), scales.to_f64(), zeros.map(Tensor::to_f64));
        let zero = |row: usize, block: usize| match &zeros {
            Some(zeros) if packed => self.code(&zeros[row * zero_bytes..], block),
            Some(zeros) => zeros[row * blocks + block],
            None => middle,
        };
        let number = |(row, column): (usize, usize)| {
            let block = self.groups.as_ref().map_or(column / self.block, |groups| groups[column]);
            (self.code(&codes[row * bytes..], column) - zero(row, block)) * scales[row * blocks + block]
        };
        Ok((0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column))).map(number).collect())
    }
}

/// An attribute that is a size.
fn size(node: &Node<'_>, name: &str) -> Result<usize, String> {
    usize::try_from(node.int(name, 0)).map_err(|_| format!("`{name}` is below 0"))
}

/// `x * weight^T + bias`. The input is not rounded, whatever `accuracy_level` says.
fn product(node: &Node<'_>) -> Result<Tensor, String> {
    let layout = Layout::of(node, size(node, "N")?, size(node, "K")?)?;
    let layout = match node.optional(4) {
        Some(groups) => layout.grouped(groups)?,
        None => layout,
    };
    let bytes = layout.blocks() * layout.block * layout.bits / 8;
    let weight = || layout.numbers(node.operand(1)?, bytes, node.operand(2)?, node.optional(3));
    multiplied(node, [layout.rows, layout.columns], weight, node.optional(5))
}

/// `x * weight^T` of indices of a table, the first of two in a byte in the higher bits.
fn indexed_product(node: &Node<'_>) -> Result<Tensor, String> {
    let (rows, columns, block) = (size(node, "N")?, size(node, "K")?, size(node, "block_size")?);
    let kind = node.int("quant_type", 0);
    let table = usize::try_from(kind).ok().and_then(|kind| BNB4_TABLES.get(kind));
    let table = table.ok_or_else(|| format!("quant_type is {kind}, and 0 (FP4) and 1 (NF4) are known"))?;
    if node.int("transB", 1) != 1 {
        return Err("transB is not 1: the weight is not [out, in]".to_owned());
    }
    let weight = || {
        let (indices, scales) = (node.operand(1)?, node.operand(2)?);
        let elements = rows * columns;
        let fits = block > 0 && indices.data().len() == elements.div_ceil(2);
        if !fits || scales.data().len() != elements.div_ceil(block) {
            return Err(format!("indices {} and scales {} do not fit {rows} x {columns}", indices.ty(), scales.ty()));
        }
        let (indices, scales) = (indices.to_f64(), scales.to_f64());
        let index = |at: usize| usize::from((indices[at / 2] as u8) >> (4 - at % 2 * 4) & 0xf);
        Ok((0..elements).map(|at| f64::from(table[index(at)]) * scales[at / block]).collect())
    };
    multiplied(node, [rows, columns], weight, None)
}

/// The first operand times a matrix [rows, columns], transposed, plus a bias.
fn multiplied(
    node: &Node<'_>,
    [rows, columns]: [usize; 2],
    weight: impl FnOnce() -> Result<Vec<f64>, String>,
    bias: Option<&Tensor>,
) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let [outer @ .., last] = x.shape() else { return Err("the input is a scalar".to_owned()) };
    if *last != columns {
        return Err(format!("an input of {} does not fit K = {columns}", x.ty()));
    }
    let shape = [outer, &[rows]].concat();
    node.count(&shape)?;
    node.count(&[rows, columns])?;
    let weight = weight()?;
    let bias = bias.map(Tensor::to_f64);
    if bias.as_ref().is_some_and(|bias| bias.len() != rows) {
        return Err(format!("the bias does not have {rows} elements"));
    }
    let mut out = Vec::with_capacity(shape.iter().product());
    let x_numbers = x.to_f64();
    let count: usize = outer.iter().product();
    for at in 0..count {
        let row = &x_numbers[at * columns..][..columns];
        for feature in 0..rows {
            let own = &weight[feature * columns..][..columns];
            let sum: f64 = row.iter().zip(own).map(|(a, b)| a * b).sum();
            out.push(sum + bias.as_ref().map_or(0.0, |bias| bias[feature]));
        }
    }
    of_numbers(x.dtype(), &shape, &out)
}

/// Rows of a matrix of codes, which share bytes or take an element each; a row of zeros for an index that is out of range.
fn rows(node: &Node<'_>) -> Result<Tensor, String> {
    let (data, scales) = (node.operand(0)?, node.operand(2)?);
    let [count, bytes] = *data.shape() else { return Err(format!("a table of {} is not known", data.ty())) };
    if !matches!([node.int("gather_axis", 0), node.int("quantize_axis", 1)], [0 | -2, 1 | -1]) {
        return Err("only rows with blocks of their columns are looked up".to_owned());
    }
    let bits = usize::try_from(node.int("bits", 4)).unwrap_or(0);
    let packed = bytes.checked_mul(8).and_then(|own| own.checked_div(bits)).unwrap_or(0);
    // Codes of 4 bits have a type of their own, or share bytes; the result says which.
    let result = node.op.results.0.first().and_then(|ty| ty.as_ref()?.as_tensor()?.shape.last()?.as_constant());
    let is_wide = data.dtype() != DType::U8 || result.is_some_and(|columns| i64::try_from(packed) != Ok(columns));
    let layout = Layout::of(node, count, if is_wide { bytes } else { packed })?;
    let layout = Layout { is_wide, ..layout };
    let indices = node.integers(1)?.ok_or("there are no indices")?;
    let shape = [node.operand(1)?.shape(), &[layout.columns]].concat();
    node.count(&shape)?;
    node.count(&[count, layout.columns])?;
    let table = layout.numbers(data, bytes, scales, node.optional(3))?;
    let mut out = Vec::with_capacity(shape.iter().product());
    for index in indices {
        let index = if index < 0 { index + i64::try_from(count).unwrap_or(i64::MAX) } else { index };
        match usize::try_from(index).ok().filter(|index| *index < count) {
            Some(index) => out.extend_from_slice(&table[index * layout.columns..][..layout.columns]),
            None => out.resize(out.len() + layout.columns, 0.0),
        }
    }
    of_numbers(scales.dtype(), &shape, &out)
}
