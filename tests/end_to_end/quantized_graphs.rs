//! Graphs that others quantized: codes, scales and zero points stay what they are, in the form of each target.

use std::fs;
use std::path::{Path, PathBuf};

use planish_onnx::proto::{
    AttributeProto, DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use planish_testing::onnx::{f32, floats, graph, int, model, node};
use prost::Message;

use crate::support::{planish_compile, repository, scratch};

/// The codes of a weight [4, 2], and the same less 128.
const CODES: [u8; 8] = [129, 127, 131, 0, 133, 134, 255, 136];
const SIGNED: [u8; 8] = [1, 255, 3, 128, 5, 6, 127, 8];

/// The bytes of numbers.
fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn constant(name: &str, elements: DataType, dims: &[i64], raw: &[u8]) -> TensorProto {
    let raw_data = raw.to_vec().into();
    TensorProto {
        name: name.to_owned(),
        data_type: elements.into(),
        dims: dims.to_vec(),
        raw_data,
        ..TensorProto::default()
    }
}

fn write(path: PathBuf, nodes: Vec<NodeProto>) -> PathBuf {
    let constants = vec![
        floats("s", &[], &[0.03125]),
        constant("z", DataType::Uint8, &[], &[128]),
        constant("w", DataType::Uint8, &[4, 2], &CODES),
        floats("ws", &[2], &[0.3, 0.7]),
        constant("wz", DataType::Uint8, &[2], &[128, 128]),
        constant("bias", DataType::Int32, &[2], &[[10u8, 0, 0, 0], [246, 255, 255, 255]].concat()),
        floats("bs", &[2], &[0.009375, 0.021875]),
        floats("bs0", &[], &[0.0625]),
        floats("b", &[2], &[0.25, -0.5]),
    ];
    let mut graph: GraphProto = graph(vec![f32("x", "batch, 4")], constants, nodes, &[]);
    graph.output = vec![f32("y", "batch, 2")];
    let mut model: ModelProto = model(19, graph);
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".to_owned(), version: 1 });
    fs::write(&path, model.encode_to_vec()).unwrap();
    path
}

/// A layer between QuantizeLinear and DequantizeLinear.
fn pairs(folder: &Path) -> PathBuf {
    let along = |axis| vec![int("axis", axis)];
    let nodes = vec![
        node("c = QuantizeLinear(x, s, z)", vec![]),
        node("q = DequantizeLinear(c, s, z)", vec![]),
        node("f = DequantizeLinear(w, ws, wz)", along(1)),
        node("v = DequantizeLinear(bias, bs)", along(0)),
        node("m = MatMul(q, f)", vec![]),
        node("y = Add(m, v)", vec![]),
    ];
    write(folder.join("pairs.onnx"), nodes)
}

/// A graph that was compiled, with its constants at hand.
struct Compiled(GraphProto);

impl Compiled {
    fn of(source: &Path, target: &str, options: &[&str]) -> Self {
        let out = source.with_extension(format!("{target}-artifact"));
        let done = planish_compile(source, &out, &[&["--target", target], options].concat());
        // Without the library of TensorRT the ONNX graph is kept, and the engine is missing.
        done.exits(if target == "trt" { 4 } else { 0 }, &[]);
        let model = ModelProto::decode(&fs::read(out.join("model.onnx")).unwrap()[..]).unwrap();
        Self(model.graph.unwrap())
    }

    fn operators(&self) -> Vec<&str> {
        self.0.node.iter().map(|node| node.op_type.as_str()).collect()
    }

    /// The bytes of the constant that is an operand of the first operator of a name that has constants as such.
    fn operand(&self, operator: &str, index: usize) -> Vec<u8> {
        let mut nodes = self.0.node.iter().filter(|node| node.op_type == operator);
        let named = |name: &String| self.0.initializer.iter().find(|tensor| tensor.name == *name);
        nodes.find_map(|node| node.input.get(index).and_then(named)).unwrap().raw_data.to_vec()
    }
}

#[test]
fn the_codes_of_a_layer_are_multiplied_as_they_are() {
    let folder = scratch();
    let source = pairs(folder.path());
    let compiled = Compiled::of(&source, "ort", &["--verify"]);
    assert_eq!(compiled.operators(), ["QuantizeLinear", "MatMulIntegerToFloat"]);
    let operand = |index| compiled.operand("MatMulIntegerToFloat", index);
    assert_eq!(operand(1), CODES);
    assert_eq!([operand(2), operand(3)], [bytes(&[0.03125]), bytes(&[0.3, 0.7])]);
    assert_eq!([operand(4), operand(5)], [vec![128], vec![128, 128]]);
    let quantize = |index| compiled.operand("QuantizeLinear", index);
    assert_eq!([quantize(1), quantize(2)], [bytes(&[0.03125]), vec![128]]);
}

#[test]
fn pairs_stay_pairs() {
    let folder = scratch();
    let source = pairs(folder.path());
    let compiled = Compiled::of(&source, "onnx", &["--verify"]);
    let mut operators = compiled.operators();
    operators.retain(|operator| operator.ends_with("Linear"));
    operators.sort_unstable();
    assert_eq!(operators, ["DequantizeLinear", "DequantizeLinear", "QuantizeLinear"]);
    let operand = |index| compiled.operand("DequantizeLinear", index);
    let of_weight = compiled.0.initializer.iter().any(|tensor| tensor.raw_data[..] == CODES);
    assert!(of_weight, "{:?}", compiled.0.initializer);
    assert_eq!([operand(1), operand(2)], [bytes(&[0.03125]), vec![128]]);
}

#[test]
fn unsigned_codes_become_signed_for_tensorrt() {
    let folder = scratch();
    let source = pairs(folder.path());
    let compiled = Compiled::of(&source, "trt", &["--runtime-option", "trt-lib=/nonexistent"]);
    let constants: Vec<&TensorProto> = compiled.0.initializer.iter().collect();
    assert!(constants.iter().all(|tensor| tensor.data_type != i32::from(DataType::Uint8)), "{constants:?}");
    let codes = constants.iter().find(|tensor| tensor.dims == [4, 2]).unwrap();
    assert_eq!(codes.raw_data[..], SIGNED);
    for tensor in
        constants.iter().filter(|tensor| tensor.data_type == i32::from(DataType::Int8) && tensor.dims != [4, 2])
    {
        assert!(tensor.raw_data.iter().all(|code| *code == 0), "{}", tensor.name);
    }
}

#[test]
fn what_onnx_runtime_quantizes_dynamically_is_one_operator() {
    let folder = scratch();
    let nodes = vec![
        node("c, cs, cz = DynamicQuantizeLinear(x)", vec![]),
        node("i = MatMulInteger(c, w, cz, wz)", vec![]),
        node("f = Cast(i)", vec![int("to", 1)]),
        node("scales = Mul(cs, ws)", vec![]),
        node("m = Mul(f, scales)", vec![]),
        node("y = Add(m, b)", vec![]),
    ];
    let source = write(folder.path().join("dynamic.onnx"), nodes);
    let compiled = Compiled::of(&source, "ort", &["--verify"]);
    assert_eq!(compiled.operators(), ["DynamicQuantizeMatMul"]);
    let operand = |index| compiled.operand("DynamicQuantizeMatMul", index);
    assert_eq!([operand(1), operand(2)], [CODES.to_vec(), bytes(&[0.3, 0.7])]);
    assert_eq!([operand(3), operand(4)], [vec![128, 128], bytes(&[0.25, -0.5])]);
}

#[test]
fn codes_between_operators_become_products_of_integers() {
    let folder = scratch();
    let source = folder.path().join("qop-bert.onnx");
    fs::copy(repository().join("fixtures/graphs-more/qop-bert.onnx"), &source).unwrap();
    let compiled = Compiled::of(&source, "ort", &["--verify"]);
    let count = |operator: &str| compiled.operators().iter().filter(|found| **found == operator).count();
    // Each of two layers has six, without their attention.
    assert_eq!([count("MatMulIntegerToFloat"), count("QLinearMatMul"), count("QLinearAdd")], [12, 0, 0]);
}

/// ONNX Runtime rounds the input of a product after DequantizeLinear to 8 bits; MatMulNBits says whether it does.
#[test]
fn the_input_of_a_layer_of_codes_alone_is_not_rounded() {
    let folder = scratch();
    for (name, dequantize) in [
        ("rows", node("f = DequantizeLinear(w, ws, wz)", vec![int("axis", 1)])),
        ("whole", node("f = DequantizeLinear(w, s, z)", vec![])),
    ] {
        let nodes = vec![dequantize, node("m = MatMul(x, f)", vec![]), node("y = Add(m, b)", vec![])];
        let source = write(folder.path().join(format!("{name}.onnx")), nodes);
        let level = |more: &[&str]| {
            let compiled = Compiled::of(&source, "ort", &[&["--verify", "--force"], more].concat());
            assert_eq!(compiled.operators(), ["MatMulNBits"], "{name}");
            let attributes = &compiled.0.node[0].attribute;
            attributes.iter().find(|attribute| attribute.name == "accuracy_level").unwrap().i
        };
        assert_eq!([level(&[]), level(&["--recipe", "accuracy-level=int8"])], [1, 4], "{name}");
        // A runtime of ONNX alone has no such operator.
        let compiled = Compiled::of(&source, "onnx", &["--verify"]);
        assert!(compiled.operators().contains(&"DequantizeLinear"), "{name}: {:?}", compiled.operators());
    }
}

/// A node of ONNX Runtime's own operators.
fn contrib(text: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "com.microsoft".to_owned(), ..node(text, attributes) }
}

#[test]
fn the_operators_of_onnx_runtime_become_layers() {
    let folder = scratch();
    let quantize = || node("c = QuantizeLinear(x, s, z)", vec![]);
    let forms: [(&str, Vec<NodeProto>); 4] = [
        ("alone", vec![contrib("y = DynamicQuantizeMatMul(x, w, ws, wz, b)", vec![])]),
        ("static", vec![quantize(), contrib("y = MatMulIntegerToFloat(c, w, s, ws, z, wz, b)", vec![])]),
        ("gemm", vec![quantize(), contrib("y = QGemm(c, s, z, w, ws, wz, bias)", vec![])]),
        (
            "codes",
            vec![
                quantize(),
                node("p = QLinearMatMul(c, s, z, w, ws, wz, s, z)", vec![]),
                contrib("d = QLinearAdd(p, s, z, p, s, z, bs0, z)", vec![]),
                node("y = DequantizeLinear(d, bs0, z)", vec![]),
            ],
        ),
    ];
    for (name, nodes) in forms {
        let source = write(folder.path().join(format!("{name}.onnx")), nodes);
        for target in ["ort", "onnx"] {
            let compiled = Compiled::of(&source, target, &["--verify"]);
            let product = match (target, name) {
                ("onnx", _) => "MatMul",
                (_, "alone") => "DynamicQuantizeMatMul",
                _ => "MatMulIntegerToFloat",
            };
            assert!(compiled.operators().contains(&product), "{name}, {target}: {:?}", compiled.operators());
            assert!(compiled.0.initializer.iter().any(|tensor| tensor.raw_data[..] == CODES), "{name}, {target}");
        }
    }
}
