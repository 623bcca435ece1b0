//! The closed set of operators: one payload struct an operator (or family of operators that
//! differ in a kind), one file a group. [`Op`] is the enum of them all.
//!
//! To add an operator: a `payload!` in the file of its group with a `TypeRule`, a line in
//! `operators!` below, and its semantics in `eval`; the compiler then lists what is missing.

mod arith;
mod attention;
mod attribute;
mod conv;
mod experts;
mod foreign;
mod fused;
mod infer;
mod nn;
mod order;
mod payload;
mod quantize;
mod tensor;

pub use arith::{Binary, BinaryKind, Cast, CumSum, Reduce, ReduceKind, Select, Unary, UnaryKind};
pub use attention::{Attention, Rotary};
pub use attribute::{Attribute, Flag, Real};
pub use conv::Conv;
pub use experts::Experts;
pub use foreign::{Foreign, Inner, InnerOperators, Results, Setting, Settings, Text};
pub use fused::{Activation, AddNorm, EmbeddingNorm, FusedLinear, Gated, MAX_TABLES, NormKind, RotaryAppend};
pub use infer::{Types, broadcast};
pub use nn::{Embedding, Gelu, GeluForm, LayerNorm, Linear, MaskedSoftmax, MatMul, RmsNorm, Softmax};
pub use order::{ArgMax, TopK};
pub use payload::{Operand, Payload, TypeRule};
pub use quantize::{Columns, FakeQuantize, Quantize, QuantizedLinear};
pub use tensor::{Concat, Expand, Gather, Iota, Reshape, Sizes, Slice, Split, Transpose};

use payload::{ParseArguments, PrintArguments};
pub(crate) use payload::{payload_parse, payload_text};

use crate::{Dim, Symbol, Type, ValueId};

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An operator with its operands and attributes.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(payload: $name) -> Op { Op::$name(payload) }
        })*

        impl Op {
            /// What messages call it: its name in the text form, e.g. `linear`, or its name in ONNX where a graph only
            /// passes it through.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    Op::Foreign(foreign) => &foreign.op.0,
                    op => op.mnemonic(),
                }
            }

            /// The name in the text form, e.g. `linear`.
            #[must_use]
            pub fn mnemonic(&self) -> &'static str {
                match self { $(Op::$name(p) => p.mnemonic(),)* }
            }

            /// Every mnemonic, group by group.
            pub fn mnemonics() -> impl Iterator<Item = &'static str> {
                [$($name::mnemonics(),)*].concat().into_iter()
            }

            /// The names of the operands that an operator has or may have, by its mnemonic.
            #[must_use]
            pub fn operand_names(mnemonic: &str) -> Option<&'static [&'static str]> {
                $(if $name::mnemonics().contains(&mnemonic) {
                    return Some($name::operand_names());
                })*
                None
            }

            /// Calls `f` on each operand, in the order of the text form.
            pub fn visit_operands(&self, f: &mut dyn FnMut(ValueId)) {
                match self { $(Op::$name(p) => p.visit(f),)* }
            }

            /// Calls `f` on each operand, in the order of the text form, with the name of its field, e.g. `weight`.
            pub fn visit_named_operands(&self, f: &mut dyn FnMut(&'static str, ValueId)) {
                match self { $(Op::$name(p) => p.visit_named(f),)* }
            }

            /// Calls `f` on each operand to replace it.
            pub fn visit_operands_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
                match self { $(Op::$name(p) => p.visit_mut(f),)* }
            }

            /// Calls `f` on each dimension in the attributes.
            pub fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
                match self { $(Op::$name(p) => p.visit_dims(f),)* }
            }

            /// The types of the results, from those of the operands.
            ///
            /// # Errors
            /// When the operands do not fit the operator: what was expected and what is there.
            pub fn infer(&self, types: &Types<'_>) -> Result<Vec<Type>, String> {
                self.check_tensors(types)?;
                match self { $(Op::$name(p) => Ok(p.infer(types)?.into_iter().map(Type::from).collect()),)* }
            }

            pub(crate) fn print(&self, printer: &mut PrintArguments<'_>) {
                match self { $(Op::$name(p) => p.print(printer),)* }
            }

            pub(crate) fn parse(mnemonic: &str, arguments: &mut ParseArguments<'_>) -> Result<Op, String> {
                $(if $name::mnemonics().contains(&mnemonic) {
                    return $name::parse(mnemonic, arguments).map(Op::$name);
                })*
                Err(format!("unknown operator `{mnemonic}`"))
            }
        }
    };
}

operators! {
    /// One of the elementwise functions of one tensor.
    Unary,
    /// One of the elementwise functions of two tensors, with broadcast.
    Binary,
    /// Elementwise choice between two tensors.
    Select,
    /// Conversion of elements.
    Cast,
    /// Sum, mean or maximum over axes.
    Reduce,
    /// Running sum along an axis.
    CumSum,
    /// The same elements under another shape.
    Reshape,
    /// Dimensions permuted.
    Transpose,
    /// A range of one axis.
    Slice,
    /// One axis cut into parts.
    Split,
    /// Tensors after each other.
    Concat,
    /// Broadcast to a shape.
    Expand,
    /// Slices of a tensor picked by indices.
    Gather,
    /// Consecutive integers along an axis.
    Iota,
    /// Dimensions as a vector.
    Sizes,
    /// Product with a weight as stored, [out, in], plus bias.
    Linear,
    /// Batched matrix product.
    MatMul,
    /// Convolution over spatial axes.
    Conv,
    /// Feed-forward networks of which each token takes some.
    Experts,
    /// The largest elements along an axis, and where they are.
    TopK,
    /// Where the largest element along an axis is.
    ArgMax,
    /// Softmax along the last axis.
    Softmax,
    /// Softmax of a sum with a mask, or without it.
    MaskedSoftmax,
    /// Layer normalization over the last axis.
    LayerNorm,
    /// Root mean square normalization over the last axis.
    RmsNorm,
    /// Gaussian error linear unit.
    Gelu,
    /// Rows of a table picked by ids.
    Embedding,
    /// Multi-head scaled dot-product attention.
    Attention,
    /// Rotary position embedding.
    Rotary,
    /// Elements rounded to what codes of a quantized type stand for.
    FakeQuantize,
    /// Codes of elements.
    Quantize,
    /// A linear layer of codes, with an activation and a residual.
    QuantizedLinear,
    /// A linear layer with an activation and a residual.
    FusedLinear,
    /// The product of an activation and a tensor.
    Gated,
    /// The norm of a sum, and the sum.
    AddNorm,
    /// The norm of a sum of embeddings, and the sum.
    EmbeddingNorm,
    /// Rotary position embedding of queries and keys, behind what a cache holds.
    RotaryAppend,
    /// An operator of ONNX that none of these is.
    Foreign,
}

impl Op {
    /// The operands, in the order of the text form.
    #[must_use]
    pub fn operands(&self) -> Vec<ValueId> {
        let mut out = Vec::new();
        self.visit_operands(&mut |v| out.push(v));
        out
    }

    /// The symbols of results whose size the operator determines, unless inputs or operators in front of it do.
    pub fn determined_symbols(&self) -> impl Iterator<Item = &Symbol> {
        let (foreign, conv) = match self {
            Op::Foreign(p) => (Some(p.result_symbols()), None),
            Op::Conv(p) => (None, Some(p.result_symbols())),
            _ => (None, None),
        };
        foreign.into_iter().flatten().chain(conv.into_iter().flatten())
    }

    /// Whether it is several operators in one, which only targets with kernels of their own run.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        matches!(
            self,
            Op::FusedLinear(_)
                | Op::QuantizedLinear(_)
                | Op::Gated(_)
                | Op::AddNorm(_)
                | Op::EmbeddingNorm(_)
                | Op::RotaryAppend(_)
        )
    }

    /// Checks that operands are tensors of a known number of dimensions, but those of operators that pass through.
    pub(crate) fn check_tensors(&self, types: &Types<'_>) -> Result<(), String> {
        let mut result = Ok(());
        if !matches!(self, Op::Foreign(_)) {
            self.visit_operands(&mut |v| {
                result = std::mem::replace(&mut result, Ok(())).and_then(|()| types.tensor(v))
            });
        }
        result
    }
}
