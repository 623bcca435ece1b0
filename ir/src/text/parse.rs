//! Reading the text form.

use std::collections::HashMap;
use std::sync::Arc;

use super::forms::Form;
use super::syntax::{self, cut, enclosed, list, split, string};
use crate::ops::payload_parse;
use crate::weight::{BlockFit, Channels, Fitted, StoredRange};
use crate::{Graph, Origin, Type, ValueId, Weight, WeightSource};

/// A text is not a graph.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// A file of weights that a text names is not there, or cannot be read: why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoFile(pub String);

impl From<NoFile> for String {
    fn from(error: NoFile) -> Self {
        error.0
    }
}

/// Finds the bytes that `stored("NAME", ...)` refers to.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn WeightSource>, NoFile>;

/// Reads a graph. Types are inferred; those in the text must agree.
///
/// # Errors
/// The first line that does not fit, and why.
pub fn parse(text: &str, files: Files<'_>) -> Result<Graph, ParseError> {
    let mut parser = Parser { graph: None, values: HashMap::new(), files, closed: false };
    let mut last = 0;
    for (i, line) in text.lines().enumerate() {
        let statement = line.trim();
        if statement.is_empty() || statement.starts_with("//") {
            continue;
        }
        last = i + 1;
        parser.statement(statement).map_err(|message| ParseError { line: last, message })?;
    }
    match parser {
        Parser { graph: Some(graph), closed: true, .. } => Ok(graph),
        Parser { graph: None, .. } => Err(ParseError { line: last, message: "there is no graph".to_owned() }),
        _ => Err(ParseError { line: last, message: "the graph is not closed by `}`".to_owned() }),
    }
}

struct Parser<'a> {
    graph: Option<Graph>,
    /// References such as `%x` to the values they name.
    values: HashMap<String, ValueId>,
    files: Files<'a>,
    closed: bool,
}

impl Parser<'_> {
    fn statement(&mut self, text: &str) -> Result<(), String> {
        if self.closed {
            return Err("unexpected text after the graph".to_owned());
        }
        let Some(graph) = &mut self.graph else {
            let name = text.strip_prefix("graph ").and_then(|t| t.strip_suffix('{'));
            let name = name.ok_or("expected `graph \"name\" {`")?;
            self.graph = Some(Graph::new(&string(name.trim())?));
            return Ok(());
        };
        if text == "}" {
            self.closed = true;
        } else if let Some(rest) = text.strip_prefix("input ") {
            let (name, ty) = cut(rest, ":")?.ok_or("expected `input %name: TYPE`")?;
            let value = graph.add_input(&own_name(name, '%')?, ty.parse::<Type>()?, Origin::Unknown);
            define(&mut self.values, name, value)?;
        } else if let Some(rest) = text.strip_prefix("weight ") {
            let (name, typed) = cut(rest, "=")?.ok_or("expected `weight @name = WEIGHT : TYPE`")?;
            let weight = typed_weight(typed, self.files)?;
            let value = graph.add_weight(&own_name(name, '@')?, weight, Origin::Unknown);
            define(&mut self.values, name, value)?;
        } else if let Some(rest) = text.strip_prefix("output ") {
            let (name, value) = cut(rest, "=")?.ok_or("expected `output name = %value`")?;
            let value = *self.values.get(value).ok_or_else(|| format!("`{value}` is not defined"))?;
            graph.add_output(&unquoted(name)?, value);
        } else {
            self.node(text)?;
        }
        Ok(())
    }

    fn node(&mut self, text: &str) -> Result<(), String> {
        let graph = self.graph.as_mut().ok_or("no graph")?;
        let (names, rest) = cut(text, "=")?.ok_or("expected `%name = operator(...) : TYPE`")?;
        let (call, types) = cut(rest, " : ")?.ok_or("expected ` : TYPE` at the end")?;
        let (mnemonic, operands, rest) = enclosed(call, '(', ')')?;
        let attributes = if rest.is_empty() { "" } else { braced(rest)? };
        let names = split(names, ',')?;
        let value = |name: &str| self.values.get(name).copied().ok_or_else(|| format!("`{name}` is not defined"));
        let op = payload_parse(mnemonic, operands, attributes, &value)?;
        let first = own_name(names.first().ok_or("a node has at least one result")?, '%')?;
        let outputs = graph.emit(op, &first, Origin::Unknown).map_err(|e| e.to_string())?;

        let declared = split(types, ',')?.into_iter().map(str::parse).collect::<Result<Vec<Type>, _>>()?;
        let inferred: Vec<Type> = outputs.iter().map(|v| graph.type_of(*v).clone()).collect();
        if declared != inferred || names.len() != outputs.len() {
            let inferred: Vec<String> = inferred.iter().map(Type::to_string).collect();
            return Err(format!("the results of `{mnemonic}` are {}", inferred.join(", ")));
        }
        for (name, value) in names.into_iter().zip(outputs) {
            graph.rename(value, &own_name(name, '%')?);
            define(&mut self.values, name, value)?;
        }
        Ok(())
    }
}

fn define(values: &mut HashMap<String, ValueId>, reference: &str, value: ValueId) -> Result<(), String> {
    let other = reference.replacen(['%', '@'], if reference.starts_with('%') { "@" } else { "%" }, 1);
    if values.contains_key(&other) || values.insert(reference.to_owned(), value).is_some() {
        return Err(format!("`{reference}` is defined twice"));
    }
    Ok(())
}

fn braced(text: &str) -> Result<&str, String> {
    match enclosed(text, '{', '}')? {
        ("", inside, "") => Ok(inside),
        _ => Err(format!("expected attributes in braces, found `{text}`")),
    }
}

fn own_name(reference: &str, sigil: char) -> Result<String, String> {
    let name = reference.strip_prefix(sigil).ok_or_else(|| format!("expected `{sigil}name`, found `{reference}`"))?;
    unquoted(name)
}

fn unquoted(name: &str) -> Result<String, String> {
    let name = if name.starts_with('"') { string(name)? } else { name.to_owned() };
    if name.is_empty() { Err("a name is empty".to_owned()) } else { Ok(name) }
}

/// `WEIGHT : TYPE`.
fn typed_weight(text: &str, files: Files<'_>) -> Result<Weight, String> {
    let (call, ty) = cut(text, " : ")?.ok_or_else(|| format!("expected `WEIGHT : TYPE`, found `{text}`"))?;
    let ty = syntax::tensor_type(ty)?;
    let sizes = ty.shape.as_constant().and_then(|d| d.into_iter().map(|d| usize::try_from(d).ok()).collect());
    let shape: Vec<usize> = sizes.ok_or_else(|| format!("a weight cannot be {ty}"))?;
    let (kind, inside, _) = enclosed(call, '(', ')')?;
    let arguments = split(inside, ',')?;
    let of = |text: &str| typed_weight(text, files);
    let form: Form = kind.parse().map_err(|_| format!("`{call}` is not a weight"))?;
    let weight = match (form, arguments.as_slice()) {
        (Form::Stored, [file, offset]) => {
            let source = files(&string(file)?)?;
            Weight::stored(ty.dtype, shape, StoredRange { source, offset: number(offset)? })
        }
        (Form::Dense, [numbers]) => {
            let numbers = list(numbers)?.iter().map(|n| number(n)).collect::<Result<Vec<f64>, _>>()?;
            Weight::numbers(ty.dtype, shape, &numbers)
        }
        (Form::Text, [elements]) => {
            let elements = list(elements)?.iter().map(|e| string(e)).collect::<Result<Vec<String>, _>>()?;
            Weight::text(shape, &elements)
        }
        (Form::Hex, [bytes]) => Weight::inline(ty.dtype, shape, syntax::unhex(&string(bytes)?)?),
        (Form::Uniform, [seed]) => Weight::uniform(ty.dtype, shape, number(seed)?),
        (Form::Transpose, [w, perm]) => {
            let perm = list(perm)?.iter().map(|n| number(n)).collect::<Result<Vec<usize>, _>>()?;
            of(w)?.transpose(&perm)
        }
        (Form::Cast, [w]) => of(w)?.cast(ty.dtype),
        (Form::Reshape, [w]) => of(w)?.reshape(&shape),
        (Form::Gather, [w, axis, indices]) => {
            let indices = list(indices)?.iter().map(|n| number(n)).collect::<Result<Vec<usize>, _>>()?;
            of(w)?.gather(number(axis)?, &indices)
        }
        (Form::InverseNorms, [w, axis]) => of(w)?.inverse_norms(number(axis)?),
        (Form::FlipSign, [w]) => of(w)?.flip_sign(),
        (Form::Bytes, [w]) => of(w)?.as_bytes(&shape),
        (Form::Concat | Form::Quantize | Form::Dequantize | Form::Scale, [parts, axis, block @ ..])
            if block.len() < 2 =>
        {
            let parts = list(parts)?.iter().map(|w| of(w)).collect::<Result<Vec<_>, _>>()?;
            let axis = number(axis)?;
            let channels = match block.first() {
                Some(size) => Channels::Blocks { axis, size: number(size)? },
                None => Channels::Axis(axis),
            };
            match (form, parts.as_slice()) {
                (Form::Concat, parts) if block.is_empty() => Weight::concat(parts, axis),
                (Form::Quantize, [of, scales, zeros @ ..]) if zeros.len() < 2 => {
                    of.quantize(ty.dtype, channels, scales, zeros.first())
                }
                (Form::Dequantize, [of, scales, zeros @ ..]) if zeros.len() < 2 => {
                    of.dequantize(channels, scales, zeros.first())
                }
                (Form::Scale, [of, factors]) if block.is_empty() => of.scale(axis, factors),
                _ => return Err(format!("`{form}` takes another number of weights")),
            }
        }
        (Form::FittedScales | Form::FittedZeroPoints, [parts, codes, size, search, negative @ ..]) => {
            let parts = list(parts)?.iter().map(|w| of(w)).collect::<Result<Vec<_>, _>>()?;
            let codes = codes.parse().map_err(|_| format!("`{codes}` is not an element type"))?;
            let negative = match negative {
                [] => false,
                [word] if *word == "negative" => true,
                _ => return Err(format!("`{form}` takes other arguments")),
            };
            let fit = BlockFit { codes, size: number(size)?, search: search.parse()?, negative };
            let part = if form == Form::FittedScales { Fitted::Scales } else { Fitted::ZeroPoints };
            match parts.as_slice() {
                [of, importance @ ..] if importance.len() < 2 => of.fitted(fit, importance.first(), part),
                _ => return Err(format!("`{form}` takes another number of weights")),
            }
        }
        (Form::PlusProduct, [parts]) => {
            match list(parts)?.iter().map(|w| of(w)).collect::<Result<Vec<_>, _>>()?.as_slice() {
                [of, up, down] => of.plus_product(up, down),
                _ => return Err(format!("`{form}` takes another number of weights")),
            }
        }
        (Form::Unpack, [parts, packing]) => {
            let parts = list(parts)?.iter().map(|w| of(w)).collect::<Result<Vec<_>, _>>()?;
            Weight::unpack(&parts, packing.parse()?, ty.dtype, &shape)
        }
        (Form::Pad, [w, value]) => of(w)?.pad(&shape, number(value)?),
        _ => return Err(format!("`{call}` is not a weight")),
    };
    let fits = |w: &Weight| {
        w.dtype() == ty.dtype
            && w.shape().iter().map(|&d| i64::try_from(d).ok()).eq(ty.shape.iter().map(crate::Dim::as_constant))
    };
    weight.filter(fits).ok_or_else(|| format!("`{call}` does not give {ty}"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of the expected kind"))
}
