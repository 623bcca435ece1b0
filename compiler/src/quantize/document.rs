//! Plans as a file that may be edited and given back.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::files;
use planish_artifact::manifest::Manifest;
use planish_files::Kind;
use planish_passes::quantize::Plan;
use serde::{Deserialize, Serialize};

/// What a file of plans says it is.
const FORMAT: &str = "planish-quantization-plan";

/// The version of this format.
const SCHEMA: u32 = 1;

/// The plans of a model's parts as a file. It may be edited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    format: String,
    schema: u32,
    producer: String,
    /// By the names of the parts.
    pub parts: BTreeMap<String, Plan>,
}

impl PlanDocument {
    /// The plans of parts.
    #[must_use]
    pub fn new(parts: BTreeMap<String, Plan>) -> Self {
        Self { format: FORMAT.to_owned(), schema: SCHEMA, producer: Manifest::producer(), parts }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read or has another format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read_text(path, &Kind::PLAN)?;
        let wrong =
            || format!("{} is not a quantization plan of this version; --quantization-plan writes one", path.display());
        let document: Self = serde_json::from_str(&text).with_context(wrong)?;
        if (document.format.as_str(), document.schema) != (FORMAT, SCHEMA) {
            bail!("{}: it is of format {}, schema {}", wrong(), document.format, document.schema);
        }
        Ok(document)
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write(path, (serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use planish_ir::DType;
    use planish_passes::quantize::{Activation, PlannedInput};
    use serde_json::{Value, json};

    use super::*;

    fn document() -> PlanDocument {
        let input = |value: &str, layer_loss: Option<f64>, activation: Activation| PlannedInput {
            value: value.to_owned(),
            layers: vec![format!("{value}.layer")],
            layer_loss,
            activation,
        };
        let inputs = vec![
            input("a", None, Activation::Float { reason: "too small".to_owned() }),
            input(
                "b",
                Some(2.5e-3),
                Activation::Static {
                    codes: DType::U8,
                    scale: 0.1,
                    zero_point: 7,
                    split: vec![1, 1, 4],
                    smooth: vec![0.3, 1.7],
                },
            ),
            input("c", None, Activation::Dynamic { split: vec![2], limit: Some(0.7), smooth: vec![] }),
        ];
        PlanDocument::new([("model".to_owned(), Plan { inputs, ..Plan::default() })].into())
    }

    /// What is read of a document after a change.
    fn read(change: impl FnOnce(&mut Value)) -> Result<PlanDocument, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        document().write(&path).unwrap();
        let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
        PlanDocument::read(&path).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(|_| ()), Ok(document()));
        let edited = read(|json| {
            let input = &mut json["parts"]["model"]["inputs"][1];
            input["scale"] = json!(0.2);
            input.as_object_mut().unwrap().remove("smooth");
        });
        let Activation::Static { scale, smooth, .. } = &edited.unwrap().parts["model"].inputs[1].activation else {
            panic!("the input is static");
        };
        assert_eq!((*scale, smooth.as_slice()), (0.2, &[][..]));
    }

    #[test]
    fn other_files_are_no_plans() {
        let error = read(|json| json["format"] = json!("planish-calibration")).unwrap_err();
        assert!(error.contains("plan.json is not a quantization plan of this version"), "{error}");
        assert!(error.contains("it is of format planish-calibration, schema 1"), "{error}");
        let error = read(|json| json["schema"] = json!(9)).unwrap_err();
        assert!(error.contains("schema 9"), "{error}");
        assert!(read(|json| *json = json!([1])).unwrap_err().contains("is not a quantization plan"));
        let missing = PlanDocument::read(Path::new("/nowhere/plan.json")).unwrap_err();
        assert!(format!("{missing:#}").contains("cannot read /nowhere/plan.json"));
    }

    #[test]
    fn unknown_members_are_refused() {
        for member in ["", "/parts/model", "/parts/model/inputs/0", "/parts/model/inputs/1", "/parts/model/inputs/2"] {
            let error = read(|json| json.pointer_mut(member).unwrap()["extra"] = json!(1)).unwrap_err();
            assert!(error.contains("unknown field `extra`"), "{member}: {error}");
        }
        let error = read(|json| json["parts"]["model"]["inputs"][1]["codes"] = json!("u3")).unwrap_err();
        assert!(error.contains("`u3` is not an element type"), "{error}");
        let error = read(|json| json["parts"]["model"]["inputs"][0]["activation"] = json!("sparse")).unwrap_err();
        assert!(error.contains("unknown variant `sparse`"), "{error}");
    }
}
