//! Matrix products: linear layers, and products of two tensors.

use planish_ir::ValueId;
use planish_ir::ops::{Linear, MatMul};

use super::build::Builder;
use super::gemv::Fused;
use super::{Style, View};
use crate::cuda::device::{Epilogue, Matrix, Product};

/// What a linear layer computes of its product, beside the bias.
#[derive(Clone, Copy)]
pub(super) struct AfterProduct {
    /// An expression of `x`, the product with its bias; `x` for none.
    pub(super) activation: &'static str,
    /// How a product computes the same, where it can.
    pub(super) epilogue: Option<Epilogue>,
    /// What is added to the result.
    pub(super) residual: Option<ValueId>,
}

impl AfterProduct {
    pub(super) const NOTHING: Self = Self { activation: "x", epilogue: Some(Epilogue::None), residual: None };
}

impl Builder<'_> {
    pub(super) fn linear(&mut self, result: ValueId, op: &Linear) -> Result<(), String> {
        self.layer(result, op, AfterProduct::NOTHING)
    }

    /// A linear layer, and what it computes of its product.
    pub(super) fn layer(&mut self, result: ValueId, op: &Linear, after: AfterProduct) -> Result<(), String> {
        let x = self.view(op.x)?;
        let columns = x.shape.last().copied().unwrap_or(1);
        let (x, row) = match x.rows() {
            Some(row) if row >= columns => (x, row),
            _ => {
                // A row that all rows share is copied too: a product takes rows one after the other.
                let copy = self.temporary(x.dtype, x.shape.clone())?;
                self.copy(&copy, &x)?;
                (copy, columns)
            }
        };
        let weight = self.whole(op.weight)?;
        let bias = op.bias.map(|bias| self.whole(bias)).transpose()?;
        let residual = after.residual.map(|residual| self.view(residual)).transpose()?;
        let result = self.result(result)?;
        let (&k, outer) = x.shape.split_last().ok_or("`x` has no axis")?;
        let (m, n): (usize, _) = (outer.iter().product(), *result.shape.last().ok_or("a result has no axis")?);
        let step = weight.shape[1];
        let mut product = Product {
            m,
            n,
            k,
            batch: 1,
            a: Matrix { at: x.place, row, step: 0, transposed: false },
            // [out, in] is the transpose of what the product takes.
            b: Matrix { at: weight.place, row: step, step: 0, transposed: !op.transposed.0 },
            c: None,
            d: Matrix { at: result.place, row: n, step: 0, transposed: false },
            alpha: 1.0,
            bias: None,
            epilogue: Epilogue::None,
            dtype: x.dtype,
            result: x.dtype,
        };
        match self.target.style {
            _ if k == 0 => {
                self.pointwise(&result, "0 * i", &[])?;
                self.after_product(&result, &after, bias.as_ref(), residual.as_ref())
            }
            Style::Unfused => {
                self.multiply(product);
                self.one_by_one(&result, after.activation, bias.as_ref(), residual.as_ref())
            }
            Style::Fused => {
                let whole = residual.as_ref().is_none_or(View::is_contiguous);
                let place = |view: &Option<View>| view.as_ref().map(|view| view.place);
                let fused = Fused { bias: place(&bias), activation: after.activation, residual: place(&residual) };
                if whole && self.gemv(&product, &fused)? {
                    return Ok(());
                }
                if let Some(epilogue) = after.epilogue.filter(|e| whole && (*e == Epilogue::None || residual.is_none()))
                {
                    // cublasLt takes 16 bytes of a bias at once.
                    let bias = match bias {
                        Some(bias) if bias.place.offset % 16 != 0 => {
                            let copy = self.temporary(bias.dtype, bias.shape.clone())?;
                            self.copy(&copy, &bias)?;
                            Some(copy)
                        }
                        bias => bias,
                    };
                    product.bias = bias.map(|bias| bias.place);
                    product.epilogue = epilogue;
                    product.c = residual.map(|residual| residual.place);
                    self.multiply(product);
                    return Ok(());
                }
                self.multiply(product);
                self.after_product(&result, &after, bias.as_ref(), residual.as_ref())
            }
        }
    }

    /// Bias, activation and residual of a product, each in a kernel of its own.
    pub(super) fn one_by_one(
        &mut self,
        product: &View,
        activation: &'static str,
        bias: Option<&View>,
        residual: Option<&View>,
    ) -> Result<(), String> {
        if let Some(bias) = bias {
            self.pointwise(product, "x + y", &[product, bias])?;
        }
        if activation != "x" {
            self.pointwise(product, activation, &[product])?;
        }
        match residual {
            Some(residual) => self.pointwise(product, "x + y", &[product, residual]),
            None => Ok(()),
        }
    }

    /// Bias, activation and residual of a product, in one kernel.
    fn after_product(
        &mut self,
        product: &View,
        after: &AfterProduct,
        bias: Option<&View>,
        residual: Option<&View>,
    ) -> Result<(), String> {
        let activated = |x: &str| match after.activation {
            "x" => x.to_owned(),
            activation => activation.replace("(x)", &format!("({x})")),
        };
        match (bias, residual) {
            (Some(bias), Some(residual)) => {
                self.pointwise(product, format!("{} + z", activated("x + y")), &[product, bias, residual])
            }
            (Some(bias), None) => self.pointwise(product, activated("x + y"), &[product, bias]),
            (None, Some(residual)) => self.pointwise(product, format!("{} + y", activated("x")), &[product, residual]),
            (None, None) => self.pointwise(product, activated("x"), &[product]),
        }
    }

    pub(super) fn matmul(&mut self, result: ValueId, op: &MatMul) -> Result<(), String> {
        let (a, b) = (self.view(op.a)?, self.view(op.b)?);
        let result = self.result(result)?;
        self.product(&result, a, b, 1.0)
    }

    /// `result = alpha * a * b` of the last two axes; the others broadcast. The result has no gaps.
    pub(super) fn product(&mut self, result: &View, a: View, b: View, alpha: f32) -> Result<(), String> {
        let rank = result.shape.len();
        let (batch, matrix) = result.shape.split_at(rank - 2);
        let (m, n, k) = (matrix[0], matrix[1], a.shape[a.shape.len() - 1]);
        if result.elements() == 0 {
            return Ok(());
        }
        if k == 0 {
            // The kernel reads none of the operand's elements.
            return self.pointwise(result, "0 * i", &[]);
        }
        let (a, b) = (self.stored(a)?, self.stored(b)?);
        let broadcast = |x: &View| {
            let own = x.shape.len();
            let shape: Vec<usize> = batch.iter().copied().chain(x.shape[own - 2..].iter().copied()).collect();
            x.expand(&shape)
        };
        let (a, b) = (broadcast(&a), broadcast(&b));
        let (sizes, steps) = super::view::coalesce(
            batch,
            &[&a.strides[..rank - 2], &b.strides[..rank - 2], &result.strides[..rank - 2]],
        );
        let operand = |x: &View, transposed| (x.strides[rank - 2], x.strides[rank - 1], transposed);
        let matrix = |x: &View| {
            // Axes of size 1 have any stride.
            let (rows, columns) = (x.shape[rank - 2], x.shape[rank - 1]);
            let (row, column, _) = operand(x, false);
            if columns == 1 && rows > 1 && row == 1 {
                return (rows, true);
            }
            if column == 1 || columns == 1 { (row.max(columns), false) } else { (column.max(rows), true) }
        };
        let ((a_row, a_transposed), (b_row, b_transposed)) = (matrix(&a), matrix(&b));
        // The innermost merged axis is a batch of one product; there is a product for each index of the others.
        let (inner, outer) = sizes.split_last().map_or((1, &[][..]), |(inner, outer)| (*inner, outer));
        let step = |which: usize| steps[which].last().copied().unwrap_or(0);
        let count: usize = outer.iter().product();
        for at in 0..count {
            let offset = |which: usize| {
                let (mut rest, mut offset) = (at, 0);
                for (axis, size) in outer.iter().enumerate().rev() {
                    offset += rest % size * steps[which][axis];
                    rest /= size;
                }
                offset
            };
            self.multiply(Product {
                m,
                n,
                k,
                batch: inner,
                a: Matrix { at: a.after(offset(0)), row: a_row, step: step(0), transposed: a_transposed },
                b: Matrix { at: b.after(offset(1)), row: b_row, step: step(1), transposed: b_transposed },
                c: None,
                d: Matrix { at: result.after(offset(2)), row: n, step: step(2), transposed: false },
                alpha,
                bias: None,
                epilogue: Epilogue::None,
                dtype: a.dtype,
                result: result.dtype,
            });
        }
        Ok(())
    }

    /// The operand of a product, whose rows or columns have no gaps between their elements.
    fn stored(&mut self, x: View) -> Result<View, String> {
        let rank = x.shape.len();
        let (rows, columns) = (x.shape[rank - 2], x.shape[rank - 1]);
        let (row, column) = (x.strides[rank - 2], x.strides[rank - 1]);
        let by_rows = (column == 1 || columns == 1) && (row >= columns || rows == 1);
        let by_columns = (row == 1 || rows == 1) && (column >= rows || columns == 1);
        if by_rows || by_columns { Ok(x) } else { self.without_gaps(x) }
    }
}
