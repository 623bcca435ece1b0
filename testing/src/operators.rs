//! Models of one operator of ONNX for each element type: given to a runtime, they show what it takes.

use std::fs;
use std::path::Path;

use planish_ir::{DType, Weight};
use planish_onnx::proto::{AttributeProto, AttributeType, DataType, ModelProto, TensorProto, TypeProto};
use planish_onnx::proto::{TensorTypeProto, ValueInfoProto};

use prost::Message;

use crate::onnx::{floats, graph, int, integers, ints, model, node, text, typed};

/// The element types that are tried.
pub const TYPES: &[(DType, DataType)] = &[
    (DType::Bool, DataType::Bool),
    (DType::I8, DataType::Int8),
    (DType::U8, DataType::Uint8),
    (DType::I16, DataType::Int16),
    (DType::I32, DataType::Int32),
    (DType::I64, DataType::Int64),
    (DType::F16, DataType::Float16),
    (DType::Bf16, DataType::Bfloat16),
    (DType::F32, DataType::Float),
    (DType::F64, DataType::Double),
];

/// A line for operators of the same operands: `OPERATORS | OPERANDS | ATTRIBUTES | RESULTS`.
///
/// An operand is an input, `TYPE:SIZES`; a constant of ones, `=TYPE:SIZES`; a vector of integers, `[1,2]`; an
/// integer, `(1)`; a vector of numbers, `<1,2>`; or left out, `-`. The type `T` is the one that is tried. Results are
/// of type `T` where none are given.
const OPERATORS: &str = "\
Abs Neg Sign Ceil Floor Round Reciprocal Exp Log Sqrt Erf Sin Cos Tan Sinh Cosh Tanh Asin Acos Atan Asinh Acosh Atanh | T:2,3
Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Shrink Sigmoid Softplus Softsign ThresholdedRelu | T:2,3
Hardmax LogSoftmax LpNormalization Softmax RandomNormalLike RandomUniformLike Identity Transpose EyeLike Not | T:2,3
IsInf IsNaN | T:2,3 | | bool
Shape Size | T:2,3 | | i64
Det Unique Trilu DynamicQuantizeLinear | T:3,3
Add Sub Mul Div Pow Min Max Mean Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor | T:2,3;T:2,3
Equal Greater GreaterOrEqual Less LessOrEqual | T:2,3;T:2,3 | | bool
Mod | T:2,3;T:2,3
Mod | T:2,3;T:2,3 | fmod=1
BitwiseNot | T:2,3
Where | bool:2,3;T:2,3;T:2,3
Cast | T:2,3 | to=1 | f32
CastLike | T:2,3;f32:1 | | f32
Clip | T:2,3;=T;=T
ArgMax ArgMin | T:2,3 | axis=1 | i64
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare | T:2,3;[1]
CumSum | T:2,3;(1)
TopK | T:2,9;[3] | | T i64
NonZero | T:2,3 | | i64
Concat | T:2,3;T:2,3 | axis=0
Expand | T:1,3;[2,3]
Reshape | T:2,3;[3,2]
Flatten | T:2,3,4
Squeeze | T:1,3;[0]
Unsqueeze | T:2,3;[0]
Tile | T:2,3;[2,1]
Slice | T:4,3;[1];[3];[0]
Split | T:4,3;[1,3] | axis=0 | T T
Pad | T:2,3;[0,1,0,1];=T
ReverseSequence | T:4,3;i64:3
Gather | T:4,3;i64:2
GatherElements | T:4,3;i64:2,3
GatherND | T:4,3;i64:2,1
ScatterElements | T:4,3;i64:2,3;T:2,3 | axis=0
ScatterElements | T:4,3;i64:2,3;T:2,3 | axis=0 reduction=add
ScatterND | T:4,3;i64:2,1;T:2,3
ScatterND | T:4,3;i64:2,1;T:2,3 | reduction=add
OneHot | i64:3;(5);T:2
ConstantOfShape | [2,3] | | T
Range | T:;T:;T:
Compress | T:6;bool:6 | axis=0
DepthToSpace | T:1,4,2,2 | blocksize=2
SpaceToDepth | T:1,1,4,4 | blocksize=2
CenterCropPad | T:4,4;[2,2]
Col2Im | T:1,5,5;[5,5];[1,5]
BitShift | T:2,3;T:2,3 | direction=LEFT
MatMul | T:2,3;T:3,4
Gemm | T:2,3;T:3,4;T:4
Einsum | T:2,3;T:3,4 | equation=ij,jk->ik
MatMulInteger | T:2,3;T:3,4 | | i32
Conv | T:1,2,8,8;=T:4,2,3,3
ConvTranspose | T:1,2,8,8;=T:2,4,3,3
AveragePool LpPool MaxPool | T:1,2,8,8 | kernel_shape=[2,2]
MaxPool | T:1,2,8,8 | kernel_shape=[2,2] dilations=[2,2]
LpPool | T:1,2,8 | kernel_shape=[2]
GlobalAveragePool GlobalLpPool GlobalMaxPool MeanVarianceNormalization | T:1,2,8,8
BatchNormalization | T:1,2,8,8;=T:2;=T:2;=T:2;=T:2
GroupNormalization | T:1,4,8,8;=T:2;=T:2 | num_groups=2
InstanceNormalization | T:1,2,8,8;=T:2;=T:2
LayerNormalization | T:2,3;=T:3;=T:3
LRN | T:1,4,8,8 | size=3
PRelu | T:2,3;=T:3
Dropout | T:2,3
GridSample | T:1,2,4,4;T:1,3,3,2
Resize | T:1,2,4,4;-;<1,1,2,2> | mode=linear
Resize | T:1,2,4,4;-;<1,1,2,2> | mode=linear antialias=1
RoiAlign | T:1,2,8,8;T:1,4;i64:1
NonMaxSuppression | T:1,6,4;T:1,1,6;(3) | | i64
QuantizeLinear | T:2,3;=f32;=i8 | | i8
DequantizeLinear | T:2,3;=f32 | | f32
STFT | T:1,32,1;(8);=T:16
DFT | T:1,8,1
Bernoulli | T:2,3
Multinomial | T:2,3 | | i32
LSTM | T:5,1,3;=T:1,16,3;=T:1,16,4 | hidden_size=4";

/// A model of one operator.
pub struct OperatorModel {
    /// A name of its own, e.g. `Mod-2-f32`: the operator, the line of the list, the element type.
    pub name: String,
    /// The operator's name in ONNX.
    pub operator: &'static str,
    /// The element type.
    pub dtype: DType,
    /// The model.
    pub model: ModelProto,
}

impl OperatorModel {
    /// Writes the model as `NAME.onnx`.
    pub fn write(&self, folder: &Path) {
        fs::write(folder.join(format!("{}.onnx", self.name)), self.model.encode_to_vec()).unwrap();
    }
}

/// Every model, at an opset.
pub fn operator_models(opset: i64) -> Vec<OperatorModel> {
    let mut all = Vec::new();
    for (line, row) in OPERATORS.lines().enumerate() {
        let fields: Vec<&'static str> = row.split('|').map(str::trim).collect();
        for operator in fields[0].split(' ') {
            for &(dtype, _) in TYPES {
                let name = format!("{operator}-{line}-{dtype}");
                all.push(OperatorModel { name, operator, dtype, model: one(operator, &fields, dtype, opset) });
            }
        }
    }
    all
}

fn one(operator: &str, fields: &[&str], dtype: DType, opset: i64) -> ModelProto {
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    let (mut inputs, mut initializers, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (at, operand) in field(1).split(';').enumerate() {
        let name = format!("i{at}");
        match operand.trim_matches(['[', ']', '(', ')', '<', '>', '=']) {
            _ if operand == "-" => {
                names.push("_".to_owned());
                continue;
            }
            inner if operand.starts_with('[') => {
                let values = numbers(inner);
                initializers.push(integers(&name, &[i64::try_from(values.len()).unwrap()], &values));
            }
            inner if operand.starts_with('(') => initializers.push(integers(&name, &[], &numbers(inner))),
            inner if operand.starts_with('<') => {
                let values: Vec<f32> = inner.split(',').map(|v| v.parse().unwrap()).collect();
                initializers.push(floats(&name, &[i64::try_from(values.len()).unwrap()], &values));
            }
            inner => {
                let (ty, sizes) = inner.split_once(':').unwrap_or((inner, ""));
                let (dtype, data_type) = element(ty, dtype);
                match operand.starts_with('=') {
                    true => initializers.push(constant(&name, dtype, data_type, &numbers(sizes), operator)),
                    false => inputs.push(typed(&name, data_type, sizes)),
                }
            }
        }
        names.push(name);
    }
    let results: Vec<&str> = if field(3).is_empty() { vec!["T"] } else { field(3).split(' ').collect() };
    let outputs: Vec<String> = (0..results.len()).map(|at| format!("o{at}")).collect();
    let call = format!("{} = {operator}({})", outputs.join(", "), names.join(", "));
    let mut attributes: Vec<AttributeProto> = field(2).split_whitespace().map(attribute).collect();
    if operator == "ConstantOfShape" {
        let (dtype, data_type) = element("T", dtype);
        let t = Some(constant("", dtype, data_type, &[1], operator));
        let name = "value".to_owned();
        attributes.push(AttributeProto { name, t, kind: AttributeType::Tensor.into(), ..AttributeProto::default() });
    }
    let mut graph = graph(inputs, initializers, vec![node(&call, attributes)], &[]);
    graph.output = outputs.iter().zip(results).map(|(name, ty)| output(name, element(ty, dtype).1)).collect();
    model(opset, graph)
}

/// An output of which the element type is declared.
fn output(name: &str, data_type: DataType) -> ValueInfoProto {
    let tensor = TensorTypeProto { elem_type: data_type.into(), shape: None };
    let ty = TypeProto { tensor_type: Some(tensor), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty) }
}

/// The type of a name; that which is tried for `T`.
fn element(name: &str, tried: DType) -> (DType, DataType) {
    let is_meant = |(dtype, _): &&(DType, DataType)| if name == "T" { *dtype == tried } else { dtype.name() == name };
    *TYPES.iter().find(is_meant).unwrap()
}

/// A constant of ones; of zeros as a zero point, which is an operand of `QuantizeLinear` in 8 bits.
fn constant(name: &str, dtype: DType, data_type: DataType, dims: &[i64], operator: &str) -> TensorProto {
    let value = if operator == "QuantizeLinear" && dtype == DType::I8 { 0.0 } else { 1.0 };
    let elements = usize::try_from(dims.iter().product::<i64>()).unwrap();
    let raw_data = Weight::scalar(dtype, value).read().unwrap().repeat(elements).into();
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type.into(),
        raw_data,
        ..TensorProto::default()
    }
}

fn attribute(pair: &str) -> AttributeProto {
    let (name, value) = pair.split_once('=').unwrap();
    match value.strip_prefix('[') {
        Some(list) => ints(name, &numbers(list.trim_end_matches(']'))),
        None => value.parse().map_or_else(|_| text(name, value), |value| int(name, value)),
    }
}

fn numbers(list: &str) -> Vec<i64> {
    list.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
}
