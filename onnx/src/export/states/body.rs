//! Nodes that belong together.

use planish_ir::{DType, Type};

use crate::export::nodes::{int, ints, size};
use crate::export::{Emitter, value_info};
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto};

/// Nodes, whose names begin alike and are not those of others.
pub(super) struct Body {
    pub(super) nodes: Vec<NodeProto>,
    prefix: String,
}

impl Body {
    pub(super) fn new(prefix: &str) -> Self {
        Self { nodes: Vec::new(), prefix: prefix.to_owned() }
    }

    /// Appends a node, and gives the name of its result.
    pub(super) fn node(
        &mut self,
        e: &mut Emitter<'_>,
        op: &str,
        input: &[&str],
        attribute: Vec<AttributeProto>,
    ) -> String {
        let output = e.fresh(&format!("{}/{}", self.prefix, op.to_lowercase()));
        self.named(op, input, attribute, &output);
        output
    }

    /// Appends a node whose result has a name.
    pub(super) fn named(&mut self, op: &str, input: &[&str], attribute: Vec<AttributeProto>, output: &str) {
        self.nodes.push(NodeProto {
            name: output.to_owned(),
            input: input.iter().map(|name| (*name).to_owned()).collect(),
            output: vec![output.to_owned()],
            op_type: op.to_owned(),
            attribute,
            ..NodeProto::default()
        });
    }

    /// A node without attributes.
    pub(super) fn plain(&mut self, e: &mut Emitter<'_>, op: &str, input: &[&str]) -> String {
        self.node(e, op, input, Vec::new())
    }

    /// Another shape; a 0 keeps the size of the axis.
    pub(super) fn reshape(&mut self, e: &mut Emitter<'_>, x: &str, shape: &[i64]) -> String {
        let shape = e.constant(shape);
        self.plain(e, "Reshape", &[x, &shape])
    }

    pub(super) fn transpose(&mut self, e: &mut Emitter<'_>, x: &str, perm: &[i64]) -> String {
        self.node(e, "Transpose", &[x], vec![ints("perm", perm.to_vec())])
    }
}

/// What a Scan goes over.
pub(super) struct Scan<'a> {
    pub(super) dtype: DType,
    /// The axis of inputs and of results.
    pub(super) axis: i64,
    /// The state before, and its name in the body.
    pub(super) state: [&'a str; 2],
    /// Values, and the names of their parts in the body.
    pub(super) over: &'a [[String; 2]],
    /// The state after, and what all rounds give, in the body.
    pub(super) results: [&'a str; 2],
    /// Their names outside.
    pub(super) outputs: [String; 2],
}

impl Scan<'_> {
    /// The node.
    pub(super) fn with(self, body: Body) -> NodeProto {
        let tensor = Type::Unranked(self.dtype);
        let before = std::iter::once(self.state[1]);
        let names = before.chain(self.over.iter().map(|[_, name]| name.as_str()));
        let graph = GraphProto {
            node: body.nodes,
            name: self.results[0].to_owned(),
            input: names.map(|name| value_info(name, &tensor)).collect(),
            output: self.results.map(|name| value_info(name, &tensor)).to_vec(),
            ..GraphProto::default()
        };
        let body = AttributeProto {
            name: "body".to_owned(),
            kind: AttributeType::Graph.into(),
            g: Some(graph),
            ..AttributeProto::default()
        };
        let count = self.over.len();
        let outside = self.over.iter().map(|[value, _]| value.clone());
        NodeProto {
            name: self.outputs[1].clone(),
            input: std::iter::once(self.state[0].to_owned()).chain(outside).collect(),
            output: self.outputs.to_vec(),
            op_type: "Scan".to_owned(),
            attribute: vec![
                body,
                int("num_scan_inputs", size(count)),
                ints("scan_input_axes", vec![self.axis; count]),
                ints("scan_output_axes", vec![self.axis]),
            ],
            ..NodeProto::default()
        }
    }
}
