//! Models in several GGUF files.

use std::fs;
use std::path::Path;

use planish_testing::scratch;

use crate::gguf_writer::{File, Meta};
use crate::support::{Draft, LENIENT, assert_meaning, assert_says, load_path};

/// Writes the tensors of a file as three parts; returns the name of each.
fn split(file: &File, folder: &Path, change: impl Fn(usize, &mut File)) -> [String; 3] {
    [0, 1, 2].map(|number| {
        let tensors = file.tensors.iter().enumerate().filter(|(at, _)| at % 3 == number);
        let meta = if number == 0 { file.meta.clone() } else { Vec::new() };
        let mut part = File { meta, tensors: tensors.map(|(_, tensor)| tensor.clone()).collect(), ..file.clone() };
        part.set("split.no", Meta::U32(u32::try_from(number).unwrap()))
            .set("split.count", Meta::U32(3))
            .set("split.tensors.count", Meta::U32(u32::try_from(file.tensors.len()).unwrap()));
        change(number, &mut part);
        let name = format!("tiny-{:05}-of-00003.gguf", number + 1);
        fs::write(folder.join(&name), part.bytes()).unwrap();
        name
    })
}

#[test]
fn a_model_in_several_files_is_opened_by_any_of_them() {
    let file = File::of(&Draft::of("llama"), "llama");
    let original = load_path(Draft::of("llama").write().path(), LENIENT).unwrap();
    let folder = scratch();
    let names = split(&file, folder.path(), |_, _| {});
    for name in &names {
        let checkpoint = planish_models::Checkpoint::open(&folder.path().join(name)).unwrap();
        assert_eq!(checkpoint.name(), "tiny");
        let sources = checkpoint.sources().unwrap();
        assert_eq!(sources.iter().map(|source| &source.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        let model = planish_models::load(&checkpoint, LENIENT).unwrap();
        assert_meaning(&model, &original);
    }
}

#[test]
fn parts_that_are_missing_or_of_another_model_are_named() {
    let file = File::of(&Draft::of("llama"), "llama");
    let says = |change: &dyn Fn(usize, &mut File), after: &dyn Fn(&Path), open: &str, parts: &[&str]| {
        let folder = scratch();
        split(&file, folder.path(), change);
        after(folder.path());
        assert_says(&load_path(&folder.path().join(open), LENIENT).map(|_| ()).unwrap_err().to_string(), parts);
    };
    let (first, third) = ("tiny-00001-of-00003.gguf", "tiny-00003-of-00003.gguf");
    let remove = |name: &'static str| move |folder: &Path| fs::remove_file(folder.join(name)).unwrap();
    says(&|_, _| {}, &remove(third), first, &["part 3 of 3 is missing", &format!("download {third} into")]);
    says(&|_, _| {}, &remove(first), third, &["part 1 of 3 is missing", first]);
    let renamed = |folder: &Path| fs::rename(folder.join(first), folder.join("tiny.gguf")).unwrap();
    says(
        &|_, _| {},
        &renamed,
        "tiny.gguf",
        &["one of 3 parts", "NAME-00001-of-00003.gguf", "llama-gguf-split --merge"],
    );
    let number = |at: usize, part: &mut File| {
        if at == 1 {
            part.put("split.no", Meta::U32(2));
        }
    };
    says(&number, &|_| {}, first, &["tiny-00002-of", "`split.no` is 2, expected 1", "another model"]);
    let count = |at: usize, part: &mut File| {
        if at == 2 {
            part.remove("split.count");
        }
    };
    says(&count, &|_| {}, first, &["tiny-00003-of", "`split.count` is missing, expected 3"]);
    let other = |at: usize, part: &mut File| {
        if at == 2 {
            part.put("general.architecture", Meta::Text("gemma"));
        }
    };
    says(&other, &|_| {}, first, &["tiny-00003-of", "`general.architecture` is not that of part 1"]);
    let fewer = |at: usize, part: &mut File| {
        if at == 2 {
            part.tensors.pop();
        }
    };
    says(&fewer, &|_| {}, third, &["`split.tensors.count`", "a part is of another model, or is cut"]);
    let twice = |at: usize, part: &mut File| {
        if at == 2 {
            part.tensors[0].name = file.tensors[0].name.clone();
        }
    };
    says(&twice, &|_| {}, first, &["are the same of the model"]);
    says(&|_, part| part.put("split.count", Meta::Text("3")), &|_| {}, first, &["`split.count` is \"3\""]);
}
