//! Operators that exchange tensors between ranks: programs that each run a graph of their own at the same time, such as
//! the ranks of a model that is cut for several devices.

use super::infer::{self, OVERFLOW, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, TensorType, ValueId};

payload! {
    /// The sum of the tensors that all ranks have here, element by element: each rank gets it. All ranks run the same
    /// collectives in the same order, on tensors of the same type and size.
    AllReduce = "all_reduce" {
        operands {
            /// Numbers.
            x: ValueId,
        }
        attributes {
            /// The number of ranks, at least 2.
            ranks: usize,
        }
    }
}

impl TypeRule for AllReduce {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        numbers(x, self.ranks)?;
        Ok(vec![x.clone()])
    }
}

payload! {
    /// The tensors that all ranks have here, one after the other along the first axis in the order of ranks: each rank
    /// gets all of them. All ranks run the same collectives in the same order, on tensors of the same type and size.
    AllGather = "all_gather" {
        operands {
            /// Numbers, at least one dimension.
            x: ValueId,
        }
        attributes {
            /// The number of ranks, at least 2.
            ranks: usize,
        }
    }
}

impl TypeRule for AllGather {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        numbers(x, self.ranks)?;
        infer::axis(0, x)?;
        let ranks = i64::try_from(self.ranks).map_err(|_| OVERFLOW)?;
        let rows = x.shape[0].checked_mul(&Dim::constant(ranks)).ok_or(OVERFLOW)?;
        infer::one(x.dtype, x.shape.with_dim(0, rows))
    }
}

fn numbers(x: &TensorType, ranks: usize) -> Result<(), String> {
    ensure(x.dtype.is_computed() && x.dtype != DType::Bool, || format!("`x` is {x}, expected numbers"))?;
    ensure(ranks >= 2, || format!("there are {ranks} ranks, expected 2 or more"))
}
