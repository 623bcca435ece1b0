//! Searches among made-up candidates.

use super::*;

/// A contest in which each value of a choice has a factor, and each race takes its time.
struct Made {
    factors: Vec<(&'static str, &'static str, Result<f64, &'static str>)>,
    spent: Duration,
    /// Half of the interval of a ratio.
    noise: f64,
    races: usize,
    /// The races, from zero, in which all candidates seem to be faster.
    lucky: Vec<usize>,
    /// Candidates that lose too much.
    rough: Vec<&'static str>,
    /// Half of the interval is one half in shorter races.
    least: Duration,
    /// How long it takes to prepare a candidate.
    preparing: Duration,
    /// How long it takes to judge one.
    judging: Duration,
    /// How much longer than its time a race takes.
    overrun: Duration,
}

impl Made {
    fn of(factors: &[(&'static str, &'static str, Result<f64, &'static str>)]) -> Self {
        Self {
            factors: factors.to_vec(),
            spent: Duration::ZERO,
            noise: 0.01,
            races: 0,
            lucky: Vec::new(),
            rough: Vec::new(),
            least: Duration::ZERO,
            preparing: Duration::ZERO,
            judging: Duration::ZERO,
            overrun: Duration::ZERO,
        }
    }

    fn time(&self, candidate: &Candidate) -> Result<f64, String> {
        let mut time = 1.0;
        for (name, value, factor) in &self.factors {
            if candidate.0.get(name).is_some_and(|own| own == value) {
                time *= factor.map_err(str::to_owned)?;
            }
        }
        Ok(time)
    }
}

impl Trials for Made {
    fn spent(&self) -> Duration {
        self.spent
    }

    fn preparing(&self, others: &[Candidate]) -> Duration {
        self.preparing * u32::try_from(others.len()).unwrap()
    }

    fn race(&mut self, best: &Candidate, others: &[Candidate], time: Duration) -> Result<Vec<Outcome>> {
        let noise = if time < self.least { 0.5 } else { self.noise };
        let luck = if self.lucky.contains(&self.races) { 0.9 } else { 1.0 };
        self.spent += time + self.overrun;
        self.races += 1;
        let base = self.time(best).map_err(anyhow::Error::msg)?;
        let outcome = |other: &Candidate| match self.time(other) {
            Ok(time) => {
                let value = time / base * luck;
                let ci95 = Some([value * (1.0 - noise), value * (1.0 + noise)]);
                Outcome::Measured(Ratio { value, ci95 })
            }
            Err(why) => Outcome::Failed(why),
        };
        Ok(others.iter().map(outcome).collect())
    }

    fn judging(&self) -> Duration {
        self.judging
    }

    fn judge(&mut self, candidate: &Candidate) -> Option<String> {
        let is_rough = |(name, value): (&&str, &String)| self.rough.contains(&format!("{name}={value}").as_str());
        candidate.0.iter().any(is_rough).then(|| "cos is 0.5".to_owned())
    }
}

fn dimensions(all: &[(&'static str, &[&str])]) -> Vec<Dimension> {
    let of = |(name, values): &(&'static str, &[&str])| Dimension {
        name,
        values: values.iter().map(ToString::to_string).collect(),
        rounds: false,
        is_told: false,
    };
    all.iter().map(of).collect()
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn the_fastest_values_are_kept() {
    let all = dimensions(&[("a", &["1", "2"]), ("b", &["1"]), ("c", &["1"])]);
    let mut made = Made::of(&[("a", "1", Ok(0.95)), ("a", "2", Ok(0.8)), ("b", "1", Ok(1.2)), ("c", "1", Ok(0.9))]);
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=2 c=1");
    assert!((found.ratio.value - 0.72).abs() < 1e-9, "{:?}", found.ratio);
    let why = |choice: &str, value: &str| {
        let of = |tried: &&Tried| tried.choice == choice && tried.value.as_deref() == Some(value);
        let tried = found.tried.iter().find(of).unwrap();
        (tried.kept, tried.why.as_str())
    };
    assert_eq!(why("a", "1"), (false, "faster, but less than another value"));
    assert_eq!(why("a", "2"), (true, "faster in two races"));
    assert_eq!(why("b", "1"), (false, "slower"));
    assert!(made.spent <= LIMIT, "{:?}", made.spent);
    // The same figures give the same choice.
    let again = search(&all, &mut Made { spent: Duration::ZERO, races: 0, ..made }, LIMIT).unwrap();
    assert_eq!(again, found);
}

#[test]
fn ties_keep_the_default() {
    let all = dimensions(&[("a", &["1"]), ("b", &["1"])]);
    let mut made = Made::of(&[("a", "1", Ok(0.995)), ("b", "1", Ok(1.0))]);
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!((found.best.clone(), found.ratio.value), (Candidate::default(), 1.0));
    assert!(found.tried.iter().all(|tried| tried.why == "as fast within the interval"), "{found}");
    // What may be faster has a second race, and is one candidate.
    assert_eq!((found.measured(), made.races), (2, 3));
}

/// A race that is too short to tell is followed by a longer one.
#[test]
fn time_that_is_left_goes_to_what_may_be_faster() {
    let all = dimensions(&[("a", &["1"]), ("b", &["1"]), ("c", &["1"])]);
    let of = [("a", "1", Ok(1.05)), ("b", "1", Ok(0.9)), ("c", "1", Ok(1.02))];
    let mut made = Made { least: Duration::from_secs(10), ..Made::of(&of) };
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "b=1");
    // Three short races, three long ones of the one that may be faster.
    assert_eq!((found.tried.len(), made.races), (3, 6), "{found}");
    assert!(made.spent <= LIMIT, "{:?}", made.spent);
}

/// A candidate whose form is compiled for longer than what is left would overrun the time.
#[test]
fn what_cannot_be_prepared_in_time_is_not_tried() {
    let all = dimensions(&[("a", &["1"]), ("b", &["1", "2"])]);
    let (preparing, overrun) = (Duration::from_secs(40), Duration::from_secs(25));
    let mut made = Made { preparing, overrun, ..Made::of(&[("a", "1", Ok(0.9))]) };
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=1");
    let why: Vec<&str> = found.tried.iter().map(|tried| tried.why.as_str()).collect();
    assert_eq!(why, ["faster in two races", TIME_IS_UP, TIME_IS_UP]);
    // Of the values of a choice as many are tried as can be.
    let mut made = Made { preparing: Duration::from_secs(25), ..Made::of(&[("b", "1", Ok(1.1))]) };
    let found = search(&dimensions(&[("b", &["1", "2", "3"])]), &mut made, LIMIT).unwrap();
    let tried: Vec<(Option<&str>, &str)> =
        found.tried.iter().map(|tried| (tried.value.as_deref(), tried.why.as_str())).collect();
    // The second walk has time for the last one.
    let equal = "as fast within the interval";
    assert_eq!((tried, made.races), (vec![(Some("3"), equal), (Some("1"), "slower"), (Some("2"), equal)], 2));
}

/// A form that was raced with the default twice is kept where no time is left for a third race; further steps are not.
#[test]
fn the_first_step_needs_no_last_race() {
    let all = dimensions(&[("a", &["1"])]);
    let mut made = Made { overrun: Duration::from_secs(40), ..Made::of(&[("a", "1", Ok(0.9))]) };
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!((found.best.to_string(), made.races), ("a=1".to_owned(), 2));
    assert!((found.ratio.value - 0.9).abs() < 1e-9, "{:?}", found.ratio);
    assert!(found.tried[0].kept);
}

/// A value that holds is found behind one that had luck.
#[test]
fn the_next_value_is_confirmed_where_the_first_does_not_hold() {
    struct Lucky(Made);
    impl Trials for Lucky {
        fn spent(&self) -> Duration {
            self.0.spent()
        }

        fn preparing(&self, others: &[Candidate]) -> Duration {
            self.0.preparing(others)
        }

        fn race(&mut self, best: &Candidate, others: &[Candidate], time: Duration) -> Result<Vec<Outcome>> {
            let is_first = self.0.races == 0;
            let mut outcomes = self.0.race(best, others, time)?;
            if is_first {
                outcomes[0] = Outcome::Measured(Ratio { value: 0.5, ci95: Some([0.4, 0.6]) });
            }
            Ok(outcomes)
        }

        fn judging(&self) -> Duration {
            self.0.judging()
        }

        fn judge(&mut self, candidate: &Candidate) -> Option<String> {
            self.0.judge(candidate)
        }
    }
    let made = Made::of(&[("a", "1", Ok(1.0)), ("a", "2", Ok(0.8))]);
    let found = search(&dimensions(&[("a", &["1", "2"])]), &mut Lucky(made), LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=2");
    assert_eq!(found.tried[0].why, "faster in the first race alone");
}

/// What seems faster once is measured again.
#[test]
fn one_lucky_race_changes_nothing() {
    let mut made = Made { lucky: vec![0], ..Made::of(&[("a", "1", Ok(1.0))]) };
    let found = search(&dimensions(&[("a", &["1"])]), &mut made, LIMIT).unwrap();
    assert_eq!(found.best, Candidate::default());
    assert_eq!(found.tried[0].why, "faster in the first race alone");
    // Nor does what is not faster than the default at last.
    let mut made = Made { lucky: vec![0, 1], ..Made::of(&[("a", "1", Ok(1.0))]) };
    let found = search(&dimensions(&[("a", &["1"])]), &mut made, LIMIT).unwrap();
    assert_eq!((found.best, found.tried[0].kept), (Candidate::default(), false));
}

#[test]
fn what_fails_the_gate_is_dropped() {
    let mut made = Made::of(&[("a", "1", Err("y: cosine 0.5")), ("a", "2", Ok(0.9))]);
    let found = search(&dimensions(&[("a", &["1", "2"])]), &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=2");
    assert_eq!((found.tried[0].kept, found.tried[0].why.as_str()), (false, "y: cosine 0.5"));
}

/// A value that the user has to choose is told, and changes nothing.
#[test]
fn a_faster_target_is_told() {
    let mut all = dimensions(&[("a", &["1"]), ("target", &["other"])]);
    all[1].is_told = true;
    let mut made = Made::of(&[("a", "1", Ok(0.9)), ("target", "other", Ok(0.5))]);
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=1");
    let told = found.tried.iter().find(|tried| tried.choice == "target").unwrap();
    assert_eq!((told.kept, told.why.as_str()), (false, "faster: compile with --target other to have it"));
    assert!((told.ratio.unwrap().value - 0.5 / 0.9).abs() < 1e-9, "{told:?}");
}

/// The fastest of the values that are accurate enough is kept, and only values that round are judged.
#[test]
fn data_judges_values_that_round() {
    let mut all = dimensions(&[("a", &["1", "2"]), ("b", &["1"])]);
    all[0].rounds = true;
    let of = [("a", "1", Ok(0.9)), ("a", "2", Ok(0.8)), ("b", "1", Ok(0.9))];
    let mut made = Made { rough: vec!["a=2", "b=1"], ..Made::of(&of) };
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!(found.best.to_string(), "a=1 b=1");
    let refused = found.tried.iter().find(|tried| tried.value.as_deref() == Some("2")).unwrap();
    assert_eq!((refused.kept, refused.why.as_str()), (false, "cos is 0.5"));
}

#[test]
fn the_search_stops_at_its_time() {
    let all = dimensions(&[("a", &["1"]), ("b", &["1"])]);
    let mut made = Made { spent: LIMIT, ..Made::of(&[("a", "1", Ok(0.5)), ("b", "1", Ok(0.5))]) };
    let found = search(&all, &mut made, LIMIT).unwrap();
    assert_eq!((found.best.clone(), made.races, found.measured()), (Candidate::default(), 0, 0));
    assert!(found.tried.iter().all(|tried| tried.why == TIME_IS_UP), "{found}");
}
