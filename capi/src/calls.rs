//! The functions of the header.

use std::ffi::c_char;
use std::ptr;

use planish::artifact::recipe;
use planish::request::{Request, Silent};
use planish::verify::{VerifyOptions, verify_artifact};
use planish_artifact::Artifact;
use planish_check::VerificationFailed;

use crate::code::{Code, Misuse, guarded, message};
use crate::model::Model;
use crate::pointers::{list, path, place, text};
use crate::port::Port;
use crate::results::Results;
use crate::tensor::TensorView;

/// The version of planish, such as "0.1.0". It is never NULL, and nobody frees it.
#[unsafe(no_mangle)]
pub extern "C" fn planish_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What went wrong in the last call of this thread that returned a planish_code: "" if it returned PLANISH_CODE_DONE. The text
/// lives until the next such call of this thread. Copy it to keep it.
#[unsafe(no_mangle)]
pub extern "C" fn planish_error() -> *const c_char {
    let text = message();
    if text.is_null() { c"".as_ptr() } else { text }
}

/// Compiles a model into an artifact.
///
/// `source` is the path of a checkpoint, a GGUF or ONNX file, or an artifact; names of the hub are for the command line. `folder` is
/// where the artifact goes. An artifact that is there is replaced; a folder with other files is refused.
///
/// `recipe` has `recipe_count` texts, each as `planish compile --recipe` takes it: KEY=VALUE, say "target=onnx" or "precision=int8", or
/// the path of a file of JSON. It may be NULL if `recipe_count` is 0: target ort, in the precision of the model. Engines of TensorRT are
/// built by the command line. Warnings are not told.
///
/// This thread works until the artifact is in its place, with others for large tensors. It keeps nothing of what it is given.
///
/// # Safety
/// `source`, `folder` and each text end in a zero byte. `recipe` has `recipe_count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_compile(
    source: *const c_char,
    folder: *const c_char,
    recipe: *const *const c_char,
    recipe_count: usize,
) -> Code {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (source, folder) = unsafe { (path(source, "source")?, path(folder, "folder")?) };
        // SAFETY: as above.
        let words = unsafe { list(recipe, recipe_count, "recipe") }?.iter().enumerate().map(|(index, word)| {
            // SAFETY: as above.
            unsafe { text(*word, &format!("recipe[{index}]")) }.map(str::to_owned)
        });
        let recipe = recipe::read(&words.collect::<Result<Vec<_>, _>>()?)?;
        let request = Request { output: Some(folder.to_owned()), ..Request::new(source) };
        request.with(recipe)?.compile(&Silent)?;
        Ok(())
    })
}

/// Runs the artifact in `folder`, each of its variants, and its source, and compares what they give. Returns PLANISH_CODE_VERIFICATION_FAILED if the
/// artifact is further from its source than its precision allows.
///
/// # Safety
/// `folder` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_verify(folder: *const c_char) -> Code {
    guarded(|| {
        // SAFETY: the caller promises it.
        let artifact = Artifact::open(unsafe { path(folder, "folder") }?)?;
        let variants = artifact.variants().map(|(_, variant)| variant);
        for form in std::iter::once(artifact.clone()).chain(variants) {
            let verified = verify_artifact(&form, &[], &VerifyOptions::default(), &mut |_| {})?;
            VerificationFailed::check(&verified.report)?;
        }
        Ok(())
    })
}

/// Loads the artifact in `folder` into memory and sets `*model`, which planish_close releases; to NULL if that fails.
///
/// The library of ONNX Runtime is the one that PLANISH_ORT_LIB names, or else the one that the command `planish` finds here.
/// `threads` work on one operator; 0 leaves the number to the runtime. The model has one thread of planish beside them, which runs
/// it: calls of planish_run for one model take turns, and those for several models run at the same time.
///
/// # Safety
/// `folder` ends in a zero byte. `model` is the address of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_open(folder: *const c_char, threads: usize, model: *mut *mut Model) -> Code {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (model, folder) = unsafe { (place(model, "model")?, path(folder, "folder")?) };
        *model = Box::into_raw(Box::new(Model::open(folder, threads)?));
        Ok(())
    })
}

/// Releases a model and what planish_input and planish_output gave of it. Results of its runs stay. NULL is ignored.
///
/// # Safety
/// `model` is of planish_open, was not closed before, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_close(model: *mut Model) {
    if !model.is_null() {
        // SAFETY: planish_open made it of a box, and the caller promises that it is used no more.
        drop(unsafe { Box::from_raw(model) });
    }
}

/// The number of inputs of a model. Some need not be given: see planish_run.
///
/// # Safety
/// `model` is of planish_open and not closed, or NULL, which has 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_input_count(model: *const Model) -> usize {
    // SAFETY: the caller promises it.
    unsafe { model.as_ref() }.map_or(0, |model| model.inputs().len())
}

/// An input of a model, the first at index 0. NULL if there is none at this index. The model owns it: it lives until planish_close.
///
/// # Safety
/// `model` is of planish_open and not closed, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_input(model: *const Model, index: usize) -> *const Port {
    // SAFETY: the caller promises it.
    unsafe { model.as_ref() }
        .and_then(|model| model.inputs().get(index))
        .map_or(ptr::null(), |port| ptr::from_ref(port.view()))
}

/// The number of outputs of a model.
///
/// # Safety
/// `model` is of planish_open and not closed, or NULL, which has 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_output_count(model: *const Model) -> usize {
    // SAFETY: the caller promises it.
    unsafe { model.as_ref() }.map_or(0, |model| model.outputs().len())
}

/// An output of a model, as planish_input gives an input.
///
/// # Safety
/// `model` is of planish_open and not closed, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_output(model: *const Model, index: usize) -> *const Port {
    // SAFETY: the caller promises it.
    unsafe { model.as_ref() }
        .and_then(|model| model.outputs().get(index))
        .map_or(ptr::null(), |port| ptr::from_ref(port.view()))
}

/// Runs a model on `input_count` tensors, in any order, and sets `*results`, which planish_free_results frees; to NULL if the run
/// fails.
///
/// Tensors are found by their names and copied before the call returns. Inputs that are not given are those of a prompt without
/// padding where that decides them: a mask of ones, counted positions, segments of zeros, an empty cache. A floating-point tensor may
/// be of another floating-point type than its input.
///
/// # Safety
/// `model` is of planish_open and not closed, or NULL, which is refused. `inputs` has `input_count` tensors, whose `name` ends in a
/// zero byte, whose `shape` has `rank` sizes and whose `data` has `bytes` bytes. `results` is the address of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_run(
    model: *const Model,
    inputs: *const TensorView,
    input_count: usize,
    results: *mut *mut Results,
) -> Code {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (results, model) = unsafe { (place(results, "results")?, model.as_ref()) };
        let model = model.ok_or_else(|| Misuse("model is NULL; pass what planish_open gave".to_owned()))?;
        // SAFETY: as above.
        let views = unsafe { list(inputs, input_count, "inputs") }?;
        let mut tensors = Vec::with_capacity(views.len());
        for (index, view) in views.iter().enumerate() {
            // SAFETY: as above.
            let (name, tensor) = unsafe { view.to_tensor(&format!("inputs[{index}]")) }?;
            if tensors.iter().any(|(other, _)| *other == name) {
                return Err(Misuse(format!("inputs[{index}] is `{name}`, which was given before; give it once")).into());
            }
            tensors.push((name, tensor));
        }
        *results = Box::into_raw(Box::new(Results::new(model.run(tensors)?)?));
        Ok(())
    })
}

/// The number of tensors that a run gave: the outputs of the model.
///
/// # Safety
/// `results` is of planish_run and not freed, or NULL, which has 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_result_count(results: *const Results) -> usize {
    // SAFETY: the caller promises it.
    unsafe { results.as_ref() }.map_or(0, Results::count)
}

/// A tensor that a run gave, the first at index 0. NULL if there is none at this index. The results own it: it lives until
/// planish_free_results, and nobody writes to it.
///
/// # Safety
/// `results` is of planish_run and not freed, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_result(results: *const Results, index: usize) -> *const TensorView {
    // SAFETY: the caller promises it.
    unsafe { results.as_ref() }.and_then(|results| results.at(index)).map_or(ptr::null(), ptr::from_ref)
}

/// The tensor of this name that a run gave, as planish_result; NULL if there is none.
///
/// # Safety
/// `results` is of planish_run and not freed, or NULL, which has none. `name` ends in a zero byte, or is NULL, which names none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_result_named(results: *const Results, name: *const c_char) -> *const TensorView {
    // SAFETY: the caller promises it.
    let (results, name) = unsafe { (results.as_ref(), text(name, "name").ok()) };
    results.zip(name).and_then(|(results, name)| results.named(name)).map_or(ptr::null(), ptr::from_ref)
}

/// Frees what a run gave, with all of its tensors. NULL is ignored.
///
/// # Safety
/// `results` is of planish_run, was not freed before, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_free_results(results: *mut Results) {
    if !results.is_null() {
        // SAFETY: planish_run made it of a box, and the caller promises that it is used no more.
        drop(unsafe { Box::from_raw(results) });
    }
}
