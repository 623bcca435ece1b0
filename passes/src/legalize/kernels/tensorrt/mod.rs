//! What TensorRT's parser of ONNX files takes.

mod attention;
mod operators;

use planish_ir::ops::{Foreign, RESULT, Setting};
use planish_ir::{DType, Graph, Node, Op, Type, ValueId};

use super::Signature;
use super::tables::{missing, of_any_opset};
use crate::legalize::substitute::is_zero;
use operators::{COLLECTIVES, CONSTANTS, GROUPS, HELD, QUANTIZED, SCANNED, subject};

/// Why TensorRT takes no operator of a signature. Its parser reads every opset in the same way.
pub(crate) fn tensorrt(signature: &Signature, _: u32) -> Option<String> {
    let row = signature.row;
    // The Scan that the export writes; those of others pass through.
    let scanned = (row.mnemonic == "linear_attention").then_some(SCANNED);
    let exchanged = matches!(row.mnemonic, "all_reduce" | "all_gather").then_some(COLLECTIVES);
    let kernels = scanned.or(exchanged).or_else(|| row.onnx.and_then(types)).unwrap_or_default();
    of_any_opset(signature).or_else(|| {
        missing(signature, kernels, |operand| match operand {
            RESULT => row.own_types(RESULT).map(|_| kernels),
            operand => row.own_types(operand),
        })
    })
}

/// Why TensorRT does not hold an input or a weight.
pub(crate) fn tensorrt_value(graph: &Graph, value: ValueId) -> Option<String> {
    let quantized = graph.weight(value).is_some_and(|weight| QUANTIZED.contains(&weight.dtype()));
    let is_moved = |node: &Node| match &node.op {
        Op::Foreign(foreign) if foreign.is("DequantizeLinear") || foreign.is("QuantizeLinear") => false,
        op => op.operands().contains(&value),
    };
    let outside = || graph.outputs().iter().any(|output| output.value == value);
    if quantized && (outside() || graph.nodes().any(|(_, node)| is_moved(node))) {
        return Some("TensorRT takes constants of quantized types into DequantizeLinear only".to_owned());
    }
    if let Type::Unranked(_) = graph.type_of(value) {
        return Some("TensorRT needs its number of dimensions, which is unknown".to_owned());
    }
    unheld(graph.type_of(value))
}

/// Why TensorRT holds no value of a type.
fn unheld(ty: &Type) -> Option<String> {
    match ty {
        Type::Tensor(tensor) if tensor.shape.rank() > MOST_DIMENSIONS => {
            Some(format!("TensorRT has tensors of {MOST_DIMENSIONS} dimensions at most"))
        }
        Type::Tensor(_) | Type::Unranked(_) => {
            let dtype = ty.dtype().filter(|dtype| !HELD.contains(dtype))?;
            Some(match dtype {
                // The parser itself would read and compute float32 under a type that says float64.
                DType::F64 => "TensorRT computes float64 in float32".to_owned(),
                _ => format!("TensorRT has no element type {dtype}"),
            })
        }
        Type::Unknown => Some("TensorRT needs its element type, which is unknown".to_owned()),
        _ => Some(format!("TensorRT has tensors only, no {ty}")),
    }
}

/// The element types of an operator of ONNX; `None` where TensorRT does not have the operator, whatever its name is
/// spelled like.
fn types(operator: &str) -> Option<&'static [DType]> {
    let is_named = |name: &str| name.eq_ignore_ascii_case(operator);
    GROUPS.iter().find(|group| group.operators.split(' ').any(is_named)).map(|group| group.types)
}

/// Why TensorRT does not take an operator of the graph.
pub(crate) fn tensorrt_node(node: &Node) -> Option<String> {
    let Op::TopK(top_k) = &node.op else { return None };
    let most = top_k.k.as_constant().unwrap_or(0);
    (most > MOST_OF_TOP_K).then(|| format!("TensorRT has TopK of {MOST_OF_TOP_K} elements at most"))
}

/// Why TensorRT does not take an operator that passes through.
pub(crate) fn tensorrt_foreign(graph: &Graph, foreign: &Foreign) -> Option<String> {
    let operator = foreign.op.0.as_str();
    let Some(types) = types(operator) else { return Some(absent(operator)) };
    let node = Operator { graph, foreign };
    let dtype = match subject(operator) {
        Some(at) => node.operand(at).and_then(|value| graph.type_of(value).dtype()),
        None => foreign.results.0.iter().flatten().next().and_then(Type::dtype),
    };
    if let Some(dtype) = dtype.filter(|dtype| !types.contains(dtype)) {
        return Some(format!("TensorRT has no {operator} for {dtype}"));
    }
    let constants = CONSTANTS.iter().filter(|(operators, ..)| operators.split(' ').any(|name| name == operator));
    for (_, at, name) in constants {
        if !node.is_constant(*at) {
            return Some(format!("TensorRT needs a constant `{name}`"));
        }
    }
    let results = foreign.results.0.iter().flatten();
    node.limit().map(str::to_owned).or_else(|| results.filter_map(unheld).next())
}

/// Why there is no operator of a name.
fn absent(operator: &str) -> String {
    match operator {
        "If" | "Loop" | "Scan" => format!("{operator} has graphs inside, and graphs for TensorRT are flat"),
        "NonMaxSuppression" | "NonZero" | "RoiAlign" | "DeformConv" | "DFT" => {
            format!("{operator} is a plugin of TensorRT, and graphs are compiled without plugins")
        }
        _ => format!("TensorRT has no {operator}"),
    }
}

/// An operator that passes through.
struct Operator<'a> {
    graph: &'a Graph,
    foreign: &'a Foreign,
}

impl Operator<'_> {
    fn operand(&self, at: usize) -> Option<ValueId> {
        self.foreign.inputs.get(at).copied().flatten()
    }

    /// Whether an operand is a weight, or left out.
    fn is_constant(&self, at: usize) -> bool {
        self.operand(at).is_none_or(|value| self.graph.weight(value).is_some())
    }

    /// Whether an operand is an input of the graph.
    fn is_input(&self, at: usize) -> bool {
        self.operand(at).is_some_and(|value| self.graph.inputs().contains(&value))
    }

    /// The integers of a constant operand of 64 bits.
    fn integers(&self, at: usize) -> Option<Vec<i64>> {
        let weight = self.graph.weight(self.operand(at)?).filter(|weight| weight.dtype() == DType::I64)?;
        let bytes = weight.read().ok()?;
        bytes.chunks_exact(8).map(|chunk| chunk.try_into().ok().map(i64::from_le_bytes)).collect()
    }

    /// Whether all bytes of a constant operand are 0, or it is left out.
    fn is_zero(&self, at: usize) -> bool {
        self.operand(at).is_none_or(|value| is_zero(self.graph, value))
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.foreign.setting(name) {
            Some(Setting::Int(value)) => *value,
            _ => default,
        }
    }

    fn text(&self, name: &str, default: &'static str) -> &str {
        match self.foreign.setting(name) {
            Some(Setting::Bytes(bytes)) => std::str::from_utf8(bytes).unwrap_or(""),
            _ => default,
        }
    }

    /// Whether all of several integers are 1, or they are left out.
    fn ones(&self, name: &str) -> bool {
        match self.foreign.setting(name) {
            Some(Setting::Ints(values)) => values.iter().all(|value| *value == 1),
            _ => true,
        }
    }

    /// The number of dimensions of the first operand; 0 where it is unknown.
    fn rank(&self) -> usize {
        self.operand(0).map_or(0, |value| self.graph.ty(value).shape.rank())
    }

    /// How many results are there.
    fn results(&self) -> usize {
        self.foreign.results.0.iter().flatten().count()
    }

    /// What TensorRT does not take of an operator that it has.
    fn limit(&self) -> Option<&'static str> {
        let (limited, reason) = match self.foreign.op.0.as_str() {
            "Attention" => return attention::missing(self),
            "AveragePool" | "LpPool" if !self.ones("dilations") => (true, "TensorRT has no dilated pools"),
            "LpPool" if self.rank() < 4 => (true, "TensorRT has LpPool of two and three dimensions"),
            "MaxPool" if !self.ones("dilations") => (true, "TensorRT has no dilated pools"),
            "MaxPool" => (self.results() > 1, "TensorRT has no indices of MaxPool"),
            "LayerNormalization" => (self.results() > 1, "TensorRT gives the first result of LayerNormalization only"),
            "BatchNormalization" => (self.results() > 1, "TensorRT does not train"),
            "Dropout" => {
                let training = self.operand(2).is_some() && !self.is_zero(2);
                (training || self.results() > 1, "TensorRT does not train")
            }
            "DequantizeLinear" | "QuantizeLinear" => (!self.is_zero(2), "TensorRT has zero points of 0 only"),
            "LSTM" if self.int("input_forget", 0) != 0 => (true, "TensorRT has no coupled gates"),
            "GRU" | "LSTM" | "RNN" => (self.int("layout", 0) != 0, "TensorRT has layout 0 only"),
            "Mod" => {
                let is_float = self.operand(0).and_then(|v| self.graph.type_of(v).dtype()).is_some_and(DType::is_float);
                (is_float && self.int("fmod", 0) == 0, "TensorRT has Mod with fmod = 0 for integers only")
            }
            "Resize" if self.int("antialias", 0) != 0 => (true, "TensorRT does not resize with antialias"),
            "Resize" if self.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize" => {
                (true, "TensorRT does not crop when it resizes")
            }
            "Resize" => {
                let policy = self.text("keep_aspect_ratio_policy", "stretch");
                (policy != "stretch", "TensorRT stretches when it resizes")
            }
            "ScatterElements" | "ScatterND" => {
                (self.text("reduction", "none") != "none", "TensorRT scatters without a reduction only")
            }
            // An engine takes such an input with a profile of its values, and planish writes profiles of shapes.
            "Expand" | "Reshape" | "Tile" => (self.is_input(1), "TensorRT takes no input of the graph as a shape"),
            "ConstantOfShape" => (self.is_input(0), "TensorRT takes no input of the graph as a shape"),
            "TopK" => {
                let most = self.integers(1).and_then(|k| k.first().copied()).unwrap_or(0);
                (most > MOST_OF_TOP_K, "TensorRT has TopK of 3840 elements at most")
            }
            _ => return None,
        };
        limited.then_some(reason)
    }
}

/// The most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 8;

/// The largest K of TopK.
const MOST_OF_TOP_K: i64 = 3840;
