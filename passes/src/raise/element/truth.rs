//! Conditions, and numbers that depend on conditions.

use planish_ir::Dim;

use super::Entry;

/// A fact, which is true or false.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Fact {
    /// The number is 0 or more.
    AtLeastZero(Dim),
    /// The element is not 0, or is 0.
    Holds(Entry, bool),
}

impl Fact {
    fn negated(self) -> Option<Self> {
        Some(match self {
            Fact::AtLeastZero(number) => {
                let below = Dim::constant(-1).checked_sub(&number)?;
                Fact::AtLeastZero(below)
            }
            Fact::Holds(entry, is) => Fact::Holds(entry, !is),
        })
    }
}

/// A condition: facts that hold all, or of which any does.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Truth {
    /// Holds where there are none.
    All(Vec<Fact>),
    /// Does not hold where there are none; never just one.
    Any(Vec<Fact>),
}

impl Truth {
    pub(super) fn constant(holds: bool) -> Self {
        if holds { Truth::All(Vec::new()) } else { Truth::Any(Vec::new()) }
    }

    pub(super) fn as_constant(&self) -> Option<bool> {
        match self {
            Truth::All(facts) if facts.is_empty() => Some(true),
            Truth::Any(facts) if facts.is_empty() => Some(false),
            _ => None,
        }
    }

    pub(in super::super) fn not(self) -> Option<Self> {
        let negate = |facts: Vec<Fact>| facts.into_iter().map(Fact::negated).collect::<Option<Vec<Fact>>>();
        Some(match self {
            Truth::All(facts) if facts.len() == 1 => Truth::All(negate(facts)?),
            Truth::All(facts) => Truth::Any(negate(facts)?),
            Truth::Any(facts) => Truth::All(negate(facts)?),
        })
    }

    /// Both; `None` where that is neither all of some facts nor any of them.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        match (self.as_constant(), other.as_constant()) {
            (Some(true), _) => return Some(other),
            (_, Some(true)) => return Some(self),
            (Some(false), _) | (_, Some(false)) => return Some(Truth::constant(false)),
            _ => {}
        }
        match (self, other) {
            (Truth::All(mut a), Truth::All(b)) => {
                let new: Vec<Fact> = b.into_iter().filter(|fact| !a.contains(fact)).collect();
                a.extend(new);
                Some(Truth::All(a))
            }
            _ => None,
        }
    }

    pub(super) fn or(self, other: Self) -> Option<Self> {
        self.not()?.and(other.not()?)?.not()
    }

    /// The condition under which a choice between two constants is true.
    pub(super) fn choose(self, [then, otherwise]: [bool; 2]) -> Option<Self> {
        match (then, otherwise) {
            (true, false) => Some(self),
            (false, true) => self.not(),
            (same, _) => Some(Truth::constant(same)),
        }
    }
}

/// A sum: a constant, and for each condition one number where it holds and another where not. Where
/// there is one condition, the constant is 0.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Number {
    pub(in super::super) constant: f64,
    pub(in super::super) choices: Vec<(Truth, [f64; 2])>,
}

impl Number {
    pub(super) fn constant(constant: f64) -> Self {
        Self { constant, choices: Vec::new() }
    }

    pub(super) fn choice(condition: Truth, numbers: [f64; 2]) -> Self {
        match condition.as_constant() {
            Some(holds) => Self::constant(numbers[usize::from(!holds)]),
            None => Self { constant: 0.0, choices: vec![(condition, numbers)] },
        }
    }

    /// The number itself where there is no condition.
    pub(super) fn as_constant(&self) -> Option<f64> {
        self.choices.is_empty().then_some(self.constant)
    }

    /// The two numbers, where there is one condition.
    pub(super) fn as_choice(&self) -> Option<(Truth, [f64; 2])> {
        match &self.choices[..] {
            [] => Some((Truth::constant(true), [self.constant; 2])),
            [(condition, numbers)] => Some((condition.clone(), *numbers)),
            _ => None,
        }
    }

    /// The difference.
    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(other.times(-1.0))
    }

    pub(super) fn plus(mut self, other: Self) -> Self {
        self.constant += other.constant;
        self.choices.extend(other.choices);
        if let [(_, numbers)] = &mut self.choices[..] {
            *numbers = numbers.map(|n| n + self.constant);
            self.constant = 0.0;
        }
        self
    }

    /// The product, where one is constant or both are 0 unless their condition holds.
    pub(super) fn product(self, other: Self) -> Option<Self> {
        match (self.as_constant(), other.as_constant()) {
            (_, Some(factor)) => Some(self.times(factor)),
            (Some(factor), _) => Some(other.times(factor)),
            _ => {
                let ((a, [x, 0.0]), (b, [y, 0.0])) = (self.as_choice()?, other.as_choice()?) else { return None };
                Some(Self::choice(a.and(b)?, [x * y, 0.0]))
            }
        }
    }

    fn times(mut self, factor: f64) -> Self {
        self.constant = times(self.constant, factor);
        self.choices.iter_mut().for_each(|(_, numbers)| *numbers = numbers.map(|n| times(n, factor)));
        self
    }

    /// The same where a condition is known to hold, or not to.
    pub(super) fn given(self, condition: &Truth, holds: bool) -> Self {
        let opposite = condition.clone().not();
        self.choices.into_iter().fold(Self::constant(self.constant), |sum, (own, numbers)| {
            let known =
                if own == *condition { Some(holds) } else { (Some(&own) == opposite.as_ref()).then_some(!holds) };
            sum.plus(match known {
                Some(holds) => Self::constant(numbers[usize::from(!holds)]),
                None => Self { constant: 0.0, choices: vec![(own, numbers)] },
            })
        })
    }
}

/// The product; 0 times an infinity that is not chosen is 0.
fn times(number: f64, factor: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number * factor }
}
