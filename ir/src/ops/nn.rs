//! The high-level operators of transformers: `models` builds them directly,
//! raising recovers them, legalization lowers them.

use super::attribute::{Flag, Real};
use super::infer::{self, Types, broadcast, ensure};
use super::kinds::kinds;
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, Shape, TensorType, ValueId};

payload! {
    /// `x * weight^T + bias`: a fully connected layer with its weight as checkpoints store it.
    Linear = "linear" {
        operands {
            /// Floats, [.., in].
            x: ValueId,
            /// [out, in]; [in, out] where transposed.
            weight: ValueId,
            /// `[out]`.
            bias: Option<ValueId>,
        }
        attributes {
            /// Whether the weight is stored the other way round, as GPT-2 does, and the product
            /// is `x * weight`.
            transposed: Flag,
        }
    }
}

impl Linear {
    /// A layer whose weight is [out, in].
    #[must_use]
    pub fn new(x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Self {
        Self { x, weight, bias, transposed: Flag(false) }
    }
}

impl TypeRule for Linear {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, weight) = (types.of(self.x), types.of(self.weight));
        infer::float("x", x)?;
        infer::rank("weight", weight, 2)?;
        let inner = infer::last("x", x)?;
        let out = weight.shape[usize::from(self.transposed.0)].clone();
        let stored = if self.transposed.0 { [inner, out.clone()] } else { [out.clone(), inner] };
        infer::same("weight", weight, x.dtype, &stored)?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), x.dtype, std::slice::from_ref(&out))?;
        }
        infer::one(x.dtype, x.shape.with_dim(x.shape.rank() - 1, out))
    }
}

payload! {
    /// Matrix product of the last two dimensions, the others broadcast.
    MatMul = "matmul" {
        operands {
            /// Floats, [.., m, k].
            a: ValueId,
            /// Floats, [.., k, n].
            b: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for MatMul {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (a, b) = (types.of(self.a), types.of(self.b));
        infer::float("a", a)?;
        ensure(a.dtype == b.dtype, || format!("`a` is {a} and `b` is {b}, expected one element type"))?;
        ensure(a.shape.rank() >= 2 && b.shape.rank() >= 2, || {
            format!("`a` is {a} and `b` is {b}, expected at least 2 dimensions each")
        })?;
        let (batch_a, [m, k]) = matrix(&a.shape);
        let (batch_b, [inner, n]) = matrix(&b.shape);
        ensure(k == inner, || format!("`a` is {a} and `b` is {b}: {k} columns meet {inner} rows"))?;
        let batch = broadcast(&batch_a, &batch_b)?;
        infer::one(a.dtype, Shape::new(batch.iter().cloned().chain([m, n])))
    }
}

/// The leading dimensions and the last two, of a shape of at least two.
fn matrix(shape: &Shape) -> (Shape, [Dim; 2]) {
    let at = shape.rank() - 2;
    (Shape::new(shape[..at].to_vec()), [shape[at].clone(), shape[at + 1].clone()])
}

payload! {
    /// `e^(x - max) / sum(e^(x - max))` along the last axis.
    Softmax = "softmax" {
        operands {
            /// Floats, at least one dimension.
            x: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for Softmax {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        infer::last("x", x)?;
        Ok(vec![x.clone()])
    }
}

payload! {
    /// The softmax of `x + addend` where `masked` holds, and of `x` where it does not: scores that a mask need not be added
    /// to if it leaves nothing out.
    MaskedSoftmax = "masked_softmax" {
        operands {
            /// Floats, at least one dimension.
            x: ValueId,
            /// Of the type of `x`, and broadcasts to it.
            addend: ValueId,
            /// A boolean, [].
            masked: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for MaskedSoftmax {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, addend) = (types.of(self.x), types.of(self.addend));
        infer::float("x", x)?;
        infer::last("x", x)?;
        let fits = addend.dtype == x.dtype && broadcast(&addend.shape, &x.shape)? == x.shape;
        ensure(fits, || format!("`addend` is {addend}, expected what broadcasts to {x}"))?;
        infer::same("masked", types.of(self.masked), DType::Bool, &[])?;
        Ok(vec![x.clone()])
    }
}

payload! {
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis (Ba et al. 2016,
    /// arXiv:1607.06450), with the biased variance. Of half types too, mean, variance and all up to the
    /// result are computed in float32.
    LayerNorm = "layer_norm" {
        operands {
            /// Floats, [.., features].
            x: ValueId,
            /// `[features]`.
            weight: ValueId,
            /// `[features]`.
            bias: Option<ValueId>,
        }
        attributes {
            /// Added to the variance.
            eps: Real,
        }
    }
}

impl TypeRule for LayerNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        let features = [infer::last("x", x)?];
        infer::same("weight", types.of(self.weight), x.dtype, &features)?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), x.dtype, &features)?;
        }
        Ok(vec![x.clone()])
    }
}

payload! {
    /// `x / sqrt(mean(x^2) + eps) * weight` over the last axis (Zhang and Sennrich 2019,
    /// arXiv:1910.07467). Of half types too, the mean and all up to the result are computed in float32.
    RmsNorm = "rms_norm" {
        operands {
            /// Floats, [.., features].
            x: ValueId,
            /// `[features]`.
            weight: ValueId,
        }
        attributes {
            /// Added to the mean square.
            eps: Real,
        }
    }
}

impl TypeRule for RmsNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        infer::same("weight", types.of(self.weight), x.dtype, &[infer::last("x", x)?])?;
        Ok(vec![x.clone()])
    }
}

kinds! {
    /// How GELU is computed.
    GeluForm {
        /// `x / 2 * (1 + erf(x / sqrt(2)))`: the definition.
        Erf = "erf",
        /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`: what `gelu_new` names.
        Tanh = "tanh",
    }
}

payload! {
    /// The Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415). The result is that of
    /// float32, rounded, also of half types, within a few roundings of these.
    Gelu = "gelu" {
        operands {
            /// Floats.
            x: ValueId,
        }
        attributes {
            /// Which of the two formulas.
            form: GeluForm,
        }
    }
}

impl TypeRule for Gelu {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        Ok(vec![x.clone()])
    }
}

payload! {
    /// Rows of a table picked by ids. Ids are in range, `0 <= id < rows`, at run time.
    Embedding = "embedding" {
        operands {
            /// Floats, [rows, features].
            weight: ValueId,
            /// i32 or i64, any shape.
            ids: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for Embedding {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (weight, ids) = (types.of(self.weight), types.of(self.ids));
        infer::float("weight", weight)?;
        infer::rank("weight", weight, 2)?;
        ensure(matches!(ids.dtype, DType::I32 | DType::I64), || format!("`ids` is {ids}, expected i32 or i64"))?;
        infer::one(weight.dtype, Shape::new(ids.shape.iter().chain(&weight.shape[1..]).cloned()))
    }
}
