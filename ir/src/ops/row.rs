//! What is known of an operator besides its types: a row of the table in [`super`].

use crate::DType::{self, Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// The facts of an operator.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The name in the text form.
    pub mnemonic: &'static str,
    /// The operator of ONNX's default domain that it is written as; `None` where passes replace it for every target that
    /// takes ONNX.
    pub onnx: Option<&'static str>,
    /// What passes know it as.
    pub kind: Kind,
    /// What it computes in where a graph is brought to half precision.
    pub precision: Precision,
    /// How large its results are.
    pub magnitude: Magnitude,
    /// How its floating-point operations are counted.
    pub operations: Operations,
    /// The element types that it is computed in.
    pub types: ElementTypes,
}

/// What passes know an operator as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in particular.
    Plain,
    /// Products with sums of many of them: what half precision is for.
    Product,
    /// Rows of a table.
    Lookup,
    /// Several operators in one, which only targets with kernels of their own run.
    Fused,
    /// An operator of ONNX as it came.
    PassesThrough,
}

/// What an operator computes in where a graph is brought to half precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// In half precision, unless an operand or the data says otherwise.
    Half,
    /// In float32: sums, exponentials, powers, and what rounding would decide.
    Single,
}

/// How large the results of an operator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// As large or as small as only float32 holds, as far as is known.
    Any,
    /// Of moderate size, or as far as can be said so, whatever the size of the operands: of operators that normalize or
    /// bound them, and of products, whose weights are small as a rule.
    Bounded,
    /// As large as those of the operand.
    Operand,
}

/// How the floating-point operations of an operator are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// So many for each floating-point element of the first result.
    Each(u64),
    /// One for each floating-point element of the first operand.
    Read,
    /// By a rule of its own, in the module `cost`.
    Own,
}

/// The element types that an operator is computed in: those of its [subject](Row::subject).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTypes {
    /// Those that ONNX admits at opset 17 and later (onnx/docs/Operators.md), or
    pub standard: &'static [DType],
    /// ... from this opset on.
    pub since: &'static [(DType, u32)],
    /// Those that ONNX Runtime 1.32.0 has CPU kernels for (fixtures/ort/cpu_kernels.csv, which a test compares).
    pub ort: &'static [DType],
    /// Those that ONNX Runtime documents CUDA kernels for (fixtures/ort/cuda_kernels.csv, likewise).
    pub ort_cuda: &'static [DType],
    /// The last opset of whose form ONNX Runtime documents a CUDA kernel, where that is before the last opset that is
    /// written. A kernel that names no last version takes no later form of its operator.
    pub cuda_until: Option<u32>,
    /// Those that runtimes of this project execute; none where these do not have the operator.
    pub native: &'static [DType],
    /// The operands, and as [`RESULT`] the result, whose element types are not the one of the subject. Other operands have
    /// that type, and other results the type that the operator gives them.
    pub own: &'static [(&'static str, &'static [DType])],
}

/// The name of the result in [`ElementTypes::own`].
pub const RESULT: &str = "result";

impl Row {
    /// The row of a mnemonic.
    #[must_use]
    pub fn of(mnemonic: &str) -> Option<&'static Row> {
        super::Op::rows().find(|row| row.mnemonic == mnemonic)
    }

    /// The element types of an operand, or of the [`RESULT`], where these are not the one of the subject.
    #[must_use]
    pub fn own_types(&self, operand: &str) -> Option<&'static [DType]> {
        self.types.own.iter().find(|(name, _)| *name == operand).map(|(_, types)| *types)
    }

    /// Which of some operands is the subject: the numbers that the operator works on, which are the first operand without
    /// types of its own. A `select` works on what it chooses from.
    #[must_use]
    pub fn subject<T>(&self, operands: &[(&'static str, T)]) -> Option<usize> {
        operands.iter().position(|(name, _)| self.own_types(name).is_none())
    }
}

pub(super) const ANY: &[DType] = &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
pub(super) const NUMBERS: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
pub(super) const SIGNED: &[DType] = &[I8, I16, I32, I64, F16, Bf16, F32, F64];
pub(super) const WITHOUT_HALVES: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F32, F64];
pub(super) const FLOATS: &[DType] = &[F16, Bf16, F32, F64];
pub(super) const WITHOUT_BF16: &[DType] = &[F16, F32, F64];
pub(super) const WIDE: &[DType] = &[F32, F64];
/// What layers compute in.
pub(super) const COMPUTED: &[DType] = &[F16, Bf16, F32];
pub(super) const INDICES: &[DType] = &[I32, I64];
pub(super) const BOOLEANS: &[DType] = &[Bool];
/// Integers of 32 bits and more, and floating-point numbers.
pub(super) const SUMMED: &[DType] = &[I32, I64, U32, U64, F16, Bf16, F32, F64];
pub(super) const SUMMED_BY_CUDA: &[DType] = &[I32, I64, U32, U64, F16, F32, F64];
pub(super) const SUMMED_BY_CPU: &[DType] = &[I32, I64, F32, F64];

/// No element types for any target: of operators that are always replaced.
pub(super) const NONE: ElementTypes =
    ElementTypes { standard: &[], since: &[], ort: &[], ort_cuda: &[], cuda_until: None, native: &[], own: &[] };

/// Of the operators that only runtimes of this project execute.
pub(super) const OF_LAYERS: ElementTypes = ElementTypes { native: COMPUTED, ..NONE };

/// Of collectives, which TensorRT has an operator for, and no standard.
pub(super) const COLLECTIVE: ElementTypes = ElementTypes { standard: COMPUTED, ..NONE };

/// The same for all targets.
pub(super) const fn all(types: &'static [DType]) -> ElementTypes {
    ElementTypes { standard: types, ort: types, ort_cuda: types, native: types, ..NONE }
}

/// Of operators that move elements of any type.
pub(super) const MOVED: ElementTypes = all(ANY);

/// Of `+`, `-`, `*` and `/`.
pub(super) const ARITHMETIC: ElementTypes = ElementTypes { ort: WITHOUT_HALVES, ..all(NUMBERS) };

pub(super) const COMPARISON: ElementTypes =
    ElementTypes { ort: WITHOUT_HALVES, ort_cuda: SUMMED_BY_CUDA, ..all(NUMBERS) };

/// Of functions of floating-point numbers.
pub(super) const FUNCTION: ElementTypes = ElementTypes { ort: WIDE, ..all(FLOATS) };

/// The same where the CUDA provider has no bfloat16.
pub(super) const FUNCTION_WITHOUT_BF16: ElementTypes = ElementTypes { ort_cuda: WITHOUT_BF16, ..FUNCTION };

/// Of products and norms.
pub(super) const LAYER: ElementTypes = ElementTypes { ort: WIDE, native: COMPUTED, ..all(FLOATS) };

/// Of the smaller and the larger of two elements.
pub(super) const EXTREME: ElementTypes =
    ElementTypes { ort: &[I8, I32, I64, U8, U32, U64, F16, F32, F64], ort_cuda: SUMMED, ..all(NUMBERS) };

/// Of sums along axes.
pub(super) const SUM: ElementTypes =
    ElementTypes { standard: SUMMED, ort: SUMMED_BY_CPU, ort_cuda: SUMMED_BY_CUDA, native: NUMBERS, ..NONE };

/// Of the smallest and the largest element along axes.
pub(super) const SMALLEST: ElementTypes = ElementTypes {
    standard: &[I8, I32, I64, U8, U32, U64, F16, Bf16, F32, F64],
    ort: &[I8, I32, I64, U8, F32, F64],
    cuda_until: Some(19),
    native: NUMBERS,
    ..NONE
};
