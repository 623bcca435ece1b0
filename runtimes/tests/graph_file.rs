//! Graphs in files: what is read, and what is refused with a reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use planish_eval::Tensor;
use planish_ir::{InputRole, PartInterface};
use planish_runtimes::{Format, Model, ReferenceRuntime, Runtime, SessionOptions, graph_file};
use planish_testing::scratch;

const TEXT: &str = r#"graph "g" {
  input %x: f32[n, 2]
  weight @w = transpose(stored("w.weights", 4) : f32[3, 2], [1, 0]) : f32[2, 3]
  %y = linear(%x, @w) {transposed = true} : f32[n, 3]
  output y = %y
}
"#;

/// The bytes of 1 to 7 in float32: the weight begins at the second of them.
fn weights() -> Vec<u8> {
    (1..=7u8).flat_map(|n| f32::from(n).to_le_bytes()).collect()
}

fn write(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("model.graph");
    fs::write(&path, text).unwrap();
    path
}

/// The error of a graph file, with its causes.
fn refused(path: &Path) -> String {
    let error = graph_file::load(path).map(|graph| graph.to_string()).unwrap_err();
    let mut causes = vec![error.to_string()];
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes.join(": ")
}

#[test]
fn a_graph_and_the_weights_beside_it_run() {
    let folder = scratch();
    let path = write(folder.path(), TEXT);
    fs::write(folder.path().join("w.weights"), weights()).unwrap();
    let graph = graph_file::load(&path).unwrap();
    assert_eq!(graph.to_string(), TEXT);
    let runtime = ReferenceRuntime::default();
    assert!(runtime.formats().contains(&Format::GRAPH));
    let mut session = runtime.load(Model::file(Format::GRAPH, &path), SessionOptions::default()).unwrap();
    let x = Tensor::new(vec![1, 2], vec![1f32, 10.0]).unwrap();
    let outputs = session.run(&[("x", x)]).unwrap();
    assert_eq!(outputs[0].1.as_f32(), Some(&[32.0, 54.0, 76.0][..]));
}

/// What a manifest says of inputs and outputs counts, whatever their names are; without it names say it.
#[test]
fn the_interface_that_is_given_counts() {
    let folder = scratch();
    let text = "graph \"g\" {\n  input %input_ids: i64[b, s]\n  input %other: i64[b, s]\n  output y = %input_ids\n}\n";
    let path = write(folder.path(), text);
    let inferred = graph_file::load(&path).unwrap().interface;
    assert_eq!((inferred.input("input_ids"), inferred.input("other")), (InputRole::TokenIds, InputRole::Other));
    let inputs = [("input_ids".to_owned(), InputRole::Mask), ("other".to_owned(), InputRole::TokenIds)];
    let interface = PartInterface { inputs: inputs.into(), ..PartInterface::default() };
    assert_eq!(graph_file::load_with(&path, Some(&interface)).unwrap().interface, interface);
}

#[test]
fn what_is_missing_or_cut_off_is_named() {
    let folder = scratch();
    let path = folder.path().join("model.graph");
    assert!(refused(&path).ends_with("No such file or directory (os error 2)"));
    write(folder.path(), TEXT);
    let message = refused(&path);
    assert!(message.contains("line 3: its external data `w.weights` cannot be read: No such file"), "{message}");
    for length in [0, 4, 27] {
        fs::write(folder.path().join("w.weights"), &weights()[..length]).unwrap();
        let message = refused(&path);
        let expected = format!("the weight `w` takes bytes 4 to 28 of w.weights, which has {length}");
        assert!(message.contains(&expected), "{message}");
        let error = ReferenceRuntime::default().load(Model::file(Format::GRAPH, &path), SessionOptions::default());
        assert!(error.err().unwrap().to_string().contains(&expected));
    }
    fs::create_dir(folder.path().join("folder")).unwrap();
    assert!(refused(&folder.path().join("folder")).contains("this is not a regular file"));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(refused(&path).contains("not UTF-8 text"));
}

#[test]
fn files_outside_of_the_folder_are_refused() {
    let folder = scratch();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("secret"), weights()).unwrap();
    let path = inner.join("model.graph");
    let absolute = folder.path().join("secret").display().to_string();
    for name in ["../secret", "a/../../secret", absolute.as_str(), ""] {
        write(&inner, &TEXT.replace("w.weights", name));
        let message = refused(&path);
        assert!(message.contains("is outside of the model's folder"), "{name}: {message}");
    }
    symlink("../secret", inner.join("w.weights")).unwrap();
    write(&inner, TEXT);
    assert!(refused(&path).contains("a link leads to"), "a link leads out");
}

#[test]
fn a_changed_text_is_refused() {
    let folder = scratch();
    fs::write(folder.path().join("w.weights"), weights()).unwrap();
    for (from, to, message) in [
        ("}\n", "", "the graph is not closed"),
        ("linear(%x", "linear(%z", "line 4: `linear`: `%z` is not defined"),
        ("f32[n, 3]", "f32[n, 4]", "line 4: the results of `linear` are f32[n, 3]"),
        ("4)", "18446744073709551615)", "does not give f32[3, 2]"),
        ("4)", "-1)", "is not a number of the expected kind"),
        ("\"w.weights\", 4", "\"w.weights\", 8", "takes bytes 8 to 32 of w.weights, which has 28"),
        ("@w = ", "@w = cast(", "a bracket is not closed"),
        ("output y", "output x", "V04"),
        ("[n, 2]", "[n*2, 2]", "line 4: the results of `linear` are f32[2*n, 3]"),
        ("  weight", "  input %z: f32[m*k]\n  weight", "V07"),
    ] {
        let changed = TEXT.replacen(from, to, 1);
        let path = write(folder.path(), &changed);
        let found = refused(&path);
        assert!(found.contains(message), "{changed}\n  gives {found}\n  and not {message}");
    }
    let power = vec!["n"; 2000].join("*");
    let path = write(folder.path(), &TEXT.replacen("[n, 2]", &format!("[{power}, 2]"), 1));
    assert!(refused(&path).contains("a product in a dimension has more than 256 factors"), "{}", refused(&path));
}

/// Any byte of a graph file may change: there is a graph or an error.
#[test]
fn any_changed_byte_is_a_graph_or_an_error() {
    let folder = scratch();
    fs::write(folder.path().join("w.weights"), weights()).unwrap();
    let path = folder.path().join("model.graph");
    for at in 0..TEXT.len() {
        for byte in [b'0', b'9', b'(', b'"', b'*', b'%', b'\n', b' ', b'-'] {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] = byte;
            fs::write(&path, &bytes).unwrap();
            if let Ok(graph) = graph_file::load(&path) {
                planish_ir::verify(&graph).unwrap();
                graph.weights().for_each(|(_, _, weight)| drop(weight.read().unwrap()));
            }
        }
    }
}
