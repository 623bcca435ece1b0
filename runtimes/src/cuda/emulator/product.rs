//! Matrix products on the processor, with sums in float32.

use half::{bf16, f16};
use planish_ir::DType;
use rayon::prelude::*;

use super::{at, integers};
use crate::cuda::device::{Epilogue, Matrix, Product};

/// An element in memory.
fn read(dtype: DType, start: u64, element: usize) -> f32 {
    // SAFETY: the operands of products are in memory of this device.
    unsafe {
        match dtype {
            DType::F16 => at::<f16>(start).add(element).read().to_f32(),
            DType::Bf16 => at::<bf16>(start).add(element).read().to_f32(),
            _ => at::<f32>(start).add(element).read(),
        }
    }
}

fn write(dtype: DType, start: u64, element: usize, value: f32) {
    // SAFETY: as above.
    unsafe {
        match dtype {
            DType::F16 => at::<f16>(start).add(element).write(f16::from_f32(value)),
            DType::Bf16 => at::<bf16>(start).add(element).write(bf16::from_f32(value)),
            _ => at::<f32>(start).add(element).write(value),
        }
    }
}

/// A matrix of the batch as rows of float32: [rows, columns], or its transpose.
fn widened(dtype: DType, matrix: &Matrix<u64>, batch: usize, rows: usize, columns: usize, transpose: bool) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows * columns);
    let element = |row: usize, column: usize| {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        read(dtype, matrix.at, batch * matrix.step + row * matrix.row + column)
    };
    if transpose {
        (0..columns).for_each(|column| out.extend((0..rows).map(|row| element(row, column))));
    } else {
        (0..rows).for_each(|row| out.extend((0..columns).map(|column| element(row, column))));
    }
    out
}

pub(super) fn multiply(product: &Product) -> Result<(), String> {
    if product.dtype == DType::I8 {
        return integers::multiply(product);
    }
    let Product { m, n, k, .. } = *product;
    let (a, b) = (&product.a, &product.b);
    check(a, m, k)?;
    check(b, k, n)?;
    if product.epilogue != Epilogue::None && product.c.is_some() {
        return Err("an activation and a residual in one product".to_owned());
    }
    for batch in 0..product.batch {
        let rows = widened(product.dtype, a, batch, m, k, false);
        let columns = widened(product.dtype, b, batch, k, n, true);
        (0..m).into_par_iter().for_each(|row| {
            let x = &rows[row * k..][..k];
            for column in 0..n {
                let y = &columns[column * k..][..k];
                let sum: f32 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                let mut value = product.alpha * sum;
                if let Some(bias) = product.bias {
                    value += read(product.dtype, bias, column);
                }
                value = match product.epilogue {
                    Epilogue::None => value,
                    Epilogue::Relu => value.max(0.0),
                    Epilogue::GeluTanh => {
                        let inner = (2.0 / std::f32::consts::PI).sqrt() * (value + 0.044_715 * value * value * value);
                        0.5 * value * (1.0 + inner.tanh())
                    }
                };
                let element = batch * product.d.step + row * product.d.row + column;
                if let Some(c) = product.c {
                    value += read(product.result, c, element);
                }
                write(product.result, product.d.at, element, value);
            }
        });
    }
    Ok(())
}

/// Checks what cublasLt asks of a matrix.
fn check(matrix: &Matrix<u64>, rows: usize, columns: usize) -> Result<(), String> {
    let row = if matrix.transposed { rows } else { columns };
    if matrix.row >= row { Ok(()) } else { Err(format!("rows of {row} elements are {} apart", matrix.row)) }
}
