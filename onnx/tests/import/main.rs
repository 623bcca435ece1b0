//! ONNX graphs into the IR: small models built from the messages of the format.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod bad;
mod bodies;
mod control;
mod elementwise;
mod files;
mod foreign;
mod fuzz;
mod interface;
mod later;
mod loops;
mod merged;
mod movement;
mod newer;
mod nn;
mod picked;
mod shape;
mod states;
