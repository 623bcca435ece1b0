//! Operators of ONNX that have no counterpart here: they pass from an imported graph to an exported one.

use std::sync::Arc;

use super::attribute::{Attribute, Real};
use super::infer::{Types, ensure};
use super::payload::payload;
use crate::named::named;
use crate::text::syntax;
use crate::{DType, Dim, Type, ValueId};

payload! {
    /// An operator of ONNX as it came. What it computes is for the target to know; the types of its
    /// results are those that were found when it was imported. A dimension of a result that is a
    /// symbol of its own is a size that the operator determines.
    Foreign = "foreign" {
        operands {
            /// The operands, some of which may be left out.
            inputs: Vec<Option<ValueId>>,
            /// The values of this graph that the graphs in `settings` use.
            captured: Vec<ValueId>,
        }
        attributes {
            /// The domain of the operator, `ai.onnx` for the default one.
            domain: Text,
            /// The operator, e.g. `TopK`.
            op: Text,
            /// The opset of the domain that the graph came with.
            version: usize,
            /// Attributes, in the order in which they came.
            settings: Settings,
            /// The names by which graphs in `settings` call the captured values, in order.
            captures: Vec<Text>,
            /// The operators of other domains that graphs in `settings` have.
            inner: InnerOperators,
            /// The types of the results; none for one that is left out.
            results: Results,
        }
    }
}

impl Foreign {
    /// The domain by which ONNX calls its own operators.
    pub const STANDARD: &'static str = "ai.onnx";

    /// Whether it is an operator of the default domain.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        self.domain.0 == Self::STANDARD
    }

    /// Whether it is this operator of the default domain.
    #[must_use]
    pub fn is(&self, op: &str) -> bool {
        self.is_standard() && self.op.0 == op
    }

    /// The value of an attribute.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The symbols that its results have as a dimension of their own.
    pub fn result_symbols(&self) -> impl Iterator<Item = &crate::Symbol> {
        self.results.0.iter().flatten().flat_map(Type::dims).filter_map(Dim::as_symbol)
    }

    /// The types of the results, as they were found; operands may be whatever they are.
    pub(super) fn infer(&self, _: &Types<'_>) -> Result<Vec<Type>, String> {
        ensure(self.captured.len() == self.captures.len(), || {
            format!("{} captured values have {} names", self.captured.len(), self.captures.len())
        })?;
        let types: Vec<Type> = self.results.0.iter().flatten().cloned().collect();
        ensure(!types.is_empty(), || "it has no result".to_owned())?;
        Ok(types)
    }
}

/// A text attribute, written in quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Text(pub String);

impl Attribute for Text {
    fn form() -> (String, bool) {
        ("string".to_owned(), false)
    }
    fn print(&self) -> Option<String> {
        Some(syntax::quote(&self.0))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        syntax::string(text.ok_or("is missing")?).map(Self)
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
}

/// The types of results, written `[f32[n], _]`: `_` for one that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Results(pub Vec<Option<Type>>);

impl Attribute for Results {
    fn form() -> (String, bool) {
        ("results".to_owned(), false)
    }
    fn print(&self) -> Option<String> {
        let text = |ty: &Option<Type>| ty.as_ref().map_or_else(|| "_".to_owned(), Type::to_string);
        Some(format!("[{}]", self.0.iter().map(text).collect::<Vec<_>>().join(", ")))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        let one = |text: &String| match text.as_str() {
            "_" => Ok(None),
            ty => Ok(Some(ty.parse()?)),
        };
        syntax::list(text.ok_or("is missing")?)?.iter().map(one).collect::<Result<_, _>>().map(Self)
    }
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.0.iter().flatten().flat_map(Type::dims).for_each(f);
    }
    fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim) {
        for ty in self.0.iter_mut().flatten() {
            if let Type::Tensor(tensor) = ty {
                tensor.shape.map_dims(f);
            }
        }
    }
}

/// An operator of another domain than the default one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inner {
    /// The domain.
    pub domain: String,
    /// The operator.
    pub op: String,
    /// The opset of the domain that the graph came with.
    pub version: usize,
}

/// Operators, written `[["com.microsoft", "Gelu", 1]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InnerOperators(pub Vec<Inner>);

impl Attribute for InnerOperators {
    fn form() -> (String, bool) {
        ("inner operators".to_owned(), true)
    }
    fn print(&self) -> Option<String> {
        let one = |i: &Inner| format!("[{}, {}, {}]", syntax::quote(&i.domain), syntax::quote(&i.op), i.version);
        (!self.0.is_empty()).then(|| format!("[{}]", self.0.iter().map(one).collect::<Vec<_>>().join(", ")))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        let one = |text: &String| match syntax::list(text)?.as_slice() {
            [domain, op, version] => Ok(Inner {
                domain: syntax::string(domain)?,
                op: syntax::string(op)?,
                version: usize::parse(Some(version))?,
            }),
            _ => Err(format!("`{text}` is not a domain, operator and version")),
        };
        text.map_or_else(|| Ok(Vec::new()), |text| syntax::list(text)?.iter().map(one).collect()).map(Self)
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
}

/// The value of an attribute of ONNX.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// An integer.
    Int(i64),
    /// A number, which the format holds as binary32.
    Float(Real),
    /// Bytes, in general text in UTF-8.
    Bytes(Arc<[u8]>),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<Real>),
    /// Several of `Bytes`.
    Strings(Vec<Arc<[u8]>>),
    /// A constant tensor: its type, and its bytes as weights have them.
    Tensor(DType, Vec<usize>, Arc<[u8]>),
    /// A graph in ONNX's encoding, which may use values of the graph around it.
    Graph(Arc<[u8]>),
    /// A type in ONNX's encoding.
    Type(Arc<[u8]>),
}

/// Attributes, written `[axis = int(1), mode = text("linear")]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings(pub Vec<(String, Setting)>);

impl Attribute for Settings {
    fn form() -> (String, bool) {
        ("settings".to_owned(), true)
    }
    fn print(&self) -> Option<String> {
        let items: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} = {}", value.text())).collect();
        (!items.is_empty()).then(|| format!("[{}]", items.join(", ")))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::default()) };
        let one = |item: &String| {
            let (name, value) = syntax::cut(item, "=")?.ok_or_else(|| format!("`{item}` is not `name = value`"))?;
            Ok((name.to_owned(), Setting::parse(value)?))
        };
        syntax::list(text)?.iter().map(one).collect::<Result<_, String>>().map(Self)
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
}

named! {
    /// A value of an attribute of ONNX, by the name that it begins with in the text form.
    SettingForm {
        /// An integer.
        Int = "int",
        /// A number.
        Float = "float",
        /// Bytes that are text in UTF-8.
        Text = "text",
        /// Other bytes.
        Bytes = "bytes",
        /// Integers.
        Ints = "ints",
        /// Numbers.
        Floats = "floats",
        /// Several of `text` or `bytes`.
        Strings = "strings",
        /// A constant tensor.
        Tensor = "tensor",
        /// A graph.
        Graph = "graph",
        /// A type.
        Type = "type",
    }
}

impl SettingForm {
    /// What is between the parentheses, in the notation of [`crate::text::grammar`].
    pub(crate) fn arguments(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Float => "number",
            Self::Text => "string",
            Self::Bytes | Self::Graph | Self::Type => "hex",
            Self::Ints => "integers",
            Self::Floats => r#""[" [ number { ", " number } ] "]""#,
            Self::Strings => r#""[" [ setting { ", " setting } ] "]""#,
            Self::Tensor => r#"tensor ", " hex"#,
        }
    }
}

impl Setting {
    fn text(&self) -> String {
        fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        match self {
            Setting::Int(value) => format!("int({value})"),
            Setting::Float(value) => format!("float({value})"),
            Setting::Bytes(bytes) => string(bytes),
            Setting::Ints(values) => format!("ints({})", list(values, i64::to_string)),
            Setting::Floats(values) => format!("floats({})", list(values, Real::to_string)),
            Setting::Strings(values) => format!("strings({})", list(values, |v| string(v))),
            Setting::Tensor(dtype, shape, bytes) => {
                format!("tensor({dtype}{}, \"{}\")", list(shape, usize::to_string), syntax::hex(bytes))
            }
            Setting::Graph(bytes) => format!("graph(\"{}\")", syntax::hex(bytes)),
            Setting::Type(bytes) => format!("type(\"{}\")", syntax::hex(bytes)),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (form, inside, _) = syntax::enclosed(text, '(', ')')?;
        let numbers = |text: &str| -> Result<Vec<Real>, String> {
            syntax::list(text)?.iter().map(|t| Real::parse(Some(t))).collect()
        };
        let form: SettingForm = form.parse().map_err(|_| format!("`{text}` is not a value of an attribute"))?;
        Ok(match form {
            SettingForm::Int => Setting::Int(i64::parse(Some(inside))?),
            SettingForm::Float => Setting::Float(Real::parse(Some(inside))?),
            SettingForm::Text | SettingForm::Bytes => Setting::Bytes(unstring(text)?),
            SettingForm::Ints => Setting::Ints(Vec::parse(Some(inside))?),
            SettingForm::Floats => Setting::Floats(numbers(inside)?),
            SettingForm::Strings => {
                Setting::Strings(syntax::list(inside)?.iter().map(|t| unstring(t)).collect::<Result<_, _>>()?)
            }
            SettingForm::Tensor => {
                let (ty, bytes) = syntax::cut(inside, ",")?.ok_or("a tensor has a type and bytes")?;
                let ty = syntax::tensor_type(ty)?;
                let shape = ty.shape.as_constant().and_then(|s| s.iter().map(|&d| usize::try_from(d).ok()).collect());
                let shape = shape.ok_or_else(|| format!("a tensor cannot be {ty}"))?;
                Setting::Tensor(ty.dtype, shape, unhex(bytes)?)
            }
            SettingForm::Graph => Setting::Graph(unhex(inside)?),
            SettingForm::Type => Setting::Type(unhex(inside)?),
        })
    }
}

/// `text("...")` where that gives the same bytes, and else `bytes("...")`, in hexadecimal.
fn string(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if syntax::is_quotable(text) => format!("text({})", syntax::quote(text)),
        _ => format!("bytes(\"{}\")", syntax::hex(bytes)),
    }
}

fn unstring(text: &str) -> Result<Arc<[u8]>, String> {
    match syntax::enclosed(text, '(', ')')? {
        ("text", inside, "") => Ok(syntax::string(inside)?.into_bytes().into()),
        ("bytes", inside, "") => unhex(inside),
        _ => Err(format!("`{text}` is neither text nor bytes")),
    }
}

fn unhex(text: &str) -> Result<Arc<[u8]>, String> {
    syntax::unhex(&syntax::string(text)?).map(Into::into)
}
