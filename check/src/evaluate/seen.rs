//! What was seen of some batches: sums, and what figures need of every sample. The batches of a data set are seen one by one, and
//! folded in their order, so that the bits of a figure do not depend on which process saw which batch.

use anyhow::Result;
use planish_artifact::evaluation::OutputFigures;
use serde::{Deserialize, Serialize};

use super::labels::{Labelled, Truth};
use super::mean::Mean;
use super::metrics::{Sums, cosine, normalized};

/// What was seen of some batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    pub(super) outputs: Vec<SeenOutput>,
    /// One embedding of the reference after the other, and one of the artifact, each of length 1.
    pub(super) embeddings: [Vec<f32>; 2],
    /// The number of features of an embedding.
    pub(super) features: usize,
    pub(super) cosines: Mean,
    /// The second text of a pair whose first one is in the batch before.
    second_of_pair: Option<[Vec<f32>; 2]>,
    /// The first text of a pair whose second one is still to come.
    first_of_pair: Option<FirstOfPair>,
    pub(super) labelled: Labelled,
    pub(super) predictions: Mean,
    /// How many predictions have the same on top.
    pub(super) same: u64,
    pub(super) divergence: f64,
    /// The losses of the reference, and by how much those of the artifact are more.
    pub(super) losses: Mean,
    pub(super) more: Mean,
}

/// Sums of an output of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeenOutput {
    part: String,
    output: String,
    is_cache: bool,
    pub(super) sums: Sums,
}

/// The first text of a pair: its embeddings of the reference and the artifact, and what is true of the pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstOfPair {
    embeddings: [Vec<f32>; 2],
    truth: Truth,
}

impl Seen {
    /// The sums of an output of a part.
    pub(super) fn output(&mut self, part: &str, output: &str, is_cache: bool) -> &mut Sums {
        let known = self.outputs.iter().position(|other| other.part == part && other.output == output);
        let at = known.unwrap_or_else(|| {
            let (part, output) = (part.to_owned(), output.to_owned());
            self.outputs.push(SeenOutput { part, output, is_cache, sums: Sums::default() });
            self.outputs.len() - 1
        });
        &mut self.outputs[at].sums
    }

    /// Adds the embeddings of a text, of the reference and the artifact.
    pub(super) fn add_embeddings(&mut self, [wanted, given]: [Vec<f32>; 2]) {
        self.features = wanted.len();
        self.cosines.add(cosine(&wanted, &given));
        self.embeddings[0].extend(normalized(wanted));
        self.embeddings[1].extend(normalized(given));
    }

    /// Keeps the embeddings of the first text of a pair.
    pub(super) fn begin_pair(&mut self, embeddings: [Vec<f32>; 2], truth: Truth) {
        self.first_of_pair = Some(FirstOfPair { embeddings, truth });
    }

    /// Adds the cosines of a pair, by the embeddings of its second text.
    pub(super) fn end_pair(&mut self, second: [Vec<f32>; 2]) {
        match self.first_of_pair.take() {
            None => self.second_of_pair = Some(second),
            Some(FirstOfPair { embeddings: first, truth }) => {
                let cosines = [cosine(&first[0], &second[0]), cosine(&first[1], &second[1])];
                self.labelled.add_score(Some(truth), cosines);
            }
        }
    }

    /// Adds what was seen of the batch that follows.
    pub(super) fn fold(&mut self, next: Self) {
        for SeenOutput { part, output, is_cache, sums } in &next.outputs {
            self.output(part, output, *is_cache).fold(sums);
        }
        for (own, its) in self.embeddings.iter_mut().zip(next.embeddings) {
            own.extend(its);
        }
        self.features = self.features.max(next.features);
        self.cosines.fold(&next.cosines);
        if let Some(second) = next.second_of_pair {
            self.end_pair(second);
        }
        self.labelled.fold(next.labelled);
        self.first_of_pair = next.first_of_pair.or(self.first_of_pair.take());
        self.predictions.fold(&next.predictions);
        self.same += next.same;
        self.divergence += next.divergence;
        self.losses.fold(&next.losses);
        self.more.fold(&next.more);
    }

    /// The figures of the outputs.
    pub(super) fn output_figures(&self) -> Vec<OutputFigures> {
        let figures = |SeenOutput { part, output, is_cache, sums }: &SeenOutput| OutputFigures {
            part: part.clone(),
            output: output.clone(),
            is_cache: *is_cache,
            relative_error: sums.relative_error(),
            cosine: sums.cosine(),
        };
        self.outputs.iter().map(figures).collect()
    }

    /// Checks that the numbers belong together, of a file that may be damaged.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn check(&self) -> Result<()> {
        let numbers = self.cosines.count as usize * self.features;
        anyhow::ensure!(
            self.embeddings.iter().all(|of| of.len() == numbers),
            "{} embeddings of {} features are not {} numbers",
            self.cosines.count,
            self.features,
            self.embeddings[0].len()
        );
        self.labelled.check_lengths()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches as a run sees them: sums of many magnitudes, pairs that are cut, and words.
    fn batches(random: &mut fastrand::Rng) -> Vec<Seen> {
        let mut number = |scale: f64| (random.f64() - 0.4) * scale;
        let mut is_first = true;
        let batch = |at: usize| {
            let mut seen = Seen::default();
            for (of, name) in ["a", "b"].into_iter().enumerate().take(1 + at % 2) {
                let numbers =
                    |number: &mut dyn FnMut(f64) -> f64| (0..5).map(|_| number(1e3) as f32).collect::<Vec<_>>();
                seen.output("model", name, of == 1).add(&numbers(&mut number), &numbers(&mut number));
            }
            for _ in 0..1 + at % 4 {
                let mut vector = || (0..3).map(|_| number(7.0) as f32).collect::<Vec<f32>>();
                let both = [vector(), vector()];
                let truth = Truth { score: number(5.0), query: format!("q{}", at % 3) };
                if is_first {
                    seen.begin_pair(both.clone(), truth)
                } else {
                    seen.end_pair(both.clone())
                }
                is_first = !is_first;
                seen.add_embeddings(both);
                seen.predictions.add(number(1.0));
                seen.divergence += number(0.1);
                seen.losses.add(number(9.0));
                seen.more.add(number(1e-3));
            }
            seen
        };
        (0..17).map(batch).collect()
    }

    fn folded(batches: impl IntoIterator<Item = Seen>) -> Seen {
        let mut all = Seen::default();
        batches.into_iter().for_each(|batch| all.fold(batch));
        all
    }

    /// A file keeps every bit, and so no figure depends on which process saw which batch.
    #[test]
    fn what_was_written_is_what_was_seen() {
        for seed in 0..20 {
            let batches = batches(&mut fastrand::Rng::with_seed(seed));
            let text = serde_json::to_string(&batches).unwrap();
            let read: Vec<Seen> = serde_json::from_str(&text).unwrap();
            let (own, its) = (folded(batches), folded(read));
            assert!(own.check().is_ok() && own.labelled.check_lengths().is_ok());
            assert_eq!(serde_json::to_string(&own).unwrap(), serde_json::to_string(&its).unwrap());
        }
    }

    /// A pair has a score although its texts are in two batches, and the scores are in the order of the data.
    #[test]
    fn pairs_are_whole_although_batches_cut_them() {
        let vectors = [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 1.0]].map(|of| [of.to_vec(), of.to_vec()]);
        let truth = |score| Truth { score, query: String::new() };
        let mut whole = Seen::default();
        let [a, b, c, d] = vectors.clone();
        whole.begin_pair(a, truth(1.0));
        whole.end_pair(b);
        whole.begin_pair(c, truth(2.0));
        whole.end_pair(d);
        let [a, b, c, d] = vectors;
        let mut parts: [Seen; 3] = Default::default();
        parts[0].begin_pair(a, truth(1.0));
        parts[1].end_pair(b);
        parts[1].begin_pair(c, truth(2.0));
        parts[2].end_pair(d);
        assert_eq!(folded(parts).labelled, whole.labelled);
    }
}
