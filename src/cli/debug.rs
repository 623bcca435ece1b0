//! `--debug` of `planish compile`.

use std::str::FromStr;

/// A value of `--debug`.
#[derive(Clone)]
pub(super) enum Debug {
    Strict,
    Verify,
    Print(String),
    Stop(usize),
}

impl FromStr for Debug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "strict" => Ok(Self::Strict),
            None if text == "verify" => Ok(Self::Verify),
            Some(("print", pass)) => Ok(Self::Print(pass.to_owned())),
            Some(("stop", count)) => count.parse().map(Self::Stop).map_err(|_| "stop=N takes a number".to_owned()),
            _ => Err("there are strict, verify, print=PASS and stop=N".to_owned()),
        }
    }
}
