//! Runs of several calls, in this process or in one of its own.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
use planish_artifact::named;
use planish_eval::Tensor;
use planish_generate::{Generated, LanguageModel, Length, SearchOptions, search};
use planish_runtimes::{RuntimeError, Session};
use serde::{Deserialize, Serialize};

/// The time of a run of several calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// Until the end of the first one.
    pub(crate) first: Duration,
    /// Of all.
    pub(crate) total: Duration,
}

/// The tensors of a text or of a batch, by the names of inputs.
pub(crate) type Inputs = Vec<(String, Tensor)>;

/// Runs a session on batches one after another.
///
/// # Errors
/// When it fails.
pub(crate) fn run_all(session: &mut dyn Session, batches: &[Inputs]) -> Result<Calls, RuntimeError> {
    let (mut first, mut total) = (None, Duration::ZERO);
    for inputs in batches {
        let fitted = named(session, inputs);
        let start = Instant::now();
        session.run(&fitted)?;
        total += start.elapsed();
        first.get_or_insert(total);
    }
    Ok(Calls { first: first.unwrap_or_default(), total })
}

/// Continues prompts greedily by so many tokens: the time of the first one, and of all.
///
/// # Errors
/// When the model does not take the prompts, or fails.
pub(crate) fn continued(
    model: &mut dyn LanguageModel,
    prompts: &[Vec<i64>],
    new_tokens: NonZeroUsize,
) -> Result<Calls> {
    let how = SearchOptions { length: Length::New(new_tokens), ..SearchOptions::default() };
    let Generated { first_token, total, .. } = search(model, prompts, &how, &mut |_, _| Ok(ControlFlow::Continue(())))?;
    Ok(Calls { first: first_token, total })
}
