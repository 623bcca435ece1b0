//! Which frames of a recording are there: rows of a batch are filled up after their end.

use planish_ir::ops::{BinaryKind, Cast, Gather, Iota, Sizes};
use planish_ir::{DType, Dim, Shape, Symbol, SymbolRole, ValueId};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::names;

/// A mask of frames.
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    /// bool[batch_size, frames].
    pub(crate) kept: ValueId,
    /// 1 or 0: f32[batch_size, frames, 1].
    column: ValueId,
}

/// Adds the inputs of features, f32[batch_size, sequence_length, features], and of a mask of them, i64[batch_size,
/// sequence_length].
pub(crate) fn features(b: &mut Builder<'_>, features: Size) -> Result<(ValueId, Mask), ModelError> {
    let [rows, frames] = [BATCH, SEQUENCE].map(Dim::symbol);
    let (name, role) = names::FEATURES;
    let x = b.floats(name, role, [rows.clone(), frames.clone(), Dim::constant(features.signed())]);
    let mask = b.ids(names::ATTENTION_MASK, [rows, frames], 2);
    // Optimum's name is that of tokens.
    b.graph.interface.symbols.insert(Symbol::new(SEQUENCE), SymbolRole::Frames);
    let kept = b.emit(Cast { x: mask, to: DType::Bool }, "attention_mask.bool")?;
    Ok((x, Mask::of(b, kept, "attention_mask")?))
}

impl Mask {
    /// A mask bool[batch_size, frames].
    fn of(b: &mut Builder<'_>, kept: ValueId, module: &str) -> Result<Self, ModelError> {
        let numbers = b.emit(Cast { x: kept, to: DType::F32 }, &format!("{module}.numbers"))?;
        let dims = [0, 1].map(|axis| b.graph.ty(kept).shape[axis].clone());
        let column = b.reshape(numbers, dims.into_iter().chain([Dim::constant(1)]), &format!("{module}.column"))?;
        Ok(Self { kept, column })
    }

    /// Zeros in the place of what is not there, of [batch_size, frames, features].
    pub(crate) fn clear(self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        b.binary(BinaryKind::Mul, [x, self.column], module)
    }

    /// The same of a map [batch_size, channels, frames, features].
    pub(crate) fn clear_map(self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let dims = [0, 1].map(|axis| b.graph.ty(self.column).shape[axis].clone());
        let [rows, frames] = dims;
        let one = || Dim::constant(1);
        let column = b.reshape(self.column, [rows, one(), frames, one()], &format!("{module}.column"))?;
        b.binary(BinaryKind::Mul, [x, column], module)
    }

    /// The mask of the `count` places of a window that moves by `stride` frames: a place is there if the frame `stride * place +
    /// offset` is. Places whose frame is beyond the last one are not there, and those whose frame is before the first one are if that is.
    pub(crate) fn moved(
        self,
        b: &mut Builder<'_>,
        count: Dim,
        stride: usize,
        offset: i64,
        module: &str,
    ) -> Result<Self, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let frames = b.graph.ty(self.kept).shape[1].clone();
        let range = b.emit(Iota { dtype: DType::I64, length: count }, &at("places"))?;
        let mut number = |name: &str, number: f64| b.graph.add_scalar(&at(name), DType::I64, number);
        let (stride, offset, zero) =
            (number("stride", stride as f64), number("offset", offset as f64), number("zero", 0.0));
        let last = number("one", 1.0);
        let first = b.binary(BinaryKind::Mul, [range, stride], &at("first"))?;
        let indices = b.binary(BinaryKind::Add, [first, offset], &at("indices"))?;
        let size = b.emit(Sizes { of: Shape::new([frames]) }, &at("frames"))?;
        let inside = b.binary(BinaryKind::Less, [indices, size], &at("inside"))?;
        let last = b.binary(BinaryKind::Sub, [size, last], &at("last"))?;
        let indices = b.binary(BinaryKind::Min, [indices, last], &at("indices.not_after"))?;
        let indices = b.binary(BinaryKind::Max, [indices, zero], &at("indices.not_before"))?;
        let kept = b.emit(Gather { x: self.kept, indices, axis: 1 }, &at("gathered"))?;
        let kept = b.binary(BinaryKind::And, [kept, inside], &at("kept"))?;
        Self::of(b, kept, module)
    }

    /// 1 for each frame that is there: f32[batch_size, frames, 1].
    pub(crate) fn column(self) -> ValueId {
        self.column
    }
}
