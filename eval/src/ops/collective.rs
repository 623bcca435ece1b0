//! Collectives: what the ranks of a run exchange.

use std::sync::Arc;

use planish_ir::Op;
use planish_ir::ops::{AllGather, AllReduce};

use super::{Call, Context, Kernel};
use crate::element::{Element, Float, Int, with_type};
use crate::error::Failure;
use crate::{Data, Tensor};

/// The ranks of a run, as one of them sees them.
pub trait Communicator: Sync {
    /// The number of ranks.
    fn ranks(&self) -> usize;

    /// Gives a tensor to all ranks and waits for theirs: the tensors of all ranks in order. `collective` says what they are
    /// for; it is the same on all ranks.
    ///
    /// # Errors
    /// When a rank is at another collective, has another type or size of tensor, or has ended.
    fn exchange(&self, collective: &str, tensor: &Tensor) -> Result<Vec<Arc<Tensor>>, String>;
}

impl Kernel for AllReduce {
    fn run(&self, _: &Call<'_>) -> Result<Vec<Data>, String> {
        Err(alone(self.ranks))
    }
}

impl Kernel for AllGather {
    fn run(&self, _: &Call<'_>) -> Result<Vec<Data>, String> {
        Err(alone(self.ranks))
    }
}

/// Why one rank computes no collective.
fn alone(ranks: usize) -> String {
    format!("it takes {ranks} ranks that run at the same time, and this run has one")
}

/// How the result of a collective comes from the tensors of all ranks.
type Combine = fn(&[Arc<Tensor>]) -> Result<Tensor, String>;

/// The result of a collective, and of no other operator.
pub(super) fn run(op: &Op, x: &Tensor, context: Context<'_>) -> Result<Tensor, Failure> {
    let (ranks, combine): (usize, Combine) = match op {
        Op::AllReduce(op) => (op.ranks, sum),
        Op::AllGather(op) => (op.ranks, joined),
        _ => return Err("is no collective".into()),
    };
    let communicator = context.communicator.ok_or_else(|| Failure::Unsupported(alone(ranks)))?;
    if communicator.ranks() != ranks {
        return Err(format!("the graph is one of {ranks} ranks, and {} run", communicator.ranks()).into());
    }
    Ok(combine(&communicator.exchange(op.mnemonic(), x)?)?)
}

/// The sum element by element, in the order of ranks.
fn sum(tensors: &[Arc<Tensor>]) -> Result<Tensor, String> {
    let first = tensors.first().ok_or("no rank gave a tensor")?;
    let data = with_type!(first.dtype(),
        float T => {
            let mut sums = vec![0.0; first.data().len()];
            for tensor in tensors {
                sums.iter_mut().zip(T::of(tensor)?).for_each(|(sum, element)| *sum += element.widen());
            }
            T::data(sums.into_iter().map(T::narrow).collect())
        },
        int T => {
            let mut sums = vec![0; first.data().len()];
            for tensor in tensors {
                sums.iter_mut().zip(T::of(tensor)?).for_each(|(sum, element)| *sum += element.widen());
            }
            let narrowed: Option<_> = sums.into_iter().map(T::narrow).collect();
            T::data(narrowed.ok_or_else(|| format!("a sum is out of range for {}", first.dtype()))?)
        },
        bool => return Err("is not defined for bool".to_owned()));
    Tensor::new(first.shape().to_vec(), data).ok_or_else(|| "the tensors of ranks differ in size".to_owned())
}

/// The tensors after each other.
fn joined(tensors: &[Arc<Tensor>]) -> Result<Tensor, String> {
    let first = tensors.first().ok_or("no rank gave a tensor")?;
    let mut shape = first.shape().to_vec();
    let rows = shape.first_mut().ok_or("a scalar has no axis")?;
    *rows *= tensors.len();
    let mut data: Data = first.data().clone();
    let all = tensors.iter().skip(1).all(|tensor| data.extend(tensor.data()));
    all.then(|| Tensor::new(shape, data)).flatten().ok_or_else(|| "the tensors of ranks do not fit together".to_owned())
}
