//! Continuations that grow token by token, each by itself.

use std::num::NonZeroUsize;

use anyhow::Result;
use fastrand::Rng;

use super::sample::generators;
use super::{Continuation, Prompt, Sampling, Scores, SearchOptions, Started, likeliest, nothing_follows};

/// The likeliest token by a row of scores to follow what is new of a prompt's text.
pub(super) fn greedy(
    scores: &Scores,
    row: usize,
    prompt: &Prompt,
    new: &[i64],
    options: &SearchOptions,
) -> Result<i64> {
    let processed = options.processors.processed(scores.row(row)?, prompt.sequence(new, options));
    Ok(i64::try_from(likeliest(&processed).ok_or_else(nothing_follows)?)?)
}

/// Continues each prompt by the likeliest token or, with `sampling`, by one that is drawn, as often as is asked for. The row that
/// read a prompt becomes the rows of its continuations with their first tokens.
pub(super) fn search(started: Started<'_>, sampling: Option<&Sampling>) -> Result<Vec<Continuation>> {
    let Started { model, mut scores, prompts, options, on_token, .. } = started;
    let repeats = options.continuations.get();
    let empty = |prompt: &Prompt| Continuation::empty(prompt.limit.stop);
    let mut continuations: Vec<Continuation> = prompts.iter().flat_map(|prompt| vec![empty(prompt); repeats]).collect();
    let mut generators: Vec<Rng> = prompts.iter().flat_map(|prompt| generators(prompt.seed, repeats)).collect();
    // Those that grow, each with its row of scores.
    let mut growing: Vec<(usize, usize)> = (0..continuations.len()).map(|number| (number, number / repeats)).collect();
    // How many of the best scores are enough; processors may make any token the best.
    let count = match sampling {
        _ if !options.processors.is_empty() => None,
        Some(sampling) => sampling.top_k.map(NonZeroUsize::get),
        None => Some(1),
    };
    loop {
        let (mut rows, mut ids, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let best = count.map(|count| scores.best(count)).transpose()?.flatten();
        for (number, row) in growing {
            let (prompt, continuation) = (&prompts[number / repeats], &mut continuations[number]);
            let id = match (&best, sampling) {
                (Some(best), Some(sampling)) => sampling.draw_of(&best[row].best, &mut generators[number]),
                (Some(best), None) => {
                    best[row].best.first().filter(|(_, score)| *score > f32::NEG_INFINITY).map(|(id, _)| *id)
                }
                (None, _) => {
                    let sequence = prompt.sequence(&continuation.ids, options);
                    let scores = options.processors.processed(scores.row(row)?, sequence);
                    match sampling {
                        Some(sampling) => sampling.draw(&scores, &mut generators[number]),
                        None => likeliest(&scores),
                    }
                }
            };
            let id = i64::try_from(id.ok_or_else(nothing_follows)?)?;
            continuation.ids.push(id);
            let stop = prompt.limit.stops(continuation.ids.len(), id, &options.end_tokens);
            match stop.or(on_token(number, id)?.break_value()) {
                Some(stop) => continuation.stop = stop,
                None => {
                    rows.push(row);
                    ids.push(id);
                    left.push(number);
                }
            }
        }
        if rows.is_empty() {
            return Ok(continuations);
        }
        // Their memory is free before the next ones need some.
        drop(scores);
        scores = model.step(&rows, &ids)?;
        growing = left.into_iter().enumerate().map(|(row, number)| (number, row)).collect();
    }
}
