//! Layers whose weights are indices of a table, as an operator of ONNX Runtime.

use planish_ir::ops::{BinaryKind, Linear};
use planish_ir::weight::{BNB4_TABLES, Codebook};
use planish_ir::{BuildError, Rewriter, ValueId, Weight};

use super::Lowering;
use super::emit::{MICROSOFT, attributes, foreign};
use crate::build::Builder;

/// The elements of a block that MatMulBnb4 has kernels for.
const BLOCKS: [usize; 5] = [16, 32, 64, 128, 256];

/// The largest difference between numbers of tables that are the same, but for how they were computed.
const NEAR: f64 = 1e-6;

impl Lowering {
    /// `x * weight^T + bias` by MatMulBnb4, which multiplies the numbers that indices stand for; `None` for a weight that it
    /// does not take.
    pub(super) fn indexed_product(
        &self,
        graph: &mut Rewriter<'_>,
        linear: &Linear,
        like: ValueId,
    ) -> Result<Option<ValueId>, BuildError> {
        let weight = graph.weight(linear.weight).filter(|_| self.microsoft && !linear.transposed.0);
        let (Some([rows, columns]), Some(book)) = (weight.map(Weight::shape), weight.and_then(Weight::as_codebook))
        else {
            return Ok(None);
        };
        let Some(table) = table(&book).filter(|_| BLOCKS.contains(&book.block)) else { return Ok(None) };
        let sizes = [("K", *columns), ("N", *rows), ("block_size", book.block), ("quant_type", table)];
        let settings = attributes(sizes);
        let l = &mut Builder::at(graph, like);
        let indices = l.graph.weight_like(book.indices, linear.weight);
        let scales = l.graph.weight_part(book.scales, linear.weight);
        let ty = l.graph.ty(like).clone();
        let inputs = vec![Some(linear.x), Some(indices), Some(scales)];
        let product = foreign(l, (MICROSOFT, "MatMulBnb4", 1), inputs, settings, vec![ty])?[0];
        match linear.bias {
            Some(bias) => l.binary(BinaryKind::Add, product, bias).map(Some),
            None => Ok(Some(product)),
        }
    }
}

/// The number by which MatMulBnb4 knows a table, if it does.
fn table(book: &Codebook) -> Option<usize> {
    let is = |table: &[f32; 16]| {
        book.table.len() == 16 && book.table.iter().zip(table).all(|(a, b)| (a - f64::from(*b)).abs() <= NEAR)
    };
    BNB4_TABLES.iter().position(is)
}
