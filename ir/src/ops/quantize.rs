//! Quantization of activations.

use super::attribute::{Attribute, Real};
use super::fused::Activation;
use super::infer::{self, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::text::syntax;
use crate::weight::{code_range, is_code};
use crate::{DType, Dim, TensorType, ValueId};

payload! {
    /// Elements as codes of a type stand for them: what a QuantizeLinear and the DequantizeLinear after it compute. A
    /// product with such an operand can compute with the codes.
    ///
    /// With a scale, element `x` of column `j` becomes `c * scale`, where `c` is `x / scale`, rounded to nearest even and
    /// limited to `n` times the codes of the type, less the zero point. `n` is 1 plus how often `split` has the column:
    /// its codes are spread over `n` columns of codes that are added up (Zhao et al. 2019, arXiv:1901.09504, split
    /// channels likewise).
    ///
    /// Without a scale, the scale and the zero point are those of ONNX's DynamicQuantizeLinear for the least and the
    /// largest element, 0 included. A column that `split` has is cut at `limit`: the first part is limited to
    /// [-limit, limit], so is each further one of the rest, and the last takes what is left. The parts take part in the
    /// least and the largest element, are quantized each for itself, and added up.
    ///
    /// It computes in f32 and rounds the result to the type of `x`.
    FakeQuantize = "fake_quantize" {
        operands {
            /// Floats, [.., columns].
            x: ValueId,
        }
        attributes {
            /// The type of the codes.
            to: DType,
            /// What a code of 1 stands for: more than 0. Computed from the elements where absent.
            scale: Option<Real>,
            /// The code of 0; 0 where absent. Only with a scale.
            zero_point: Option<i64>,
            /// The columns that have more than one column of codes, in ascending order, each as often as it has more
            /// than one.
            split: Columns,
            /// Where the columns of `split` are cut without a scale: more than 0.
            limit: Option<Real>,
        }
    }
}

impl FakeQuantize {
    /// With a scale, and nothing split.
    #[must_use]
    pub fn new(x: ValueId, to: DType, scale: f64, zero_point: i64) -> Self {
        let zero_point = Some(zero_point).filter(|zero| *zero != 0);
        Self { x, to, scale: Some(Real(scale)), zero_point, split: Columns::default(), limit: None }
    }

    /// With the scale of each run's elements, in u8.
    #[must_use]
    pub fn dynamic(x: ValueId) -> Self {
        Self { x, to: DType::U8, scale: None, zero_point: None, split: Columns::default(), limit: None }
    }
}

impl TypeRule for FakeQuantize {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        ensure(is_code(self.to), || format!("{} is not a type of codes", self.to))?;
        let positive = |value: Option<Real>| value.is_none_or(|v| v.0 > 0.0 && v.0.is_finite());
        ensure(positive(self.scale) && positive(self.limit), || "a scale or limit is not more than 0".to_owned())?;
        let zero = self.zero_point.unwrap_or(0);
        let range = code_range(self.to);
        let held = zero == 0 || range.is_some_and(|(least, largest)| (least..=largest).contains(&zero));
        ensure(held, || format!("the zero point {zero} is not a code of {}", self.to))?;
        if self.scale.is_none() {
            ensure(self.to == DType::U8 && self.zero_point.is_none(), || {
                "without a scale the codes are u8, and have no zero point".to_owned()
            })?;
        }
        ensure(self.split.0.is_empty() || range.is_some(), || format!("codes of {} cannot be split", self.to))?;
        let cut = !self.split.0.is_empty() && self.scale.is_none();
        ensure(cut == self.limit.is_some(), || "a limit is for columns that are split without a scale".to_owned())?;
        ensure(self.split.0.is_sorted(), || "`split` is not in ascending order".to_owned())?;
        if let Some(last) = self.split.0.last() {
            let columns = infer::last("x", x)?;
            let inside = columns.as_constant().is_some_and(|n| usize::try_from(n).is_ok_and(|n| *last < n));
            ensure(inside, || format!("`split` has column {last}, and `x` is {x}"))?;
        }
        Ok(vec![x.clone()])
    }
}

payload! {
    /// The codes of elements, i8: `x / scale`, computed in f32, rounded to nearest even and limited to the codes of i8. The
    /// code of NaN is 0. These are the codes that stand for the elements of a [`FakeQuantize`] to i8 with this scale.
    Quantize = "quantize" {
        operands {
            /// Floats.
            x: ValueId,
        }
        attributes {
            /// What a code of 1 stands for: more than 0.
            scale: Real,
        }
    }
}

impl TypeRule for Quantize {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        ensure(self.scale.0 > 0.0 && self.scale.0.is_finite(), || "the scale is not more than 0".to_owned())?;
        infer::one(DType::I8, x.shape.clone())
    }
}

payload! {
    /// `activation(x * weight^T * scales + bias) + residual`, of codes `x` and `weight`. Sums of products of codes are exact.
    QuantizedLinear = "quantized_linear" {
        operands {
            /// i8, [.., in].
            x: ValueId,
            /// i8, [out, in].
            weight: ValueId,
            /// What a sum of 1 stands for, for each output feature: f32, `[out]`.
            scales: ValueId,
            /// `[out]`, of the type of the result.
            bias: Option<ValueId>,
            /// Of the type and shape of the result.
            residual: Option<ValueId>,
        }
        attributes {
            /// The type of the result: floats.
            to: DType,
            /// The function of the product and the bias.
            activation: Activation,
        }
    }
}

impl QuantizedLinear {
    /// The most products of codes that a sum of 32 bits holds, whatever the codes are.
    pub const MAX_IN: usize = (i32::MAX as usize) / (128 * 128);
}

impl TypeRule for QuantizedLinear {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, weight) = (types.of(self.x), types.of(self.weight));
        ensure(x.dtype == DType::I8, || format!("`x` is {x}, expected codes of i8"))?;
        ensure(self.to.is_float(), || format!("the result is {}, expected floating-point numbers", self.to))?;
        infer::rank("weight", weight, 2)?;
        let inner = infer::last("x", x)?;
        let fits = |n| usize::try_from(n).is_ok_and(|n| n <= Self::MAX_IN);
        ensure(inner.as_constant().is_none_or(fits), || {
            format!("`x` is {x}: sums of more than {} products of codes do not fit 32 bits", Self::MAX_IN)
        })?;
        let out = weight.shape[0].clone();
        infer::same("weight", weight, DType::I8, &[out.clone(), inner])?;
        infer::same("scales", types.of(self.scales), DType::F32, std::slice::from_ref(&out))?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), self.to, std::slice::from_ref(&out))?;
        }
        let shape = x.shape.with_dim(x.shape.rank() - 1, out);
        if let Some(residual) = self.residual {
            infer::same("residual", types.of(residual), self.to, &shape)?;
        }
        infer::one(self.to, shape)
    }
}

/// Indices of columns, absent in the text where there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Columns(pub Vec<usize>);

impl Columns {
    /// How often a column is in it.
    #[must_use]
    pub fn count(&self, column: usize) -> usize {
        self.0.iter().filter(|c| **c == column).count()
    }
}

impl Attribute for Columns {
    fn form() -> (String, bool) {
        ("list of integers".to_owned(), true)
    }
    fn print(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| format!("{:?}", self.0))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::default()) };
        let one = |item: &String| item.parse().map_err(|_| format!("`{item}` is not the index of a column"));
        syntax::list(text)?.iter().map(one).collect::<Result<_, _>>().map(Self)
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
}
