//! What the table of target `trt` says of each operator of ONNX is what TensorRT's own parser and builder say.
//!
//! fixtures/trt/parser.csv has what they said. `OPERATORS=FOLDER cargo nextest run -p planish-passes trt --run-ignored
//! all` writes the models; fixtures/README.md says how the file is made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use planish_ir::DType;
use planish_passes::legalize::CHECK_KERNELS;
use planish_passes::{Options, TRT};
use planish_testing::onnx::import;
use planish_testing::operators::{OperatorModel, TYPES, operator_models};

const OPSET: u32 = 20;

fn models() -> Vec<OperatorModel> {
    operator_models(i64::from(OPSET))
}

/// The element types in which the parser and the builder take the operator of a line.
fn parser() -> BTreeMap<String, BTreeSet<String>> {
    let lines = include_str!("../../../fixtures/trt/parser.csv").lines().skip(1);
    let line = |line: &str| {
        let (name, types) = line.split_once(',').unwrap();
        (name.to_owned(), types.split_whitespace().map(str::to_owned).collect())
    };
    lines.map(line).collect()
}

/// What planish is stricter about than the parser: whether the parser takes a model that the table refuses.
fn is_stricter(operator: &str, dtype: DType) -> bool {
    match dtype {
        // The parser reads float64 and computes float32. It takes operators on int8, whose results NVIDIA does not
        // document.
        DType::F64 | DType::I8 => true,
        // Such operators are none of ONNX, which has them for floats.
        DType::I32 | DType::I64 => matches!(operator, "GlobalAveragePool" | "GlobalMaxPool"),
        DType::U8 => operator == "Equal",
        _ => false,
    }
}

#[test]
fn the_table_says_what_the_parser_says() {
    let parser = parser();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for case in models() {
        let Ok(mut graph) = import(&case.model) else { continue };
        // ONNX has it for floats only. The import turns it into a division, which integers have.
        if case.operator == "Reciprocal" && !case.dtype.is_float() {
            continue;
        }
        let table = (CHECK_KERNELS.run)(&mut graph, &Options::new(&TRT, OPSET)).map_err(|e| e.to_string());
        let (operator, _) = case.name.rsplit_once('-').unwrap();
        let taken = parser[operator].contains(case.dtype.name());
        compared += 1;
        match table {
            Ok(_) if !taken => wrong.push(format!("{}: the parser refuses it", case.name)),
            Err(why) if taken && !is_stricter(case.operator, case.dtype) => {
                wrong.push(format!("{}: the parser takes it: {why}", case.name));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 100 * TYPES.len() / 2, "{compared}");
}

#[test]
#[ignore = "it writes files for TensorRT's parser"]
fn models_are_written_for_the_parser() {
    let folder = std::env::var("OPERATORS").unwrap();
    models().iter().for_each(|case| case.write(Path::new(&folder)));
}
