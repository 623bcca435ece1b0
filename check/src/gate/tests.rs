use std::cell::RefCell;

use planish_artifact::recipe::{LogitsChoice, Precision};

use super::*;

/// Keeps what is noted.
#[derive(Default)]
struct Noted(RefCell<Vec<String>>);

impl GateObserver for Noted {
    fn note(&self, text: &str) {
        self.0.borrow_mut().push(text.to_owned());
    }

    fn evaluation(&self, _: bool) -> Box<dyn EvaluationObserver> {
        unreachable!("nothing is evaluated")
    }

    fn compilation(&self) -> Box<dyn Observer> {
        unreachable!("nothing is compiled")
    }
}

/// The gate of what is asked for, or why it is refused, and how much is noted. The artifact is quantized or in float32.
fn gate(
    asked: &Asked,
    quantizes: bool,
    calibrate: Option<&Path>,
    field: Option<&str>,
) -> (Result<Option<Gate>>, usize) {
    let noted = Noted::default();
    let recipe = Recipe::of(if quantizes { Precision::Int8 } else { Precision::F32 });
    let gate = asked.gate(&recipe, calibrate, field, EvaluateOptions::default(), &noted);
    let notes = noted.0.borrow().len();
    (gate, notes)
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let limits = Asked { max_loss: "cos=0.99".parse().ok(), ..Asked::default() };
    let refused = |asked: &Asked, quantizes: bool, field: Option<&str>| {
        gate(asked, quantizes, None, field).0.unwrap_err().downcast::<GateError>().unwrap()
    };
    assert_eq!(refused(&limits, false, None), GateError::NotQuantized);
    assert_eq!(refused(&limits, true, None), GateError::NoData);
    assert_eq!(refused(&Asked::default(), true, Some("text")), GateError::Field("text".to_owned()));
}

#[test]
fn data_of_calibration_is_divided_only_where_limits_are_to_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data.txt");
    std::fs::write(&data, "one\ntwo\nthree\nfour\nfive\nsix\n").unwrap();
    let verify = Asked { verify: true, ..Asked::default() };
    // Nothing is quantized, so the comparison with the source is all that there is.
    let (found, notes) = gate(&verify, false, Some(&data), None);
    assert!(found.unwrap().is_none() && notes == 0);
    // No data is held out, which is said.
    let (found, notes) = gate(&verify, true, None, None);
    assert!(found.unwrap().is_none() && notes == 1);
    let (found, notes) = gate(&verify, true, Some(&data), None);
    let found = found.unwrap().unwrap();
    assert!(found.holds_out() && found.asks && notes == 0);
    let mut left = DataOptions::default();
    found.divide(Some(&data), &mut left);
    assert_eq!(left.split, Split::Rest);
    // Data of its own leaves calibration all of the other.
    let own = Asked { evaluate: Some(data.clone()), ..Asked::default() };
    let found = gate(&own, true, Some(&data), None).0.unwrap().unwrap();
    assert!(!found.holds_out() && !found.asks);
    // What it would compare must be there.
    let last = Recipe { logits: vec![LogitsChoice::Last], ..Recipe::default() };
    let refused = own.gate(&last, None, None, EvaluateOptions::default(), &Noted::default()).unwrap_err();
    assert_eq!(refused.downcast::<GateError>().unwrap(), GateError::LastLogits("--evaluate"));
}
