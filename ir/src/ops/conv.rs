//! Convolution.

use super::infer::{self, OVERFLOW, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::{Dim, Shape, Symbol, TensorType, ValueId};

payload! {
    /// Each filter at each place of a window that moves over the spatial axes, plus the bias: ONNX's Conv. An axis has
    /// `floor((size + before + after - dilation * (kernel - 1) - 1) / stride) + 1` places.
    Conv = "conv" {
        operands {
            /// Floats, [batch, channels, spatial ..]: one spatial axis or more. Channels that are a symbol are those of the
            /// weight at run time.
            x: ValueId,
            /// [out, channels / groups, kernel ..], with known sizes.
            weight: ValueId,
            /// `[out]`.
            bias: Option<ValueId>,
        }
        attributes {
            /// The steps of the window, one for each spatial axis: at least 1.
            strides: Vec<usize>,
            /// The distances between what the window covers: at least 1.
            dilations: Vec<usize>,
            /// The zeros in front of each spatial axis, then those after each.
            pads: Vec<usize>,
            /// The number of groups, each of channels and filters of its own: at least 1.
            groups: usize,
            /// The spatial sizes of the result. Where a size has no polynomial form, it is a symbol, which the operator
            /// determines.
            sizes: Shape,
        }
    }
}

impl Conv {
    /// The places of a window of `kernel` elements along spatial axis `axis` of `size` elements; `None` where they have
    /// no polynomial form, or do not fit 64 bits.
    #[must_use]
    pub fn places(&self, axis: usize, size: &Dim, kernel: usize) -> Option<Dim> {
        let rank = self.strides.len();
        let signed = |n: usize| i64::try_from(n).ok();
        let stride = signed(*self.strides.get(axis)?).filter(|stride| *stride > 0)?;
        let padding = self.pads.get(axis)?.checked_add(*self.pads.get(axis + rank)?)?;
        let extent = kernel.checked_sub(1)?.checked_mul(*self.dilations.get(axis)?)?.checked_add(1)?;
        let room = size.checked_add(&Dim::constant(signed(padding)?.checked_sub(signed(extent)?)?))?;
        let steps = match room.as_constant() {
            Some(room) => Dim::constant(room.div_euclid(stride)),
            None => room.exact_div(&Dim::constant(stride))?,
        };
        steps.checked_add(&Dim::constant(1))
    }

    /// The same operator where all sizes are known: with the sizes of its result.
    #[must_use]
    pub fn resolved(&self, x: &Shape, weight: &Shape) -> Self {
        let kernel = |axis: usize| usize::try_from(weight.get(axis + 2)?.as_constant()?).ok();
        let size = |(axis, size): (usize, &Dim)| {
            let places = || self.places(axis, x.get(axis + 2)?, kernel(axis)?);
            if size.as_symbol().is_some() { places().unwrap_or_else(|| size.clone()) } else { size.clone() }
        };
        Self { sizes: Shape::new(self.sizes.iter().enumerate().map(size)), ..self.clone() }
    }

    /// The symbols that are sizes of the result, of which it may determine some.
    pub fn result_symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.sizes.iter().filter_map(Dim::as_symbol)
    }
}

impl TypeRule for Conv {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, weight) = (types.of(self.x), types.of(self.weight));
        infer::float("x", x)?;
        let rank = x.shape.rank();
        ensure(rank >= 3, || format!("`x` is {x}, expected a batch, channels and spatial dimensions"))?;
        infer::rank("weight", weight, rank)?;
        ensure(weight.dtype == x.dtype, || format!("`x` is {x} and `weight` is {weight}, expected one element type"))?;
        let spatial = rank - 2;
        let (given, pads) = ([self.strides.len(), self.dilations.len(), self.sizes.rank()], self.pads.len());
        ensure(given == [spatial; 3] && pads == 2 * spatial, || {
            format!("expected {spatial} strides, dilations and sizes, and {} pads", 2 * spatial)
        })?;
        let positive = |numbers: &[usize]| numbers.iter().all(|n| *n > 0);
        ensure(positive(&self.strides) && positive(&self.dilations) && self.groups > 0, || {
            "a stride, a dilation or the number of groups is 0".to_owned()
        })?;
        let groups = Dim::constant(i64::try_from(self.groups).map_err(|_| OVERFLOW)?);
        let channels = weight.shape[1].checked_mul(&groups).ok_or(OVERFLOW)?;
        let out = weight.shape[0].clone();
        let fits = x.shape[1].as_constant().is_none() || channels == x.shape[1];
        ensure(fits && out.exact_div(&groups).is_some(), || {
            format!("`x` is {x} and `weight` is {weight}, which do not fit {groups} groups")
        })?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), x.dtype, std::slice::from_ref(&out))?;
        }
        for (axis, size) in self.sizes.iter().enumerate() {
            let kernel = weight.shape[axis + 2].as_constant().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
            let kernel = kernel.ok_or_else(|| format!("`weight` is {weight}, expected filters of known sizes"))?;
            match self.places(axis, &x.shape[axis + 2], kernel) {
                Some(places) => ensure(places == *size && places.as_constant().is_none_or(|n| n >= 0), || {
                    format!("spatial axis {axis} has {places} places, and `sizes` says {size}")
                })?,
                None => ensure(size.as_symbol().is_some(), || {
                    format!("`sizes` says {size} of spatial axis {axis}, expected a symbol")
                })?,
            }
        }
        let dims = [x.shape[0].clone(), out].into_iter().chain(self.sizes.iter().cloned());
        infer::one(x.dtype, Shape::new(dims))
    }
}
