//! What an element of a tensor is, as a function of its position.
//!
//! Exporters write masks as arithmetic on positions: ranges compared with each other, gathers whose
//! indices amount to the position itself, conditions turned into numbers and back. All of it says
//! something of one element; here that is worked out, symbolically, from the element's index.

mod constant;
mod index;
mod truth;
mod walk;

use planish_ir::{Dim, ValueId};

pub(super) use truth::{Fact, Number, Truth};
pub(super) use walk::{Elements, MASKED};

/// An element of a tensor of which nothing is known but its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: ValueId,
    pub(super) index: Vec<Dim>,
}

/// What is known of an element.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    /// An integer that follows from the index and from sizes.
    Integer(Dim),
    /// A condition.
    Truth(Truth),
    /// One of some constants, by conditions.
    Number(Number),
    /// An integer that is an element of another tensor.
    Entry(Entry),
}
