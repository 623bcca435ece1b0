//! [`Op`]: the enum of all operators, and what it derives of their payloads and rows.

use super::payload_text;
use super::row::{Kind, Row};
use super::{Op, Types};
use crate::{Symbol, ValueId};

/// Defines `Op` of the table of operators: a variant for each payload, and the rows of the payload's operators, in the order
/// of its mnemonics.
macro_rules! operators {
    ($d:tt $($(#[$doc:meta])* $name:ident {
        $($mnemonic:literal: $onnx:expr, $kind:ident, $precision:ident, $magnitude:ident, $operations:expr, $types:expr;)*
    })*) => {
        /// An operator with its operands and attributes.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(payload: $name) -> Op { Op::$name(payload) }
        }

        impl Rows for $name {
            const ROWS: &'static [Row] = {
                #[allow(unused_imports, reason = "each row uses some")]
                use row::{Kind::*, Magnitude::*, Operations::*, Precision::*};
                &[$(Row {
                    mnemonic: $mnemonic,
                    onnx: $onnx,
                    kind: $kind,
                    precision: $precision,
                    magnitude: $magnitude,
                    operations: $operations,
                    types: $types,
                },)*]
            };
        }

        const _: () = assert!(op::are_rows_of($name::ROWS, $name::MNEMONICS), "a row for each mnemonic, in their order");)*

        impl Op {
            /// What is known of the operator besides its types.
            #[must_use]
            pub fn row(&self) -> &'static Row {
                match self { $(Op::$name(p) => &$name::ROWS[p.place()],)* }
            }

            /// The rows of all operators, group by group.
            pub fn rows() -> impl Iterator<Item = &'static Row> {
                [$($name::ROWS,)*].into_iter().flatten()
            }

            /// What the text form of each operator has, group by group: the rows of operators of the same form.
            pub fn schemas() -> impl Iterator<Item = (&'static [Row], Schema)> {
                [$(($name::ROWS, $name::schema()),)*].into_iter()
            }

            /// Calls `f` on each operand, in the order of the text form.
            pub fn visit_operands(&self, f: &mut dyn FnMut(ValueId)) {
                match self { $(Op::$name(p) => p.visit(f),)* }
            }

            /// Calls `f` on each operand, in the order of the text form, with the name of its field, e.g. `weight`.
            pub fn visit_named_operands(&self, f: &mut dyn FnMut(&'static str, ValueId)) {
                match self { $(Op::$name(p) => p.visit_named(f),)* }
            }

            /// Calls `f` on each operand to replace it.
            pub fn visit_operands_mut(&mut self, f: &mut dyn FnMut(&mut ValueId)) {
                match self { $(Op::$name(p) => p.visit_mut(f),)* }
            }

            /// Calls `f` on each dimension in the attributes.
            pub fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
                match self { $(Op::$name(p) => p.visit_dims(f),)* }
            }

            /// Replaces each dimension in the attributes by what `f` gives for it.
            pub fn map_dims(&mut self, f: &mut dyn FnMut(&Dim) -> Dim) {
                match self { $(Op::$name(p) => p.map_dims(f),)* }
            }

            /// The types of the results, from those of the operands.
            ///
            /// # Errors
            /// When the operands do not fit the operator: what was expected and what is there.
            pub fn infer(&self, types: &Types<'_>) -> Result<Vec<Type>, String> {
                self.check_tensors(types)?;
                match self { $(Op::$name(p) => Ok(p.infer(types)?.into_iter().map(Type::from).collect()),)* }
            }

            pub(crate) fn print(&self, printer: &mut PrintArguments<'_>) {
                match self { $(Op::$name(p) => p.print(printer),)* }
            }

            pub(crate) fn parse(mnemonic: &str, arguments: &mut ParseArguments<'_>) -> Result<Op, String> {
                $(if $name::MNEMONICS.contains(&mnemonic) {
                    return $name::parse(mnemonic, arguments).map(Op::$name);
                })*
                Err(format!("unknown operator `{mnemonic}`"))
            }
        }

        /// Calls a macro with the names of all variants of [`Op`](crate::Op), which are those of their payloads.
        #[macro_export]
        macro_rules! with_operators {
            ($d callback:ident) => {
                $d callback! { $($name)* }
            };
        }
    };
}

pub(super) use operators;

/// The rows of the operators of a payload, in the order of its mnemonics.
pub(super) trait Rows {
    const ROWS: &'static [Row];
}

impl Op {
    /// What messages call it: its name in the text form, e.g. `linear`, or its name in ONNX where a graph only
    /// passes it through.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Op::Foreign(foreign) => &foreign.op.0,
            op => op.mnemonic(),
        }
    }

    /// The name in the text form, e.g. `linear`.
    #[must_use]
    pub fn mnemonic(&self) -> &'static str {
        self.row().mnemonic
    }

    /// The attributes as the text form has them, such as `axis = 1, keep_dims = true`; empty where there are none.
    #[must_use]
    pub fn attributes_text(&self) -> String {
        payload_text(self, &|_| String::new()).1
    }

    /// Every mnemonic, group by group.
    pub fn mnemonics() -> impl Iterator<Item = &'static str> {
        Self::rows().map(|row| row.mnemonic)
    }

    /// The operands, in the order of the text form.
    #[must_use]
    pub fn operands(&self) -> Vec<ValueId> {
        let mut out = Vec::new();
        self.visit_operands(&mut |v| out.push(v));
        out
    }

    /// The symbols of results whose size the operator determines, unless inputs or operators in front of it do.
    pub fn determined_symbols(&self) -> impl Iterator<Item = &Symbol> {
        let (foreign, conv) = match self {
            Op::Foreign(p) => (Some(p.result_symbols()), None),
            Op::Conv(p) => (None, Some(p.result_symbols())),
            _ => (None, None),
        };
        foreign.into_iter().flatten().chain(conv.into_iter().flatten())
    }

    /// Whether results may have sizes that the operator determines.
    #[must_use]
    pub fn determines_sizes(&self) -> bool {
        matches!(self, Op::Foreign(_) | Op::Conv(_))
    }

    /// Whether it is several operators in one, which only targets with kernels of their own run.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.row().kind == Kind::Fused
    }

    /// Whether it is products with sums of many of them.
    #[must_use]
    pub fn is_product(&self) -> bool {
        self.row().kind == Kind::Product
    }

    /// Checks that operands are tensors of a known number of dimensions, but those of operators that pass through.
    pub(crate) fn check_tensors(&self, types: &Types<'_>) -> Result<(), String> {
        let mut result = Ok(());
        if !matches!(self, Op::Foreign(_)) {
            self.visit_operands(&mut |v| {
                result = std::mem::replace(&mut result, Ok(())).and_then(|()| types.tensor(v))
            });
        }
        result
    }
}

/// Whether there is a row for each mnemonic, in their order.
pub(super) const fn are_rows_of(rows: &[Row], mnemonics: &[&str]) -> bool {
    let mut at = 0;
    while at < rows.len() && at < mnemonics.len() {
        if !is_same(rows[at].mnemonic.as_bytes(), mnemonics[at].as_bytes()) {
            return false;
        }
        at += 1;
    }
    rows.len() == mnemonics.len()
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    a.len() == b.len()
}
