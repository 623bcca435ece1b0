//! Random well-typed graphs, as a list of choices that shrinks well. Every operator occurs, also
//! in the chains that transformers are made of.
//!
//! The graphs are well conditioned: rounding differently in one operator changes outputs by little.
//! What is not continuous, such as a comparison, is applied only to values that every correct
//! evaluation gives exactly.

use std::collections::HashSet;

use planish_ir::ops::{
    Attention, Binary, BinaryKind, Cast, Concat, CumSum, Embedding, Expand, Flag, Gather, Gelu, GeluForm, Iota,
    LayerNorm, Linear, MatMul, Real, Reduce, ReduceKind, Reshape, RmsNorm, Rotary, Select, Slice, Softmax, Split,
    Transpose, Unary, UnaryKind, broadcast,
};
use planish_ir::{DType, Dim, Graph, Op, Origin, Shape, TensorType, ValueId, Weight};
use proptest::prelude::*;

/// What to add to a graph, and to which values.
pub(crate) type Choice = [u8; 4];

/// Choices for [`build`].
pub(crate) fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec(any::<Choice>(), 1..14)
}

/// The graph of some choices. Integer inputs are indices below 2.
pub(crate) fn build(choices: &[Choice]) -> Graph {
    let mut growing = Growing::new();
    choices.iter().for_each(|choice| growing.grow(*choice));
    growing.finish()
}

/// Names as models have them, and names that only quotes hold.
const NAMES: &[&str] = &["x", "encoder.layer.0/out", "a b", "\"q\" = {", "\u{e9}\\n", "x_1", "line\nbreak: %y"];

struct Growing {
    graph: Graph,
    values: Vec<ValueId>,
    /// Values that depend on how an operator rounds.
    rounded: HashSet<ValueId>,
    seed: u64,
}

impl Growing {
    fn new() -> Self {
        let mut graph = Graph::new("random \"graph\"");
        let (batch, length) = (Dim::symbol("batch_size"), Dim::symbol("sequence_length"));
        let mut input = |name: &str, dtype, dims: &[Dim]| {
            graph.add_input(name, TensorType::new(dtype, Shape::new(dims.to_vec())), Origin::Unknown)
        };
        let values = vec![
            input("table_rows", DType::F32, &[3.into(), 4.into()]),
            input("mask", DType::Bool, &[batch.clone(), length.clone()]),
            input("ids", DType::I64, &[batch.clone(), length.clone()]),
            input("hidden", DType::F32, &[batch, length, 4.into()]),
        ];
        Self { graph, values, rounded: HashSet::new(), seed: 0 }
    }

    fn grow(&mut self, [kind, a, b, c]: Choice) {
        // A choice that no value fits is left out.
        let _: Option<()> = match kind % 21 {
            0 => self.unary(a, b),
            1 | 2 => self.binary(a, b, c),
            3 => self.integers(a, b, c),
            4 => self.predicate(a, b, c),
            5 => self.select(a, b, c),
            6 => self.cast(a, b),
            7 => self.reduce(a, b, c),
            8 => self.reshape(a, b),
            9 => self.transpose(a, b),
            10 => self.slice(a, b, c),
            11 => self.concat(a, b, c),
            12 => self.expand(a, b),
            13 => self.gather(a, b, c),
            14 => self.linear(a, b, c),
            15 => self.matmul(a, b),
            16 => self.normalize(a, b),
            17 => self.embedding(a, b),
            18 => self.attention(a, b, c),
            19 => self.rotary(a, b),
            _ => self.layer(a, b),
        };
    }

    fn finish(mut self) -> Graph {
        let uses = self.graph.use_counts();
        let unused = self.values.iter().filter(|v| uses[planish_ir::handle::Handle::index(**v)] == 0);
        // Some values stay dead.
        let mut outputs: Vec<ValueId> = unused.step_by(2).copied().collect();
        outputs.extend(self.values.last().filter(|v| !outputs.contains(v)));
        for (i, value) in outputs.into_iter().enumerate() {
            self.graph.add_output(&format!("{} {i}", NAMES[i % NAMES.len()]), value);
        }
        self.graph
    }

    fn ty(&self, value: ValueId) -> TensorType {
        self.graph.ty(value).clone()
    }

    fn emit_all(&mut self, op: impl Into<Op>) -> Vec<ValueId> {
        let op = op.into();
        let rounds = matches!(
            op,
            Op::Linear(_)
                | Op::MatMul(_)
                | Op::Softmax(_)
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

    fn emit(&mut self, op: impl Into<Op>) -> Option<ValueId> {
        self.emit_all(op).first().copied()
    }

    /// A value that fits, the latest for 0.
    fn pick(&self, choice: u8, fits: impl Fn(ValueId, &TensorType) -> bool) -> Option<ValueId> {
        let all: Vec<ValueId> = self.values.iter().rev().copied().filter(|v| fits(*v, self.graph.ty(*v))).collect();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn float(&self, choice: u8, rank: usize) -> Option<ValueId> {
        self.pick(choice, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() >= rank)
    }

    /// Floats that every evaluation gives alike.
    fn exact(&self, choice: u8) -> Option<ValueId> {
        self.pick(choice, |v, ty| ty.dtype == DType::F32 && !self.rounded.contains(&v))
    }

    fn of(&self, choice: u8, dtype: DType) -> Option<ValueId> {
        self.pick(choice, |_, ty| ty.dtype == dtype)
    }

    /// A weight of floats, in one of the forms that expressions have.
    fn weight(&mut self, choice: u8, shape: &[usize]) -> ValueId {
        self.seed += 1;
        let uniform = |dtype, shape: &[usize]| Weight::uniform(dtype, shape.to_vec(), self.seed).unwrap();
        let reversed: Vec<usize> = shape.iter().rev().copied().collect();
        let backwards: Vec<usize> = (0..shape.len()).rev().collect();
        let weight = match choice % 6 {
            1 => uniform(DType::F32, &reversed).transpose(&backwards).unwrap(),
            2 => uniform(DType::F16, shape).cast(DType::F32),
            3 if shape.first() == Some(&2) => {
                let part = uniform(DType::F32, &[&[1], &shape[1..]].concat());
                Weight::concat(&[part.clone(), part], 0).unwrap()
            }
            4 => uniform(DType::Bf16, &reversed).transpose(&backwards).unwrap().cast(DType::F32),
            5 => uniform(DType::F32, &reversed).transpose(&backwards).unwrap().reshape(shape).unwrap(),
            _ => uniform(DType::F32, shape),
        };
        self.graph.add_weight("w", weight, Origin::Unknown)
    }

    fn numbers(&mut self, dtype: DType, values: &[f64]) -> ValueId {
        let shape = if values.len() == 1 { Vec::new() } else { vec![values.len()] };
        self.graph.add_weight("numbers", Weight::numbers(dtype, shape, values).unwrap(), Origin::Unknown)
    }

    /// The last dimension, where it is known.
    fn features(&self, value: ValueId) -> Option<usize> {
        usize::try_from(self.graph.ty(value).shape.last()?.as_constant()?).ok()
    }

    fn unary_of(&mut self, kind: UnaryKind, x: ValueId) -> Option<ValueId> {
        self.emit(Unary { kind, x })
    }

    fn binary_of(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Option<ValueId> {
        self.emit(Binary { kind, a, b })
    }

    /// `|x| + 0.5`, of an exact value.
    fn positive(&mut self, choice: u8) -> Option<ValueId> {
        let x = self.exact(choice)?;
        let x = self.unary_of(UnaryKind::Abs, x)?;
        let half = self.numbers(DType::F32, &[0.5]);
        self.binary_of(BinaryKind::Add, x, half)
    }

    fn unary(&mut self, a: u8, kind: u8) -> Option<()> {
        use UnaryKind::{Abs, Cos, Erf, Exp, Neg, Relu, Sigmoid, Silu, Sin, Sqrt, Tanh};
        let (kind, x) = match kind % 12 {
            8 => {
                let x = self.float(a, 0)?;
                let x = self.unary_of(Abs, x)?;
                (Exp, self.unary_of(Neg, x)?)
            }
            9 => (Sqrt, self.positive(a)?),
            10 => (Cos, self.float(a, 0)?),
            11 => (Sin, self.float(a, 0)?),
            k => ([Neg, Abs, Erf, Tanh, Sigmoid, Relu, Silu, Silu][usize::from(k)], self.float(a, 0)?),
        };
        self.unary_of(kind, x).map(drop)
    }

    /// A value that broadcasts with `x`; a weight, unless another value of its shape is wanted.
    fn partner(&mut self, x: ValueId, b: u8, weight: bool) -> Option<ValueId> {
        let ty = self.ty(x);
        let features = self.features(x);
        match (b % 4, features) {
            (0, _) if !weight => self.pick(b / 4, |_, other| *other == ty),
            (1, Some(n)) => Some(self.weight(b / 4, &[n])),
            (2, Some(n)) => Some(self.weight(b / 4, &[&vec![1; ty.shape.rank() - 1][..], &[n]].concat())),
            _ => Some(self.weight(0, &[])),
        }
    }

    fn binary(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
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
            let fits = broadcast(&shape, &self.ty(by).shape).is_ok();
            let by = if fits { by } else { self.numbers(DType::F32, &[3.0]) };
            return self.binary_of(Div, x, by).map(drop);
        }
        let other = self.partner(x, b, kind == Mul)?;
        let (x, other) = if c >= 128 { (other, x) } else { (x, other) };
        self.binary_of(kind, x, other).map(drop)
    }

    fn integers(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        use BinaryKind::{Add, Div, Max, Min, Mul, Sub};
        match c % 9 {
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
            k => {
                let x = self.of(a, DType::I64)?;
                let other = self.numbers(DType::I64, &[f64::from(b % 3 + 1)]);
                self.binary_of([Add, Sub, Mul, Div, Min, Max][usize::from(k) - 3], x, other).map(drop)
            }
        }
    }

    fn predicate(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        use BinaryKind::{And, Equal, Greater, Less, Or};
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
        self.binary_of([Less, Greater, Equal][usize::from(c / 2) % 3], x, other).map(drop)
    }

    fn select(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.float(a, 0)?;
        let other = self.partner(x, b, false)?;
        let shape = self.ty(x).shape;
        let condition = self.pick(c, |_, ty| ty.dtype == DType::Bool && broadcast(&ty.shape, &shape).is_ok());
        let condition = condition.unwrap_or_else(|| self.numbers(DType::Bool, &[f64::from(c % 2)]));
        self.emit(Select { condition, a: x, b: other }).map(drop)
    }

    fn cast(&mut self, a: u8, b: u8) -> Option<()> {
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

    fn reduce(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.dtype != DType::Bool)?;
        let ty = self.ty(x);
        let kind = match c % 3 {
            0 if ty.dtype == DType::F32 => ReduceKind::Mean,
            1 => ReduceKind::Max,
            _ => ReduceKind::Sum,
        };
        let axes: Vec<usize> = (0..ty.shape.rank()).filter(|axis| b >> axis & 1 == 1).collect();
        if axes.is_empty() {
            return None;
        }
        self.emit(Reduce { kind, x, axes, keep: c >= 128 }).map(drop)
    }

    fn reshape(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let dims = self.ty(x).shape.to_vec();
        let (last, leading) = dims.split_last()?;
        let shape = match (b % 5, last.as_constant()) {
            (0, _) => vec![Shape::new(dims.clone()).elements()?],
            (1, _) if dims.len() > 1 => [&[dims[0].checked_mul(&dims[1])?], &dims[2..]].concat(),
            (2, Some(n)) if n % 2 == 0 && dims.len() < 4 => [leading, &[(n / 2).into(), 2.into()]].concat(),
            (3, _) if dims.len() < 4 => [&[1.into()], &dims[..]].concat(),
            _ => dims,
        };
        self.emit(Reshape { x, shape: Shape::new(shape) }).map(drop)
    }

    fn transpose(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let mut perm: Vec<usize> = (0..self.ty(x).shape.rank()).collect();
        let by = usize::from(b) % perm.len();
        if b < 128 {
            perm.rotate_left(by)
        } else {
            perm.swap(0, by)
        }
        self.emit(Transpose { x, perm }).map(drop)
    }

    fn slice(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let shape = self.ty(x).shape;
        let axis = usize::from(b) % shape.rank();
        let Some(size) = shape[axis].as_constant() else {
            let end = shape[axis].clone();
            let start = if c.is_multiple_of(2) { 0.into() } else { end.checked_sub(&1.into())? };
            return self.emit(Slice { x, axis, start, end }).map(drop);
        };
        let cut = i64::from(c) % size;
        if c >= 128 && cut > 0 {
            let sizes = [cut, size - cut].map(|n| usize::try_from(n).unwrap()).to_vec();
            self.emit_all(Split { x, axis, sizes });
            return Some(());
        }
        self.emit(Slice { x, axis, start: cut.into(), end: size.into() }).map(drop)
    }

    fn concat(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let small =
            |d: &Dim| d.as_constant().is_none_or(|n| n <= 8) && d.summands().all(|(k, s)| k <= 2 && s.len() <= 2);
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0 && ty.shape.iter().all(small))?;
        let ty = self.ty(x);
        let axis = usize::from(b) % ty.shape.rank();
        let other = self.pick(c, |_, other| *other == ty)?;
        let parts = if b >= 192 { vec![x] } else { vec![x, other] };
        self.emit(Concat { parts, axis }).map(drop)
    }

    fn expand(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() < 4)?;
        let mut dims = self.ty(x).shape.to_vec();
        if b.is_multiple_of(2) {
            dims.insert(0, 2.into());
        }
        if let Some(dim) = dims.iter_mut().find(|d| **d == Dim::constant(1)) {
            *dim = Dim::symbol("sequence_length");
        }
        self.emit(Expand { x, shape: Shape::new(dims) }).map(drop)
    }

    /// Integers of few dimensions, brought between 0 and 1.
    fn indices(&mut self, choice: u8, rank: usize) -> Option<ValueId> {
        let x = self.pick(choice, |_, ty| ty.dtype == DType::I64 && ty.shape.rank() <= rank)?;
        let (zero, one) = (self.numbers(DType::I64, &[0.0]), self.numbers(DType::I64, &[1.0]));
        let x = self.binary_of(BinaryKind::Min, x, one)?;
        self.binary_of(BinaryKind::Max, x, zero)
    }

    fn gather(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let indexed = |d: &Dim| d.as_constant().is_some_and(|n| n >= 2);
        let x = self.pick(a, |_, ty| ty.shape.rank() < 4 && ty.shape.iter().any(indexed))?;
        let shape = self.ty(x).shape;
        let axes: Vec<usize> = (0..shape.rank()).filter(|axis| indexed(&shape[*axis])).collect();
        let indices = self.indices(b, 5 - shape.rank())?;
        self.emit(Gather { x, indices, axis: axes[usize::from(c) % axes.len()] }).map(drop)
    }

    /// A linear layer of a value; its bias is there or not.
    fn linear_of(&mut self, x: ValueId, out: usize, c: u8) -> Option<ValueId> {
        let features = self.features(x)?;
        let transposed = Flag(c.is_multiple_of(5));
        let weight = self.weight(c, &if transposed.0 { [features, out] } else { [out, features] });
        let bias = c.is_multiple_of(2).then(|| self.weight(c / 2, &[out]));
        self.emit(Linear { transposed, ..Linear::new(x, weight, bias) })
    }

    fn linear(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.float(a, 1)?;
        self.linear_of(x, [2, 4, 6][usize::from(b) % 3], c).map(drop)
    }

    fn matmul(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.float(a, 2)?;
        if let (Some(features), true) = (self.features(x), b.is_multiple_of(2)) {
            let weight = self.weight(b / 2, &[features, 2]);
            return self.emit(MatMul { a: x, b: weight }).map(drop);
        }
        let x = self.unary_of(UnaryKind::Tanh, x)?;
        let rank = self.ty(x).shape.rank();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        let turned = self.emit(Transpose { x, perm })?;
        self.emit(MatMul { a: x, b: turned }).map(drop)
    }

    fn layer_norm(&mut self, x: ValueId, choice: u8) -> Option<ValueId> {
        let features = self.features(x)?;
        let weight = self.weight(choice, &[features]);
        let bias = (choice < 128).then(|| self.weight(choice / 2, &[features]));
        self.emit(LayerNorm { x, weight, bias, eps: Real(0.01) })
    }

    fn normalize(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.float(a, 1)?;
        match b % 5 {
            4 => {
                let weight = self.weight(b, &[self.features(x)?]);
                self.emit(RmsNorm { x, weight, eps: Real(0.01) })
            }
            0 => self.emit(Softmax { x }),
            1 => self.layer_norm(x, b),
            2 => self.emit(Gelu { x, form: GeluForm::Erf }),
            _ => self.emit(Gelu { x, form: GeluForm::Tanh }),
        }
        .map(drop)
    }

    fn embedding(&mut self, a: u8, b: u8) -> Option<()> {
        let (ids, weight) = (self.indices(a, 3)?, self.weight(b, &[2, 4]));
        self.emit(Embedding { weight, ids }).map(drop)
    }

    /// Attention of queries to keys and values of their type; bits of `form` say what else it has.
    fn attention_of(&mut self, [q, k, v]: [ValueId; 3], c: u8, form: u8) -> Option<ValueId> {
        let has = |bit: u8| form >> bit & 1 == 1;
        let (features, heads) = (self.features(q)?, if c.is_multiple_of(2) { 2 } else { 1 });
        let kv_heads = if has(0) { 1 } else { heads };
        let (own, size) = (features / heads * kv_heads, features / heads);
        let [own_dim, size_dim, kv_dim] = [own, size, kv_heads].map(|n| Dim::constant(i64::try_from(n).unwrap()));
        let shape = self.ty(q).shape;
        let (batch, keys) = (shape[0].clone(), shape[1].clone());
        let mut new = [k, v];
        for x in &mut new {
            if own < features {
                *x = self.emit(Slice { x: *x, axis: 2, start: 0.into(), end: own_dim.clone() })?;
            }
            if has(1) {
                let dims = [batch.clone(), keys.clone(), kv_dim.clone(), size_dim.clone()];
                *x = self.emit(Reshape { x: *x, shape: Shape::new(dims) })?;
                *x = self.emit(Transpose { x: *x, perm: vec![0, 2, 1, 3] })?;
            }
        }
        let mut mask = self.pick(c, |_, ty| ty.dtype == DType::Bool && *ty.shape == shape[..2]).filter(|_| c < 192);
        let mut past = [None; 2];
        if has(2) {
            for x in &mut past {
                let one = self.weight(c, &[1, kv_heads, 1, size]);
                let dims = [batch.clone(), kv_dim.clone(), keys.clone(), size_dim.clone()];
                *x = Some(self.emit(Expand { x: one, shape: Shape::new(dims) })?);
            }
            if let Some(new) = mask {
                mask = Some(self.emit(Concat { parts: vec![new, new], axis: 1 })?);
            }
        }
        let bias = has(3).then(|| self.weight(c, &[heads, 1, 1]));
        self.emit(Attention {
            mask,
            bias,
            past_key: past[0],
            past_value: past[1],
            kv_heads: has(0).then_some(kv_heads),
            causal: Flag(has(4)),
            window: (has(4) && has(5)).then_some(2),
            softcap: has(6).then_some(Real(1.5)),
            present: Flag(has(7)),
            ..Attention::new(q, new[0], new[1], heads, Real(0.5))
        })
    }

    fn attention(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let even = |d: Option<&Dim>| d.and_then(Dim::as_constant).is_some_and(|n| n % 2 == 0);
        let q = self.pick(a, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() == 3 && even(ty.shape.last()))?;
        let ty = self.ty(q);
        let [k, v] = [b, b / 2].map(|choice| self.pick(choice, |_, other| *other == ty));
        self.attention_of([q, k?, v?], c, b).map(drop)
    }

    fn rotary(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() == 3)?;
        let heads = if b.is_multiple_of(2) { 2 } else { 1 };
        let size = self.features(x).filter(|features| features.is_multiple_of(heads))? / heads;
        let pairs = if b.is_multiple_of(3) { 1 } else { size / 2 };
        if pairs == 0 || 2 * pairs > size {
            return None;
        }
        let shape = self.ty(x).shape;
        let rows = if b >= 128 { shape[0].clone() } else { 1.into() };
        let [cos, sin] = [b, b / 2].map(|choice| {
            let angles = self.weight(choice, &[1, 1, pairs]);
            let dims = [rows.clone(), shape[1].clone(), i64::try_from(pairs).unwrap().into()];
            self.emit(Expand { x: angles, shape: Shape::new(dims) })
        });
        self.emit(Rotary { x, cos: cos?, sin: sin?, heads, interleaved: Flag(b % 8 >= 4) }).map(drop)
    }

    /// A layer of a transformer encoder, with the sum before or after the norm.
    fn layer(&mut self, a: u8, b: u8) -> Option<()> {
        let x =
            self.pick(a, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() == 3 && ty.shape[2] == Dim::constant(4))?;
        let input = if b >= 128 { self.layer_norm(x, b)? } else { x };
        let [q, k, v] = [b, b / 2, b / 4].map(|choice| self.linear_of(input, 4, choice));
        let context = self.attention_of([q?, k?, v?], b, 0)?;
        let projected = self.linear_of(context, 4, b)?;
        let sum = self.binary_of(BinaryKind::Add, projected, x)?;
        let normal = self.layer_norm(sum, b / 2)?;
        let wide = self.linear_of(normal, 6, b / 8)?;
        let form = if b.is_multiple_of(2) { GeluForm::Erf } else { GeluForm::Tanh };
        let active = self.emit(Gelu { x: wide, form })?;
        let narrow = self.linear_of(active, 4, b / 16)?;
        self.binary_of(BinaryKind::Add, narrow, sum).map(drop)
    }
}
