//! Plans as a `planish.json` has them, which may be edited and given back.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use planish_passes::quantize::Plan;
use serde::Deserialize;

/// What is read of a manifest.
#[derive(Deserialize)]
struct Planned {
    parts: Vec<PlannedPart>,
}

#[derive(Deserialize)]
struct PlannedPart {
    name: String,
    quantization: Option<Plan>,
}

/// The plans of a model's parts, by the names of the parts, as the `planish.json` of a quantized artifact has them. It may be edited.
///
/// # Errors
/// When the file cannot be read, or has no plan.
pub fn read_plans(path: &Path) -> Result<BTreeMap<String, Plan>> {
    let text = planish_files::read_text(path, &Kind::MANIFEST)?;
    let wrong = || {
        format!("{} has no quantization plan; give the planish.json of an artifact of --int8 or --fp8", path.display())
    };
    let Planned { parts } = serde_json::from_str(&text).with_context(wrong)?;
    let plans: BTreeMap<_, _> = parts.into_iter().filter_map(|part| Some((part.name, part.quantization?))).collect();
    if plans.is_empty() {
        bail!(wrong());
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    /// What is read of a manifest after a change.
    fn read(change: impl FnOnce(&mut Value)) -> Result<BTreeMap<String, Plan>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("planish.json");
        let inputs = json!([
            {"value": "a", "layers": ["a.layer"], "activation": "float", "reason": "too small"},
            {"value": "b", "layers": ["b.layer"], "layer_loss": 2.5e-3, "activation": "static", "codes": "u8", "scale": 0.1,
             "zero_point": 7, "split": [1, 1, 4], "smooth": [0.3, 1.7]},
            {"value": "c", "layers": ["c.layer"], "activation": "dynamic", "split": [2], "limit": 0.7},
        ]);
        let mut json = json!({"producer": "planish", "parts": [{"name": "model", "quantization": {"inputs": inputs}}]});
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
        read_plans(&path).map_err(|error| format!("{error:#}"))
    }

    const PLAN: &str = "/parts/0/quantization";

    #[test]
    fn what_a_manifest_has_is_read() {
        let plans = read(|_| ()).unwrap();
        assert_eq!(plans["model"].inputs.len(), 3);
        let edited = read(|json| json.pointer_mut(PLAN).unwrap()["inputs"][1]["scale"] = json!(0.2)).unwrap();
        let planish_passes::quantize::Activation::Static { scale, .. } = &edited["model"].inputs[1].activation else {
            panic!("the input is static");
        };
        assert_eq!(*scale, 0.2);
    }

    #[test]
    fn other_files_have_no_plan() {
        for change in
            [|json: &mut Value| *json = json!([1]), |json: &mut Value| json["parts"][0]["quantization"] = Value::Null]
        {
            let error = read(change).unwrap_err();
            assert!(error.contains("planish.json has no quantization plan"), "{error}");
        }
        let missing = read_plans(Path::new("/nowhere/planish.json")).unwrap_err();
        assert!(format!("{missing:#}").contains("cannot read /nowhere/planish.json"));
    }

    #[test]
    fn unknown_members_are_refused() {
        for member in ["", "/inputs/0", "/inputs/1", "/inputs/2"] {
            let error =
                read(|json| json.pointer_mut(&format!("{PLAN}{member}")).unwrap()["extra"] = json!(1)).unwrap_err();
            assert!(error.contains("unknown field `extra`"), "{member}: {error}");
        }
        let error = read(|json| json.pointer_mut(PLAN).unwrap()["inputs"][1]["codes"] = json!("u3")).unwrap_err();
        assert!(error.contains("`u3` is not an element type"), "{error}");
        let error =
            read(|json| json.pointer_mut(PLAN).unwrap()["inputs"][0]["activation"] = json!("sparse")).unwrap_err();
        assert!(error.contains("unknown variant `sparse`"), "{error}");
    }
}
