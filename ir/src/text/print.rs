//! Writing the text form.

use std::fmt;

use super::syntax::{self, quote};
use crate::ops::payload_text;
use crate::weight::{Channels, Fitted, WeightExpr};
use crate::{DType, Def, Graph, ValueId, Weight};

/// The most elements that are written as numbers; more are written as hexadecimal bytes.
const DENSE_ELEMENTS: usize = 64;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {} {{", quote(&self.name))?;
        for &input in self.inputs() {
            writeln!(f, "  input {}: {}", reference(self, input), self.type_of(input))?;
        }
        for (id, value, weight) in self.weights() {
            writeln!(f, "  weight {} = {} : {}", reference(self, id), expression(weight), value.ty)?;
        }
        for (_, node) in self.nodes() {
            let names: Vec<String> = node.outputs.iter().map(|v| reference(self, *v)).collect();
            let types: Vec<String> = node.outputs.iter().map(|v| self.type_of(*v).to_string()).collect();
            let (operands, attributes) = payload_text(&node.op, &|v| reference(self, v));
            write!(f, "  {} = {}({operands})", names.join(", "), node.op.mnemonic())?;
            if !attributes.is_empty() {
                write!(f, " {{{attributes}}}")?;
            }
            writeln!(f, " : {}", types.join(", "))?;
        }
        for output in self.outputs() {
            writeln!(f, "  output {} = {}", bare_or_quoted(&output.name), reference(self, output.value))?;
        }
        f.write_str("}\n")
    }
}

/// The text by which a value is referred to: `@name` for a weight, `%name` for others.
fn reference(graph: &Graph, value: ValueId) -> String {
    let value = graph.value(value);
    let sigil = if matches!(value.def, Def::Weight(_)) { '@' } else { '%' };
    format!("{sigil}{}", bare_or_quoted(&value.name))
}

fn bare_or_quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/');
    if !name.is_empty() && name.chars().all(plain) { name.to_owned() } else { quote(name) }
}

fn expression(weight: &Weight) -> String {
    let typed = |w: &Weight| {
        let dims: Vec<String> = w.shape().iter().map(usize::to_string).collect();
        format!("{} : {}[{}]", expression(w), w.dtype(), dims.join(", "))
    };
    let call = |name: &str, parts: &[Weight], arguments: &str| {
        let parts: Vec<String> = parts.iter().map(typed).collect();
        format!("{name}([{}], {arguments})", parts.join(", "))
    };
    match weight.expr() {
        WeightExpr::Stored(range) => format!("stored({}, {})", quote(range.source.name()), range.offset),
        WeightExpr::Inline(bytes) => inline(weight, bytes),
        WeightExpr::Uniform(seed) => format!("uniform({seed})"),
        WeightExpr::Transpose(of, perm) => format!("transpose({}, {perm:?})", typed(of)),
        WeightExpr::Cast(of) => format!("cast({})", typed(of)),
        WeightExpr::Reshape(of) => format!("reshape({})", typed(of)),
        WeightExpr::Concat(parts, axis) => call("concat", parts, &axis.to_string()),
        WeightExpr::Pad(of, value) => format!("pad({}, {value})", typed(of)),
        WeightExpr::Gather(of, axis, indices) => format!("gather({}, {axis}, {indices:?})", typed(of)),
        WeightExpr::Quantize(parts, channels) => call("quantize", parts, &channels_text(*channels)),
        WeightExpr::Dequantize(parts, channels) => call("dequantize", parts, &channels_text(*channels)),
        WeightExpr::Fitted(parts, fit, part) => {
            let name = match part {
                Fitted::Scales => "fitted_scales",
                Fitted::ZeroPoints => "fitted_zero_points",
            };
            let sign = if fit.negative { ", negative" } else { "" };
            call(name, parts, &format!("{}, {}, {}{sign}", fit.codes, fit.size, fit.search))
        }
        WeightExpr::FlipSign(of) => format!("flip_sign({})", typed(of)),
        WeightExpr::Bytes(of) => format!("bytes({})", typed(of)),
        WeightExpr::Scale(parts, axis) => call("scale", parts, &axis.to_string()),
        WeightExpr::Unpack(parts, packing) => call("unpack", parts, &packing.to_string()),
    }
}

/// The axis, and the elements of a block.
fn channels_text(channels: Channels) -> String {
    match channels {
        Channels::Axis(axis) => axis.to_string(),
        Channels::Blocks { axis, size } => format!("{axis}, {size}"),
    }
}

/// Numbers where they are few and reading them gives the same bytes; else the bytes.
fn inline(weight: &Weight, bytes: &[u8]) -> String {
    if let Some(elements) = weight.as_text().filter(|elements| elements.len() <= DENSE_ELEMENTS) {
        let plain = |element: &[u8]| std::str::from_utf8(element).ok().filter(|t| syntax::is_quotable(t)).map(quote);
        if let Some(texts) = elements.into_iter().map(plain).collect::<Option<Vec<String>>>() {
            return format!("text([{}])", texts.join(", "));
        }
        return format!("hex(\"{}\")", syntax::hex(bytes));
    }
    let numbers = if weight.elements() <= DENSE_ELEMENTS && weight.dtype() != DType::String {
        weight.read_numbers().unwrap_or_default()
    } else {
        Vec::new()
    };
    // Not-a-number is written without its sign.
    let same = !numbers.iter().any(|v| v.is_nan())
        && Weight::numbers(weight.dtype(), weight.shape().to_vec(), &numbers).is_some_and(|w| w == *weight);
    if same {
        let text = |v: &f64| match weight.dtype() {
            // The shortest text that reads as the same number.
            DType::F32 => format!("{:?}", *v as f32),
            dtype if dtype.is_float() || !dtype.is_computed() => format!("{v:?}"),
            _ => format!("{v}"),
        };
        return format!("dense([{}])", numbers.iter().map(text).collect::<Vec<_>>().join(", "));
    }
    format!("hex(\"{}\")", syntax::hex(bytes))
}
