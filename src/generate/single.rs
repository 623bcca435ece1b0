//! One continuation a prompt, token by token.

use anyhow::Result;

use super::{Continuation, Decoder, Limit, Sampling, Scores, likeliest};

/// Continues each prompt by the likeliest token or, with `sampling`, by one that is drawn.
pub(super) fn search(
    decoder: &mut Decoder,
    mut scores: Scores,
    limits: &[Limit],
    end_tokens: &[i64],
    sampling: Option<&Sampling>,
    on_token: &mut dyn FnMut(usize, i64) -> Result<()>,
) -> Result<Vec<Continuation>> {
    let empty = |limit: &Limit| Continuation { ids: Vec::new(), stop: limit.stop };
    let mut continuations: Vec<Continuation> = limits.iter().map(empty).collect();
    let mut generators = sampling.map_or_else(Vec::new, |sampling| sampling.generators(limits.len()));
    // The prompt of each row of scores.
    let mut prompts: Vec<usize> = (0..limits.len()).collect();
    loop {
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        for (row, &prompt) in prompts.iter().enumerate() {
            let scores = scores.row(row);
            let id = match sampling {
                Some(sampling) => sampling.draw(scores, &mut generators[prompt]),
                None => likeliest(scores),
            };
            let id = i64::try_from(id)?;
            let continuation = &mut continuations[prompt];
            continuation.ids.push(id);
            match limits[prompt].stops(continuation.ids.len(), id, end_tokens) {
                Some(stop) => continuation.stop = stop,
                None => {
                    rows.push(row);
                    ids.push(id);
                }
            }
            on_token(prompt, id)?;
        }
        if rows.is_empty() {
            return Ok(continuations);
        }
        scores = decoder.step(&rows, &ids)?;
        prompts = rows.iter().map(|&row| prompts[row]).collect();
    }
}
