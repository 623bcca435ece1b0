//! The search: one choice at a time is varied around the best form so far.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::choices::Candidate;
use crate::bench::Ratio;

/// A choice with the values that are tried beside its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// The choice.
    pub name: &'static str,
    /// The values.
    pub values: Vec<String>,
    /// Whether they round other numbers than the default does.
    pub rounds: bool,
}

/// What measuring a candidate comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its time relative to that of the best.
    Measured(Ratio),
    /// Its outputs are wrong, or it cannot be compiled or run.
    Failed(String),
    /// The time was up before there was a figure.
    Unfinished,
}

/// Measures candidates.
pub trait Trials {
    /// How long the search has taken.
    fn spent(&self) -> Duration;
    /// About how long it takes until these can be measured.
    fn preparing(&self, others: &[Candidate]) -> Duration;
    /// Measures candidates in the same rounds as the best for so long, and gives what each of them comes to.
    ///
    /// # Errors
    /// When the best cannot be measured.
    fn race(&mut self, best: &Candidate, others: &[Candidate], time: Duration) -> Result<Vec<Outcome>>;
    /// Why a candidate that rounds other numbers is less accurate than it may be, if it is.
    fn judge(&mut self, candidate: &Candidate) -> Option<String>;
}

/// A candidate that was tried, or a choice that was not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The choice.
    pub choice: &'static str,
    /// The value; absent where none was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its time relative to that of the best form when it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Whether it was kept.
    pub kept: bool,
    /// What was found, or why it was not tried.
    pub why: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best form.
    pub best: Candidate,
    /// Its time relative to that of the default form; 1 where that is the best.
    pub ratio: Ratio,
    /// What was tried, in order.
    pub tried: Vec<Tried>,
}

impl Found {
    /// How many candidates were measured.
    #[must_use]
    pub fn measured(&self) -> usize {
        self.tried.iter().filter(|tried| tried.ratio.is_some()).count()
    }
}

/// Why a value was not tried.
const TIME_IS_UP: &str = "not tried: the time was up";

/// Why a value that won one race is not kept.
const NO_SECOND: &str = "faster in one race; no time for a second";

/// Searches for the form whose runs take the shortest time. A value is kept where it is faster than the best form in two races: the
/// intervals of both ratios are below 1. So values that are as fast keep the default. All values have a short race first; the time
/// that is left goes to those that may be faster, and to all around a better form.
///
/// # Errors
/// When the default form cannot be measured.
pub fn search(dimensions: &[Dimension], trials: &mut dyn Trials, limit: Duration) -> Result<Found> {
    let mut search = Search { trials, limit, best: Candidate::default(), tried: Vec::new(), rows: BTreeMap::new() };
    for walk in [Walk::All, Walk::Open] {
        let open: Vec<&Dimension> =
            dimensions.iter().filter(|dimension| !search.values(dimension, walk).is_empty()).collect();
        for (at, dimension) in open.iter().enumerate() {
            search.vary(dimension, walk, open.len() - at)?;
        }
    }
    search.against_default()
}

/// A walk over all choices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// Each value has a race.
    All,
    /// Values have a race that have had none with the best form, or that may be faster than it.
    Open,
}

struct Search<'a> {
    trials: &'a mut dyn Trials,
    limit: Duration,
    best: Candidate,
    tried: Vec<Tried>,
    /// What was raced with which best form, and where it is in what was tried.
    rows: BTreeMap<(Candidate, Candidate), usize>,
}

impl Search<'_> {
    /// The time of a race that is prepared in some time, where so many have the same share of what is left; `None` where there is none.
    fn share(&self, preparing: Duration, races: usize) -> Option<Duration> {
        let left = self.limit.checked_sub(self.trials.spent() + preparing)?;
        // A value that wins is raced twice, and with the default form at last.
        let share = left / u32::try_from(races + 2).unwrap_or(u32::MAX);
        (!share.is_zero()).then_some(share)
    }

    /// The values of a choice that have a race in a walk.
    fn values<'d>(&self, dimension: &'d Dimension, walk: Walk) -> Vec<&'d String> {
        let is_open = |value: &&String| {
            let other = self.best.with(dimension.name, value);
            let row = self.rows.get(&(self.best.clone(), other.clone())).and_then(|&row| self.tried.get(row));
            let may_be_faster = |row: &Tried| row.ratio.is_some_and(|ratio| is_open_below_one(&ratio));
            other != self.best && row.is_none_or(|row| walk == Walk::Open && may_be_faster(row))
        };
        dimension.values.iter().filter(is_open).collect()
    }

    /// Tries the values of a choice around the best form. With it so many choices are left in this walk.
    fn vary(&mut self, dimension: &Dimension, walk: Walk, left: usize) -> Result<()> {
        let name = dimension.name;
        let values = self.values(dimension, walk);
        let others: Vec<Candidate> = values.iter().map(|value| self.best.with(name, value)).collect();
        if others.is_empty() {
            return Ok(());
        }
        // The second walk has as much time.
        let races = if walk == Walk::All { 2 * left } else { left };
        let Some(share) = self.share(self.trials.preparing(&others), races) else {
            let untried =
                |value: &&String| !self.tried.iter().any(|of| of.choice == name && of.value.as_ref() == Some(value));
            let untried: Vec<String> = values.into_iter().filter(untried).cloned().collect();
            self.tried.extend(untried.into_iter().map(|value| said(name, value, None, TIME_IS_UP)));
            return Ok(());
        };
        let outcomes = self.trials.race(&self.best, &others, share)?;
        let mut won: Vec<(usize, f64)> = Vec::new();
        let mut rows = Vec::new();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let value = values[at].clone();
            let tried = match outcome {
                Outcome::Failed(why) => said(name, value, None, &why),
                Outcome::Unfinished => said(name, value, None, TIME_IS_UP),
                Outcome::Measured(ratio) => {
                    if is_below_one(&ratio) {
                        won.push((at, ratio.value));
                    }
                    said(name, value, Some(ratio), verdict(&ratio))
                }
            };
            let row = *self.rows.entry((self.best.clone(), others[at].clone())).or_insert(self.tried.len());
            rows.push(row);
            match self.tried.get_mut(row) {
                // A longer race that did not end says nothing new.
                Some(known) if tried.ratio.is_some() || known.ratio.is_none() => *known = tried,
                Some(_) => {}
                None => self.tried.push(tried),
            }
        }
        won.sort_by(|one, other| one.1.total_cmp(&other.1));
        for (at, _) in won {
            let refused = if dimension.rounds { self.trials.judge(&others[at]) } else { None };
            match refused {
                Some(why) => self.tried[rows[at]].why = why,
                None => return self.confirm(&others[at], rows[at], races),
            }
        }
        Ok(())
    }

    /// Races a candidate that won once a second time, and keeps it if it wins again. `at` is its row in what was tried.
    fn confirm(&mut self, other: &Candidate, at: usize, races: usize) -> Result<()> {
        let Some(share) = self.share(Duration::ZERO, races) else {
            NO_SECOND.clone_into(&mut self.tried[at].why);
            return Ok(());
        };
        let again = self.trials.race(&self.best, std::slice::from_ref(other), share)?;
        let tried = &mut self.tried[at];
        match again.first() {
            Some(Outcome::Measured(ratio)) => {
                tried.ratio = Some(*ratio);
                tried.kept = is_below_one(ratio);
                let why = if tried.kept { "faster in two races" } else { "faster in the first race alone" };
                why.clone_into(&mut tried.why);
                if tried.kept {
                    self.best = other.clone();
                }
            }
            Some(Outcome::Failed(why)) => tried.why.clone_from(why),
            Some(Outcome::Unfinished) | None => NO_SECOND.clone_into(&mut tried.why),
        }
        Ok(())
    }

    /// Measures the best form next to the default one, which is kept where the best is not faster.
    fn against_default(mut self) -> Result<Found> {
        let default = Candidate::default();
        let equal = Ratio { value: 1.0, ci95: None };
        if self.best == default {
            return Ok(Found { best: default, ratio: equal, tried: self.tried });
        }
        let least = self.limit / 20;
        let share = self.share(Duration::ZERO, 0).unwrap_or(least).max(least);
        let outcome = self.trials.race(&default, std::slice::from_ref(&self.best), share)?.into_iter().next();
        let why = match outcome {
            Some(Outcome::Measured(ratio)) if is_below_one(&ratio) => {
                return Ok(Found { best: self.best, ratio, tried: self.tried });
            }
            Some(Outcome::Measured(_)) => "not faster than the default in the last race".to_owned(),
            Some(Outcome::Failed(why)) => why,
            Some(Outcome::Unfinished) | None => "faster in two races; no time for the last one".to_owned(),
        };
        for tried in self.tried.iter_mut().filter(|tried| tried.kept) {
            tried.kept = false;
            tried.why.clone_from(&why);
        }
        Ok(Found { best: default, ratio: equal, tried: self.tried })
    }
}

/// Whether it is faster, and the interval of that leaves out 1.
fn is_below_one(ratio: &Ratio) -> bool {
    ratio.ci95.is_some_and(|[_, high]| high < 1.0)
}

/// Whether it seems to be faster, and the interval of that has 1 in it.
fn is_open_below_one(ratio: &Ratio) -> bool {
    ratio.value < 1.0 && !is_below_one(ratio)
}

fn verdict(ratio: &Ratio) -> &'static str {
    match ratio.significant() {
        Some(true) if ratio.value > 1.0 => "slower",
        Some(true) => "faster, but less than another value",
        Some(false) => "as fast within the interval",
        None => "too few runs for an interval",
    }
}

fn said(choice: &'static str, value: String, ratio: Option<Ratio>, why: &str) -> Tried {
    Tried { choice, value: Some(value), ratio, kept: false, why: why.to_owned() }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header(["choice", "value", "time, ratio", "95% interval", "kept", "why"]);
        for tried in &self.tried {
            let ratio = tried.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.3}", ratio.value));
            let ends = tried.ratio.and_then(|ratio| ratio.ci95);
            let ends = ends.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"));
            let value = tried.value.as_deref().unwrap_or("-");
            table.add_row([tried.choice, value, &ratio, &ends, if tried.kept { "yes" } else { "no" }, &tried.why]);
        }
        writeln!(f, "{table}")?;
        write!(f, "tuned: {}", self.best)?;
        match self.ratio.ci95 {
            Some([low, high]) => write!(f, ", {:.3} times the default's time [{low:.3}, {high:.3}]", self.ratio.value),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
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
            self.spent += time;
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
        let mut made = Made { preparing: Duration::from_secs(40), ..Made::of(&[("a", "1", Ok(0.9))]) };
        let found = search(&all, &mut made, LIMIT).unwrap();
        assert_eq!(found.best.to_string(), "a=1");
        let why: Vec<&str> = found.tried.iter().map(|tried| tried.why.as_str()).collect();
        assert_eq!(why, ["faster in two races", TIME_IS_UP, TIME_IS_UP]);
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
}
