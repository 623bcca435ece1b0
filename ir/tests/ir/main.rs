//! The graph from outside: symbolic dimensions, weights, graphs and their text form against
//! independent formulas, and on random input.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attention;
mod blocks;
mod codes;
mod dim;
mod docs;
mod fused;
mod graph;
mod rows;
mod slice;
mod text;
mod unpack;
mod weight;
