//! ONNX graphs of any number of nodes.

use clap::ValueEnum;
use planish_onnx::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// What a graph is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Elementwise operators in a row: no pass changes them, so each sees all of them.
    Chain,
    /// Layers of an encoder, written out as exporters do: raising makes each a dozen operators.
    Layers,
}

/// Features of a token: the weights are small, so that time is that of nodes.
const FEATURES: i64 = 8;

const HEADS: i64 = 2;

/// A graph of at least so many nodes: that many rounded up to whole layers.
pub(crate) fn model(kind: Kind, nodes: usize) -> ModelProto {
    let mut graph = Graph::default();
    let mut x = "x".to_owned();
    while graph.proto.node.len() < nodes {
        x = match kind {
            Kind::Chain => graph.link(&x),
            Kind::Layers => graph.layer(&x),
        };
    }
    let tokens = |name: &str| ValueInfoProto { name: name.to_owned(), r#type: Some(tokens()) };
    graph.proto.input = vec![tokens("x")];
    graph.proto.output = vec![tokens(&x)];
    ModelProto {
        ir_version: 9,
        graph: Some(graph.proto),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        ..ModelProto::default()
    }
}

/// f32[batch, sequence, FEATURES].
fn tokens() -> TypeProto {
    let size = |name: &str| DimensionValue::DimParam(name.to_owned());
    let dims = [size("batch"), size("sequence"), DimensionValue::DimValue(FEATURES)];
    let dim = dims.into_iter().map(|value| DimensionProto { value: Some(value) }).collect();
    let tensor = TensorTypeProto { elem_type: DataType::Float.into(), shape: Some(TensorShapeProto { dim }) };
    TypeProto { tensor_type: Some(tensor), ..TypeProto::default() }
}

#[derive(Default)]
struct Graph {
    proto: GraphProto,
}

impl Graph {
    /// One operator of a chain; what it gives keeps its size.
    fn link(&mut self, x: &str) -> String {
        match self.proto.node.len() % 4 {
            0 => self.node("Tanh", &[x]),
            1 => self.node("Sigmoid", &[x]),
            2 => self.node("Add", &[x, "x"]),
            _ => self.node("Neg", &[x]),
        }
    }

    /// A layer of an encoder with its norms after the sums.
    fn layer(&mut self, x: &str) -> String {
        let [q, k, v] = [(); 3].map(|()| self.linear(x, FEATURES, FEATURES));
        let [q, k, v] = [(&q, [0, 2, 1, 3]), (&k, [0, 2, 3, 1]), (&v, [0, 2, 1, 3])].map(|(x, perm)| {
            let shape = self.integers(&[0, 0, HEADS, FEATURES / HEADS]);
            let heads = self.node("Reshape", &[x, &shape]);
            self.with("Transpose", &[&heads], integers("perm", &perm))
        });
        let scores = self.node("MatMul", &[&q, &k]);
        let scores = self.scalar("Div", &scores, 2.0);
        let shares = self.with("Softmax", &[&scores], integer("axis", -1));
        let mixed = self.node("MatMul", &[&shares, &v]);
        let tokens = self.with("Transpose", &[&mixed], integers("perm", &[0, 2, 1, 3]));
        let shape = self.integers(&[0, 0, FEATURES]);
        let tokens = self.node("Reshape", &[&tokens, &shape]);
        let tokens = self.linear(&tokens, FEATURES, FEATURES);
        let sum = self.node("Add", &[&tokens, x]);
        let x = self.norm(&sum);
        let inner = self.linear(&x, FEATURES, 2 * FEATURES);
        let inner = self.gelu(&inner);
        let outer = self.linear(&inner, 2 * FEATURES, FEATURES);
        let sum = self.node("Add", &[&outer, &x]);
        self.norm(&sum)
    }

    fn linear(&mut self, x: &str, from: i64, to: i64) -> String {
        let (weight, bias) = (self.floats(&[from, to]), self.floats(&[to]));
        let product = self.node("MatMul", &[x, &weight]);
        self.node("Add", &[&bias, &product])
    }

    fn norm(&mut self, x: &str) -> String {
        let mean = |graph: &mut Self, x: &str| graph.with("ReduceMean", &[x], integers("axes", &[-1]));
        let average = mean(self, x);
        let centered = self.node("Sub", &[x, &average]);
        let square = self.scalar("Pow", &centered, 2.0);
        let variance = mean(self, &square);
        let variance = self.scalar("Add", &variance, 1e-5);
        let deviation = self.node("Sqrt", &[&variance]);
        let normal = self.node("Div", &[&centered, &deviation]);
        let (weight, bias) = (self.floats(&[FEATURES]), self.floats(&[FEATURES]));
        let scaled = self.node("Mul", &[&normal, &weight]);
        self.node("Add", &[&scaled, &bias])
    }

    fn gelu(&mut self, x: &str) -> String {
        let part = self.scalar("Div", x, std::f32::consts::SQRT_2);
        let part = self.node("Erf", &[&part]);
        let part = self.scalar("Add", &part, 1.0);
        let part = self.node("Mul", &[x, &part]);
        self.scalar("Mul", &part, 0.5)
    }

    fn scalar(&mut self, op: &str, x: &str, number: f32) -> String {
        let number = self.initializer(DataType::Float, &[], number.to_le_bytes().to_vec());
        self.node(op, &[x, &number])
    }

    fn node(&mut self, op: &str, inputs: &[&str]) -> String {
        self.push(op, inputs, Vec::new())
    }

    fn with(&mut self, op: &str, inputs: &[&str], attribute: AttributeProto) -> String {
        self.push(op, inputs, vec![attribute])
    }

    fn push(&mut self, op: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let name = format!("/encoder/layer/{op}_{}", self.proto.node.len());
        let output = format!("{name}_output_0");
        self.proto.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![output.clone()],
            name,
            op_type: op.to_owned(),
            attribute,
            ..NodeProto::default()
        });
        output
    }

    fn integers(&mut self, integers: &[i64]) -> String {
        let bytes = integers.iter().flat_map(|i| i.to_le_bytes()).collect();
        // A vector in memory has fewer than 2^63 elements.
        self.initializer(DataType::Int64, &[i64::try_from(integers.len()).unwrap_or(i64::MAX)], bytes)
    }

    /// Numbers from 0 to 1, not the same in two tensors.
    fn floats(&mut self, dims: &[i64]) -> String {
        let seed = self.proto.initializer.len();
        let count = dims.iter().product::<i64>();
        let bytes = (0..count).flat_map(|i| {
            let number = (seed as f32).mul_add(0.618_034, i as f32 * 0.414_214);
            number.fract().to_le_bytes()
        });
        self.initializer(DataType::Float, dims, bytes.collect())
    }

    fn initializer(&mut self, data_type: DataType, dims: &[i64], bytes: Vec<u8>) -> String {
        let name = format!("constant_{}", self.proto.initializer.len());
        self.proto.initializer.push(TensorProto {
            dims: dims.to_vec(),
            data_type: data_type.into(),
            name: name.clone(),
            raw_data: bytes.into(),
            ..TensorProto::default()
        });
        name
    }
}

fn integer(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, kind: AttributeType::Int.into(), ..AttributeProto::default() }
}

fn integers(name: &str, ints: &[i64]) -> AttributeProto {
    let (name, kind) = (name.to_owned(), AttributeType::Ints.into());
    AttributeProto { name, ints: ints.to_vec(), kind, ..AttributeProto::default() }
}
