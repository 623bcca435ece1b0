//! One continuation a prompt, token by token.

use std::num::NonZeroUsize;

use anyhow::Result;

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

/// Continues each prompt by the likeliest token or, with `sampling`, by one that is drawn.
pub(super) fn search(started: Started<'_>, sampling: Option<&Sampling>) -> Result<Vec<Continuation>> {
    let Started { model, mut scores, prompts, options, on_token } = started;
    let empty = |prompt: &Prompt| Continuation { ids: Vec::new(), stop: prompt.limit.stop, text: None };
    let mut continuations: Vec<Continuation> = prompts.iter().map(empty).collect();
    let mut generators = sampling.map_or_else(Vec::new, |sampling| sampling.generators(prompts.len()));
    // The prompt of each row of scores.
    let mut of_rows: Vec<usize> = (0..prompts.len()).collect();
    // How many of the best scores are enough; processors may make any token the best.
    let count = match sampling {
        _ if !options.processors.is_empty() => None,
        Some(sampling) => sampling.top_k.map(NonZeroUsize::get),
        None => Some(1),
    };
    loop {
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        let best = count.map(|count| scores.best(count)).transpose()?.flatten();
        for (row, &prompt) in of_rows.iter().enumerate() {
            let continuation = &mut continuations[prompt];
            let id = match (&best, sampling) {
                (Some(best), Some(sampling)) => sampling.draw_of(&best[row].best, &mut generators[prompt]),
                (Some(best), None) => {
                    best[row].best.first().filter(|(_, score)| *score > f32::NEG_INFINITY).map(|(id, _)| *id)
                }
                (None, _) => {
                    let sequence = prompts[prompt].sequence(&continuation.ids, options);
                    let scores = options.processors.processed(scores.row(row)?, sequence);
                    match sampling {
                        Some(sampling) => sampling.draw(&scores, &mut generators[prompt]),
                        None => likeliest(&scores),
                    }
                }
            };
            let id = i64::try_from(id.ok_or_else(nothing_follows)?)?;
            continuation.ids.push(id);
            let stop = prompts[prompt].limit.stops(continuation.ids.len(), id, &options.end_tokens);
            match stop.or(on_token(prompt, id)?.break_value()) {
                Some(stop) => continuation.stop = stop,
                None => {
                    rows.push(row);
                    ids.push(id);
                }
            }
        }
        if rows.is_empty() {
            return Ok(continuations);
        }
        // Their memory is free before the next ones need some.
        drop(scores);
        scores = model.step(&rows, &ids)?;
        of_rows = rows.iter().map(|&row| of_rows[row]).collect();
    }
}
