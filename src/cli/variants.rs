//! `planish compile --variants`: the forms of a model that one call makes.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::{KeptAs, NEEDS, Recipe};
use planish_artifact::variants::VariantName;
use planish_check::gate::{Asked, GateError};
use planish_passes::quantize::WeightMethod;
use serde_json::{Map, Value};

use super::Usage;

/// A form of a model, and what is asked of it.
pub(super) struct Form {
    /// Its name; absent without `--variants`.
    pub(super) variant: Option<VariantName>,
    pub(super) recipe: Recipe,
    /// The data for calibration, where the form takes any.
    pub(super) calibrate: Option<PathBuf>,
    pub(super) asked: Asked,
}

/// The forms that `--variants` names, or the one of the recipe. `computes_halves` says that the target computes in half precision, which
/// data is for.
///
/// # Errors
/// When the recipe or the data says what no form takes.
pub(super) fn forms(
    variants: &[VariantName],
    recipe: Recipe,
    calibrate: Option<PathBuf>,
    asked: Asked,
    computes_halves: bool,
) -> Result<Vec<Form>> {
    if variants.is_empty() {
        return Ok(vec![Form { variant: None, recipe, calibrate, asked }]);
    }
    check_members(variants, &recipe)?;
    let one = |variant: &VariantName| -> Result<Form> {
        let recipe = of_variant(&recipe, *variant)?;
        let quantizes = recipe.quantized().is_some();
        let judges = quantizes && asked.evaluate.is_none() && (asked.verify || asked.max_loss.is_some());
        let measures = recipe.codes().is_some() || recipe.half().is_some() && computes_halves;
        let calibrate = calibrate.clone().filter(|_| measures || recipe.weights_take_data() || judges);
        // What the choices of a file followed from is for forms that data is for.
        let calibrated = recipe.calibrated.clone().filter(|_| measures || recipe.weights_take_data());
        let max_loss = asked.max_loss.clone().filter(|_| quantizes);
        let asked = Asked { max_loss, ..asked.clone() };
        Ok(Form { variant: Some(*variant), recipe: Recipe { calibrated, ..recipe }, calibrate, asked })
    };
    let forms: Vec<Form> = variants.iter().map(one).collect::<Result<_>>()?;
    if calibrate.is_some() && forms.iter().all(|form| form.calibrate.is_none()) {
        return Err(refused(variants, "takes the data of --calibrate; add q8, or leave out --calibrate"));
    }
    if asked.max_loss.is_some() && forms.iter().all(|form| form.recipe.quantized().is_none()) {
        return Err(GateError::NotQuantized.into());
    }
    Ok(forms)
}

/// Refuses variants where the package has none, or a page could not load their weights.
pub(super) fn check(variants: &[VariantName], package: RuntimePackage, is_linked: bool) -> Result<(), Usage> {
    let why = match variants {
        [] => return Ok(()),
        _ if !package.has_variants() => {
            "--variants is for libraries that choose between forms of a model; add --package transformers-js"
        }
        _ if is_linked => "--weights link names files that no page loads; leave it out with --variants",
        _ => return Ok(()),
    };
    Err(Usage(why.to_owned()))
}

/// Refuses what no variant takes, and what variants say by themselves.
fn check_members(variants: &[VariantName], recipe: &Recipe) -> Result<()> {
    let twice = variants.iter().enumerate().find(|(at, variant)| variants[..*at].contains(variant));
    if let Some((_, variant)) = twice {
        return Err(Usage(format!("--variants has {variant} twice")).into());
    }
    if let Some(precision) = recipe.precision.first() {
        let option = precision.option();
        return Err(Usage(format!("--variants says the precision of each form; leave out {option}")).into());
    }
    for (member, kind, _) in NEEDS.iter().filter(|(member, ..)| recipe.has(member)) {
        let takes = |variant: &VariantName| variant.precision().iter().any(|own| kind.all().contains(own));
        if !variants.iter().any(takes) {
            let member = member.replace('_', "-");
            return Err(refused(variants, &format!("takes `{member}` of the recipe; leave it out")));
        }
    }
    Ok(())
}

fn refused(variants: &[VariantName], why: &str) -> anyhow::Error {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
    Usage(format!("no variant of --variants {} {why}", names.join(","))).into()
}

/// The recipe of a variant: of one for all without the members that its precision has no use for.
fn of_variant(whole: &Recipe, variant: VariantName) -> Result<Recipe> {
    let asked = Recipe { precision: variant.precision(), ..whole.clone() };
    let mut members: Map<String, Value> = serde_json::from_value(serde_json::to_value(&asked)?)?;
    members.retain(|member, _| !NEEDS.iter().any(|(name, kind, _)| name == member && asked.asked(*kind).is_none()));
    let mut recipe: Recipe = serde_json::from_value(members.into()).context("a recipe is read as it is written")?;
    // These two are not written.
    recipe.plan = whole.plan.clone().filter(|_| asked.codes().is_some());
    recipe.calibrated.clone_from(&whole.calibrated);
    if asked.codes().is_some() {
        let known = |method: &WeightMethod| matches!(method, WeightMethod::Nearest | WeightMethod::Gptq);
        recipe.weight_method = recipe.weight_method.filter(known);
    }
    if asked.blocks().is_none() {
        recipe.accuracy_level = None;
    }
    match (asked.quantized(), asked.half()) {
        (None, None) => recipe.keep.clear(),
        (None, Some(_)) => {
            recipe.keep.retain(|keep| keep.is_pattern() && matches!(keep.kept, None | Some(KeptAs::Fp32)))
        }
        _ => {}
    }
    Ok(recipe)
}

#[cfg(test)]
mod tests {
    use planish_artifact::recipe::read;

    use super::*;

    fn recipe(words: &[&str]) -> Recipe {
        read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn made(variants: &[VariantName], words: &[&str], calibrate: Option<&str>, asked: Asked) -> Result<Vec<Form>> {
        forms(variants, recipe(words), calibrate.map(Into::into), asked, false)
    }

    #[test]
    fn each_variant_has_the_members_that_it_takes() {
        let words = [
            "block-size=16",
            "weight-method=hqq",
            "smooth=off",
            "accuracy-level=float",
            "keep=head",
            "keep=@table=int8",
            "pad-vocab=8",
        ];
        let made = made(&VariantName::ALL, &words, Some("texts"), Asked::default()).unwrap();
        let [fp32, fp16, q8, q4, q4f16] = made.as_slice() else { unreachable!("there are five") };
        let has = |form: &Form, members: [bool; 4]| {
            let own = ["block_size", "weight_method", "smooth", "pad_vocab"].map(|member| form.recipe.has(member));
            assert_eq!(own, members, "{:?}", form.variant);
        };
        has(fp32, [false, false, false, true]);
        has(fp16, [false, false, false, true]);
        has(q8, [false, false, true, true]);
        has(q4, [true, true, false, true]);
        has(q4f16, [true, true, false, true]);
        let all = [fp32, fp16, q8, q4, q4f16];
        assert_eq!(all.map(|form| form.recipe.keep.len()), [0, 1, 2, 2, 2]);
        assert_eq!(all.map(|form| form.recipe.accuracy_level.is_some()), [false, false, false, true, true]);
        assert_eq!([fp32, fp16, q8, q4].map(|form| form.calibrate.is_some()), [false, false, true, false]);
    }

    #[test]
    fn what_no_variant_takes_is_refused() {
        use VariantName::{Fp32, Q4, Q8};
        let refused = |variants: &[VariantName], words: &[&str], data: Option<&str>, asked: Asked| {
            made(variants, words, data, asked).err().unwrap().to_string()
        };
        let usual = Asked::default;
        assert_eq!(refused(&[Q8, Q8], &[], None, usual()), "--variants has q8 twice");
        assert!(refused(&[Q8], &["precision=int4"], None, usual()).ends_with("leave out --int4"));
        let block = refused(&[Fp32, Q8], &["block-size=16"], None, usual());
        assert_eq!(block, "no variant of --variants fp32,q8 takes `block-size` of the recipe; leave it out");
        assert!(refused(&[Fp32, Q4], &[], Some("texts"), usual()).contains("takes the data of --calibrate; add q8"));
        let limits = Asked { max_loss: "cos=0.99".parse().ok(), ..Asked::default() };
        assert!(refused(&[Fp32], &[], None, limits).contains("--max-loss gives more precision"));
    }
}
