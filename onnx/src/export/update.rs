//! Nodes of one opset in the form of a later one: what was an attribute becomes an operand, and operators that
//! were replaced become what replaced them (onnx/docs/Changelog.md).

use planish_ir::DType;

use super::Emitter;
use super::nodes::{int, string};
use super::oldest::widened;
use crate::import::{dtype, is_default};
use crate::proto::{AttributeProto, GraphProto, NodeProto};

/// The opsets at which each operator of the default domain came or changed, `+` where only optional parts
/// were added (tools/onnx_versions.py).
const VERSIONS: &str = include_str!("../versions.csv");

/// What is known of a node's first operand: in graphs of nodes, the type at most.
#[derive(Clone, Copy, Default)]
pub(super) struct Operand {
    pub(super) dtype: Option<DType>,
    pub(super) rank: Option<usize>,
}

/// Gives a node of the default domain, and those in its graphs, the form of another opset; returns nodes that come
/// before it.
///
/// # Errors
/// When that has another operator of this name, and no form is known that means the same.
pub(super) fn update(
    e: &mut Emitter<'_>,
    node: &mut NodeProto,
    operand: Operand,
    from: usize,
    to: usize,
) -> Result<Vec<NodeProto>, String> {
    for graph in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
        update_graph(e, graph, from, to)?;
    }
    let changes = changes(&node.op_type)?;
    if let Some((v, _)) = changes.iter().find(|(v, _)| *v > to && *v <= from && !take_back(node, operand.dtype, *v)) {
        return Err(came(*v));
    }
    let mut before = Vec::new();
    for (since, added) in changes.into_iter().filter(|(v, _)| *v > from && *v <= to) {
        let known = step(e, node, operand, since, &mut before)?;
        if !known && !added {
            return Err(came(since));
        }
    }
    replaced(node, to);
    Ok(before)
}

/// An operator that another opset has another form of, and whether one can be chosen that helps.
pub(super) fn came(since: usize) -> String {
    let helps = since > usize::try_from(*crate::OPSETS.start()).unwrap_or(0);
    let hint = if helps { "; --opset chooses another" } else { "" };
    format!("it came or changed with opset {since}{hint}")
}

fn update_graph(e: &mut Emitter<'_>, graph: &mut GraphProto, from: usize, to: usize) -> Result<(), String> {
    for mut node in std::mem::take(&mut graph.node) {
        if is_default(&node.domain) {
            let dtype = node.input.first().and_then(|name| known_type(graph, name));
            let before = match dtype.map_or(0, |dtype| widened(&node, dtype)) {
                since if since > to && since <= from => Err(came(since)),
                _ => update(e, &mut node, Operand { dtype, rank: None }, from, to),
            };
            graph.node.extend(before.map_err(|why| format!("{} in its graph: {why}", node.op_type))?);
        }
        graph.node.push(node);
    }
    Ok(())
}

/// The type of a value in the graph of a node, where a constant, a cast before the node or the graph itself says it.
fn known_type(graph: &GraphProto, name: &str) -> Option<DType> {
    let of_node = |node: &NodeProto| {
        let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
        match node.op_type.as_str() {
            "Cast" => i32::try_from(attribute("to")?.i).ok(),
            "Constant" => attribute("value")?.t.as_ref().map(|tensor| tensor.data_type),
            _ => None,
        }
    };
    let constant = graph.initializer.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.data_type);
    let made = || graph.node.iter().find(|node| node.output.iter().any(|output| output == name)).and_then(of_node);
    let declared = || {
        let mut values = graph.input.iter().chain(&graph.value_info).chain(&graph.output);
        Some(values.find(|value| value.name == name)?.r#type.as_ref()?.tensor_type.as_ref()?.elem_type)
    };
    dtype(constant.or_else(made).or_else(declared)?).ok()
}

/// Takes away what an opset added to an operator, where that says nothing; `false` where it says something, or is not
/// known.
pub(super) fn take_back(node: &mut NodeProto, operand: Option<DType>, since: usize) -> bool {
    let mut drop = |names: &[&str], says_nothing: fn(&AttributeProto) -> bool| {
        let added = |a: &AttributeProto| names.contains(&a.name.as_str());
        let drops = node.attribute.iter().filter(|a| added(a)).all(says_nothing);
        if drops {
            node.attribute.retain(|a| !added(a));
        }
        drops
    };
    match (node.op_type.as_str(), since) {
        ("Attention", 24) => node.input.get(6).is_none_or(String::is_empty),
        ("Attention", 25) => drop(&["left_window_size", "right_window_size"], |window| window.i < 0),
        // It counts for half types alone, which earlier forms do not have.
        ("Range", 27) => match operand {
            Some(dtype) => drop(&["stash_type"], |_| true) && widened(node, dtype) < since,
            None => drop(&["stash_type"], |_| false),
        },
        ("SpaceToDepth", 28) => drop(&["mode"], |mode| mode.s == "DCR".as_bytes()),
        _ => false,
    }
}

/// The opsets at which an operator came or changed, and whether only optional parts were added.
pub(crate) fn changes(op: &str) -> Result<Vec<(usize, bool)>, String> {
    if op == "SimplifiedLayerNormalization" {
        // ONNX Runtime has it in the default domain at any opset.
        return Ok(vec![(1, false)]);
    }
    let line = VERSIONS.lines().skip(1).find_map(|line| line.split_once(',').filter(|(name, _)| *name == op));
    let (_, versions) = line.ok_or("it is not an operator of ONNX up to opset 28")?;
    let number = |text: &str| text.trim_end_matches('+').parse().ok();
    Ok(versions.split(' ').filter_map(|text| Some((number(text)?, text.ends_with('+')))).collect())
}

/// Takes a change; `false` where it is not known how.
fn step(
    e: &mut Emitter<'_>,
    node: &mut NodeProto,
    operand_type: Operand,
    since: usize,
    before: &mut Vec<NodeProto>,
) -> Result<bool, String> {
    let op = node.op_type.clone();
    match (op.as_str(), since) {
        ("Slice", 10) => {
            for (index, name) in [(1, "starts"), (2, "ends"), (3, "axes")] {
                operand(e, node, name, index);
            }
        }
        ("Pad", 11) => {
            operand(e, node, "pads", 1);
            number(e, node, operand_type, "value", 2, before)?;
        }
        ("Clip", 11) => {
            number(e, node, operand_type, "min", 1, before)?;
            number(e, node, operand_type, "max", 2, before)?;
        }
        // Nothing is dropped when a model runs. What the second result holds has changed.
        ("Dropout", 12) => {
            take(node, "ratio");
            return Ok(node.output.iter().skip(1).all(String::is_empty));
        }
        ("Softmax" | "LogSoftmax" | "Hardmax", 13) => along_last(e, node, operand_type.rank, before)?,
        ("TopK", 10) => {
            if let Some(k) = take(node, "k") {
                let name = e.constant(&[k.i]);
                place(node, 1, name);
            }
        }
        ("Split" | "Squeeze" | "Unsqueeze" | "ReduceSum", 13)
        | (
            "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin",
            18,
        )
        | ("ReduceProd" | "ReduceSumSquare", 18) => {
            operand(e, node, if op == "Split" { "split" } else { "axes" }, 1);
        }
        ("Split", 18) if node.input.get(1).is_none_or(String::is_empty) => {
            node.attribute.push(int("num_outputs", super::nodes::size(node.output.len())));
        }
        ("Resize", 11) => {
            // Scales came first; coordinates counted from the corner, and rounded down.
            node.input.insert(1, String::new());
            node.attribute.push(string("coordinate_transformation_mode", "asymmetric"));
            node.attribute.push(string("nearest_mode", "floor"));
        }
        ("Resize", 13) => {
            let removed = |a: &AttributeProto| {
                a.name == "coordinate_transformation_mode" && a.s == "tf_half_pixel_for_nn".as_bytes()
            };
            return Ok(!node.attribute.iter().any(removed));
        }
        ("Upsample", 9) => {
            if let Some(scales) = take(node, "scales") {
                let name = e.floats(&scales.floats);
                place(node, 1, name);
            }
        }
        ("GridSample", 20) => {
            for mode in node.attribute.iter_mut().filter(|a| a.name == "mode") {
                mode.s = mode.s.strip_prefix(b"bi".as_slice()).unwrap_or(&mode.s).to_vec().into();
            }
        }
        ("DFT", 20) => {
            let axis = take(node, "axis").map_or(1, |a| a.i);
            let name = e.scalar(axis);
            place(node, 2, name);
        }
        ("BatchNormalization", 9) => return Ok(!node.attribute.iter().any(|a| a.name == "spatial" && a.i == 0)),
        // Further results are of training.
        ("BatchNormalization", 14) => return Ok(node.output.iter().skip(1).all(String::is_empty)),
        // Before it came, ONNX Runtime had the same.
        ("LayerNormalization", 17) => {}
        ("Gemm" | "Constant", 11) => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Makes an attribute that is a number an operand of the first one's type.
fn number(
    e: &mut Emitter<'_>,
    node: &mut NodeProto,
    like: Operand,
    name: &str,
    index: usize,
    before: &mut Vec<NodeProto>,
) -> Result<(), String> {
    let Some(attribute) = take(node, name) else { return Ok(()) };
    let value = e.number(like.dtype.unwrap_or(DType::F32), f64::from(attribute.f));
    let mut value = value.ok_or_else(|| format!("its `{name}` is not a number of its type"))?;
    if like.dtype.is_none() {
        let x = node.input.first().cloned().ok_or("it has no operand")?;
        let of_type = e.fresh(&value);
        before.push(called(&of_type, "CastLike", vec![value, x], vec![]));
        value = of_type;
    }
    place(node, index, value);
    Ok(())
}

/// Before opset 13 softmax and its like were along all axes from one on; later along that one.
fn along_last(
    e: &mut Emitter<'_>,
    node: &mut NodeProto,
    rank: Option<usize>,
    before: &mut Vec<NodeProto>,
) -> Result<(), String> {
    let axis = take(node, "axis").map_or(1, |a| a.i);
    node.attribute.push(int("axis", -1));
    if axis == -1 || rank.is_some_and(|rank| axis + 1 == super::nodes::size(rank)) {
        return Ok(());
    }
    let ([x], [result]) = (node.input.as_slice(), node.output.as_slice()) else {
        return Err("it does not have one operand and one result".to_owned());
    };
    let [flat, along, shape] = ["flat", "along", "shape"].map(|part| e.fresh(&format!("{result}/{part}")));
    // A size of 0 is one.
    let mut back = called(result, "Reshape", vec![along.clone(), shape.clone()], vec![int("allowzero", 1)]);
    back.name.clone_from(&node.name);
    before.push(called(&flat, "Flatten", vec![x.clone()], vec![int("axis", axis)]));
    before.push(called(&shape, "Shape", vec![x.clone()], vec![]));
    before.push(called(&along, &node.op_type, vec![flat], std::mem::take(&mut node.attribute)));
    *node = back;
    Ok(())
}

fn called(name: &str, op: &str, input: Vec<String>, attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        name: name.to_owned(),
        op_type: op.to_owned(),
        input,
        output: vec![name.to_owned()],
        attribute,
        ..NodeProto::default()
    }
}

/// Operators that later opsets do not have.
fn replaced(node: &mut NodeProto, to: usize) {
    match node.op_type.as_str() {
        "Scatter" if to >= 11 => node.op_type = "ScatterElements".to_owned(),
        "Upsample" if to >= 10 => {
            node.op_type = "Resize".to_owned();
            node.input.insert(1, String::new());
            node.attribute.push(string("coordinate_transformation_mode", "asymmetric"));
            node.attribute.push(string("nearest_mode", "floor"));
        }
        _ => {}
    }
}

/// Takes an attribute away.
fn take(node: &mut NodeProto, name: &str) -> Option<AttributeProto> {
    let at = node.attribute.iter().position(|a| a.name == name)?;
    Some(node.attribute.remove(at))
}

/// Makes an attribute of integers an operand.
fn operand(e: &mut Emitter<'_>, node: &mut NodeProto, name: &str, index: usize) {
    if let Some(attribute) = take(node, name) {
        let name = e.constant(&attribute.ints);
        place(node, index, name);
    }
}

fn place(node: &mut NodeProto, index: usize, name: String) {
    if node.input.len() <= index {
        node.input.resize(index + 1, String::new());
    }
    node.input[index] = name;
}
