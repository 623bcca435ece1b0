//! Searches with a model whose scores depend on the text alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;

const VOCABULARY: i64 = 7;

/// A model whose scores of a row are made from its ids. It counts the prompts that it reads.
#[derive(Default)]
struct Scorer {
    rows: Vec<Vec<i64>>,
    read: usize,
}

impl Scorer {
    fn scores(&self) -> Scores {
        let of_row = |ids: &Vec<i64>| {
            let seed = ids.iter().fold(17u64, |sum, id| sum.wrapping_mul(31).wrapping_add(*id as u64));
            let mut generator = fastrand::Rng::with_seed(seed);
            (0..VOCABULARY).map(|_| generator.f32() * 4.0 - 2.0).collect::<Vec<_>>()
        };
        Scores::of_rows(self.rows.iter().flat_map(of_row).collect(), VOCABULARY as usize)
    }
}

impl LanguageModel for Scorer {
    fn vocabulary(&self) -> i64 {
        VOCABULARY
    }

    fn beginning(&self, prompt: &[i64]) -> Vec<i64> {
        prompt.to_vec()
    }

    fn room(&self, _: &[i64]) -> Result<usize> {
        Ok(1000)
    }

    fn show(&mut self, _: Vec<(String, planish_eval::Tensor)>) -> Result<()> {
        bail!("not needed")
    }

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        self.rows = prompts.to_vec();
        self.read += prompts.len();
        Ok(self.scores())
    }

    fn resume(&mut self, prompt: &[i64]) -> Result<(Scores, usize)> {
        Ok((self.start(&[prompt.to_vec()])?, 0))
    }

    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        self.rows = rows.iter().zip(ids).map(|(row, id)| [&self.rows[*row][..], &[*id]].concat()).collect();
        Ok(self.scores())
    }

    fn read(&mut self, _: &[i64]) -> Result<Scores> {
        bail!("not needed")
    }

    fn forget(&mut self, _: usize) -> Result<()> {
        bail!("not needed")
    }
}

/// The ids of all continuations, as they are told, and how many prompts were read.
fn found(requests: &[Request], options: &SearchOptions) -> (Vec<Vec<i64>>, usize) {
    let mut model = Scorer::default();
    let mut told: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
    let mut on_token = |continuation, id| {
        told.entry(continuation).or_default().push(id);
        Ok(ControlFlow::Continue(()))
    };
    let generated = search_each(&mut model, requests, options, &mut on_token, None).unwrap();
    let ids: Vec<Vec<i64>> = generated.continuations.into_iter().map(|continuation| continuation.ids).collect();
    assert_eq!(told.into_values().collect::<Vec<_>>(), ids);
    (ids, model.read)
}

fn sampling() -> Sampling {
    Sampling { temperature: 1.5, top_k: None, top_p: 0.95, min_p: 0.0 }
}

fn searches() -> impl Strategy<Value = SearchOptions> {
    let beams = |sampling| {
        let width = NonZeroUsize::MIN.saturating_add(3);
        Search::Beams(Beams { width, length_penalty: 1.0, early_stopping: EarlyStopping::Heuristic, sampling })
    };
    let search = prop_oneof![Just(Search::Sample(sampling())), Just(beams(Some(sampling()))), Just(beams(None))];
    let processors = prop_oneof![
        Just(Processors::default()),
        Just(Processors { frequency_penalty: 1.0, presence_penalty: 0.5, ..Processors::default() }),
    ];
    (search, processors, 0usize..4, prop_oneof![Just(vec![]), Just(vec![2i64])]).prop_map(
        |(search, processors, more, end_tokens)| SearchOptions {
            search,
            processors,
            continuations: NonZeroUsize::MIN.saturating_add(more),
            end_tokens,
            ..SearchOptions::default()
        },
    )
}

proptest! {
    /// A row with its seed gives the same tokens whatever batch it stands in, and in whatever place.
    #[test]
    fn rows_depend_on_nothing_but_themselves(
        rows in prop::collection::vec((prop::collection::vec(0..VOCABULARY, 1..5), any::<u64>(), 1usize..8), 1..6),
        options in searches(),
    ) {
        let request = |(ids, seed, tokens): &(Vec<i64>, u64, usize)| Request {
            ids: ids.clone(),
            seed: *seed,
            length: Length::New(NonZeroUsize::new(*tokens).unwrap()),
        };
        let requests: Vec<Request> = rows.iter().map(request).collect();
        let (together, read) = found(&requests, &options);
        prop_assert_eq!(read, requests.len(), "a prompt is read once");
        let alone: Vec<Vec<i64>> = requests.iter().flat_map(|one| found(std::slice::from_ref(one), &options).0).collect();
        prop_assert_eq!(&together, &alone);
        prop_assert_eq!(together.len(), requests.len() * options.continuations.get());
    }

    /// The n-th continuation of a prompt is the first one with the seed plus n.
    #[test]
    fn continuations_have_seeds_that_follow_each_other(ids in prop::collection::vec(0..VOCABULARY, 1..5), seed: u64) {
        let options = |continuations: usize, seed| SearchOptions {
            length: Length::New(NonZeroUsize::MIN.saturating_add(5)),
            search: Search::Sample(sampling()),
            continuations: NonZeroUsize::new(continuations).unwrap(),
            seed,
            ..SearchOptions::default()
        };
        let run = |prompts: &[Vec<i64>], options: &SearchOptions| {
            let found = search(&mut Scorer::default(), prompts, options, &mut |_, _| Ok(ControlFlow::Continue(())));
            found.unwrap().continuations.into_iter().map(|continuation| continuation.ids).collect::<Vec<_>>()
        };
        let all = run(&[ids.clone(), ids.clone()], &options(3, seed));
        let each: Vec<_> =
            (0..6).flat_map(|n| run(std::slice::from_ref(&ids), &options(1, seed.wrapping_add(n)))).collect();
        prop_assert_eq!(all, each);
    }
}

/// The best of a first draw without replacement is each token as often as its probability says.
#[test]
fn beams_are_drawn_by_their_probabilities() {
    let scores = Scorer { rows: vec![vec![1, 2]], read: 0 }.scores();
    let row = scores.row(0).unwrap();
    let sum: f64 = row.iter().map(|score| f64::from(*score).exp()).sum();
    let plain = Sampling { temperature: 1.0, top_k: None, top_p: 1.0, min_p: 0.0 };
    let beams = |width: usize| SearchOptions {
        search: Search::Beams(Beams {
            width: NonZeroUsize::new(width).unwrap(),
            length_penalty: 0.0,
            early_stopping: EarlyStopping::Heuristic,
            sampling: Some(plain.clone()),
        }),
        ..SearchOptions::default()
    };
    // Two of the tokens are drawn for one beam, and the likelier one is kept.
    let draws = 4000;
    let mut counts = [0u32; VOCABULARY as usize];
    for seed in 0..draws {
        let request = Request { ids: vec![1, 2], length: Length::New(NonZeroUsize::MIN), seed };
        let (ids, _) = found(&[request], &beams(1));
        counts[usize::try_from(ids[0][0]).unwrap()] += 1;
    }
    let probability = |at: usize| f64::from(row[at]).exp() / sum;
    for at in 0..row.len() {
        // Both orders of a pair in which this one is the likelier.
        let pair = |other: usize| {
            let (p, q) = (probability(at), probability(other));
            p * q / (1.0 - p) + q * p / (1.0 - q)
        };
        let expected: f64 = (0..row.len()).filter(|other| row[*other] < row[at]).map(pair).sum();
        let share = f64::from(counts[at]) / draws as f64;
        assert!((share - expected).abs() < 0.03, "token {at}: {share} and {expected}");
    }
}
