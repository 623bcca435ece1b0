//! Writing the text form.

use std::fmt;

use super::forms::Form;
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
    let several = |parts: &[Weight], arguments: &dyn fmt::Display| {
        let parts: Vec<String> = parts.iter().map(typed).collect();
        format!("[{}], {arguments}", parts.join(", "))
    };
    let (form, arguments) = match weight.expr() {
        WeightExpr::Stored(range) => (Form::Stored, format!("{}, {}", quote(range.source.name()), range.offset)),
        WeightExpr::Inline(bytes) => inline(weight, bytes),
        WeightExpr::Uniform(seed) => (Form::Uniform, seed.to_string()),
        WeightExpr::Transpose(of, perm) => (Form::Transpose, format!("{}, {perm:?}", typed(of))),
        WeightExpr::Cast(of) => (Form::Cast, typed(of)),
        WeightExpr::Reshape(of) => (Form::Reshape, typed(of)),
        WeightExpr::Concat(parts, axis) => (Form::Concat, several(parts, axis)),
        WeightExpr::Pad(of, value) => (Form::Pad, format!("{}, {value}", typed(of))),
        WeightExpr::Gather(of, axis, indices) => (Form::Gather, format!("{}, {axis}, {indices:?}", typed(of))),
        WeightExpr::Quantize(parts, channels) => (Form::Quantize, several(parts, &channels_text(*channels))),
        WeightExpr::Dequantize(parts, channels) => (Form::Dequantize, several(parts, &channels_text(*channels))),
        WeightExpr::Fitted(parts, fit, part) => {
            let form = match part {
                Fitted::Scales => Form::FittedScales,
                Fitted::ZeroPoints => Form::FittedZeroPoints,
            };
            let sign = if fit.negative { ", negative" } else { "" };
            (form, several(parts, &format!("{}, {}, {}{sign}", fit.codes, fit.size, fit.search)))
        }
        WeightExpr::FlipSign(of) => (Form::FlipSign, typed(of)),
        WeightExpr::Bytes(of) => (Form::Bytes, typed(of)),
        WeightExpr::Scale(parts, axis) => (Form::Scale, several(parts, axis)),
        WeightExpr::InverseNorms(of, axis) => (Form::InverseNorms, format!("{}, {axis}", typed(of))),
        WeightExpr::PlusProduct(parts) => {
            (Form::PlusProduct, format!("[{}]", parts.iter().map(typed).collect::<Vec<_>>().join(", ")))
        }
        WeightExpr::Unpack(parts, packing) => (Form::Unpack, several(parts, packing)),
    };
    format!("{form}({arguments})")
}

/// The axis, and the elements of a block.
fn channels_text(channels: Channels) -> String {
    match channels {
        Channels::Axis(axis) => axis.to_string(),
        Channels::Blocks { axis, size } => format!("{axis}, {size}"),
    }
}

/// Numbers where they are few and reading them gives the same bytes; else the bytes.
fn inline(weight: &Weight, bytes: &[u8]) -> (Form, String) {
    if let Some(elements) = weight.as_text().filter(|elements| elements.len() <= DENSE_ELEMENTS) {
        let plain = |element: &[u8]| std::str::from_utf8(element).ok().filter(|t| syntax::is_quotable(t)).map(quote);
        if let Some(texts) = elements.into_iter().map(plain).collect::<Option<Vec<String>>>() {
            return (Form::Text, format!("[{}]", texts.join(", ")));
        }
        return (Form::Hex, quote(&syntax::hex(bytes)));
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
        return (Form::Dense, format!("[{}]", numbers.iter().map(text).collect::<Vec<_>>().join(", ")));
    }
    (Form::Hex, quote(&syntax::hex(bytes)))
}
