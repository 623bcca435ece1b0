//! Several ranks in one process: a thread for each, which meet at collectives.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use planish_ir::Graph;

use crate::{Communicator, EvalError, Interpreter, Tensor};

/// The outputs of a graph under their names.
type Outputs = Vec<(String, Tensor)>;

impl Interpreter<'_> {
    /// Runs the graphs of ranks at the same time, each on its inputs; the outputs of each rank. Ranks that do not run the same
    /// collectives in the same order are an error.
    ///
    /// # Errors
    /// That of the rank that failed first, as of [`Interpreter::run`].
    pub fn run_ranks(&self, ranks: &[(&Graph, Vec<(&str, Tensor)>)]) -> Result<Vec<Outputs>, EvalError> {
        let meeting = Meeting::new(ranks.len());
        let mut results: Vec<_> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (rank, (graph, inputs)) in ranks.iter().enumerate() {
                let meeting = &meeting;
                threads.push(scope.spawn(move || {
                    let member = Member { meeting, rank };
                    Interpreter { communicator: Some(&member), ..*self }.run(graph, inputs)
                }));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        // The others fail because it has ended.
        let first = meeting.state().ended.iter().copied().find(|rank| results[*rank].is_err());
        match first {
            Some(rank) => results.swap_remove(rank).map(|_| Vec::new()),
            None => results.into_iter().collect(),
        }
    }
}

/// Where ranks exchange tensors.
struct Meeting {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many collectives are complete.
    complete: usize,
    /// What ranks have brought to the next one.
    brought: Vec<Option<(String, Arc<Tensor>)>>,
    /// What all brought to the last one. The next one is not complete before each rank has taken it.
    last: Vec<Arc<Tensor>>,
    /// The ranks that have ended, in order.
    ended: Vec<usize>,
    /// Why ranks do not meet any more.
    failed: Option<String>,
}

/// A rank of a meeting, until it is dropped.
struct Member<'a> {
    meeting: &'a Meeting,
    rank: usize,
}

impl Meeting {
    fn new(ranks: usize) -> Self {
        let state =
            State { complete: 0, brought: vec![None; ranks], last: Vec::new(), ended: Vec::new(), failed: None };
        Self { ranks, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for Member<'_> {
    fn ranks(&self) -> usize {
        self.meeting.ranks
    }

    fn exchange(&self, collective: &str, tensor: &Tensor) -> Result<Vec<Arc<Tensor>>, String> {
        let mut state = self.meeting.state();
        state.brought[self.rank] = Some((format!("{collective} of {}", tensor.ty()), Arc::new(tensor.clone())));
        if !state.ended.is_empty() || state.brought.iter().all(Option::is_some) {
            state.finish();
            self.meeting.changed.notify_all();
            return state.taken();
        }
        let before = state.complete;
        while state.complete == before && state.failed.is_none() {
            state = self.meeting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken()
    }
}

impl State {
    /// Completes a collective, or says why it cannot be.
    fn finish(&mut self) {
        let waiting = |(rank, brought): (usize, &Option<(String, _)>)| {
            brought.as_ref().map(|(what, _)| format!("rank {rank} is at {what}"))
        };
        let places: Vec<String> = self.brought.iter().enumerate().filter_map(waiting).collect();
        let ended: Vec<String> = self.ended.iter().map(|rank| format!("rank {rank} has ended")).collect();
        let mut kinds = self.brought.iter().flatten().map(|(what, _)| what);
        let first = kinds.next();
        if !ended.is_empty() || kinds.any(|what| Some(what) != first) {
            self.failed.get_or_insert_with(|| {
                format!("the ranks do not run the same collectives: {}", [places, ended].concat().join(", "))
            });
            return;
        }
        self.last = self.brought.iter_mut().filter_map(|brought| Some(brought.take()?.1)).collect();
        self.complete += 1;
    }

    fn taken(&self) -> Result<Vec<Arc<Tensor>>, String> {
        self.failed.clone().map_or_else(|| Ok(self.last.clone()), Err)
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut state = self.meeting.state();
        state.ended.push(self.rank);
        if state.brought.iter().any(Option::is_some) {
            state.finish();
            self.meeting.changed.notify_all();
        }
    }
}
