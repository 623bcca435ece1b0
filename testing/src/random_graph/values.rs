//! Values to build on: those that are there by what fits, and new weights and constants.

use planish_ir::ops::{Binary, BinaryKind, Unary, UnaryKind};
use planish_ir::{DType, Dim, Op, Origin, Shape, TensorType, ValueId, Weight};

use super::{Growing, NAMES};

impl Growing {
    pub(super) fn ty(&self, value: ValueId) -> TensorType {
        self.graph.ty(value).clone()
    }

    pub(super) fn emit_all(&mut self, op: impl Into<Op>) -> Vec<ValueId> {
        let op = op.into();
        let rounds = matches!(
            op,
            Op::Linear(_)
                | Op::MatMul(_)
                | Op::Softmax(_)
                | Op::MaskedSoftmax(_)
                | Op::LayerNorm(_)
                | Op::RmsNorm(_)
                | Op::Gelu(_)
                | Op::Attention(_)
                | Op::Rotary(_)
        ) || matches!(&op, Op::Unary(p) if p.kind == UnaryKind::Silu);
        let rounded = rounds || op.operands().iter().any(|v| self.rounded.contains(v));
        self.seed += 1;
        let name = NAMES[usize::try_from(self.seed).unwrap() % NAMES.len()];
        let results = self.graph.emit(op, name, Origin::Unknown).unwrap();
        if rounded {
            self.rounded.extend(&results);
        }
        self.values.extend(&results);
        results
    }

    pub(super) fn emit(&mut self, op: impl Into<Op>) -> Option<ValueId> {
        self.emit_all(op).first().copied()
    }

    pub(super) fn unary_of(&mut self, kind: UnaryKind, x: ValueId) -> Option<ValueId> {
        self.emit(Unary { kind, x })
    }

    pub(super) fn binary_of(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Option<ValueId> {
        self.emit(Binary { kind, a, b })
    }

    /// A value that fits, the latest for 0.
    pub(super) fn pick(&self, choice: u8, fits: impl Fn(ValueId, &TensorType) -> bool) -> Option<ValueId> {
        let all: Vec<ValueId> = self.values.iter().rev().copied().filter(|v| fits(*v, self.graph.ty(*v))).collect();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    pub(super) fn float(&self, choice: u8, rank: usize) -> Option<ValueId> {
        self.pick(choice, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() >= rank)
    }

    /// Floats that every evaluation gives alike.
    pub(super) fn exact(&self, choice: u8) -> Option<ValueId> {
        self.pick(choice, |v, ty| ty.dtype == DType::F32 && !self.rounded.contains(&v))
    }

    pub(super) fn of(&self, choice: u8, dtype: DType) -> Option<ValueId> {
        self.pick(choice, |_, ty| ty.dtype == dtype)
    }

    /// The last dimension, where it is known.
    pub(super) fn features(&self, value: ValueId) -> Option<usize> {
        usize::try_from(self.graph.ty(value).shape.last()?.as_constant()?).ok()
    }

    /// A weight of floats, in one of the forms that expressions have.
    pub(super) fn weight(&mut self, choice: u8, shape: &[usize]) -> ValueId {
        self.seed += 1;
        let uniform = |dtype, shape: &[usize]| Weight::uniform(dtype, shape.to_vec(), self.seed).unwrap();
        let reversed: Vec<usize> = shape.iter().rev().copied().collect();
        let backwards: Vec<usize> = (0..shape.len()).rev().collect();
        let weight = match choice % 6 {
            1 => uniform(DType::F32, &reversed).transpose(&backwards).unwrap(),
            2 => uniform(DType::F16, shape).cast(DType::F32).unwrap(),
            3 if shape.first() == Some(&2) => {
                let part = uniform(DType::F32, &[&[1], &shape[1..]].concat());
                Weight::concat(&[part.clone(), part], 0).unwrap()
            }
            4 => uniform(DType::Bf16, &reversed).transpose(&backwards).unwrap().cast(DType::F32).unwrap(),
            5 => uniform(DType::F32, &reversed).transpose(&backwards).unwrap().reshape(shape).unwrap(),
            _ => uniform(DType::F32, shape),
        };
        self.graph.add_weight("w", weight, Origin::Unknown)
    }

    pub(super) fn numbers(&mut self, dtype: DType, values: &[f64]) -> ValueId {
        let shape = if values.len() == 1 { Vec::new() } else { vec![values.len()] };
        self.graph.add_weight("numbers", Weight::numbers(dtype, shape, values).unwrap(), Origin::Unknown)
    }

    /// `|x| + 0.5`, of an exact value.
    pub(super) fn positive(&mut self, choice: u8) -> Option<ValueId> {
        let x = self.exact(choice)?;
        let x = self.unary_of(UnaryKind::Abs, x)?;
        let half = self.numbers(DType::F32, &[0.5]);
        self.binary_of(BinaryKind::Add, x, half)
    }

    /// A value that broadcasts with `x`; a weight, unless another value of its shape is wanted.
    pub(super) fn partner(&mut self, x: ValueId, b: u8, weight: bool) -> Option<ValueId> {
        let ty = self.ty(x);
        let features = self.features(x);
        match (b % 4, features) {
            (0, _) if !weight => self.pick(b / 4, |_, other| *other == ty),
            (1, Some(n)) => Some(self.weight(b / 4, &[n])),
            (2, Some(n)) => Some(self.weight(b / 4, &[&vec![1; ty.shape.rank() - 1][..], &[n]].concat())),
            _ => Some(self.weight(0, &[])),
        }
    }

    /// Integers of few dimensions, brought between 0 and 1.
    pub(super) fn indices(&mut self, choice: u8, rank: usize) -> Option<ValueId> {
        let x = self.pick(choice, |_, ty| ty.dtype == DType::I64 && ty.shape.rank() <= rank)?;
        let (zero, one) = (self.numbers(DType::I64, &[0.0]), self.numbers(DType::I64, &[1.0]));
        let x = self.binary_of(BinaryKind::Min, x, one)?;
        self.binary_of(BinaryKind::Max, x, zero)
    }
}

/// Whether shapes broadcast whatever their symbols stand for.
pub(super) fn broadcast(a: &Shape, b: &Shape) -> bool {
    let one = Dim::constant(1);
    a.iter().rev().zip(b.iter().rev()).all(|(x, y)| x == y || *x == one || *y == one)
}
