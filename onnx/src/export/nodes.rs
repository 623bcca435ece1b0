//! The ONNX form of each operator (onnx/docs/Operators.md).

use bytes::Bytes;
use planish_ir::ops::{Attention, Foreign, GeluForm, MaskedSoftmax, ReduceKind};
use planish_ir::{DType, Node, Op, ValueId};

use super::dims::indices;
use super::reshape::reshape;
use super::{Emitter, NoForm, data_type, foreign, states};
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, ValueInfoProto};

/// An integer attribute.
pub(super) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, kind: AttributeType::Int.into(), ..AttributeProto::default() }
}

/// An attribute of several integers.
pub(super) fn ints(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ints, kind: AttributeType::Ints.into(), ..AttributeProto::default() }
}

fn float(name: &str, value: f64) -> AttributeProto {
    // Attributes are binary32 in the format.
    let f = value as f32;
    AttributeProto { name: name.to_owned(), f, kind: AttributeType::Float.into(), ..AttributeProto::default() }
}

pub(super) fn string(name: &str, text: &'static str) -> AttributeProto {
    let s = Bytes::from_static(text.as_bytes());
    AttributeProto { name: name.to_owned(), s, kind: AttributeType::String.into(), ..AttributeProto::default() }
}

/// A count as ONNX writes it.
pub(super) fn size(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What a node is made of, besides its results.
pub(super) struct Form {
    op: &'static str,
    inputs: Vec<String>,
    attributes: Vec<AttributeProto>,
}

pub(super) fn form(op: &'static str, inputs: Vec<String>, attributes: Vec<AttributeProto>) -> Form {
    Form { op, inputs, attributes }
}

/// Appends the node for an operator.
pub(super) fn emit(emitter: &mut Emitter<'_>, node: &Node) -> Result<(), NoForm> {
    if let Op::Foreign(foreign) = &node.op {
        return pass_through(emitter, node, foreign);
    }
    let first = node.outputs[0];
    if let (Op::LinearAttention(op), &[y, next]) = (&node.op, &node.outputs[..]) {
        let appended = states::emit(emitter, op, [y, next]);
        return appended.map_err(|reason| no_form(emitter, node.op.mnemonic(), first, reason));
    }
    let Form { op, inputs, attributes } =
        lower(emitter, &node.op, first).map_err(|reason| no_form(emitter, node.op.mnemonic(), first, reason))?;
    let output: Vec<String> = node.outputs.iter().map(|v| emitter.name(*v).to_owned()).collect();
    emitter.nodes.push(NodeProto {
        name: output[0].clone(),
        input: inputs,
        output,
        op_type: op.to_owned(),
        attribute: attributes,
        ..NodeProto::default()
    });
    Ok(())
}

fn no_form(emitter: &Emitter<'_>, op: &str, result: ValueId, reason: String) -> NoForm {
    let value = emitter.graph.value(result);
    NoForm { op: op.to_owned(), name: value.name.clone(), origin: value.origin.clone(), reason }
}

/// Appends the node for an operator that passes through, results that are left out included.
fn pass_through(emitter: &mut Emitter<'_>, node: &Node, op: &Foreign) -> Result<(), NoForm> {
    let mut given = node.outputs.iter().map(|v| emitter.name(*v).to_owned());
    let output = op.results.0.iter().map(|ty| ty.as_ref().and_then(|_| given.next()).unwrap_or_default()).collect();
    let first = node.outputs[0];
    let (before, mut proto) =
        foreign::nodes(emitter, op, output).map_err(|reason| no_form(emitter, &op.op.0, first, reason))?;
    proto.name = emitter.name(node.outputs[0]).to_owned();
    emitter.nodes.extend(before);
    emitter.nodes.push(proto);
    Ok(())
}

/// The form of an operator that has one, or why it has none.
fn lower(e: &mut Emitter<'_>, op: &Op, result: ValueId) -> Result<Form, String> {
    let name = |e: &Emitter<'_>, v: ValueId| e.name(v).to_owned();
    let not_legal = |instead: &str| Err(format!("legalization turns it into {instead}"));
    if op.is_fused() {
        return Err("only targets with kernels of their own run it".to_owned());
    }
    let Some(operator) = op.row().onnx else { return not_legal("other operators") };
    let form = |inputs, attributes| form(operator, inputs, attributes);
    Ok(match op {
        Op::Unary(p) => form(vec![name(e, p.x)], Vec::new()),
        Op::Binary(p) => form(vec![name(e, p.a), name(e, p.b)], Vec::new()),
        Op::Select(p) => form(vec![name(e, p.condition), name(e, p.a), name(e, p.b)], Vec::new()),
        Op::Cast(p) => form(vec![name(e, p.x)], vec![int("to", data_type(p.to).into())]),
        Op::Reduce(p) => {
            let (mut inputs, mut attributes) = (vec![name(e, p.x)], vec![int("keepdims", p.keep.into())]);
            // The axes of all but ReduceSum were an attribute before opset 18.
            if p.kind == ReduceKind::Sum || e.opset >= 18 {
                let axes: Vec<i64> = p.axes.iter().copied().map(size).collect();
                inputs.push(e.constant(&axes));
            } else {
                attributes.push(indices("axes", &p.axes));
            }
            form(inputs, attributes)
        }
        Op::CumSum(p) => {
            let axis = e.scalar(size(p.axis));
            form(vec![name(e, p.x), axis], Vec::new())
        }
        Op::Reshape(p) => reshape(e, p, result),
        Op::Transpose(p) => form(vec![name(e, p.x)], vec![indices("perm", &p.perm)]),
        Op::Slice(p) => {
            let (start, end, axis) = (e.dim(&p.start), e.dim(&p.end), e.constant(&[size(p.axis)]));
            form(vec![name(e, p.x), start, end, axis], Vec::new())
        }
        Op::Split(p) => {
            let sizes: Vec<i64> = p.sizes.iter().copied().map(size).collect();
            let sizes = e.constant(&sizes);
            form(vec![name(e, p.x), sizes], vec![int("axis", size(p.axis))])
        }
        Op::Concat(p) => form(p.parts.iter().map(|v| name(e, *v)).collect(), vec![int("axis", size(p.axis))]),
        Op::Expand(p) => {
            let shape = e.shape(&p.shape);
            form(vec![name(e, p.x), shape], Vec::new())
        }
        Op::Gather(p) => form(vec![name(e, p.x), name(e, p.indices)], vec![int("axis", size(p.axis))]),
        Op::Embedding(p) => form(vec![name(e, p.weight), name(e, p.ids)], vec![int("axis", 0)]),
        Op::Iota(p) => {
            if e.graph.ty(result).dtype != DType::I64 {
                return Err("only 64 bit integers have one".to_owned());
            }
            let (zero, end, one) = (e.scalar(0), e.dim_scalar(&p.length), e.scalar(1));
            form(vec![zero, end, one], Vec::new())
        }
        Op::Sizes(p) => {
            let sizes = e.shape(&p.of);
            form(vec![sizes], Vec::new())
        }
        Op::Linear(p) if e.graph.ty(p.x).shape.rank() == 2 => {
            let inputs = [Some(p.x), Some(p.weight), p.bias].into_iter().flatten().map(|v| name(e, v)).collect();
            form(inputs, vec![int("transB", i64::from(!p.transposed.0))])
        }
        Op::Linear(_) => return not_legal("one of a matrix"),
        Op::MatMul(p) => form(vec![name(e, p.a), name(e, p.b)], Vec::new()),
        Op::Conv(p) => {
            let inputs = [Some(p.x), Some(p.weight), p.bias].into_iter().flatten().map(|v| name(e, v)).collect();
            let kernel = e.graph.ty(p.weight).shape[2..].iter().filter_map(planish_ir::Dim::as_constant).collect();
            let attributes = vec![
                indices("dilations", &p.dilations),
                int("group", size(p.groups)),
                ints("kernel_shape", kernel),
                indices("pads", &p.pads),
                indices("strides", &p.strides),
            ];
            form(inputs, attributes)
        }
        Op::TopK(p) => {
            let k = e.dim(&p.k);
            let largest = i64::from(!p.smallest.0);
            form(vec![name(e, p.x), k], vec![int("axis", size(p.axis)), int("largest", largest), int("sorted", 1)])
        }
        Op::ArgMax(p) => {
            let last = i64::from(p.last.0);
            let attributes =
                vec![int("axis", size(p.axis)), int("keepdims", p.keep.into()), int("select_last_index", last)];
            form(vec![name(e, p.x)], attributes)
        }
        Op::Softmax(p) => form(vec![name(e, p.x)], vec![int("axis", -1)]),
        Op::MaskedSoftmax(p) => form(vec![name(e, p.masked)], branches(e, p, result)),
        Op::LayerNorm(p) => {
            let inputs = [Some(p.x), Some(p.weight), p.bias].into_iter().flatten().map(|v| name(e, v)).collect();
            form(inputs, vec![int("axis", -1), float("epsilon", p.eps.0)])
        }
        Op::RmsNorm(p) if e.opset >= 23 => {
            let inputs = vec![name(e, p.x), name(e, p.weight)];
            form(inputs, vec![int("axis", -1), float("epsilon", p.eps.0)])
        }
        Op::RmsNorm(_) => return not_legal("arithmetic before opset 23"),
        Op::Gelu(p) if e.opset >= 20 => {
            let approximate = match p.form {
                GeluForm::Erf => "none",
                GeluForm::Tanh => "tanh",
            };
            form(vec![name(e, p.x)], vec![string("approximate", approximate)])
        }
        Op::Gelu(_) => return not_legal("arithmetic before opset 20"),
        Op::Attention(p) => {
            let (inputs, attributes) = attention(e, p)?;
            form(inputs, attributes)
        }
        Op::AllReduce(p) => form(vec![name(e, p.x)], collective("all_reduce", "sum", p.ranks)),
        Op::AllGather(p) => form(vec![name(e, p.x)], collective("all_gather", "none", p.ranks)),
        Op::Rotary(_)
        | Op::CausalConv(_)
        | Op::LinearAttention(_)
        | Op::Experts(_)
        | Op::FakeQuantize(_)
        | Op::Quantize(_)
        | Op::QuantizedLinear(_)
        | Op::FusedLinear(_)
        | Op::Gated(_)
        | Op::AddNorm(_)
        | Op::EmbeddingNorm(_)
        | Op::RotaryAppend(_)
        | Op::Foreign(_) => return not_legal("other operators"),
    })
}

/// The attributes of TensorRT's node for collectives of all ranks.
fn collective(operation: &'static str, reduction: &'static str, ranks: usize) -> Vec<AttributeProto> {
    vec![
        string("collective_operation", operation),
        string("reduce_op", reduction),
        int("nb_rank", size(ranks)),
        // No groups: all ranks take part.
        int("group_size", 0),
        int("root", -1),
    ]
}

/// Attention as ai.onnx has it since opset 23: with what is left out as an addend.
fn attention(e: &Emitter<'_>, p: &Attention) -> Result<(Vec<String>, Vec<AttributeProto>), String> {
    let left_out = p.mask.is_some() || p.goes_by_position() || p.softcap.is_some();
    let cached = p.past_key.is_some() && p.present.0;
    if e.opset < 23 || left_out || !cached || e.graph.ty(p.k).shape.rank() != 3 {
        return Err("legalization turns it into products and a softmax, or into one with a cache and a bias".to_owned());
    }
    let operands = [Some(p.q), Some(p.k), Some(p.v), p.bias, p.past_key, p.past_value];
    let inputs = operands.into_iter().map(|v| v.map_or_else(String::new, |v| e.name(v).to_owned())).collect();
    let heads = [int("q_num_heads", size(p.heads)), int("kv_num_heads", size(p.kv_heads()))];
    Ok((inputs, [float("scale", p.scale.0)].into_iter().chain(heads).collect()))
}

/// The graphs of an `If` that adds a mask only where it leaves something out.
fn branches(e: &mut Emitter<'_>, op: &MaskedSoftmax, result: ValueId) -> Vec<AttributeProto> {
    let [x, addend, result] = [op.x, op.addend, result].map(|v| e.name(v).to_owned());
    let node = |op_type: &str, input: &[&String], output: &String, attribute| NodeProto {
        name: output.clone(),
        input: input.iter().copied().cloned().collect(),
        output: vec![output.clone()],
        op_type: op_type.to_owned(),
        attribute,
        ..NodeProto::default()
    };
    let softmax = |x: &String, output: &String| node("Softmax", &[x], output, vec![int("axis", -1)]);
    let branch = |name: &str, nodes: Vec<NodeProto>, output: String| AttributeProto {
        name: name.to_owned(),
        kind: AttributeType::Graph.into(),
        g: Some(GraphProto {
            node: nodes,
            name: output.clone(),
            output: vec![ValueInfoProto { name: output, ..ValueInfoProto::default() }],
            ..GraphProto::default()
        }),
        ..AttributeProto::default()
    };
    // Names in these graphs and around them are different ones.
    let [sum, masked, plain] = ["sum", "masked", "plain"].map(|part| e.fresh(&format!("{result}/{part}")));
    let then = vec![node("Add", &[&x, &addend], &sum, Vec::new()), softmax(&sum, &masked)];
    let otherwise = vec![softmax(&x, &plain)];
    vec![branch("then_branch", then, masked), branch("else_branch", otherwise, plain)]
}
