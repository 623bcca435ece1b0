//! Operators on each element.

use planish_ir::DType;

use crate::attributes::{float, int, text, to};
use crate::grow::{Growing, NONE, V, filled, fits};

pub(crate) fn unary(g: &mut Growing<'_>) -> Option<V> {
    const OPERATORS: [&str; 30] = [
        "Abs",
        "Neg",
        "Sigmoid",
        "Tanh",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "Softplus",
        "Softsign",
        "HardSigmoid",
        "HardSwish",
        "Erf",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Cos",
        "Atan",
        "ThresholdedRelu",
        "Identity",
        "Exp",
        "Mish",
        "Gelu",
        "IsNaN",
        "Sinh",
        "Asinh",
        "Swish",
    ];
    let op = g.one(&OPERATORS);
    let mut x = g.float(0..=9)?;
    let attributes = match op {
        "LeakyRelu" | "Elu" | "Celu" | "ThresholdedRelu" if g.chance(0.6) => {
            vec![float("alpha", g.one(&[0.1, 0.5, 1.702, 2.0]))]
        }
        "Gelu" if g.rng.bool() => vec![text("approximate", g.one(&["none", "tanh"]))],
        "HardSigmoid" => vec![float("alpha", 0.3), float("beta", 0.4)],
        _ => Vec::new(),
    };
    if matches!(op, "Floor" | "Ceil" | "Round" | "Sign") {
        let factor = g.number(3.37);
        x = g.op("Mul", &[x, factor], Vec::new())?;
    }
    g.op(op, &[x], attributes)
}

pub(crate) fn of_positive(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(0..=9)?;
    let x = positive(g, x)?;
    let op = g.one(&["Sqrt", "Log", "Reciprocal"]);
    g.op(op, &[x], Vec::new())
}

/// Numbers of at least one half.
fn positive(g: &mut Growing<'_>, x: V) -> Option<V> {
    let magnitude = g.op("Abs", &[x], Vec::new())?;
    let half = g.number(0.5);
    g.op("Add", &[magnitude, half], Vec::new())
}

pub(crate) fn binary(g: &mut Growing<'_>) -> Option<V> {
    let op = g.one(&["Add", "Add", "Sub", "Mul", "Mul", "Div", "Pow", "Min", "Max", "Mod", "PRelu", "Sum", "Mean"]);
    let mut x = g.float(0..=9)?;
    let shape = g.shape(x);
    let mut y = match g.rng.u8(..4) {
        0 | 1 => g.pick(|t| t.dtype() == DType::F32 && fits(t.shape(), &shape))?,
        2 => {
            let shape = g.broadcast(&shape);
            g.weight(&shape, 1.0)
        }
        _ => {
            let number = g.one(&[0.0, 1.0, 2.0, 0.5, -1.0]);
            let shape = g.one(&[vec![], vec![1], vec![1, 1]]);
            g.constant(filled(DType::F32, &shape, &[number]))
        }
    };
    match op {
        "Div" => y = positive(g, y)?,
        "Mod" => {
            y = positive(g, y)?;
            return g.op("Mod", &[x, y], vec![int("fmod", 1)]);
        }
        "Pow" => {
            x = g.op("Abs", &[x], Vec::new())?;
            let exponent = g.one(&[2.0, 0.5, 3.0, 1.0, 0.0]);
            let dtype = g.one(&[DType::F32, DType::F32, DType::I64, DType::I32]);
            y = g.constant(filled(dtype, &[], &[exponent]));
        }
        "PRelu" => {}
        _ if g.chance(0.3) => (x, y) = (y, x),
        _ => {}
    }
    let more = matches!(op, "Min" | "Max" | "Sum" | "Mean") && g.chance(0.3);
    let operands = [x, y, x];
    g.op(op, &operands[..if more { 3 } else { 2 }], Vec::new())
}

pub(crate) fn whole(g: &mut Growing<'_>) -> Option<V> {
    let dtype = g.one(&[DType::I64, DType::I32]);
    let x = g.pick(|t| t.dtype() == dtype && t.to_f64().iter().all(|v| v.abs() < 1e6))?;
    let op = g.one(&["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Abs", "Cast", "fmod"]);
    match op {
        "Neg" | "Abs" => return g.op(op, &[x], Vec::new()),
        "Cast" => {
            let target = g.one(&[DType::F32, DType::I32, DType::I64, DType::Bool]);
            return g.op("Cast", &[x], vec![to(target)]);
        }
        _ => {}
    }
    let shape = g.shape(x);
    let shape = g.broadcast(&shape);
    let negative = matches!(op, "Div" | "Mod" | "fmod") && g.rng.bool();
    let y = g.whole(dtype, &shape, if negative { -6..0 } else { 1..6 });
    let y = g.constant(y);
    match op {
        "fmod" => g.op("Mod", &[x, y], vec![int("fmod", 1)]),
        _ => g.op(op, &[x, y], Vec::new()),
    }
}

pub(crate) fn truth(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| t.dtype() == DType::Bool)?;
    let op = g.one(&["And", "Or", "Xor", "Not", "Where", "Cast"]);
    let shape = g.shape(x);
    match op {
        "Not" => g.op(op, &[x], Vec::new()),
        "Cast" => {
            let target = g.one(&[DType::F32, DType::I64]);
            g.op(op, &[x], vec![to(target)])
        }
        "Where" => {
            let shapes = [g.broadcast(&shape), g.broadcast(&shape)];
            let a = g.weight(&shapes[0], 1.0);
            let b = match g.rng.u8(..3) {
                0 => g.number(0.0),
                1 => g.number(-3.4e3),
                _ => g.weight(&shapes[1], 1.0),
            };
            g.op(op, &[x, a, b], Vec::new())
        }
        _ => {
            let shape = g.broadcast(&shape);
            let y = g.booleans(&shape);
            let y = g.constant(y);
            g.op(op, &[x, y], Vec::new())
        }
    }
}

pub(crate) fn compare(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(0..=9)?;
    let op = g.one(&["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]);
    let shape = g.shape(x);
    let shape = g.broadcast(&shape);
    let y = g.weight(&shape, 1.0);
    g.op(op, &[x, y], Vec::new())
}

pub(crate) fn select(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(0..=9)?;
    let shape = g.shape(x);
    let condition = g.pick(|t| t.dtype() == DType::Bool && fits(t.shape(), &shape));
    let condition = match condition {
        Some(condition) if g.chance(0.7) => condition,
        _ => {
            let shape = g.broadcast(&shape);
            let values = g.booleans(&shape);
            g.constant(values)
        }
    };
    let other = g.broadcast(&shape);
    let y = g.weight(&other, 1.0);
    let operands = if g.rng.bool() { [condition, x, y] } else { [condition, y, x] };
    g.op("Where", &operands, Vec::new())
}

pub(crate) fn clip(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(0..=9)?;
    let mut bound = |numbers: &[f64]| {
        let number = g.one(numbers);
        if g.chance(0.7) { g.number(number) } else { NONE }
    };
    let (low, high) = (bound(&[-1.0, 0.0, -0.3]), bound(&[1.0, 6.0, 0.2]));
    let operands = [x, low, high];
    g.op("Clip", &operands[..if high == NONE { 2 } else { 3 }], Vec::new())
}

pub(crate) fn cast(g: &mut Growing<'_>) -> Option<V> {
    let mut x = g.pick(|t| t.to_f64().iter().all(|v| v.abs() < 120.0))?;
    let types =
        [DType::F32, DType::F16, DType::I32, DType::I64, DType::Bool, DType::F64, DType::U8, DType::I8, DType::I32];
    let target = g.one(&types);
    if target == DType::U8 && matches!(g.value(x).dtype(), DType::F32 | DType::I64 | DType::I32) {
        x = g.op("Abs", &[x], Vec::new())?;
    }
    // A number that rounds to an integer is another one after any rounding.
    if !target.is_float() && g.value(x).dtype().is_float() {
        x = g.op("Round", &[x], Vec::new())?;
    }
    let y = g.op("Cast", &[x], vec![to(target)])?;
    if g.rng.bool() { g.op("Cast", &[y], vec![to(DType::F32)]) } else { Some(y) }
}
