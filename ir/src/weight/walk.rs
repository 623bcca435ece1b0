//! Walks over weight expressions.

use super::{Weight, WeightExpr};

impl WeightExpr {
    /// The weights that this is a transform of, in order; none for stored bytes, bytes in memory and random numbers.
    #[must_use]
    pub fn children(&self) -> &[Weight] {
        match self {
            Self::Stored(_) | Self::Inline(_) | Self::Uniform(_) => &[],
            Self::Transpose(of, _) | Self::Cast(of) | Self::Reshape(of) | Self::Pad(of, _) | Self::Gather(of, ..) => {
                std::slice::from_ref(of)
            }
            Self::FlipSign(of) | Self::Bytes(of) | Self::InverseNorms(of, _) => std::slice::from_ref(of),
            Self::Quantize(parts, _) | Self::Dequantize(parts, _) | Self::Fitted(parts, ..) => parts,
            Self::Concat(parts, _) | Self::Scale(parts, _) | Self::PlusProduct(parts) | Self::Unpack(parts, _) => parts,
        }
    }

    /// Whether this transform only moves elements: each element is one of a child, bit by bit, or one that padding
    /// appends.
    #[must_use]
    pub fn moves_elements(&self) -> bool {
        match self {
            Self::Stored(_) | Self::Inline(_) | Self::Uniform(_) | Self::Cast(_) => false,
            Self::Quantize(..) | Self::Dequantize(..) | Self::Scale(..) | Self::Fitted(..) => false,
            Self::FlipSign(_) | Self::Bytes(_) | Self::PlusProduct(_) | Self::Unpack(..) => false,
            Self::InverseNorms(..) => false,
            Self::Transpose(..) | Self::Reshape(_) | Self::Concat(..) | Self::Pad(..) | Self::Gather(..) => true,
        }
    }
}

impl Weight {
    /// The same transform of other weights, which `f` gives for the children; the weight itself where it has none.
    /// `None` where `f` gives `None`, or where the transform does not take what it gives. A child may get another
    /// element type: a cast still converts to the type of this weight, other transforms keep that of the child.
    #[must_use]
    pub fn map(&self, f: &mut dyn FnMut(&Weight) -> Option<Weight>) -> Option<Self> {
        match self.expr() {
            WeightExpr::Stored(_) | WeightExpr::Inline(_) | WeightExpr::Uniform(_) => Some(self.clone()),
            WeightExpr::Transpose(of, perm) => f(of)?.transpose(perm),
            WeightExpr::Cast(of) => f(of)?.cast(self.dtype()),
            WeightExpr::Reshape(of) => f(of)?.reshape(self.shape()),
            WeightExpr::Concat(parts, axis) => Self::concat(&parts.iter().map(f).collect::<Option<Vec<_>>>()?, *axis),
            WeightExpr::Pad(of, value) => f(of)?.pad(self.shape(), value.0),
            WeightExpr::Gather(of, axis, indices) => f(of)?.gather(*axis, indices),
            WeightExpr::Quantize(parts, channels) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                parts[0].quantize(self.dtype(), *channels, &parts[1], parts.get(2))
            }
            WeightExpr::Dequantize(parts, channels) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                parts[0].dequantize(*channels, &parts[1], parts.get(2))
            }
            WeightExpr::Fitted(parts, fit, part) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                parts[0].fitted(*fit, parts.get(1), *part)
            }
            WeightExpr::FlipSign(of) => f(of)?.flip_sign(),
            WeightExpr::Bytes(of) => f(of)?.as_bytes(self.shape()),
            WeightExpr::Scale(parts, axis) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                parts[0].scale(*axis, &parts[1])
            }
            WeightExpr::InverseNorms(of, axis) => f(of)?.inverse_norms(*axis),
            WeightExpr::PlusProduct(parts) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                parts[0].plus_product(&parts[1], &parts[2])
            }
            WeightExpr::Unpack(parts, packing) => {
                let parts = parts.iter().map(f).collect::<Option<Vec<_>>>()?;
                Self::unpack(&parts, *packing, self.dtype(), self.shape())
            }
        }
    }

    /// Calls `f` on each weight that this one is made of and that is not a transform itself, in order.
    pub fn visit_leaves(&self, f: &mut dyn FnMut(&Weight)) {
        match self.expr().children() {
            [] => f(self),
            children => children.iter().for_each(|child| child.visit_leaves(f)),
        }
    }
}
