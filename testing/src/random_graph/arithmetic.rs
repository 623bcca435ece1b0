//! Arithmetic element by element, comparisons, and reductions.

use planish_ir::ops::{BinaryKind, Cast, CumSum, Iota, Reduce, ReduceKind, Select, Sizes, UnaryKind};
use planish_ir::{DType, Dim, Shape};

use super::Growing;
use super::values::broadcast;

impl Growing {
    pub(super) fn unary(&mut self, a: u8, kind: u8) -> Option<()> {
        use UnaryKind::{Abs, Ceil, Cos, Erf, Exp, Floor, IsNan, Log, Neg, Relu, Sigmoid, Silu, Sin, Sqrt, Tanh};
        let (kind, x) = match kind % 16 {
            8 => {
                let x = self.float(a, 0)?;
                let x = self.unary_of(Abs, x)?;
                (Exp, self.unary_of(Neg, x)?)
            }
            9 => (Sqrt, self.positive(a)?),
            10 => (Cos, self.float(a, 0)?),
            11 => (Sin, self.float(a, 0)?),
            12 => (Log, self.positive(a)?),
            // What is rounded may lie on either side of a step.
            13 => (Floor, self.exact(a)?),
            14 => (Ceil, self.exact(a)?),
            15 => (IsNan, self.exact(a)?),
            k => ([Neg, Abs, Erf, Tanh, Sigmoid, Relu, Silu, Silu][usize::from(k)], self.float(a, 0)?),
        };
        self.unary_of(kind, x).map(drop)
    }

    pub(super) fn binary(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        use BinaryKind::{Add, Div, Max, Min, Mul, Pow, Sub};
        let kind = [Add, Add, Sub, Mul, Min, Max, Div, Pow][usize::from(c) % 8];
        if kind == Pow {
            let (x, two) = (self.positive(a)?, self.numbers(DType::F32, &[2.0]));
            return self.binary_of(Pow, x, two).map(drop);
        }
        let x = self.float(a, 0)?;
        if kind == Div {
            let shape = self.ty(x).shape;
            let by = self.positive(b)?;
            let fits = broadcast(&shape, &self.ty(by).shape);
            let by = if fits { by } else { self.numbers(DType::F32, &[3.0]) };
            return self.binary_of(Div, x, by).map(drop);
        }
        let other = self.partner(x, b, kind == Mul)?;
        let (x, other) = if c >= 128 { (other, x) } else { (x, other) };
        self.binary_of(kind, x, other).map(drop)
    }

    pub(super) fn integers(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        use BinaryKind::{Add, Div, Max, Min, Mul, Sub};
        match c % 10 {
            0 => {
                let length = if b.is_multiple_of(2) { Dim::symbol("sequence_length") } else { 3.into() };
                self.emit(Iota { dtype: DType::I64, length }).map(drop)
            }
            1 => {
                let x = self.pick(a, |_, ty| ty.dtype != DType::Bool && ty.shape.rank() > 0)?;
                let axis = usize::from(b) % self.ty(x).shape.rank();
                self.emit(CumSum { x, axis }).map(drop)
            }
            2 => {
                let x = self.of(a, DType::I64)?;
                let kind = if b.is_multiple_of(2) { UnaryKind::Neg } else { UnaryKind::Abs };
                self.unary_of(kind, x).map(drop)
            }
            9 => {
                let of = Shape::new([Dim::symbol("batch_size"), 2.into(), Dim::symbol("sequence_length")]);
                self.emit(Sizes { of }).map(drop)
            }
            k => {
                let x = self.of(a, DType::I64)?;
                let other = self.numbers(DType::I64, &[f64::from(b % 3 + 1)]);
                self.binary_of([Add, Sub, Mul, Div, Min, Max][usize::from(k) - 3], x, other).map(drop)
            }
        }
    }

    pub(super) fn predicate(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        use BinaryKind::{And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Or};
        if c.is_multiple_of(2) {
            let x = self.of(a, DType::Bool)?;
            let ty = self.ty(x);
            let other = self.pick(b, |_, other| *other == ty)?;
            let kind = [And, Or, Equal][usize::from(c / 2) % 3];
            let x = self.binary_of(kind, x, other)?;
            return if b >= 128 { self.unary_of(UnaryKind::Not, x).map(drop) } else { Some(()) };
        }
        let x = if b < 128 { self.of(a, DType::I64)? } else { self.exact(a)? };
        let dtype = self.ty(x).dtype;
        let other = self.numbers(dtype, &[f64::from(b % 2)]);
        let kind = [Less, LessOrEqual, Greater, GreaterOrEqual, Equal][usize::from(c / 2) % 5];
        self.binary_of(kind, x, other).map(drop)
    }

    pub(super) fn select(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.float(a, 0)?;
        let other = self.partner(x, b, false)?;
        let shape = self.ty(x).shape;
        let condition = self.pick(c, |_, ty| ty.dtype == DType::Bool && broadcast(&ty.shape, &shape));
        let condition = condition.unwrap_or_else(|| self.numbers(DType::Bool, &[f64::from(c % 2)]));
        self.emit(Select { condition, a: x, b: other }).map(drop)
    }

    pub(super) fn cast(&mut self, a: u8, b: u8) -> Option<()> {
        let (x, through, to) = match b % 6 {
            0 => (self.of(a, DType::Bool)?, DType::I64, DType::F32),
            1 => (self.of(a, DType::I64)?, DType::I32, DType::F32),
            2 => (self.exact(a)?, DType::I64, DType::Bool),
            3 => (self.float(a, 0)?, DType::F64, DType::F32),
            4 => (self.float(a, 0)?, DType::F32, DType::F32),
            _ => (self.of(a, DType::Bool)?, DType::F32, DType::I64),
        };
        let x = self.emit(Cast { x, to: through })?;
        self.emit(Cast { x, to }).map(drop)
    }

    pub(super) fn reduce(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.dtype != DType::Bool)?;
        let ty = self.ty(x);
        let kind = match c % 4 {
            0 if ty.dtype == DType::F32 => ReduceKind::Mean,
            1 => ReduceKind::Max,
            2 => ReduceKind::Min,
            _ => ReduceKind::Sum,
        };
        let axes: Vec<usize> = (0..ty.shape.rank()).filter(|axis| b >> axis & 1 == 1).collect();
        if axes.is_empty() {
            return None;
        }
        self.emit(Reduce { kind, x, axes, keep: c >= 128 }).map(drop)
    }
}
