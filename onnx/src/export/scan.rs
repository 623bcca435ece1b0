//! Linear attention as a Scan over the tokens.

use planish_ir::ops::LinearAttention;
use planish_ir::{Dim, Type, ValueId};

use super::nodes::{int, ints, size};
use super::{Emitter, value_info};
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto};

/// The Scan of the results `y` and the last state. The decays are there or not, and so is `beta`.
pub(super) fn scan(e: &mut Emitter<'_>, op: &LinearAttention, [y, next]: [ValueId; 2]) -> Result<NodeProto, String> {
    let Some(state) = op.state else { return Err("legalization gives it a state".to_owned()) };
    let sizes = e.graph.ty(state).shape.clone();
    let known = |axis: usize| sizes.get(axis).and_then(Dim::as_constant).unwrap_or(0);
    let (key, value) = (known(2), known(3));
    let (groups, each) = (size(op.key_heads), size(op.heads / op.key_heads.max(1)));
    let result = e.name(y).to_owned();
    let mut body = Body { nodes: Vec::new(), prefix: result.clone() };
    let part = |e: &mut Emitter<'_>, value: Option<ValueId>, name: &str| {
        value.map(|value| (e.name(value).to_owned(), e.fresh(&format!("{result}/{name}"))))
    };
    let given = [
        part(e, Some(state), "before"),
        part(e, Some(op.q), "query"),
        part(e, Some(op.k), "key"),
        part(e, Some(op.v), "value"),
        part(e, op.decay, "decay"),
        part(e, op.beta, "beta"),
    ];
    let [before, query, keys, values, decay, beta] = given.clone().map(|part| part.map(|(_, name)| name));
    let (before, query) = (before.unwrap_or_default(), query.unwrap_or_default());
    let (keys, values) = (keys.unwrap_or_default(), values.unwrap_or_default());

    // [batch, groups, heads of a group, .., ..], where the heads of a group share queries and keys.
    let mut all = body.reshape(e, &before, &[0, groups, each, key, value]);
    let query = body.reshape(e, &query, &[0, groups, 1, 1, key]);
    let mut values = body.reshape(e, &values, &[0, groups, each, 1, value]);
    if let Some(decay) = decay {
        let by_element = op.decay.is_some_and(|decay| op.decays_by_element(&e.graph.ty(decay).shape));
        let kept = body.node(e, "Exp", vec![decay], Vec::new());
        let kept = body.reshape(e, &kept, &[0, groups, each, if by_element { key } else { 1 }, 1]);
        all = body.node(e, "Mul", vec![all, kept], Vec::new());
    }
    if let Some(beta) = beta {
        let row = body.reshape(e, &keys, &[0, groups, 1, 1, key]);
        let held = body.node(e, "MatMul", vec![row, all.clone()], Vec::new());
        let beta = body.reshape(e, &beta, &[0, groups, each, 1, 1]);
        let change = body.node(e, "Sub", vec![values, held], Vec::new());
        values = body.node(e, "Mul", vec![change, beta], Vec::new());
    }
    let column = body.reshape(e, &keys, &[0, groups, 1, key, 1]);
    let added = body.node(e, "Mul", vec![column, values], Vec::new());
    all = body.node(e, "Add", vec![all, added], Vec::new());
    let mut read = body.node(e, "MatMul", vec![query, all.clone()], Vec::new());
    if op.scale.0 != 1.0 {
        let dtype = e.graph.ty(y).dtype;
        let scale = e.number(dtype, op.scale.0).ok_or_else(|| format!("its scale is no number of {dtype}"))?;
        read = body.node(e, "Mul", vec![read, scale], Vec::new());
    }
    let read = body.reshape(e, &read, &[0, groups * each * value]);
    let after = body.reshape(e, &all, &[0, groups * each, key, value]);

    let tensor = Type::Unranked(e.graph.ty(y).dtype);
    let inputs: Vec<(String, String)> = given.into_iter().flatten().collect();
    let count = inputs.len() - 1;
    let graph = GraphProto {
        node: body.nodes,
        name: after.clone(),
        input: inputs.iter().map(|(_, name)| value_info(name, &tensor)).collect(),
        output: [&after, &read].map(|name| value_info(name, &tensor)).to_vec(),
        ..GraphProto::default()
    };
    let body = AttributeProto {
        name: "body".to_owned(),
        kind: AttributeType::Graph.into(),
        g: Some(graph),
        ..AttributeProto::default()
    };
    Ok(NodeProto {
        name: result.clone(),
        input: inputs.into_iter().map(|(name, _)| name).collect(),
        output: vec![e.name(next).to_owned(), result],
        op_type: "Scan".to_owned(),
        attribute: vec![
            body,
            int("num_scan_inputs", size(count)),
            ints("scan_input_axes", vec![1; count]),
            ints("scan_output_axes", vec![1]),
        ],
        ..NodeProto::default()
    })
}

/// The nodes of a graph inside a node, whose names are not those of the graph around it.
struct Body {
    nodes: Vec<NodeProto>,
    prefix: String,
}

impl Body {
    fn node(&mut self, e: &mut Emitter<'_>, op: &str, input: Vec<String>, attribute: Vec<AttributeProto>) -> String {
        let output = e.fresh(&format!("{}/{}", self.prefix, op.to_lowercase()));
        self.nodes.push(NodeProto {
            name: output.clone(),
            input,
            output: vec![output.clone()],
            op_type: op.to_owned(),
            attribute,
            ..NodeProto::default()
        });
        output
    }

    /// Another shape; a 0 keeps the size of the axis.
    fn reshape(&mut self, e: &mut Emitter<'_>, x: &str, shape: &[i64]) -> String {
        let shape = e.constant(shape);
        self.node(e, "Reshape", vec![x.to_owned(), shape], Vec::new())
    }
}
