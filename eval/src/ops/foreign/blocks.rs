//! Matrices of codes with a scale for each block of neighbours, of ONNX Runtime (its docs/ContribOperators.md).

use super::{Maybe, Node, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "MatMulNBits" => one(product(node)?),
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
        Ok(Self { rows, columns, bits, block })
    }

    fn blocks(&self) -> usize {
        self.columns.div_ceil(self.block)
    }

    /// The code at a place of a row of bytes.
    fn code(&self, row: &[f64], at: usize) -> f64 {
        let byte = row[at * self.bits / 8] as u8;
        f64::from(byte >> (at * self.bits % 8) & (u8::MAX >> (8 - self.bits)))
    }

    /// The numbers of a matrix, [rows, columns]; the codes of a row take so many bytes.
    fn numbers(
        &self,
        codes: &Tensor,
        bytes: usize,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> Result<Vec<f64>, String> {
        let (blocks, zero_bytes) = (self.blocks(), (self.blocks() * self.bits).div_ceil(8));
        let fits = |tensor: &Tensor, row: usize| Some(tensor.data().len()) == self.rows.checked_mul(row);
        if !fits(codes, bytes) || !fits(scales, blocks) || bytes * 8 < self.columns * self.bits {
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
        let middle = f64::from(1u32 << (self.bits - 1));
        let (codes, scales, zeros) = (codes.to_f64(), scales.to_f64(), zeros.map(Tensor::to_f64));
        let zero = |row: usize, block: usize| match &zeros {
            Some(zeros) if packed => self.code(&zeros[row * zero_bytes..], block),
            Some(zeros) => zeros[row * blocks + block],
            None => middle,
        };
        let number = |(row, column): (usize, usize)| {
            let block = column / self.block;
            (self.code(&codes[row * bytes..], column) - zero(row, block)) * scales[row * blocks + block]
        };
        Ok((0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column))).map(number).collect())
    }
}

/// `x * weight^T + bias`. The input is not rounded, whatever `accuracy_level` says.
fn product(node: &Node<'_>) -> Result<Tensor, String> {
    let size = |name: &str| usize::try_from(node.int(name, 0)).map_err(|_| format!("`{name}` is below 0"));
    let layout = Layout::of(node, size("N")?, size("K")?)?;
    if node.optional(4).is_some() {
        return Err("an index of groups is not known".to_owned());
    }
    let x = node.operand(0)?;
    let [outer @ .., columns] = x.shape() else { return Err("the input is a scalar".to_owned()) };
    if *columns != layout.columns {
        return Err(format!("an input of {} does not fit K = {}", x.ty(), layout.columns));
    }
    let shape = [outer, &[layout.rows]].concat();
    node.count(&shape)?;
    node.count(&[layout.rows, layout.columns])?;
    let bytes = layout.blocks() * layout.block * layout.bits / 8;
    let weight = layout.numbers(node.operand(1)?, bytes, node.operand(2)?, node.optional(3))?;
    let bias = node.optional(5).map(Tensor::to_f64);
    if bias.as_ref().is_some_and(|bias| bias.len() != layout.rows) {
        return Err(format!("the bias does not have {} elements", layout.rows));
    }
    let mut out = Vec::with_capacity(shape.iter().product());
    let x_numbers = x.to_f64();
    let count: usize = outer.iter().product();
    for at in 0..count {
        let row = &x_numbers[at * layout.columns..][..layout.columns];
        for feature in 0..layout.rows {
            let own = &weight[feature * layout.columns..][..layout.columns];
            let sum: f64 = row.iter().zip(own).map(|(a, b)| a * b).sum();
            out.push(sum + bias.as_ref().map_or(0.0, |bias| bias[feature]));
        }
    }
    of_numbers(x.dtype(), &shape, &out)
}

/// Rows of a matrix of bytes; a row of zeros for an index that is out of range.
fn rows(node: &Node<'_>) -> Result<Tensor, String> {
    let (data, scales) = (node.operand(0)?, node.operand(2)?);
    let [count, bytes] = *data.shape() else { return Err(format!("a table of {} is not known", data.ty())) };
    if (node.int("gather_axis", 0), node.int("quantize_axis", 1)) != (0, 1) || data.dtype() != planish_ir::DType::U8 {
        return Err("only rows of bytes are looked up".to_owned());
    }
    let bits = usize::try_from(node.int("bits", 4)).unwrap_or(0);
    let layout = Layout::of(node, count, (bytes * 8).checked_div(bits).unwrap_or(0))?;
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
