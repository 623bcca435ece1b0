//! Names of dimensions. ONNX allows any text; here they are identifiers, and what looks like a sum
//! of others is one.

use std::collections::{HashMap, HashSet};

use planish_ir::{Dim, Shape};

use crate::proto::{DimensionValue, TypeProto};

/// What the texts of dimensions stand for.
#[derive(Default)]
pub(super) struct Symbols {
    /// By text.
    dims: HashMap<String, Dim>,
    taken: HashSet<String>,
    /// By what names begin with, the number that the last one of them ends with.
    suffixes: HashMap<String, usize>,
}

impl Symbols {
    /// Takes the texts that inputs have as dimensions: first those that are one name, then those
    /// that are made of such names.
    pub(super) fn declare<'a>(&mut self, texts: impl Iterator<Item = &'a str> + Clone) {
        for text in texts.clone() {
            if let Ok(dim) = text.parse::<Dim>()
                && dim.as_symbol().is_some()
            {
                self.taken.insert(text.trim().to_owned());
                self.dims.insert(text.to_owned(), dim);
            }
        }
        for text in texts.clone() {
            // A size that is a multiple of one that no input has says what that is.
            if let Ok(dim) = text.parse::<Dim>()
                && let Some((symbol, 2..)) = dim.as_multiple()
                && self.taken.insert(symbol.to_string())
            {
                self.dims.insert(symbol.to_string(), Dim::symbol(symbol));
            }
        }
        for text in texts {
            if self.dims.contains_key(text) {
                continue;
            }
            let is_sum = |dim: &Dim| dim.as_constant().is_none() && dim.symbols().all(|s| self.taken.contains(&**s));
            let sum = text.parse::<Dim>().ok().filter(is_sum);
            let dim = sum.unwrap_or_else(|| self.fresh(text));
            self.dims.insert(text.to_owned(), dim);
        }
    }

    /// A dimension by its text.
    pub(super) fn dim(&mut self, text: &str) -> Dim {
        if let Some(dim) = self.dims.get(text) {
            return dim.clone();
        }
        let dim = self.fresh(text);
        self.dims.insert(text.to_owned(), dim.clone());
        dim
    }

    /// A symbol that stands for nothing yet, named after a text.
    pub(super) fn fresh(&mut self, text: &str) -> Dim {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut base: String = text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).chars().map(plain).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic()) {
            base.insert_str(0, "dim_");
        }
        let mut name = base.clone();
        let suffix = self.suffixes.entry(base.clone()).or_default();
        while !self.taken.insert(name.clone()) {
            *suffix += 1;
            name = format!("{base}_{suffix}");
        }
        Dim::symbol(&name)
    }

    /// The shape of a declared type; dimensions without size or text are symbols named after `value`, and so are those
    /// of size -1, as some exporters write them.
    ///
    /// # Errors
    /// When another size is negative. `Ok(None)` where no shape is declared.
    pub(super) fn shape(&mut self, ty: &TypeProto, value: &str) -> Result<Option<Shape>, String> {
        let Some(shape) = ty.tensor_type.as_ref().and_then(|t| t.shape.as_ref()) else { return Ok(None) };
        let mut dims = Vec::new();
        for (axis, dim) in shape.dim.iter().enumerate() {
            dims.push(match &dim.value {
                Some(DimensionValue::DimValue(size)) if *size < -1 => {
                    return Err(format!("dimension {axis} of `{value}` is {size}"));
                }
                Some(DimensionValue::DimValue(size)) if *size >= 0 => Dim::constant(*size),
                Some(DimensionValue::DimParam(text)) if !text.trim().is_empty() => self.dim(text),
                _ => self.fresh(&format!("{value}_dim_{axis}")),
            });
        }
        Ok(Some(Shape::new(dims)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(symbols: &mut Symbols, given: &[&str]) -> Vec<String> {
        given.iter().map(|text| symbols.dim(text).to_string()).collect()
    }

    #[test]
    fn sums_are_of_names_that_stand_alone_somewhere() {
        let mut symbols = Symbols::default();
        symbols.declare(["past + new", "new", "past", "other + new", "2"].into_iter());
        assert_eq!(texts(&mut symbols, &["past + new", "other + new"]), ["new + past", "other___new"]);
        // Numbers are made of no names.
        symbols.declare(["2", "-1"].into_iter());
        assert_eq!(texts(&mut symbols, &["2", "-1"]), ["dim_2", "dim_1"]);
    }

    #[test]
    fn a_multiple_of_a_name_is_one() {
        let mut symbols = Symbols::default();
        symbols.declare(["4*places", "rows", "2*rows"].into_iter());
        assert_eq!(texts(&mut symbols, &["4*places", "places", "2*rows"]), ["4*places", "places", "2*rows"]);
    }

    #[test]
    fn a_text_is_one_symbol_and_two_texts_are_two() {
        let mut symbols = Symbols::default();
        assert_eq!(texts(&mut symbols, &["a b", "a-b", "a b", "?", "1st"]), ["a_b", "a_b_1", "a_b", "dim_", "dim_1st"]);
        assert_eq!(symbols.fresh("a b").to_string(), "a_b_2");
    }
}
