//! Figures that compare predictions with labels: plain functions of slices.

use std::collections::BTreeSet;

/// How many documents of a ranking count.
pub(super) const DEPTH: usize = 10;

/// The share of predictions, from 0 to 1, that are the label.
pub(super) fn accuracy(labels: &[usize], predictions: &[usize]) -> f64 {
    let same = labels.iter().zip(predictions).filter(|(label, prediction)| label == prediction).count();
    same as f64 / labels.len().max(1) as f64
}

/// F1 from what was found rightly, what was found, and what there is; 0 where nothing is.
fn f1(right: usize, found: usize, there: usize) -> f64 {
    if found + there == 0 { 0.0 } else { 2.0 * right as f64 / (found + there) as f64 }
}

/// The mean of the F1 of each class that is a label or a prediction.
pub(super) fn macro_f1(labels: &[usize], predictions: &[usize]) -> f64 {
    let classes: BTreeSet<usize> = labels.iter().chain(predictions).copied().collect();
    let count = |of: &[usize], class: usize| of.iter().filter(|other| **other == class).count();
    let of_class = |class: &usize| {
        let pairs = labels.iter().zip(predictions);
        let right = pairs.filter(|(label, prediction)| *label == class && *prediction == class).count();
        f1(right, count(predictions, *class), count(labels, *class))
    };
    classes.iter().map(of_class).sum::<f64>() / classes.len().max(1) as f64
}

/// The F1 of entities over all sentences, each with the tags of the labels and those of the predictions; an entity is found
/// if its kind, its first and its last word are. `None` where there is no entity on either side.
///
/// The tags are those of IOB2, IOE2 and IOBES; ones that do not follow their rules are read as the library seqeval does by
/// default.
pub(super) fn entity_f1(sentences: &[[Vec<&str>; 2]]) -> Option<f64> {
    let (mut right, mut found, mut there) = (0, 0, 0);
    for [labels, predictions] in sentences {
        let [labels, predictions] = [entities(labels), entities(predictions)];
        right += labels.intersection(&predictions).count();
        found += predictions.len();
        there += labels.len();
    }
    (found + there > 0).then(|| f1(right, found, there))
}

/// The kind, the first and the last word of each entity.
fn entities<'a>(tags: &[&'a str]) -> BTreeSet<(&'a str, usize, usize)> {
    let (mut found, mut first) = (BTreeSet::new(), 0);
    let mut before = ("O", "");
    for at in 0..=tags.len() {
        let tag = tags.get(at).copied().unwrap_or("O");
        let (mark, kind) = tag.split_once('-').unwrap_or((tag, "_"));
        let (last_mark, last_kind) = before;
        let is_new_kind = last_kind != kind;
        let outside = |mark: &str| matches!(mark, "O" | ".");
        let ends = matches!(last_mark, "E" | "S")
            || matches!(last_mark, "B" | "I") && matches!(mark, "B" | "S" | "O")
            || !outside(last_mark) && is_new_kind;
        let begins = matches!(mark, "B" | "S")
            || matches!(last_mark, "E" | "S" | "O") && matches!(mark, "E" | "I")
            || !outside(mark) && is_new_kind;
        if ends {
            found.insert((last_kind, first, at - 1));
        }
        if begins {
            first = at;
        }
        before = (mark, kind);
    }
    found
}

/// The ranks of numbers from 1 on; equal ones share the mean of theirs.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
    let (mut ranks, mut first) = (vec![0.0; numbers.len()], 0);
    for equal in order.chunk_by(|a, b| numbers[*a] == numbers[*b]) {
        let mean = first as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|at| ranks[*at] = mean);
        first += equal.len();
    }
    ranks
}

/// The rank correlation by Spearman; `None` where all numbers of a side are equal.
pub(super) fn spearman(one: &[f64], other: &[f64]) -> Option<f64> {
    let [one, other] = [ranks(one), ranks(other)];
    let mean = (one.len() + 1) as f64 / 2.0;
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = (sum(&one, &one) * sum(&other, &other)).sqrt();
    (spread > 0.0).then(|| sum(&one, &other) / spread)
}

/// The places of scores in groups of equal ones, the largest first.
fn ranked(scores: &[f64]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.chunk_by(|a, b| scores[*a] == scores[*b]).map(<[usize]>::to_vec).collect()
}

/// The discounted gain of the first [`DEPTH`] documents in the order of scores. Equal scores share the mean of their gains.
fn gain(relevance: &[f64], scores: &[f64]) -> f64 {
    let (mut place, mut sum) = (0, 0.0);
    for equal in ranked(scores) {
        let mean = equal.iter().map(|at| relevance[*at]).sum::<f64>() / equal.len() as f64;
        let places = (place..place + equal.len()).take_while(|place| *place < DEPTH);
        sum += mean * places.map(|place| 1.0 / ((place + 2) as f64).log2()).sum::<f64>();
        place += equal.len();
    }
    sum
}

/// The normalized discounted cumulative gain at 10 of a ranking; `None` where no document is relevant.
/// Source: K. Järvelin, J. Kekäläinen, Cumulated gain-based evaluation of IR techniques (2002), with gains as they are.
pub(super) fn ndcg(relevance: &[f64], scores: &[f64]) -> Option<f64> {
    let best = gain(relevance, relevance);
    (best > 0.0).then(|| gain(relevance, scores) / best)
}

/// One over the place of the first relevant document, 0 where that is after the tenth; `None` where no document is relevant.
/// Of documents with equal scores the first one of the data comes first.
pub(super) fn reciprocal_rank(relevance: &[f64], scores: &[f64]) -> Option<f64> {
    relevance.iter().any(|relevance| *relevance > 0.0).then(|| {
        let mut places = ranked(scores).into_iter().flatten().take(DEPTH);
        places.position(|at| relevance[at] > 0.0).map_or(0.0, |place| 1.0 / (place + 1) as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-12, "{got} is not {want}");
    }

    // The constants are those of scikit-learn 1.9.1, scipy 1.17.1 and seqeval 1.2.2 on the same numbers.

    #[test]
    fn classes_are_counted_as_scikit_learn_does() {
        let labels = [0, 2, 1, 1, 0, 2, 2, 0, 1, 1];
        let predictions = [0, 1, 1, 1, 0, 2, 0, 0, 3, 1];
        near(accuracy(&labels, &predictions), ACCURACY);
        near(macro_f1(&labels, &predictions), MACRO_F1);
    }

    #[test]
    fn entities_are_counted_as_seqeval_does() {
        let split = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let sentences = [
            [split("B-PER I-PER O B-LOC O"), split("B-PER I-PER O B-ORG O")],
            [split("O B-LOC I-LOC I-LOC O B-PER"), split("O B-LOC I-LOC O O B-PER")],
            [split("I-PER I-PER O I-LOC B-LOC"), split("I-PER I-LOC O I-LOC I-LOC")],
            [split("S-PER B-LOC E-LOC O O"), split("S-PER B-LOC E-LOC E-LOC O")],
        ];
        near(entity_f1(&sentences).unwrap(), ENTITY_F1);
        assert_eq!(entity_f1(&[[split("O O"), split("O O")]]), None);
    }

    #[test]
    fn ranks_are_those_of_scipy() {
        let one = [0.1, 2.0, 2.0, -3.0, 5.5, 0.1, 7.0];
        let other = [1.0, 3.0, 2.0, 0.5, 3.0, 3.0, 2.5];
        near(spearman(&one, &other).unwrap(), SPEARMAN);
        near(spearman(&one, &one).unwrap(), 1.0);
        assert_eq!(spearman(&one, &[1.0; 7]), None);
        assert_eq!(spearman(&[], &[]), None);
    }

    #[test]
    fn rankings_are_measured_as_scikit_learn_does() {
        let relevance = [3.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0];
        let scores = [0.2, 0.9, 0.8, 0.8, 0.1, 0.7, 0.3, 0.25, 0.4, 0.5, 0.6, 0.05];
        near(ndcg(&relevance, &scores).unwrap(), NDCG);
        assert_eq!(ndcg(&[0.0, 0.0], &[1.0, 2.0]), None);
        near(reciprocal_rank(&relevance, &scores).unwrap(), 0.5);
        let late: Vec<f64> = (0..12).map(|at| f64::from(u8::from(at == 11))).collect();
        let falling: Vec<f64> = (0..12).map(|at| -f64::from(at)).collect();
        near(reciprocal_rank(&late, &falling).unwrap(), 0.0);
        assert_eq!(reciprocal_rank(&[0.0], &[1.0]), None);
    }

    const ACCURACY: f64 = 0.7;
    const MACRO_F1: f64 = 0.5267857142857143;
    const ENTITY_F1: f64 = 0.4210526315789474;
    const SPEARMAN: f64 = 0.5095246653650681;
    const NDCG: f64 = 0.47357621736342614;
}
