//! Two graphs as one with a switch.

use planish_onnx::merge;
use planish_onnx::proto::{
    DataType, DimensionValue, GraphProto, ModelProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use planish_testing::onnx::{f32, graph, import, int, model, node, typed};
use prost::Message;

/// A weight of numbers as they are in a file.
fn weight(name: &str, values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: vec![i64::try_from(values.len()).unwrap()],
        data_type: DataType::Float.into(),
        raw_data: values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into(),
        ..TensorProto::default()
    }
}

fn bytes(graph: GraphProto) -> bytes::Bytes {
    model(20, graph).encode_to_vec().into()
}

/// A decoder of first tokens, which makes a cache, and one that goes on from it.
fn decoders() -> [GraphProto; 2] {
    let first = GraphProto {
        output: vec![f32("y", "n, s, 2"), f32("present.encoder", "n, 4, t, 2")],
        ..graph(
            vec![f32("x", "n, s, 2"), f32("states", "n, 4, t, 2")],
            vec![weight("w", &[1.0, 2.0]), weight("v", &[3.0, 4.0])],
            vec![
                node("z = Mul(x, w)", vec![]),
                node("y = Add(z, v)", vec![]),
                node("present.encoder = Mul(states, w)", vec![]),
            ],
            &[],
        )
    };
    let next = GraphProto {
        output: vec![f32("y", "n, s, 2")],
        ..graph(
            vec![f32("x", "n, s, 2"), f32("past.encoder", "n, 4, t, 2")],
            vec![weight("same", &[1.0, 2.0]), weight("v", &[5.0, 6.0])],
            vec![
                node("z = Mul(x, same)", vec![]),
                node("sum = ReduceSum(past.encoder)", vec![int("keepdims", 0)]),
                node("a = Add(z, v)", vec![]),
                node("y = Add(a, sum)", vec![]),
            ],
            &[],
        )
    };
    [first, next]
}

fn named(values: &[ValueInfoProto]) -> Vec<&str> {
    values.iter().map(|value| value.name.as_str()).collect()
}

#[test]
fn one_graph_of_two_decoders() {
    let [first, next] = decoders().map(bytes);
    let merged = ModelProto::decode(&merge(first, next, "use_cache_branch", &mut no_file).unwrap()[..]).unwrap();
    // It is a graph that the import takes.
    import(&merged).unwrap();
    let graph = merged.graph.unwrap();
    assert_eq!(named(&graph.input), ["x", "states", "past.encoder", "use_cache_branch"]);
    assert_eq!(named(&graph.output), ["y", "present.encoder"]);
    // The cache is empty in the first run, so its length is another one than that of the states.
    let shape = graph.input[2].r#type.clone().unwrap().tensor_type.unwrap().shape.unwrap();
    let dims: Vec<_> = shape.dim.into_iter().map(|dim| dim.value.unwrap()).collect();
    assert_eq!(
        (&dims[0], &dims[2]),
        (&DimensionValue::DimParam("n".into()), &DimensionValue::DimParam("past_t".into()))
    );
    // What both have is there once.
    let weights: Vec<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
    assert_eq!(weights, ["w", "v", "with_past/v"]);
    let [choice] = &graph.node[..] else { panic!("{:?}", graph.node) };
    assert_eq!((choice.op_type.as_str(), choice.input.as_slice()), ("If", &["use_cache_branch".to_owned()][..]));
    let branch = |name: &str| choice.attribute.iter().find(|a| a.name == name).and_then(|a| a.g.clone()).unwrap();
    let (on, off) = (branch("then_branch"), branch("else_branch"));
    assert_eq!(named(&on.output), ["with_past/y", "with_past/present.encoder"]);
    assert_eq!(named(&off.output), ["without_past/y", "without_past/present.encoder"]);
    assert_eq!(on.node[0].input, ["x", "w"]);
    assert_eq!(on.node[2].input, ["with_past/z", "with_past/v"]);
    let empty = on.node.last().and_then(|node| node.attribute[0].t.clone()).unwrap();
    assert_eq!(empty.dims, [0, 4, 1, 2]);
}

/// A weight whose elements are in a file.
fn outside(name: &str, offset: &str) -> TensorProto {
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
    let external_data = vec![entry("location", "weights"), entry("offset", offset), entry("length", "8")];
    TensorProto { raw_data: Vec::new().into(), external_data, data_location: 1, ..weight(name, &[0.0, 0.0]) }
}

fn no_file(name: &str) -> Result<bytes::Bytes, String> {
    Err(format!("no {name}"))
}

#[test]
fn weights_of_other_files_become_part_of_the_graph() {
    let [first, mut next] = decoders();
    next.initializer = vec![outside("same", "4"), outside("v", "12")];
    let numbers: Vec<u8> = [0.0_f32, 1.0, 2.0, 5.0, 6.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut asked = 0;
    let mut file = |name: &str| {
        asked += 1;
        assert_eq!(name, "weights");
        Ok(bytes::Bytes::from(numbers.clone()))
    };
    let merged = merge(bytes(first), bytes(next), "s", &mut file).unwrap();
    assert_eq!(asked, 2);
    let weights = ModelProto::decode(&merged[..]).unwrap().graph.unwrap().initializer;
    let names: Vec<&str> = weights.iter().map(|weight| weight.name.as_str()).collect();
    assert_eq!(names, ["w", "v", "with_past/v"]);
    assert_eq!(weights[2], weight("with_past/v", &[5.0, 6.0]));
}

#[test]
fn what_cannot_be_one_graph_is_refused() {
    let refused = |first: GraphProto, next: GraphProto, switch: &str, says: &str| {
        let error = merge(bytes(first), bytes(next), switch, &mut no_file).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    let [first, next] = decoders();
    refused(first.clone(), next.clone(), "states", "`states` is an input of theirs already");
    let mut absent = next.clone();
    absent.initializer[0] = outside("same", "0");
    refused(first.clone(), absent.clone(), "s", "the weight `same` cannot be read: no weights");
    absent.initializer[0] = outside("same", "100");
    let mut short = |_: &str| Ok(bytes::Bytes::from_static(&[0; 16]));
    let error = merge(bytes(first.clone()), bytes(absent), "s", &mut short).unwrap_err().to_string();
    assert!(error.contains("outside of the 16 bytes"), "{error}");
    let [other, newer] = [model(20, first), model(21, next)].map(|model| model.encode_to_vec().into());
    assert!(merge(other, newer, "s", &mut no_file).unwrap_err().to_string().contains("the operator sets 20 and 21"));
    let flag = graph(vec![typed("s", DataType::Bool, "1")], vec![], vec![], &[]);
    refused(flag.clone(), flag, "s", "`s` is an input");
    assert!(
        merge(vec![1].into(), vec![1].into(), "s", &mut no_file).unwrap_err().to_string().contains("no ONNX model")
    );
}

#[test]
fn each_branch_has_its_own_blocks() {
    let decoder = |extra: &str| {
        let blocks = node("b = DequantizeLinear(codes, scales)", vec![int("axis", 1), int("block_size", 2)]);
        let nodes = vec![blocks, node("y = Mul(x, b)", vec![]), node(extra, vec![])];
        let mut graph =
            graph(vec![f32("x", "1, 2")], vec![weight("scales", &[0.5]), weight("w", &[1.0, 2.0])], nodes, &[]);
        graph.initializer.push(TensorProto {
            name: "codes".to_owned(),
            data_type: DataType::Int8.into(),
            dims: vec![1, 2],
            raw_data: vec![1, 2].into(),
            ..TensorProto::default()
        });
        GraphProto { output: vec![f32("z", "1, 2")], ..graph }
    };
    let [first, next] = ["z = Add(y, w)", "z = Sub(y, w)"].map(|last| bytes(decoder(last)));
    let graph = ModelProto::decode(&merge(first, next, "s", &mut no_file).unwrap()[..]).unwrap().graph.unwrap();
    let names = |weights: &[TensorProto]| weights.iter().map(|weight| weight.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&graph.initializer), ["w"]);
    for (attribute, prefix) in graph.node[0].attribute.iter().zip(["with_past", "without_past"]) {
        let branch = attribute.g.as_ref().unwrap();
        let own = ["codes", "scales"].map(|name| format!("{prefix}/{name}"));
        assert_eq!(names(&branch.initializer), own);
        assert_eq!(branch.node[0].input, own);
        assert_eq!(branch.node[2].input[1], "w");
    }
}
