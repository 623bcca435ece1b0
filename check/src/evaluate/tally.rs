//! How what both sides give for a run is added to what was seen.

use anyhow::{Result, bail};
use planish_artifact::evaluation::{Figure, Pooling};
use planish_artifact::verification::of_tokens;
use planish_data::RowInfo;
use planish_eval::Tensor;
use planish_ir::{OutputRole, PartRole};
use planish_models::Task;

use super::Broken;
use super::labels::Labels;
use super::metrics::{cosine, divergence, log_probabilities, top};
use super::seen::Seen;
use super::sides::PartOutputs;
use super::windows::{Run, Windows, ids};
use crate::pooling::pool;
use crate::positions::{Pair, Positions, TextNames};

/// Whether a model predicts by the outputs of a part.
fn predicts(role: PartRole) -> bool {
    match role {
        PartRole::Model | PartRole::FirstStep | PartRole::NextStep | PartRole::MaskDecoder => true,
        PartRole::Encoder | PartRole::Embedder | PartRole::VisionEncoder | PartRole::AudioEncoder => false,
    }
}

/// What is measured of a model.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) task: Option<Task>,
    pub(super) pooling: Pooling,
    /// The windows of a language model.
    pub(super) windows: Option<Windows>,
    /// Whether the data has labels.
    pub(super) has_labels: bool,
    /// Whether a text may have several labels, each by the sigmoid of its own logit.
    pub(super) several: bool,
}

impl Measured {
    /// Whether the task is to embed.
    fn embeds(&self) -> bool {
        self.task.is_none_or(Task::embeds)
    }

    /// The output that embeddings are made of.
    fn embedding(&self) -> OutputRole {
        match self.pooling {
            Pooling::Model => OutputRole::SentenceEmbedding,
            Pooling::Mean | Pooling::Cls | Pooling::Max => OutputRole::HiddenStates,
        }
    }
}

/// The outputs of a task that are scores.
fn scores(task: Option<Task>) -> &'static [OutputRole] {
    task.map_or(&[OutputRole::Logits], Task::outputs)
}

/// Takes what both sides give, batch by batch.
pub(super) struct Tally {
    measured: Measured,
    /// Whether there is an output of embeddings, and one of predictions.
    embeds: bool,
    predicts: bool,
    names: TextNames,
    labels: Labels,
    /// What was seen since it was taken.
    seen: Seen,
}

impl Tally {
    pub(super) fn new(mut measured: Measured, labels: Labels, names: TextNames, outputs: &[OutputRole]) -> Self {
        if outputs.contains(&OutputRole::SentenceEmbedding) {
            measured.pooling = Pooling::Model;
        }
        let predictions = if measured.windows.is_some() { &[OutputRole::Logits][..] } else { scores(measured.task) };
        Self {
            embeds: measured.embeds() && outputs.contains(&measured.embedding()),
            predicts: outputs.iter().any(|output| predictions.contains(output)),
            measured,
            names,
            labels,
            seen: Seen::default(),
        }
    }

    /// How the embedding of a text is made.
    pub(super) fn pooling(&self) -> Pooling {
        self.measured.pooling
    }

    /// What was seen since the last time.
    pub(super) fn take(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }

    /// Whether the report may have a figure. Some need several samples, or several scores for each.
    pub(super) fn may_have(&self, figure: Figure) -> bool {
        match figure {
            Figure::Cosine | Figure::Error => true,
            Figure::LeastCosine => self.embeds || self.predicts,
            Figure::Neighbours => self.embeds,
            Figure::Top1 | Figure::Divergence => self.predicts,
            Figure::Perplexity => self.measured.windows.is_some() && self.predicts,
            Figure::Ranks => self.classifies(),
            Figure::Accuracy | Figure::F1 => self.measured.has_labels && self.predicts,
            Figure::Spearman | Figure::Ndcg | Figure::Mrr => {
                self.measured.has_labels && (self.embeds || self.classifies())
            }
            Figure::WordErrors | Figure::CharacterErrors => self.labels.transcripts.is_some(),
        }
    }

    /// Whether the model may give one score for each text.
    fn classifies(&self) -> bool {
        self.predicts && matches!(self.measured.task, None | Some(Task::TextClassification))
    }

    /// Adds what both sides gave for a run.
    ///
    /// # Errors
    /// [`Broken`] where the artifact lacks an output, or gives one of another shape or with a number that is not finite; also
    /// where the reference gives such a number.
    pub(super) fn add(&mut self, run: &Run, wanted: &[PartOutputs], given: &[PartOutputs]) -> Result<()> {
        for (part, artifact) in wanted.iter().zip(given) {
            for (name, expected) in &part.outputs {
                let broken = |reason: String| Broken { output: name.clone(), reason };
                let Some((_, actual)) = artifact.outputs.iter().find(|(other, _)| other == name) else {
                    return Err(broken("the artifact does not have it".to_owned()).into());
                };
                let cut = of_tokens(expected, actual, artifact.vocabulary.as_ref())
                    .map_err(|error| broken(error.to_string()))?;
                let actual = cut.as_ref().unwrap_or(actual);
                if expected.shape() != actual.shape() {
                    let (own, other) = (actual.shape(), expected.shape());
                    return Err(broken(format!("its shape is {own:?}, the reference has {other:?}")).into());
                }
                let tokens = artifact.tokens.iter().find(|(other, ..)| other == name);
                let tokens = tokens.or_else(|| part.tokens.iter().find(|(other, ..)| other == name));
                let tokens = tokens.map(|(_, axis, positions)| (*axis, positions));
                let pair = Pair::new(expected, actual, tokens);
                match pair.finite() {
                    [true, true] => {}
                    [true, false] => return Err(broken("a number of it is not finite".to_owned()).into()),
                    [false, _] => bail!("the output `{name}` of the reference is not finite"),
                }
                let role = part.interface.output(name);
                self.add_output(&part.part, name, role, &pair);
                if predicts(part.interface.role) {
                    self.add_figures(run, role, expected, actual, &pair, tokens.map(|(_, positions)| positions))?;
                }
            }
        }
        Ok(())
    }

    fn add_output(&mut self, part: &str, name: &str, role: OutputRole, pair: &Pair<'_>) {
        let sums = self.seen.output(part, name, role.cache().is_some());
        pair.for_each(|_, wanted, given| sums.add(wanted, given));
    }

    /// Adds what an output is to the task.
    fn add_figures(
        &mut self,
        run: &Run,
        role: OutputRole,
        wanted: &Tensor,
        given: &Tensor,
        pair: &Pair<'_>,
        positions: Option<&Positions>,
    ) -> Result<()> {
        let Measured { task, pooling, windows, .. } = self.measured;
        if windows.is_some() && role == OutputRole::Logits {
            self.add_tokens(run, pair, wanted.shape());
        } else if self.measured.embeds() && role == self.measured.embedding() {
            let [wanted, given] = [wanted, given].map(|tensor| pool(pooling, tensor, positions));
            for (at, (wanted, given)) in wanted.into_iter().zip(given).enumerate() {
                self.add_similarity(run.rows.get(at), [&wanted, &given])?;
                self.seen.add_embeddings([wanted, given]);
            }
        } else if scores(task).contains(&role) {
            // A single score is no distribution.
            pair.for_each_distribution(|_, wanted, given| {
                if self.measured.several {
                    self.add_decisions(wanted, given);
                } else if wanted.len() > 1 {
                    self.add_prediction(wanted, given, None);
                }
            });
            // [batch, tokens, classes], also where no mask says which tokens are real.
            self.add_labels(run, pair, wanted.shape().len() == 3)?;
        }
        Ok(())
    }

    /// Adds the cosine of the two texts of a pair, once both are known.
    fn add_similarity(&mut self, row: Option<&RowInfo>, embeddings: [&Vec<f32>; 2]) -> Result<()> {
        let Some(row) = row.filter(|_| self.measured.has_labels) else { return Ok(()) };
        let embeddings = embeddings.map(Vec::clone);
        match row.is_first {
            true => self.seen.begin_pair(embeddings, Labels::truth(Some(row))?),
            false => self.seen.end_pair(embeddings),
        }
        Ok(())
    }

    /// Adds what the logits of a classification are next to the labels, and single scores.
    fn add_labels(&mut self, run: &Run, pair: &Pair<'_>, is_of_tokens: bool) -> Result<()> {
        if !is_of_tokens {
            let mut added = Ok(());
            pair.for_each_distribution(|row, wanted, given| {
                if added.is_ok() {
                    added = self.labels.add_row(&mut self.seen.labelled, run.rows.get(row), wanted, given);
                }
            });
            return added;
        }
        if !self.measured.has_labels {
            return Ok(());
        }
        if let Some(transcripts) = &self.labels.transcripts {
            let mut frames: Vec<[Vec<i64>; 2]> = vec![Default::default(); run.rows.len()];
            pair.for_each_distribution(|row, wanted, given| {
                if let Some(of_row) = frames.get_mut(row) {
                    for (ids, logits) in of_row.iter_mut().zip([wanted, given]) {
                        ids.push(i64::try_from(top(logits)).unwrap_or(i64::MAX));
                    }
                }
            });
            let seen = &mut self.seen.labelled;
            return run.rows.iter().zip(&frames).try_for_each(|(row, frames)| transcripts.add(seen, row, frames));
        }
        let mut tokens: Vec<Vec<[Vec<f32>; 2]>> = vec![Vec::new(); run.rows.len()];
        pair.for_each_distribution(|row, wanted, given| {
            if let Some(of_row) = tokens.get_mut(row) {
                of_row.push([wanted, given].map(<[f32]>::to_vec));
            }
        });
        let seen = &mut self.seen.labelled;
        run.rows.iter().zip(&tokens).try_for_each(|(row, tokens)| self.labels.add_words(seen, row, tokens))
    }

    /// Adds the predictions of the tokens that follow, [batch, tokens, vocabulary].
    fn add_tokens(&mut self, run: &Run, pair: &Pair<'_>, shape: &[usize]) {
        let (ids, mask) = (ids(&run.inputs, &self.names), self.names.positions(&run.inputs));
        let width = shape.get(1).copied().unwrap_or(0);
        let holds = |row: usize, at: usize| mask.as_ref().is_none_or(|mask| mask.hold(row, at, width));
        // For each row the ids of real tokens, and which of them the logits at hand come from.
        let real = |(row, ids): (usize, &Vec<usize>)| {
            ids.iter().enumerate().filter(|(at, _)| holds(row, *at)).map(|(_, id)| *id).collect::<Vec<_>>()
        };
        let texts: Vec<Vec<usize>> = ids.iter().enumerate().map(real).collect();
        let mut at = vec![0; texts.len()];
        pair.for_each_distribution(|row, wanted, given| {
            let next = at[row] + 1;
            at[row] = next;
            if next < run.first[row] {
                return;
            }
            if let Some(target) = texts[row].get(next).filter(|target| **target < wanted.len()) {
                self.add_prediction(wanted, given, Some(*target));
            }
        });
    }

    /// Adds the logits of labels of which a text may have several: those whose sigmoid is above 0.5. The divergence is the sum
    /// of those of all labels.
    fn add_decisions(&mut self, wanted: &[f32], given: &[f32]) {
        let labels = |logits: &[f32]| logits.iter().map(|logit| *logit > 0.0).collect::<Vec<bool>>();
        // A sigmoid is the softmax of 0 and the logit.
        let probabilities = |logit: f32| log_probabilities(&[0.0, logit]);
        self.seen.predictions.add(cosine(wanted, given));
        self.seen.same += u64::from(labels(wanted) == labels(given));
        let each = wanted.iter().zip(given);
        self.seen.divergence += each.map(|(a, b)| divergence(&probabilities(*a), &probabilities(*b))).sum::<f64>();
    }

    fn add_prediction(&mut self, wanted: &[f32], given: &[f32], target: Option<usize>) {
        let [reference, artifact] = [wanted, given].map(log_probabilities);
        self.seen.predictions.add(cosine(wanted, given));
        self.seen.same += u64::from(top(wanted) == top(given));
        self.seen.divergence += divergence(&reference, &artifact);
        if let Some(target) = target {
            self.seen.losses.add(-reference[target]);
            self.seen.more.add(reference[target] - artifact[target]);
        }
    }
}
