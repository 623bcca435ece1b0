//! How idle threads of a runtime wait.

use std::fmt;
use std::str::FromStr;

use super::RuntimeSettings;

/// How long an idle thread of ONNX Runtime polls for work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As long as ONNX Runtime has it.
    Usual,
    /// So many microseconds; with 0 it sleeps at once.
    Microseconds(u32),
}

/// The most microseconds that a thread polls.
const MOST_SPIN: u32 = 1_000_000;

impl FromStr for Spin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(Self::Usual),
            "false" => Ok(Self::Microseconds(0)),
            _ => {
                let number = text.parse().ok().filter(|number| *number <= MOST_SPIN);
                let wrong = || format!("expected microseconds from 0 to {MOST_SPIN}, true or false");
                number.map(Self::Microseconds).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("true"),
            Self::Microseconds(microseconds) => microseconds.fmt(f),
        }
    }
}

impl Spin {
    /// The settings with this.
    #[must_use]
    pub fn applied(self, settings: RuntimeSettings) -> RuntimeSettings {
        let polling_us = match self {
            Self::Usual => None,
            Self::Microseconds(microseconds) => Some(microseconds),
        };
        RuntimeSettings { sleeping: polling_us == Some(0), polling_us, ..settings }
    }
}
