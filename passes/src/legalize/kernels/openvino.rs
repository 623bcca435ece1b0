//! What OpenVINO's reader of ONNX files knows.

use planish_ir::Graph;
use planish_ir::ops::Foreign;

use super::{MICROSOFT, Signature, tables};

/// Operators of ONNX that the reader does not know (fixtures/openvino/operators.csv).
const UNKNOWN: &[&str] = &[
    "Adagrad",
    "Adam",
    "ArrayFeatureExtractor",
    "Binarizer",
    "BitCast",
    "CastMap",
    "CategoryMapper",
    "CausalConvWithState",
    "ConcatFromSequence",
    "CumProd",
    "DeformConv",
    "Det",
    "DictVectorizer",
    "FeatureVectorizer",
    "FlexAttention",
    "Gradient",
    "ImageDecoder",
    "Imputer",
    "LabelEncoder",
    "LinearAttention",
    "LinearClassifier",
    "LinearRegressor",
    "MaxUnpool",
    "MelWeightMatrix",
    "Momentum",
    "Normalizer",
    "OneHotEncoder",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "RegexFullMatch",
    "SVMClassifier",
    "SVMRegressor",
    "Scaler",
    "SequenceConstruct",
    "SequenceErase",
    "SequenceLength",
    "SequenceMap",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "SwiGLU",
    "TensorScatter",
    "TfIdfVectorizer",
    "TreeEnsemble",
    "ZipMap",
];

/// NVIDIA's operator of several ranks, which is none of ONNX.
const COLLECTIVE: &str = "DistCollective";

/// Operators of ONNX Runtime's own domain that the reader knows.
const OWN: &[&str] = &[
    "Attention",
    "BiasAdd",
    "BiasGelu",
    "BifurcationDetector",
    "DequantizeLinear",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "EmbedLayerNormalization",
    "FastGelu",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "GatherBlockQuantized",
    "GatherND",
    "Gelu",
    "GroupNorm",
    "GroupQueryAttention",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "MultiHeadAttention",
    "Pad",
    "QLinearAdd",
    "QLinearAveragePool",
    "QLinearConcat",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearReduceMean",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QLinearWhere",
    "QuantizeLinear",
    "QuickGelu",
    "Range",
    "RotaryEmbedding",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "Trilu",
];

/// Why OpenVINO has no operator for a signature. It takes every type that ONNX has for these, and computes many in another one.
pub(crate) fn openvino(signature: &Signature, opset: u32) -> Option<String> {
    if signature.row.onnx == Some(COLLECTIVE) {
        return Some("no kernel".to_owned());
    }
    tables::standard(signature, opset)
}

/// Why OpenVINO cannot read an operator that passes through, or one in its graphs.
pub(crate) fn openvino_foreign(_: &Graph, foreign: &Foreign) -> Option<String> {
    let inner = foreign.inner.0.iter().map(|inner| (inner.op.as_str(), inner.domain.as_str()));
    let all = std::iter::once((foreign.op.0.as_str(), foreign.domain.0.as_str())).chain(inner);
    let is_unknown = |(op, domain): &(&str, &str)| match *domain {
        MICROSOFT => !OWN.contains(op),
        _ => UNKNOWN.contains(op),
    };
    let (op, _) = all.into_iter().find(is_unknown)?;
    Some(format!("OpenVINO's reader of ONNX files has no {op}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_what_the_reader_said() {
        let all = include_str!("../../../../fixtures/openvino/operators.csv");
        let of = |domain: &str, known: &str| -> Vec<&str> {
            let rows = all.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
            rows.filter(|row| row[0] == domain && row[2] == known).map(|row| row[1]).collect()
        };
        assert_eq!(of("ai.onnx", "no"), UNKNOWN);
        assert_eq!(of("com.microsoft", "yes"), OWN);
    }
}
