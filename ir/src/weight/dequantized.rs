//! Weights that are codes with scales, found after transforms that only move elements.

use super::{Channels, Weight, WeightExpr};

/// A weight that is codes with scales: element `x` is `(code - zero point) * scale` of its channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dequantized {
    /// The codes, of the shape of the weight.
    pub codes: Weight,
    /// The scales: of the shape that [`Channels::of`] gives, or one for all, `[]`.
    pub scales: Weight,
    /// Zero points of the shape of the scales, in the type of the codes; 0 where absent.
    pub zero_points: Option<Weight>,
    /// Which elements share a scale.
    pub channels: Channels,
}

impl Weight {
    /// The codes and scales that the weight is made of, where it is: transforms that only move elements, and conversion
    /// to another floating-point type, are applied to the codes and the scales.
    #[must_use]
    pub fn as_dequantized(&self) -> Option<Dequantized> {
        match self.expr() {
            WeightExpr::Dequantize(parts, channels) => Some(Dequantized {
                codes: parts[0].clone(),
                scales: parts[1].clone(),
                zero_points: parts.get(2).cloned(),
                channels: *channels,
            }),
            WeightExpr::Cast(of) if self.dtype().is_float() => {
                let of = of.as_dequantized()?;
                Some(Dequantized { scales: of.scales.cast(self.dtype())?, ..of })
            }
            WeightExpr::Transpose(of, perm) => of.as_dequantized()?.transpose(perm),
            WeightExpr::Gather(of, axis, indices) => of.as_dequantized()?.gather(*axis, indices),
            WeightExpr::Pad(of, value) if value.0 == 0.0 => of.as_dequantized()?.pad(self.shape()),
            WeightExpr::Concat(parts, axis) => {
                let parts: Vec<Dequantized> = parts.iter().map(Self::as_dequantized).collect::<Option<_>>()?;
                Dequantized::concat(&parts, *axis)
            }
            _ => None,
        }
    }

    /// The same numbers, each times 1, as an expression of which codes are no part: for weights whose codes no operator is to
    /// take. `None` for scalars and for types other than floats.
    #[must_use]
    pub fn without_codes(&self) -> Option<Self> {
        let rows = *self.shape().first()?;
        self.scale(0, &Self::numbers(self.dtype(), vec![rows], &vec![1.0; rows])?)
    }
}

impl Dequantized {
    fn is_whole(&self) -> bool {
        self.scales.shape().is_empty()
    }

    /// With other scales and zero points.
    fn with_scales(self, f: &dyn Fn(&Weight) -> Option<Weight>) -> Option<Self> {
        let zero_points = match &self.zero_points {
            Some(zeros) => Some(f(zeros)?),
            None => None,
        };
        Some(Self { scales: f(&self.scales)?, zero_points, ..self })
    }

    /// The dimensions permuted. `None` where `perm` is no permutation of them.
    #[must_use]
    pub fn transpose(self, perm: &[usize]) -> Option<Self> {
        let codes = self.codes.transpose(perm)?;
        if self.is_whole() {
            return Some(Self { codes, ..self });
        }
        let channels = self.channels.along(perm.iter().position(|p| *p == self.channels.axis())?);
        let turned = Self { codes, channels, ..self };
        match channels {
            Channels::Axis(_) => Some(turned),
            Channels::Blocks { .. } => turned.with_scales(&|w| w.transpose(perm)),
        }
    }

    fn gather(self, axis: usize, indices: &[usize]) -> Option<Self> {
        let codes = self.codes.gather(axis, indices)?;
        let of = Self { codes, ..self };
        match of.channels {
            _ if of.is_whole() => Some(of),
            Channels::Axis(own) if own == axis => of.with_scales(&|w| w.gather(0, indices)),
            Channels::Axis(_) => Some(of),
            // The blocks would mix.
            Channels::Blocks { axis: own, .. } if own == axis => None,
            Channels::Blocks { .. } => of.with_scales(&|w| w.gather(axis, indices)),
        }
    }

    /// Zeros appended up to a shape: codes of 0, with scales of 1 and zero points of 0 where they have scales of their own.
    fn pad(self, shape: &[usize]) -> Option<Self> {
        let axis = self.channels.axis();
        let grows = |i: usize| shape.get(i) != self.codes.shape().get(i);
        let own = |i: usize| match self.channels {
            _ if self.is_whole() => false,
            Channels::Axis(axis) => i == axis,
            // Elements that are appended to a block have its zero point.
            Channels::Blocks { size, .. } => i != axis || self.codes.shape()[axis].is_multiple_of(size),
        };
        if self.zero_points.is_some() && !(0..shape.len()).all(|i| !grows(i) || own(i)) {
            return None;
        }
        let of = Self { codes: self.codes.pad(shape, 0.0)?, ..self };
        if of.is_whole() {
            return Some(of);
        }
        let scales = of.channels.of(shape)?;
        let zero_points = match &of.zero_points {
            Some(zeros) => Some(zeros.pad(&scales, 0.0)?),
            None => None,
        };
        Some(Self { scales: of.scales.pad(&scales, 1.0)?, zero_points, ..of })
    }

    fn concat(parts: &[Self], axis: usize) -> Option<Self> {
        let (first, last) = (parts.first()?, parts.last()?);
        let join = |of: &dyn Fn(&Self) -> Option<Weight>, axis: usize| {
            Weight::concat(&parts.iter().map(of).collect::<Option<Vec<_>>>()?, axis)
        };
        let codes = join(&|p| Some(p.codes.clone()), axis)?;
        let alike =
            |p: &Self| (&p.scales, &p.zero_points, p.channels) == (&first.scales, &first.zero_points, first.channels);
        let shared = match first.channels {
            Channels::Axis(own) => own != axis || first.is_whole(),
            Channels::Blocks { .. } => false,
        };
        if parts.iter().all(alike) && shared {
            return Some(Self { codes, ..first.clone() });
        }
        let along = match first.channels {
            Channels::Axis(own) if own == axis => 0,
            Channels::Axis(_) => return None,
            // Only the last part may end within a block.
            Channels::Blocks { axis: own, size } if own == axis => {
                let whole = |p: &Self| p.codes.shape()[axis].is_multiple_of(size);
                parts.iter().all(|p| whole(p) || std::ptr::eq(p, last)).then_some(axis)?
            }
            Channels::Blocks { .. } => axis,
        };
        let joined = |p: &Self| {
            p.channels == first.channels && !p.is_whole() && p.zero_points.is_some() == first.zero_points.is_some()
        };
        parts.iter().all(joined).then_some(())?;
        let zero_points = match &first.zero_points {
            Some(_) => Some(join(&|p| p.zero_points.clone(), along)?),
            None => None,
        };
        Some(Self { codes, scales: join(&|p| Some(p.scales.clone()), along)?, zero_points, channels: first.channels })
    }
}
