//! The types of attributes, and their text.

use std::fmt;
use std::str::FromStr;

use crate::text::syntax;
use crate::{DType, Dim, Shape};

/// A floating-point attribute that compares and hashes by its bits.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An attribute field and its text.
pub trait Attribute: Sized {
    /// What its text is, and whether it may be absent.
    fn form() -> (String, bool);
    /// The text, or `None` where an optional attribute is absent.
    fn print(&self) -> Option<String>;
    /// The value of a text, or of an absent attribute.
    ///
    /// # Errors
    /// When the text has another form, or a required attribute is absent.
    fn parse(text: Option<&str>) -> Result<Self, String>;
    /// Calls `f` on each dimension in the value.
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim));
    /// Replaces each dimension in the value by what `f` gives for it.
    fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim);
}

macro_rules! attribute {
    ($($t:ty: $form:literal, $parse:expr, $dims:expr, $map:expr;)*) => {
        $(impl Attribute for $t {
            fn form() -> (String, bool) {
                ($form.to_owned(), false)
            }
            fn print(&self) -> Option<String> {
                Some(self.to_string())
            }
            fn parse(text: Option<&str>) -> Result<Self, String> {
                let text = text.ok_or("is missing")?;
                let parse: fn(&str) -> Result<$t, String> = $parse;
                parse(text)
            }
            fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
                let dims: fn(&$t) -> &[Dim] = $dims;
                dims(self).iter().for_each(f);
            }
            fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim) {
                let map: fn(&mut $t, &mut dyn FnMut(&Dim) -> Dim) = $map;
                map(self, f);
            }
        })*
    };
}

fn from_str<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("`{text}`: {e}"))
}

attribute! {
    i64: "integer", from_str, |_| &[], |_, _| {};
    usize: "integer", from_str, |_| &[], |_, _| {};
    bool: "boolean", from_str, |_| &[], |_, _| {};
    DType: "dtype", from_str, |_| &[], |_, _| {};
    Dim: "dimension", syntax::dim, std::slice::from_ref, |dim, f| *dim = f(dim);
    Shape: "list of dimensions", syntax::shape, |shape| shape, |shape, f| *shape = Shape::new(shape.iter().map(f));
    Real: "number", |text| from_str(text).map(Real), |_| &[], |_, _| {};
}

/// A boolean attribute that is false where its text is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flag(pub bool);

impl Attribute for Flag {
    fn form() -> (String, bool) {
        ("`true`".to_owned(), true)
    }
    fn print(&self) -> Option<String> {
        self.0.then(|| "true".to_owned())
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        text.map_or(Ok(Self(false)), |t| bool::parse(Some(t)).map(Self))
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
}

impl<T: Attribute> Attribute for Option<T> {
    fn form() -> (String, bool) {
        (T::form().0, true)
    }
    fn print(&self) -> Option<String> {
        self.as_ref()?.print()
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        text.map(|t| T::parse(Some(t))).transpose()
    }
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|value| value.visit_dims(f));
    }
    fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim) {
        self.iter_mut().for_each(|value| value.map_dims(f));
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    fn form() -> (String, bool) {
        (format!("list of {}s", T::form().0), false)
    }
    fn print(&self) -> Option<String> {
        let items: Vec<String> = self.iter().filter_map(T::print).collect();
        Some(format!("[{}]", items.join(", ")))
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        syntax::list(text.ok_or("is missing")?)?.iter().map(|t| T::parse(Some(t))).collect()
    }
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|value| value.visit_dims(f));
    }
    fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim) {
        self.iter_mut().for_each(|value| value.map_dims(f));
    }
}
