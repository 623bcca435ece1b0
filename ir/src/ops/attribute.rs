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
    /// The text, or `None` where an optional attribute is absent.
    fn print(&self) -> Option<String>;
    /// The value of a text, or of an absent attribute.
    ///
    /// # Errors
    /// When the text has another form, or a required attribute is absent.
    fn parse(text: Option<&str>) -> Result<Self, String>;
    /// Calls `f` on each dimension in the value.
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim));
}

macro_rules! attribute {
    ($($t:ty: $parse:expr, $dims:expr;)*) => {
        $(impl Attribute for $t {
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
        })*
    };
}

fn from_str<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("`{text}`: {e}"))
}

attribute! {
    i64: from_str, |_| &[];
    usize: from_str, |_| &[];
    bool: from_str, |_| &[];
    DType: from_str, |_| &[];
    Dim: syntax::dim, std::slice::from_ref;
    Shape: syntax::shape, |shape| shape;
    Real: |text| from_str(text).map(Real), |_| &[];
}

/// A boolean attribute that is false where its text is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flag(pub bool);

impl Attribute for Flag {
    fn print(&self) -> Option<String> {
        self.0.then(|| "true".to_owned())
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        text.map_or(Ok(Self(false)), |t| bool::parse(Some(t)).map(Self))
    }
    fn visit_dims(&self, _: &mut dyn FnMut(&Dim)) {}
}

impl<T: Attribute> Attribute for Option<T> {
    fn print(&self) -> Option<String> {
        self.as_ref()?.print()
    }
    fn parse(text: Option<&str>) -> Result<Self, String> {
        text.map(|t| T::parse(Some(t))).transpose()
    }
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|value| value.visit_dims(f));
    }
}

impl<T: Attribute> Attribute for Vec<T> {
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
}
