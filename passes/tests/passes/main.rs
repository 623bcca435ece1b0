//! The passes from outside: their documented examples, graphs as text before and after, and
//! random graphs that must mean the same after every pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod convolutions;
mod differential;
mod examples;
mod experts;
mod filetests;
mod lazy;
mod misses;
mod notes;
mod observe;
mod padded;
mod quantize;
mod share;
mod states;
mod support;
mod target;
mod trt_operators;
