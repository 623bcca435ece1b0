//! Patterns of activations and norms that compilers and runtimes raise and fuse, and what nearly is one: with another
//! constant, axis, order of operands or shape of a weight.

use crate::grow::{Growing, V, fits};
use crate::network::reduced;

fn times(g: &mut Growing<'_>, x: V, factor: f64) -> Option<V> {
    let factor = g.number(factor);
    g.op("Mul", &[x, factor], Vec::new())
}

fn plus(g: &mut Growing<'_>, x: V, number: f64) -> Option<V> {
    let number = g.number(number);
    let sum = g.either(x, number);
    g.op("Add", &sum, Vec::new())
}

fn square(g: &mut Growing<'_>, x: V) -> Option<V> {
    if g.rng.bool() {
        return g.op("Mul", &[x, x], Vec::new());
    }
    let two = g.number(2.0);
    g.op("Pow", &[x, two], Vec::new())
}

/// A number with so many digits after the point, as some exporters write constants.
fn shortened(number: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (number * unit).round() / unit
}

pub(crate) fn activation(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=5)?;
    match g.rng.u8(..6) {
        0..3 => {
            let argument = if g.rng.bool() {
                let number = g.one(&[2f64.sqrt(), 1.4, shortened(2f64.sqrt(), 5), 2.0]);
                let number = g.number(number);
                g.op("Div", &[x, number], Vec::new())?
            } else {
                let factor = g.one(&[0.5f64.sqrt(), 0.7, shortened(0.5f64.sqrt(), 4)]);
                times(g, x, factor)?
            };
            let erf = g.op("Erf", &[argument], Vec::new())?;
            let one = g.one(&[1.0, 1.0, 1.0, 0.9]);
            let gate = plus(g, erf, one)?;
            let half = g.one(&[0.5, 0.5, 0.4, 1.0]);
            if g.rng.bool() {
                let y = g.op("Mul", &[x, gate], Vec::new())?;
                return times(g, y, half);
            }
            let gate = times(g, gate, half)?;
            g.op("Mul", &[x, gate], Vec::new())
        }
        3 => {
            let factor = g.one(&[1.702, 1.0, 1.7, 1.5]);
            let scaled = times(g, x, factor)?;
            let gate = g.op("Sigmoid", &[scaled], Vec::new())?;
            g.op("Mul", &[x, gate], Vec::new())
        }
        4 => {
            let shape = g.shape(x);
            let other = g.pick(|t| t.dtype() == planish_ir::DType::F32 && fits(t.shape(), &shape))?;
            let gate = g.op("Sigmoid", &[other], Vec::new())?;
            g.op("Mul", &[x, gate], Vec::new())
        }
        _ => {
            let exponent = g.one(&[3.0, 3.0, 2.0]);
            let exponent = g.number(exponent);
            let power = g.op("Pow", &[x, exponent], Vec::new())?;
            let factor = g.one(&[0.044715, 0.044715, 0.04, 0.0447]);
            let power = times(g, power, factor)?;
            let sum = g.op("Add", &[x, power], Vec::new())?;
            let factor = g.one(&[0.797_884_560_8, 0.797_884_6, 0.8]);
            let argument = times(g, sum, factor)?;
            let tanh = g.op("Tanh", &[argument], Vec::new())?;
            let one = g.one(&[1.0, 1.0, 1.1]);
            let gate = plus(g, tanh, one)?;
            let half = times(g, x, 0.5)?;
            g.op("Mul", &[half, gate], Vec::new())
        }
    }
}

/// The axes of the mean of a norm, as they should be above all.
fn axes(g: &mut Growing<'_>, rank: i64) -> Vec<i64> {
    g.one(&[vec![-1], vec![-1], vec![-1], vec![rank - 1], vec![0], vec![-2], vec![-2, -1], vec![1]])
}

pub(crate) fn norm(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=4)?;
    let axes = axes(g, i64::try_from(g.rank(x)).ok()?);
    let eps = g.one(&[1e-5, 1e-12, 1e-2, 0.5]);
    let mut y = if g.rng.bool() { centered(g, x, &axes, eps)? } else { root(g, x, &axes, eps)? };
    let shape = g.shape(x);
    let last = g.last(x);
    let shapes = [
        vec![last],
        vec![last],
        vec![1],
        Vec::new(),
        vec![1, last],
        shape.clone(),
        vec![shape[shape.len() - 2], 1],
        g.broadcast(&shape),
    ];
    if g.chance(0.7) {
        let weight = g.one(&shapes);
        let weight = g.weight(&weight, 1.0);
        let product = g.either(y, weight);
        y = g.op("Mul", &product, Vec::new())?;
    }
    if g.rng.bool() {
        let bias = g.one(&shapes);
        let bias = g.weight(&bias, 1.0);
        let sum = g.either(y, bias);
        y = g.op("Add", &sum, Vec::new())?;
    }
    Some(y)
}

/// What is less its mean, over its deviation.
fn centered(g: &mut Growing<'_>, x: V, axes: &[i64], eps: f64) -> Option<V> {
    let first = if g.chance(0.9) { axes.to_vec() } else { vec![0] };
    let mean = reduced(g, "ReduceMean", x, &first, true)?;
    let less =
        |g: &mut Growing<'_>, reversed: bool| g.op("Sub", &if reversed { [mean, x] } else { [x, mean] }, Vec::new());
    let reversed = g.chance(0.2);
    let shifted = less(g, reversed)?;
    let again = if g.chance(0.7) {
        shifted
    } else {
        let reversed = g.chance(0.3);
        less(g, reversed)?
    };
    let squared = square(g, again)?;
    let variance = reduced(g, "ReduceMean", squared, axes, true)?;
    let deviation = if g.chance(0.85) {
        let sum = plus(g, variance, eps)?;
        g.op("Sqrt", &[sum], Vec::new())?
    } else {
        let deviation = g.op("Sqrt", &[variance], Vec::new())?;
        plus(g, deviation, eps)?
    };
    over(g, shifted, deviation)
}

fn root(g: &mut Growing<'_>, x: V, axes: &[i64], eps: f64) -> Option<V> {
    let source = if g.chance(0.9) { x } else { plus(g, x, 0.3)? };
    let mean = if g.chance(0.85) {
        let squared = square(g, source)?;
        reduced(g, "ReduceMean", squared, axes, true)?
    } else {
        reduced(g, "ReduceSumSquare", source, axes, true)?
    };
    let sum = plus(g, mean, eps)?;
    let root = g.op("Sqrt", &[sum], Vec::new())?;
    let x = if g.chance(0.9) { x } else { g.op("Neg", &[x], Vec::new())? };
    over(g, x, root)
}

fn over(g: &mut Growing<'_>, x: V, by: V) -> Option<V> {
    if g.chance(0.6) {
        return g.op("Div", &[x, by], Vec::new());
    }
    let inverse = if g.rng.bool() {
        g.op("Reciprocal", &[by], Vec::new())?
    } else {
        let one = g.number(1.0);
        g.op("Div", &[one, by], Vec::new())?
    };
    let product = g.either(x, inverse);
    g.op("Mul", &product, Vec::new())
}
