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
    /// Whether the user decides: what is faster is said, and not kept.
    pub is_told: bool,
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
    /// About how long it takes to judge a candidate.
    fn judging(&self) -> Duration;
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
    let (tried, rows, steps) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut search = Search { trials, limit, best: Candidate::default(), tried, rows, steps };
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
    /// The forms that were the best in turn, the times of the second races in which they became so, and where they are in what was tried.
    steps: Vec<(Candidate, Ratio, usize)>,
}

impl Search<'_> {
    /// The time of one of so many races that share what is left, where some of it is for preparing; `None` where there is none.
    fn share(&self, preparing: Duration, races: usize) -> Option<Duration> {
        let left = self.limit.checked_sub(self.trials.spent() + preparing)?;
        let share = left / u32::try_from(races).unwrap_or(u32::MAX).max(1);
        (!share.is_zero()).then_some(share)
    }

    /// The best form with a value of a choice; of a choice of the user the default form with it.
    fn other(&self, dimension: &Dimension, value: &str) -> Candidate {
        let of = if dimension.is_told { &Candidate::default() } else { &self.best };
        of.with(dimension.name, value)
    }

    /// The values of a choice that have a race in a walk.
    fn values<'d>(&self, dimension: &'d Dimension, walk: Walk) -> Vec<&'d String> {
        let is_open = |value: &&String| {
            let other = self.other(dimension, value);
            let row = self.rows.get(&(self.best.clone(), other.clone())).and_then(|&row| self.tried.get(row));
            let may_be_faster = |row: &Tried| row.ratio.is_some_and(|ratio| is_open_below_one(&ratio));
            other != self.best && row.is_none_or(|row| walk == Walk::Open && may_be_faster(row))
        };
        dimension.values.iter().filter(is_open).collect()
    }

    /// Tries the values of a choice around the best form. With it so many choices are left in this walk.
    fn vary(&mut self, dimension: &Dimension, walk: Walk, left: usize) -> Result<()> {
        let name = dimension.name;
        let mut values = self.values(dimension, walk);
        let mut others: Vec<Candidate> = values.iter().map(|value| self.other(dimension, value)).collect();
        // The second walk has as much time. A value that wins is raced twice, and with the default form at last.
        let races = if walk == Walk::All { 2 * left } else { left };
        let share = loop {
            if others.is_empty() {
                return Ok(());
            }
            match self.share(self.trials.preparing(&others), races + 2) {
                Some(share) => break share,
                // As many are tried as can be prepared.
                None => {
                    others.pop();
                    self.leave_out(name, values.pop());
                }
            }
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
            let is_its = |of: &Tried| of.choice == name && of.value == tried.value && of.why == TIME_IS_UP;
            let place = self.tried.iter().position(is_its).unwrap_or(self.tried.len());
            let row = *self.rows.entry((self.best.clone(), others[at].clone())).or_insert(place);
            rows.push(row);
            match self.tried.get_mut(row) {
                // A longer race that did not end says nothing new.
                Some(known) if tried.ratio.is_some() || known.ratio.is_none() => *known = tried,
                Some(_) => {}
                None => self.tried.push(tried),
            }
        }
        if dimension.is_told {
            for (at, _) in won {
                self.tried[rows[at]].why = format!("faster: compile with --{name} {} to have it", values[at]);
            }
            return Ok(());
        }
        won.sort_by(|one, other| one.1.total_cmp(&other.1));
        for (at, _) in won {
            let refused = match (dimension.rounds, self.share(self.trials.judging(), 1)) {
                (false, _) => None,
                (true, None) => Some(NO_SECOND.to_owned()),
                (true, Some(_)) => self.trials.judge(&others[at]),
            };
            match refused {
                Some(why) => self.tried[rows[at]].why = why,
                None if self.confirm(&others[at], rows[at], races)? => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Says that a value was not tried, if it never was.
    fn leave_out(&mut self, name: &'static str, value: Option<&String>) {
        let is_its = |of: &Tried, value: &String| of.choice == name && of.value.as_ref() == Some(value);
        if let Some(value) = value.filter(|value| !self.tried.iter().any(|of| is_its(of, value))) {
            self.tried.push(said(name, value.clone(), None, TIME_IS_UP));
        }
    }

    /// Races a candidate that won once a second time, and keeps it if it wins again: whether it does. `at` is its row in what was tried.
    fn confirm(&mut self, other: &Candidate, at: usize, races: usize) -> Result<bool> {
        let Some(share) = self.share(Duration::ZERO, races + 1) else {
            NO_SECOND.clone_into(&mut self.tried[at].why);
            return Ok(false);
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
                    self.steps.push((other.clone(), *ratio, at));
                }
            }
            Some(Outcome::Failed(why)) => tried.why.clone_from(why),
            Some(Outcome::Unfinished) | None => NO_SECOND.clone_into(&mut tried.why),
        }
        Ok(tried.kept)
    }

    /// Measures the best form next to the default one, which is kept where the best is not faster. Where no time is left for that, the
    /// first step is the best form, which was raced with the default twice.
    fn against_default(mut self) -> Result<Found> {
        let default = Candidate::default();
        let equal = Ratio { value: 1.0, ci95: None };
        let Some((first, twice, _)) = self.steps.first().cloned() else {
            return Ok(Found { best: default, ratio: equal, tried: self.tried });
        };
        let least = (self.steps.len() > 1).then_some(self.limit / 20);
        let outcome = match self.share(Duration::ZERO, 1).max(least) {
            Some(share) => self.trials.race(&default, std::slice::from_ref(&self.best), share)?.into_iter().next(),
            None => None,
        };
        let (best, ratio, kept, why) = match outcome {
            Some(Outcome::Measured(ratio)) if is_below_one(&ratio) => {
                return Ok(Found { best: self.best, ratio, tried: self.tried });
            }
            Some(Outcome::Measured(_)) => {
                (default, equal, 0, "not faster than the default in the last race".to_owned())
            }
            Some(Outcome::Failed(why)) => (default, equal, 0, why),
            Some(Outcome::Unfinished) | None => (first, twice, 1, "no time to race it with the default".to_owned()),
        };
        for (.., at) in &self.steps[kept..] {
            self.tried[*at].kept = false;
            self.tried[*at].why.clone_from(&why);
        }
        Ok(Found { best, ratio, tried: self.tried })
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

/// The width of an interval below which two forms count as equally fast.
const NARROW: f64 = 0.1;

fn verdict(ratio: &Ratio) -> &'static str {
    let is_narrow = ratio.ci95.is_some_and(|[low, high]| high - low <= NARROW);
    match ratio.significant() {
        Some(true) if ratio.value > 1.0 => "slower",
        Some(true) => "faster, but less than another value",
        Some(false) if is_narrow => "as fast within the interval",
        Some(false) => "the interval is too wide to tell",
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
mod tests;
