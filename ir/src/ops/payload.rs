//! What every operator's payload struct provides, and the macro that derives it.

use super::Types;
use super::attribute::Attribute;
use crate::text::syntax;
use crate::{Dim, TensorType, ValueId};

/// An operand field: a value, an optional value, or a list of values.
pub trait Operand: Sized {
    /// What its text is, and whether it may be absent.
    const FORM: (&'static str, bool);
    /// Calls `f` on each value.
    fn visit(&self, f: &mut dyn FnMut(ValueId));
    /// Calls `f` on each value to replace it.
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId));
    /// Writes the operand of this name.
    fn print(&self, name: &str, to: &mut PrintArguments<'_>);
    /// Takes the operand of this name.
    ///
    /// # Errors
    /// When it is missing or no value of the graph.
    fn parse(name: &str, from: &mut ParseArguments<'_>) -> Result<Self, String>;
}

impl Operand for ValueId {
    const FORM: (&'static str, bool) = ("value", false);
    fn visit(&self, f: &mut dyn FnMut(ValueId)) {
        f(*self);
    }
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
        f(self);
    }
    fn print(&self, _: &str, to: &mut PrintArguments<'_>) {
        let text = (to.name)(*self);
        to.operand(&text);
    }
    fn parse(name: &str, from: &mut ParseArguments<'_>) -> Result<Self, String> {
        let text = from.positional().ok_or_else(|| format!("operand `{name}` is missing"))?;
        (from.value)(&text)
    }
}

impl Operand for Option<ValueId> {
    const FORM: (&'static str, bool) = ("value", true);
    fn visit(&self, f: &mut dyn FnMut(ValueId)) {
        self.iter().for_each(|v| f(*v));
    }
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
        self.iter_mut().for_each(f);
    }
    fn print(&self, name: &str, to: &mut PrintArguments<'_>) {
        if let Some(value) = self {
            let text = format!("{name}: {}", (to.name)(*value));
            to.operand(&text);
        }
    }
    fn parse(name: &str, from: &mut ParseArguments<'_>) -> Result<Self, String> {
        from.keyed(name).map(|text| (from.value)(&text)).transpose()
    }
}

impl Operand for Vec<ValueId> {
    const FORM: (&'static str, bool) = ("list of values", false);
    fn visit(&self, f: &mut dyn FnMut(ValueId)) {
        self.iter().for_each(|v| f(*v));
    }
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
        self.iter_mut().for_each(f);
    }
    fn print(&self, _: &str, to: &mut PrintArguments<'_>) {
        let names: Vec<String> = self.iter().map(|v| (to.name)(*v)).collect();
        to.operand(&format!("[{}]", names.join(", ")));
    }
    fn parse(name: &str, from: &mut ParseArguments<'_>) -> Result<Self, String> {
        let text = from.positional().ok_or_else(|| format!("operand `{name}` is missing"))?;
        syntax::list(&text)?.iter().map(|item| (from.value)(item)).collect()
    }
}

impl Operand for Vec<Option<ValueId>> {
    const FORM: (&'static str, bool) = ("list of values or `_`", false);
    fn visit(&self, f: &mut dyn FnMut(ValueId)) {
        self.iter().flatten().for_each(|v| f(*v));
    }
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
        self.iter_mut().flatten().for_each(f);
    }
    fn print(&self, _: &str, to: &mut PrintArguments<'_>) {
        let names: Vec<String> = self.iter().map(|v| v.map_or_else(|| "_".to_owned(), to.name)).collect();
        to.operand(&format!("[{}]", names.join(", ")));
    }
    fn parse(name: &str, from: &mut ParseArguments<'_>) -> Result<Self, String> {
        let text = from.positional().ok_or_else(|| format!("operand `{name}` is missing"))?;
        let one = |item: &String| if item == "_" { Ok(None) } else { (from.value)(item).map(Some) };
        syntax::list(&text)?.iter().map(one).collect()
    }
}

/// Collects the text of operands and attributes.
pub struct PrintArguments<'a> {
    /// The text of a value, e.g. `%x` or `@weight`.
    pub(crate) name: &'a dyn Fn(ValueId) -> String,
    pub(crate) operands: String,
    pub(crate) attributes: String,
}

impl PrintArguments<'_> {
    fn operand(&mut self, text: &str) {
        if !self.operands.is_empty() {
            self.operands.push_str(", ");
        }
        self.operands.push_str(text);
    }

    /// Writes an attribute, unless it is absent.
    pub fn attribute(&mut self, name: &str, value: &impl Attribute) {
        if let Some(text) = value.print() {
            let comma = if self.attributes.is_empty() { "" } else { ", " };
            self.attributes.push_str(&format!("{comma}{name} = {text}"));
        }
    }
}

/// Hands out operands and attributes from text.
pub struct ParseArguments<'a> {
    /// The value of a text such as `%x`.
    pub(crate) value: &'a dyn Fn(&str) -> Result<ValueId, String>,
    /// Operands without a key, last first.
    pub(crate) positional: Vec<String>,
    pub(crate) keyed: Vec<(String, String)>,
    pub(crate) attributes: Vec<(String, String)>,
}

impl ParseArguments<'_> {
    fn positional(&mut self) -> Option<String> {
        self.positional.pop()
    }

    fn keyed(&mut self, name: &str) -> Option<String> {
        let at = self.keyed.iter().position(|(key, _)| key == name)?;
        Some(self.keyed.remove(at).1)
    }

    /// Takes an attribute.
    ///
    /// # Errors
    /// When its text has another form, or it is required and absent.
    pub fn attribute<T: Attribute>(&mut self, name: &str) -> Result<T, String> {
        let at = self.attributes.iter().position(|(key, _)| key == name);
        let text = at.map(|i| self.attributes.remove(i).1);
        T::parse(text.as_deref()).map_err(|e| format!("attribute `{name}` {e}"))
    }

    /// Checks that everything was taken.
    pub(crate) fn finish(&self) -> Result<(), String> {
        if let Some(text) = self.positional.last() {
            return Err(format!("unexpected operand `{text}`"));
        }
        match self.keyed.first().map(|k| ("operand", k)).or(self.attributes.first().map(|a| ("attribute", a))) {
            Some((what, (name, _))) => Err(format!("unknown {what} `{name}`")),
            None => Ok(()),
        }
    }
}

/// What the text form of an operator has.
#[derive(Clone, Debug)]
pub struct Schema {
    /// What the operator is, for each of its mnemonics.
    pub docs: &'static [&'static str],
    /// The operands, in the order of the text form.
    pub operands: Vec<Field>,
    /// The attributes, in the order of the text form.
    pub attributes: Vec<Field>,
}

/// An operand or an attribute.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// What its text is: part of a sentence, or a name of the grammar.
    pub form: String,
    /// Whether it may be absent.
    pub optional: bool,
    /// What it means.
    pub doc: &'static str,
}

impl Field {
    pub(crate) fn new(name: &'static str, (form, optional): (impl Into<String>, bool), doc: &'static str) -> Self {
        Self { name, form: form.into(), optional, doc }
    }
}

/// What the `payload!` macro derives for an operator.
pub trait Payload: Sized {
    /// The names in the text form: one, or one a kind.
    const MNEMONICS: &'static [&'static str];
    /// The place of the name in [`Self::MNEMONICS`].
    fn place(&self) -> usize;
    /// What its text form has.
    fn schema() -> Schema;
    /// Calls `f` on each operand.
    fn visit(&self, f: &mut dyn FnMut(ValueId));
    /// Calls `f` on each operand with the name of its field.
    fn visit_named(&self, f: &mut dyn FnMut(&'static str, ValueId));
    /// Calls `f` on each operand to replace it.
    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut ValueId));
    /// Calls `f` on each dimension in the attributes.
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim));
    /// Replaces each dimension in the attributes by what `f` gives for it.
    fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim);
    /// Writes operands and attributes.
    fn print(&self, to: &mut PrintArguments<'_>);
    /// Takes operands and attributes.
    ///
    /// # Errors
    /// When one is missing or has another form.
    fn parse(mnemonic: &str, from: &mut ParseArguments<'_>) -> Result<Self, String>;
}

/// The typing rule of an operator.
pub trait TypeRule {
    /// The types of the results, from those of the operands.
    ///
    /// # Errors
    /// When the operands do not fit: what was expected and what is there.
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String>;
}

/// Defines an operator's struct with its text form. `NAME = "mnemonic"` is a single operator;
/// `NAME: KIND` a family whose mnemonic is the kind's name.
macro_rules! payload {
    ($(#[doc = $doc:literal])* $name:ident = $mnemonic:literal {
        operands { $($(#[doc = $od:literal])* $o:ident: $ot:ty,)* }
        attributes { $($(#[doc = $ad:literal])* $a:ident: $at:ty,)* }
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[doc = $od])* pub $o: $ot,)* $($(#[doc = $ad])* pub $a: $at,)* }

        impl $crate::ops::Payload for $name {
            const MNEMONICS: &'static [&'static str] = &[$mnemonic];
            fn place(&self) -> usize { 0 }
            $crate::ops::payload::payload!(
                @fields [&[concat!($($doc,)*)]]
                [$($o: $ot, concat!($($od,)*);)*] [$($a: $at, concat!($($ad,)*);)*]
            );
            fn parse(_: &str, from: &mut $crate::ops::payload::ParseArguments<'_>) -> Result<Self, String> {
                Ok(Self {
                    $($o: $crate::ops::Operand::parse(stringify!($o), from)?,)*
                    $($a: from.attribute(stringify!($a))?,)*
                })
            }
        }
    };
    ($(#[doc = $doc:literal])* $name:ident: $kind:ident {
        operands { $($(#[doc = $od:literal])* $o:ident: $ot:ty,)* }
        attributes { $($(#[doc = $ad:literal])* $a:ident: $at:ty,)* }
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Which operator of the family.
            pub kind: $kind,
            $($(#[doc = $od])* pub $o: $ot,)*
            $($(#[doc = $ad])* pub $a: $at,)*
        }

        impl $crate::ops::Payload for $name {
            const MNEMONICS: &'static [&'static str] = $kind::NAMES;
            fn place(&self) -> usize { self.kind as usize }
            $crate::ops::payload::payload!(
                @fields [$kind::DOCS]
                [$($o: $ot, concat!($($od,)*);)*] [$($a: $at, concat!($($ad,)*);)*]
            );
            fn parse(mnemonic: &str, from: &mut $crate::ops::payload::ParseArguments<'_>) -> Result<Self, String> {
                Ok(Self {
                    kind: mnemonic.parse()?,
                    $($o: $crate::ops::Operand::parse(stringify!($o), from)?,)*
                    $($a: from.attribute(stringify!($a))?,)*
                })
            }
        }
    };
    (@fields [$docs:expr] [$($o:ident: $ot:ty, $od:expr;)*] [$($a:ident: $at:ty, $ad:expr;)*]) => {
        fn schema() -> $crate::ops::Schema {
            use $crate::ops::Field;
            $crate::ops::Schema {
                docs: $docs,
                operands: vec![$(Field::new(stringify!($o), <$ot as $crate::ops::Operand>::FORM, $od)),*],
                attributes: vec![$(Field::new(stringify!($a), <$at as $crate::ops::Attribute>::form(), $ad)),*],
            }
        }
        fn visit_dims(&self, f: &mut dyn FnMut(&$crate::Dim)) {
            $($crate::ops::Attribute::visit_dims(&self.$a, f);)*
            let _ = f;
        }
        fn map_dims(&mut self, f: &mut dyn FnMut(&$crate::Dim) -> $crate::Dim) {
            $($crate::ops::Attribute::map_dims(&mut self.$a, f);)*
            let _ = f;
        }
        fn visit(&self, f: &mut dyn FnMut($crate::ValueId)) {
            $($crate::ops::Operand::visit(&self.$o, f);)*
            let _ = f;
        }
        fn visit_named(&self, f: &mut dyn FnMut(&'static str, $crate::ValueId)) {
            $($crate::ops::Operand::visit(&self.$o, &mut |value| f(stringify!($o), value));)*
            let _ = f;
        }
        fn visit_mut(&mut self, f: &mut dyn FnMut(&mut $crate::ValueId)) {
            $($crate::ops::Operand::visit_mut(&mut self.$o, f);)*
            let _ = f;
        }
        fn print(&self, to: &mut $crate::ops::payload::PrintArguments<'_>) {
            $($crate::ops::Operand::print(&self.$o, stringify!($o), to);)*
            $(to.attribute(stringify!($a), &self.$a);)*
            let _ = to;
        }
    };
}

pub(crate) use payload;

/// The text of an operator's operands and attributes; `name` is the text of a value.
pub(crate) fn payload_text(op: &super::Op, name: &dyn Fn(ValueId) -> String) -> (String, String) {
    let mut printer = PrintArguments { name, operands: String::new(), attributes: String::new() };
    op.print(&mut printer);
    (printer.operands, printer.attributes)
}

/// An operator from its text; `value` finds the value of a text such as `%x`.
pub(crate) fn payload_parse(
    mnemonic: &str,
    operands: &str,
    attributes: &str,
    value: &dyn Fn(&str) -> Result<ValueId, String>,
) -> Result<super::Op, String> {
    let (mut positional, mut keyed, mut named) = (Vec::new(), Vec::new(), Vec::new());
    for operand in syntax::split(operands, ',')? {
        match syntax::cut(operand, ":")? {
            Some((key, text)) => keyed.push((key.to_owned(), text.to_owned())),
            None => positional.push(operand.to_owned()),
        }
    }
    positional.reverse();
    for attribute in syntax::split(attributes, ',')? {
        let (key, text) =
            syntax::cut(attribute, "=")?.ok_or_else(|| format!("expected `name = value`, found `{attribute}`"))?;
        named.push((key.to_owned(), text.to_owned()));
    }
    let mut arguments = ParseArguments { value, positional, keyed, attributes: named };
    let op = super::Op::parse(mnemonic, &mut arguments).map_err(|e| format!("`{mnemonic}`: {e}"))?;
    arguments.finish().map_err(|e| format!("`{mnemonic}`: {e}"))?;
    Ok(op)
}
