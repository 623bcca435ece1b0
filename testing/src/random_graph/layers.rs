//! Products with weights, norms, and the layers that transformers are made of.

use planish_ir::ops::{
    BinaryKind, Embedding, Flag, Gelu, GeluForm, LayerNorm, Linear, MaskedSoftmax, MatMul, Real, RmsNorm, Slice,
    Softmax, Transpose, UnaryKind,
};
use planish_ir::{DType, Dim, ValueId};

use super::Growing;

impl Growing {
    /// A linear layer of a value; its bias is there or not.
    pub(super) fn linear_of(&mut self, x: ValueId, out: usize, c: u8) -> Option<ValueId> {
        let features = self.features(x)?;
        let transposed = Flag(c.is_multiple_of(5));
        let weight = self.weight(c, &if transposed.0 { [features, out] } else { [out, features] });
        let bias = c.is_multiple_of(2).then(|| self.weight(c / 2, &[out]));
        self.emit(Linear { transposed, ..Linear::new(x, weight, bias) })
    }

    pub(super) fn linear(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.float(a, 1)?;
        self.linear_of(x, [2, 4, 6][usize::from(b) % 3], c).map(drop)
    }

    pub(super) fn matmul(&mut self, a: u8, b: u8) -> Option<()> {
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

    pub(super) fn layer_norm(&mut self, x: ValueId, choice: u8) -> Option<ValueId> {
        let features = self.features(x)?;
        let weight = self.weight(choice, &[features]);
        let bias = (choice < 128).then(|| self.weight(choice / 2, &[features]));
        self.emit(LayerNorm { x, weight, bias, eps: Real(0.01) })
    }

    pub(super) fn normalize(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.float(a, 1)?;
        match b % 5 {
            4 => {
                let weight = self.weight(b, &[self.features(x)?]);
                self.emit(RmsNorm { x, weight, eps: Real(0.01) })
            }
            0 if b < 128 => self.emit(Softmax { x }),
            0 => {
                let addend = self.partner(x, b, false)?;
                let masked = self.numbers(DType::Bool, &[f64::from(b % 2)]);
                self.emit(MaskedSoftmax { x, addend, masked })
            }
            1 => self.layer_norm(x, b),
            2 => self.emit(Gelu { x, form: GeluForm::Erf }),
            _ => self.emit(Gelu { x, form: GeluForm::Tanh }),
        }
        .map(drop)
    }

    pub(super) fn embedding(&mut self, a: u8, b: u8) -> Option<()> {
        let (ids, weight) = (self.indices(a, 3)?, self.weight(b, &[2, 4]));
        self.emit(Embedding { weight, ids }).map(drop)
    }

    /// A sum of embeddings and its norm: of tokens, positions, and perhaps one row for all.
    pub(super) fn embeddings(&mut self, a: u8, b: u8) -> Option<()> {
        let ids = self.pick(a, |_, ty| ty.dtype == DType::I64 && ty.shape.rank() == 2)?;
        let (zero, one) = (self.numbers(DType::I64, &[0.0]), self.numbers(DType::I64, &[1.0]));
        let ids = self.binary_of(BinaryKind::Min, ids, one)?;
        let ids = self.binary_of(BinaryKind::Max, ids, zero)?;
        let table = self.weight(b, &[2, 4]);
        let mut sum = self.emit(Embedding { weight: table, ids })?;
        if !b.is_multiple_of(4) {
            // More positions than a sequence has.
            let (table, length) = (self.weight(b / 2, &[64, 4]), self.ty(ids).shape[1].clone());
            let start = Dim::constant(i64::from(b % 2));
            let end = length.checked_add(&start)?;
            let rows = self.emit(Slice { x: table, axis: 0, start, end })?;
            sum = self.binary_of(BinaryKind::Add, sum, rows)?;
        }
        if b % 4 > 1 {
            let row = self.weight(b / 4, &[1, 4]);
            sum = self.binary_of(BinaryKind::Add, row, sum)?;
        }
        let normal = self.layer_norm(sum, b)?;
        if b >= 128 { self.binary_of(BinaryKind::Add, normal, sum).map(drop) } else { Some(()) }
    }

    /// A layer of a decoder: rotary embedding, a cache, a feed-forward with a gate, and norms in front of both.
    pub(super) fn decoder_layer(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x =
            self.pick(a, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() == 3 && ty.shape[2] == Dim::constant(4))?;
        let weight = self.weight(b, &[4]);
        let input = self.emit(RmsNorm { x, weight, eps: Real(0.01) })?;
        let [q, k, v] = [b, b / 2, b / 4].map(|choice| self.linear_of(input, 4, choice));
        let (q, k) = self.rotated([q?, k?], b)?;
        // With heads of its own, as attention has them.
        let context = self.attention_of([q, k, v?], 0, c & !0b11)?;
        let projected = self.linear_of(context, 4, b)?;
        let sum = self.binary_of(BinaryKind::Add, x, projected)?;
        let weight = self.weight(c, &[4]);
        let normal = self.emit(RmsNorm { x: sum, weight, eps: Real(0.01) })?;
        let (gate, up) = (self.linear_of(normal, 6, b / 8)?, self.linear_of(normal, 6, b / 8)?);
        let active = match b % 3 {
            0 => self.unary_of(UnaryKind::Silu, gate)?,
            1 => self.emit(Gelu { x: gate, form: GeluForm::Tanh })?,
            _ => self.unary_of(UnaryKind::Relu, gate)?,
        };
        let gated = self.binary_of(BinaryKind::Mul, active, up)?;
        let narrow = self.linear_of(gated, 4, b / 16)?;
        self.binary_of(BinaryKind::Add, narrow, sum).map(drop)
    }

    /// A layer of a transformer encoder, with the sum before or after the norm.
    pub(super) fn layer(&mut self, a: u8, b: u8) -> Option<()> {
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
