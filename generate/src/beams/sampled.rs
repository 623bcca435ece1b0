//! Beams of sampled tokens.

use std::cmp::Ordering;

use super::{Candidate, PromptSearch, SearchOptions, log_sum_exp};
use crate::Sampling;

impl PromptSearch<'_> {
    /// Draws `count` of what all beams may grow by, without replacement and by the probabilities of the whole texts, given the
    /// scores of the next token for each beam. The best comes first.
    ///
    /// This is `GenerationMixin._beam_search` of the transformers library with `do_sample`: temperature, `top_k`, `top_p` and `min_p`
    /// change the log probabilities of each beam's next token, which are then added to the beam's sum. The draws are a race of
    /// exponential variables (Efraimidis and Spirakis 2006), as those of `torch.multinomial`.
    pub(super) fn drawn(
        &mut self,
        logits: &[&[f32]],
        options: &SearchOptions,
        sampling: &Sampling,
        count: usize,
    ) -> Vec<Candidate> {
        let mut racing = Vec::new();
        for (row, (beam, logits)) in self.live.iter().zip(logits).enumerate() {
            let scores = self.log_probabilities(beam, logits, options);
            let mut left = sampling.warped(&scores, options.fewest());
            left.sort_unstable_by_key(|(index, _)| *index);
            let all: Vec<f32> = left.iter().map(|(_, score)| *score as f32).collect();
            let again = if options.processors.renormalize { log_sum_exp(&all) } else { 0.0 };
            let candidates =
                left.iter().map(|(index, score)| Candidate { score: beam.sum + score - again, row, index: *index });
            racing.extend(
                candidates.filter(|candidate| candidate.score > f64::NEG_INFINITY).map(|candidate| (candidate, 0.0)),
            );
        }
        for (candidate, place) in &mut racing {
            // The logarithm of the probability over an exponential variable; it is infinite where the variable is 0.
            let variable = -(-self.generator.f64()).ln_1p();
            *place = candidate.score - variable.ln();
        }
        racing.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap_or(Ordering::Equal));
        let mut drawn: Vec<Candidate> = racing.into_iter().take(count).map(|(candidate, _)| candidate).collect();
        drawn.sort_unstable_by(Candidate::rank);
        drawn
    }
}
