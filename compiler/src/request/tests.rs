use planish_artifact::backend::{ANY_ONNX, CUDA, TENSORRT};
use planish_artifact::recipe::Precision;
use planish_passes::quantize::WeightMethod;

use super::*;
use crate::recipe::resolve;

fn request(backend: &'static Backend, recipe: Recipe) -> Request {
    Request { recipe, backend, ..Request::new("model") }
}

#[test]
fn the_cache_is_in_place_where_the_package_asks_and_the_target_can() {
    let form = |request: &Request| request.cache(&request.recipe).map_err(|error| error.to_string());
    let usual = request(LOCAL, Recipe::default());
    assert_eq!(form(&usual), Ok(CacheForm::Copy));
    let genai = Request { package: RuntimePackage::Genai, ..usual };
    assert_eq!(form(&genai), Ok(CacheForm::InPlaceIfPossible));
    let in_place = Recipe { cache: Some(CacheName::InPlace), ..Recipe::default() };
    let asked = Request { recipe: in_place.clone(), ..genai };
    assert_eq!(form(&asked), Ok(CacheForm::InPlace));
    let unfused = Request { fusion: false, ..asked };
    assert!(form(&unfused).unwrap_err().contains("leave out --no-fusion"));
    let elsewhere = resolve(&in_place, ANY_ONNX.target, None).unwrap_err().to_string();
    assert!(elsewhere.contains("is for target ort"), "{elsewhere}");
}

#[test]
fn data_that_nothing_takes_is_refused() {
    let measures = |request: &Request| request.measures_ranges().map_err(|error| error.to_string());
    let of = |backend, precision| request(backend, Recipe::of(precision));
    assert_eq!(measures(&of(LOCAL, Precision::Int8)), Ok(true));
    assert_eq!(measures(&of(&ANY_ONNX, Precision::Fp16)), Ok(true));
    assert!(measures(&of(LOCAL, Precision::Fp16)).unwrap_err().contains("only stores weights in half precision"));
    assert!(measures(&of(LOCAL, Precision::Int4)).unwrap_err().starts_with("--calibrate gives data to"));
    let gptq = Recipe { weight_method: Some(WeightMethod::Gptq), ..Recipe::of(Precision::Int4) };
    assert_eq!(measures(&request(LOCAL, gptq)), Ok(false), "GPTQ runs the data itself");
    let mut evaluated = of(LOCAL, Precision::Int4);
    evaluated.data.split = Split::Rest;
    assert_eq!(measures(&evaluated), Ok(false), "an evaluation takes what is held out");
}

#[test]
fn what_is_not_for_the_target_is_refused() {
    let refused = |request: &Request| request.check().unwrap_err().to_string();
    let engine = Recipe { engine: [("tf32".to_owned(), true.into())].into(), ..Recipe::default() };
    assert_eq!(request(&TENSORRT, engine.clone()).check(), Ok(()));
    assert!(refused(&request(LOCAL, engine)).contains("target ort has none; add --target trt"));
    let opset = Request { opset: Some(20), ..request(&CUDA, Recipe::default()) };
    assert_eq!(refused(&opset), "--opset is for ONNX files, and target cuda has none");
    let unknown = Recipe { target: Some("tpu".to_owned()), ..Recipe::default() };
    assert!(backend(&unknown).unwrap_err().to_string().contains("tpu"));
    assert_eq!(backend(&Recipe::default()).unwrap(), LOCAL);
}
