//! The forms of expressions of weights, and their grammar.

use crate::named::named;

named! {
    /// An expression of a weight, by the name that it begins with in the text form.
    Form {
        /// A byte range of a file.
        Stored = "stored",
        /// Numbers in memory.
        Dense = "dense",
        /// Text in memory.
        Text = "text",
        /// Bytes in memory.
        Hex = "hex",
        /// Pseudo-random numbers.
        Uniform = "uniform",
        /// Dimensions permuted.
        Transpose = "transpose",
        /// Elements in another type.
        Cast = "cast",
        /// Elements under another shape.
        Reshape = "reshape",
        /// Weights after each other.
        Concat = "concat",
        /// A number appended at the ends of dimensions.
        Pad = "pad",
        /// Slices of an axis.
        Gather = "gather",
        /// Elements times factors of their index along an axis.
        Scale = "scale",
        /// One over the norms of slices of an axis.
        InverseNorms = "inverse_norms",
        /// A matrix plus the product of two.
        PlusProduct = "plus_product",
        /// Codes of elements.
        Quantize = "quantize",
        /// Numbers that codes stand for.
        Dequantize = "dequantize",
        /// Scales that are fitted to a weight.
        FittedScales = "fitted_scales",
        /// Zero points of the same fit.
        FittedZeroPoints = "fitted_zero_points",
        /// Integers of the type with the other sign.
        FlipSign = "flip_sign",
        /// The bytes of elements.
        Bytes = "bytes",
        /// Codes or numbers out of a layout of weight files.
        Unpack = "unpack",
    }
}

impl Form {
    /// What is between the parentheses, in the notation of [`super::grammar`].
    pub(super) fn arguments(self) -> &'static str {
        match self {
            Form::Stored => r#"string ", " integer"#,
            Form::Dense => r#""[" [ number { ", " number } ] "]""#,
            Form::Text => r#""[" [ string { ", " string } ] "]""#,
            Form::Hex => "hex",
            Form::Uniform => "integer",
            Form::Transpose => r#"typed ", " integers"#,
            Form::Cast | Form::Reshape | Form::FlipSign | Form::Bytes => "typed",
            Form::Concat => r#""[" typed { ", " typed } "], " integer"#,
            Form::InverseNorms => r#"typed ", " integer"#,
            Form::Pad => r#"typed ", " number"#,
            Form::Gather => r#"typed ", " integer ", " integers"#,
            Form::Scale => r#""[" typed ", " typed "], " integer"#,
            Form::PlusProduct => r#""[" typed ", " typed ", " typed "]""#,
            Form::Quantize | Form::Dequantize => {
                r#""[" typed ", " typed [ ", " typed ] "], " integer [ ", " integer ]"#
            }
            Form::FittedScales | Form::FittedZeroPoints => {
                r#""[" typed [ ", " typed ] "], " dtype ", " integer ", " search [ ", negative" ]"#
            }
            Form::Unpack => r#""[" typed { ", " typed } "], " packing"#,
        }
    }
}
