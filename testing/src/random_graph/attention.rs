//! Attention and rotary embedding.

use planish_ir::ops::{Attention, Concat, Expand, Flag, Real, Reshape, Rotary, Slice, Transpose};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::Growing;

impl Growing {
    /// Attention of queries to keys and values of their type; bits of `form` say what else it has.
    pub(super) fn attention_of(&mut self, [q, k, v]: [ValueId; 3], c: u8, form: u8) -> Option<ValueId> {
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
            window: has(5).then_some(2),
            softcap: has(6).then_some(Real(1.5)),
            present: Flag(has(7)),
            ..Attention::new(q, new[0], new[1], heads, Real(0.5))
        })
    }

    pub(super) fn attention(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let even = |d: Option<&Dim>| d.and_then(Dim::as_constant).is_some_and(|n| n % 2 == 0);
        let q = self.pick(a, |_, ty| ty.dtype == DType::F32 && ty.shape.rank() == 3 && even(ty.shape.last()))?;
        let ty = self.ty(q);
        let [k, v] = [b, b / 2].map(|choice| self.pick(choice, |_, other| *other == ty));
        self.attention_of([q, k?, v?], c, b).map(drop)
    }

    /// Queries and keys of two heads of two features, rotated by the same angles.
    pub(super) fn rotated(&mut self, values: [ValueId; 2], b: u8) -> Option<(ValueId, ValueId)> {
        let shape = self.ty(values[0]).shape;
        let [cos, sin] = [b, b / 2].map(|choice| {
            let angles = self.weight(choice, &[1, 1, 1]);
            self.emit(Expand { x: angles, shape: Shape::new([1.into(), shape[1].clone(), 1.into()]) })
        });
        let (cos, sin, interleaved) = (cos?, sin?, Flag(b % 8 >= 4));
        let [q, k] = values.map(|x| self.emit(Rotary { x, cos, sin, heads: 2, interleaved }));
        Some((q?, k?))
    }

    pub(super) fn rotary(&mut self, a: u8, b: u8) -> Option<()> {
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
}
