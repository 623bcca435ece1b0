//! Quantized values and products. Weights have codes of 7 bits: sums of products of larger ones saturate on processors
//! without VNNI.

use planish_ir::DType;

use crate::attributes::{int, to};
use crate::grow::{Growing, V, filled};

/// A scale and a zero point.
fn parameters(g: &mut Growing<'_>, scale: f64) -> [V; 2] {
    let (dtype, zero) = match g.rng.bool() {
        true => (DType::U8, g.one(&[0.0, 128.0, 117.0])),
        false => (DType::I8, g.one(&[0.0, 3.0, -5.0])),
    };
    [g.number(scale), g.constant(filled(dtype, &[], &[zero]))]
}

fn pair_of(g: &mut Growing<'_>, x: V, [scale, zero]: [V; 2]) -> Option<V> {
    let codes = g.op("QuantizeLinear", &[x, scale, zero], Vec::new())?;
    g.op("DequantizeLinear", &[codes, scale, zero], Vec::new())
}

pub(crate) fn pair(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    match g.rng.u8(..4) {
        0 => {
            let axis = g.axis(x)?;
            let at = axis.rem_euclid(i64::try_from(g.rank(x)).ok()?);
            let count = g.shape(x)[usize::try_from(at).ok()?];
            let scale = g.positive(&[count], 0.05);
            let dtype = g.one(&[DType::U8, DType::I8]);
            let zero = g.whole(dtype, &[count], 0..9);
            let (scale, zero, along) = (g.constant(scale), g.constant(zero), vec![int("axis", axis)]);
            let codes = g.op("QuantizeLinear", &[x, scale, zero], along.clone())?;
            g.op("DequantizeLinear", &[codes, scale, zero], along)
        }
        1 => {
            let parts = g.ops("DynamicQuantizeLinear", &[x], Vec::new(), 3)?;
            g.op("DequantizeLinear", &parts, Vec::new())
        }
        _ => {
            let numbers = parameters(g, 0.037);
            pair_of(g, x, numbers)
        }
    }
}

/// A product with a weight of codes.
pub(crate) fn layer(g: &mut Growing<'_>) -> Option<V> {
    let mut x = g.float(1..=4)?;
    let features = g.one(&[1, 3, 4, 8]);
    let of_columns = g.chance(0.6);
    let (dtype, range) = g.one(&[(DType::I8, -64..64), (DType::U8, 64..192)]);
    let codes = g.whole(dtype, &[g.last(x), features], range);
    let codes = g.constant(codes);
    let shape = if of_columns { vec![features] } else { Vec::new() };
    let scale = g.positive(&shape, 0.01);
    let middle = if dtype == DType::U8 { 128 } else { 0 };
    let zero = g.whole(dtype, &shape, middle..middle + 1);
    let operands = [codes, g.constant(scale), g.constant(zero)];
    let along = if of_columns { vec![int("axis", 1)] } else { Vec::new() };
    let weight = g.op("DequantizeLinear", &operands, along)?;
    if g.chance(0.6) {
        let numbers = parameters(g, 0.05);
        x = pair_of(g, x, numbers)?;
    }
    let mut y = g.op("MatMul", &[x, weight], Vec::new())?;
    if g.rng.bool() {
        let bias = g.weight(&[features], 1.0);
        y = g.op("Add", &[y, bias], Vec::new())?;
    }
    if g.chance(0.4) {
        let numbers = parameters(g, 0.06);
        y = pair_of(g, y, numbers)?;
    }
    Some(y)
}

/// A product of integers with the scale of each run.
pub(crate) fn dynamic(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let parts = g.ops("DynamicQuantizeLinear", &[x], Vec::new(), 3)?;
    let (inner, features) = (g.last(x), g.one(&[1, 3, 4, 8]));
    let shape = if g.chance(0.15) { vec![inner] } else { vec![inner, features] };
    let codes = g.whole(DType::I8, &shape, -64..64);
    let zero = g.constant(filled(DType::I8, &[], &[0.0]));
    let mut operands = vec![parts[0], g.constant(codes), parts[2], zero];
    operands.truncate(g.one(&[3, 4]));
    let product = g.op("MatMulInteger", &operands, Vec::new())?;
    let product = g.op("Cast", &[product], vec![to(DType::F32)])?;
    let scale = if shape.len() == 1 || g.rng.bool() {
        g.number(0.013)
    } else {
        let scale = g.positive(&[features], 0.01);
        g.constant(scale)
    };
    let scale = g.op("Mul", &[parts[1], scale], Vec::new())?;
    g.op("Mul", &[product, scale], Vec::new())
}
