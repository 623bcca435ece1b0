//! The GPUs that engines are built for.

use planish_artifact::backend::spelled;
use planish_artifact::manifest::Manifest;
use planish_ir::DType;
use planish_runtimes::tensorrt::{Capability, Device, ENTERPRISE};

/// The GPUs that engines are built for where the user names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultGpus {
    /// Their compute capabilities. There is none for TensorRT, which builds for the present GPU.
    pub capabilities: Vec<Capability>,
    /// Why the engines do not run on the GPU of this machine, if it has one and they do not.
    pub warning: Option<String>,
}

impl DefaultGpus {
    /// The present GPU, if TensorRT-RTX has the products of a model for it; else those of its usual choice that it has them
    /// for.
    #[must_use]
    pub fn of(products: &[DType], present: Option<&Device>) -> Self {
        if ENTERPRISE {
            return Self { capabilities: Vec::new(), warning: None };
        }
        let known = present.and_then(|device| Capability::ALL.iter().find(|c| c.number() == device.capability));
        if let Some(known) = known.filter(|known| lacking(**known, products).is_none()) {
            return Self { capabilities: vec![*known], warning: None };
        }
        let usual = Capability::DEFAULT.iter().filter(|capability| lacking(**capability, products).is_none());
        let capabilities: Vec<Capability> = usual.copied().collect();
        let warning = present.map(|Device { name, capability }| {
            let missing = known.and_then(|known| lacking(*known, products));
            let what = missing.map_or_else(|| "engines".to_owned(), |dtype| format!("products of {}", name_of(dtype)));
            let instead = if known.is_none() { "; targets `cuda` and `ort-cuda` run on it" } else { "" };
            format!(
                "TensorRT-RTX has no {what} for the GPU of this machine, {name} (sm{capability}); the engines are for {} and \
                 do not run on it{instead}",
                listed(&capabilities)
            )
        });
        Self { capabilities, warning }
    }
}

/// The element types of the products that an artifact has in any case, as its manifest says.
#[must_use]
pub fn products(manifest: &Manifest) -> Vec<DType> {
    let quantized = manifest.is_quantized_to(DType::F8E4M3FN).then_some(DType::F8E4M3FN);
    let precision = manifest.precision.dtype();
    // Products of an ONNX graph are in the types of that graph.
    let whole = (precision != DType::F32 || manifest.architecture != ONNX).then_some(precision);
    quantized.into_iter().chain(whole).collect()
}

/// The architecture of ONNX graphs in manifests.
const ONNX: &str = "onnx";

/// Why engines with products of these types are not built for GPUs that the user named.
#[must_use]
pub fn refused(capabilities: &[Capability], products: &[DType]) -> Option<String> {
    let (capability, dtype) = capabilities.iter().find_map(|c| Some((*c, lacking(*c, products)?)))?;
    let others: Vec<Capability> = Capability::ALL.iter().copied().filter(|c| c.multiplies(dtype)).collect();
    let instead = if dtype == DType::F32 { ", or add --fp16" } else { "" };
    Some(format!(
        "TensorRT-RTX has no products of {} for --gpu {capability}; it has them for {}{instead}",
        name_of(dtype),
        listed(&others)
    ))
}

/// The first type of which there are no products for a GPU.
fn lacking(capability: Capability, products: &[DType]) -> Option<DType> {
    products.iter().copied().find(|dtype| !capability.multiplies(*dtype))
}

fn name_of(dtype: DType) -> String {
    if dtype == DType::F8E4M3FN { "FP8".to_owned() } else { spelled(dtype) }
}

fn listed(capabilities: &[Capability]) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(all(test, not(feature = "tensorrt")))]
mod tests {
    use super::*;

    #[test]
    fn the_present_gpu_if_it_has_the_products() {
        let device = |capability| Device { name: "A GPU".to_owned(), capability };
        let of = |products: &[DType], present: Option<u32>| {
            let DefaultGpus { capabilities, warning } = DefaultGpus::of(products, present.map(device).as_ref());
            (listed(&capabilities), warning.unwrap_or_default())
        };
        let usual = "sm80, sm86, sm89, sm120, sm121";
        assert_eq!(of(&[DType::F32], None), (usual.to_owned(), String::new()));
        assert_eq!(of(&[DType::F32], Some(86)), ("sm86".to_owned(), String::new()));
        assert_eq!(of(&[DType::F16], Some(75)), ("sm75".to_owned(), String::new()));
        assert_eq!(of(&[DType::F8E4M3FN, DType::F32], None).0, "sm89, sm120, sm121");
        let cases: [(&[DType], u32, &str, &str); 3] = [
            (&[DType::F32], 90, "no engines for the GPU of this machine, A GPU (sm90)", usual),
            (&[DType::F32], 75, "no products of float32 for the GPU of this machine, A GPU (sm75)", usual),
            (&[DType::F8E4M3FN, DType::F16], 86, "no products of FP8", "sm89, sm120, sm121"),
        ];
        for (products, present, reason, expected) in cases {
            let (capabilities, warning) = of(products, Some(present));
            assert_eq!(capabilities, expected);
            let instead = if present == 90 { "; targets `cuda` and `ort-cuda` run on it" } else { "" };
            assert!(warning.contains(reason), "{warning}");
            assert!(warning.ends_with(&format!("do not run on it{instead}")), "{warning}");
        }
    }

    #[test]
    fn gpus_without_the_products_are_refused() {
        use Capability::{Sm75, Sm80, Sm89};
        let turing = refused(&[Sm89, Sm75], &[DType::F32]).unwrap();
        assert!(turing.contains("float32 for --gpu sm75") && turing.ends_with("or add --fp16"), "{turing}");
        let ampere = refused(&[Sm80], &[DType::F8E4M3FN]).unwrap();
        assert_eq!(ampere, "TensorRT-RTX has no products of FP8 for --gpu sm80; it has them for sm89, sm120, sm121");
        assert_eq!(refused(&[Sm75], &[DType::F16]), None);
        assert_eq!(refused(&[Sm75], &[]), None);
    }
}
