use std::collections::BTreeMap;

use planish_ir::{Bindings, DType, Dim, Shape, Symbol, TensorType, text};
use proptest::prelude::*;

const SYMBOLS: [&str; 3] = ["batch_size", "past", "s"];

/// A way to make a dimension.
#[derive(Clone, Debug)]
enum Formula {
    Constant(i64),
    Symbol(usize),
    Add(Box<[Formula; 2]>),
    Sub(Box<[Formula; 2]>),
    Mul(Box<[Formula; 2]>),
}

fn formula(constants: impl Strategy<Value = i64> + 'static) -> impl Strategy<Value = Formula> {
    let leaf = prop_oneof![constants.prop_map(Formula::Constant), (0..SYMBOLS.len()).prop_map(Formula::Symbol)];
    leaf.prop_recursive(4, 16, 2, |inner| {
        let pair = || (inner.clone(), inner.clone()).prop_map(|(a, b)| Box::new([a, b]));
        prop_oneof![pair().prop_map(Formula::Add), pair().prop_map(Formula::Sub), pair().prop_map(Formula::Mul)]
    })
}

fn dim(formula: &Formula) -> Option<Dim> {
    match formula {
        Formula::Constant(value) => Some(Dim::constant(*value)),
        Formula::Symbol(i) => Some(Dim::symbol(SYMBOLS[*i])),
        Formula::Add(pair) => dim(&pair[0])?.checked_add(&dim(&pair[1])?),
        Formula::Sub(pair) => dim(&pair[0])?.checked_sub(&dim(&pair[1])?),
        Formula::Mul(pair) => dim(&pair[0])?.checked_mul(&dim(&pair[1])?),
    }
}

fn value(formula: &Formula, sizes: [i64; 3]) -> Option<i128> {
    match formula {
        Formula::Constant(value) => Some(i128::from(*value)),
        Formula::Symbol(i) => Some(i128::from(sizes[*i])),
        Formula::Add(pair) => value(&pair[0], sizes)?.checked_add(value(&pair[1], sizes)?),
        Formula::Sub(pair) => value(&pair[0], sizes)?.checked_sub(value(&pair[1], sizes)?),
        Formula::Mul(pair) => value(&pair[0], sizes)?.checked_mul(value(&pair[1], sizes)?),
    }
}

fn bindings(sizes: [i64; 3]) -> Bindings {
    SYMBOLS.iter().zip(sizes).map(|(name, size)| (Symbol::new(name), size)).collect()
}

/// Reads a type back through the text of a graph.
fn read_back(ty: &TensorType) -> TensorType {
    let source = format!("graph \"g\" {{\ninput %x: {ty}\noutput y = %x\n}}");
    let graph = text::parse(&source, &text::no_files).unwrap();
    graph.ty(graph.inputs()[0]).clone()
}

proptest! {
    #[test]
    fn evaluation_agrees_with_wide_arithmetic(f in formula(-9i64..10), sizes in [0i64..50, 0i64..50, 0i64..50]) {
        let dim = dim(&f).expect("small coefficients do not overflow");
        let expected = value(&f, sizes).unwrap();
        prop_assert_eq!(dim.evaluate(&bindings(sizes)).map(i128::from), i64::try_from(expected).ok().map(i128::from));
    }

    #[test]
    fn what_does_not_overflow_is_right(f in formula(any::<i64>()), sizes in any::<[i64; 3]>()) {
        if let (Some(found), Some(expected)) = (dim(&f).and_then(|d| d.evaluate(&bindings(sizes))), value(&f, sizes)) {
            prop_assert_eq!(i128::from(found), expected);
        }
    }

    #[test]
    fn equal_polynomials_compare_equal(fs in [formula(-9i64..10), formula(-9i64..10), formula(-9i64..10)]) {
        let [a, b, c] = fs.map(|f| dim(&f).unwrap());
        let sum = |x: &Dim, y: &Dim| x.checked_add(y).unwrap();
        let product = |x: &Dim, y: &Dim| x.checked_mul(y).unwrap();
        prop_assert_eq!(sum(&a, &b), sum(&b, &a));
        prop_assert_eq!(product(&a, &b), product(&b, &a));
        prop_assert_eq!(sum(&sum(&a, &b), &c), sum(&a, &sum(&b, &c)));
        prop_assert_eq!(product(&a, &sum(&b, &c)), sum(&product(&a, &b), &product(&a, &c)));
        prop_assert_eq!(a.checked_sub(&a).unwrap(), Dim::constant(0));
        prop_assert_eq!(sum(&a, &b).checked_sub(&b).unwrap(), a);
    }

    #[test]
    fn division_undoes_multiplication(f in formula(-9i64..10), k in 1i64..50, symbols in prop::collection::vec(0..3usize, 0..3)) {
        let dim = dim(&f).unwrap();
        let divisor = symbols.iter().try_fold(Dim::constant(k), |d, i| d.checked_mul(&Dim::symbol(SYMBOLS[*i]))).unwrap();
        let product = dim.checked_mul(&divisor).unwrap();
        prop_assert_eq!(product.exact_div(&divisor), Some(dim.clone()));
        if let Some(quotient) = dim.exact_div(&divisor) {
            prop_assert_eq!(quotient.checked_mul(&divisor).unwrap(), dim);
        }
    }

    #[test]
    fn types_read_back(fs in prop::collection::vec(formula(any::<i64>()), 0..4), dtype in prop::sample::select(DType::ALL)) {
        let ty = TensorType::new(dtype, Shape::new(fs.iter().filter_map(dim)));
        prop_assert_eq!(read_back(&ty), ty);
    }
}

#[test]
fn the_text_is_canonical() {
    let (b, s) = (Dim::symbol("b"), Dim::symbol("s"));
    let product = s.checked_mul(&b).unwrap().checked_mul(&Dim::constant(-2)).unwrap();
    let sum = product.checked_add(&s).unwrap().checked_sub(&Dim::constant(3)).unwrap();
    assert_eq!(sum.to_string(), "-2*b*s + s - 3");
    assert_eq!(Dim::constant(0).to_string(), "0");
    assert_eq!(Dim::constant(i64::MIN).to_string(), "-9223372036854775808");
    assert_eq!(TensorType::new(DType::Bf16, Shape::new([b, 4.into()])).to_string(), "bf16[b, 4]");
    assert_eq!(Shape::default().to_string(), "[]");
}

#[test]
fn a_multiple_of_a_symbol_tells_it() {
    let dim = |text: &str| text.parse::<Dim>().unwrap();
    let solved = |text: &str, size| dim(text).solve(size).map(|(symbol, size)| (symbol.to_string(), size));
    assert_eq!(solved("4*s", 12), Some(("s".to_owned(), 3)));
    assert_eq!(solved("s", 5), Some(("s".to_owned(), 5)));
    for (text, size) in [("4*s", 6), ("s + 1", 5), ("s*t", 4), ("-2*s", 4), ("7", 7)] {
        assert_eq!(solved(text, size), None, "{text}");
    }
}

#[test]
fn the_ends_of_the_range() {
    let (min, max, one) = (Dim::constant(i64::MIN), Dim::constant(i64::MAX), Dim::constant(1));
    assert_eq!(max.checked_add(&one), None);
    assert_eq!(min.checked_sub(&one), None);
    assert_eq!(one.checked_sub(&min), None);
    assert_eq!(max.checked_mul(&Dim::constant(2)), None);
    assert_eq!(min.exact_div(&Dim::constant(-1)), None);
    assert_eq!(one.exact_div(&Dim::constant(0)), None);
    assert_eq!(Dim::symbol("s").exact_div(&Dim::symbol("b")), None);
    let s = Dim::symbol("s");
    assert_eq!(s.exact_div(&s.checked_add(&one).unwrap()), None, "a divisor is one product");
    for extreme in [min, max] {
        let ty = TensorType::new(DType::F32, Shape::new([extreme.checked_mul(&s).unwrap(), extreme]));
        assert_eq!(read_back(&ty), ty);
    }
}

#[test]
fn a_polynomial_has_a_bounded_number_of_products() {
    let names: Vec<String> = (0..20).map(|i| format!("s{i}")).collect();
    let sum = names.iter().try_fold(Dim::constant(1), |sum, name| sum.checked_add(&Dim::symbol(name))).unwrap();
    let wide = Shape::new(vec![sum; 30]);
    assert_eq!(wide.elements(), None, "it would have more products than fit in memory");
}

#[test]
fn evaluation_needs_every_symbol_and_room() {
    let dim = Dim::symbol("a").checked_mul(&Dim::symbol("b")).unwrap();
    let bound = |a: i64, b: i64| BTreeMap::from([(Symbol::new("a"), a), (Symbol::new("b"), b)]);
    assert_eq!(dim.evaluate(&bound(3, 4)), Some(12));
    assert_eq!(dim.evaluate(&bound(i64::MAX, 2)), None);
    assert_eq!(dim.evaluate(&BTreeMap::from([(Symbol::new("a"), 3)])), None);
    let shape = Shape::new([dim, 5.into()]);
    assert_eq!(shape.evaluate(&bound(2, 3)), Some(vec![6, 5]));
    assert_eq!(shape.evaluate(&bound(2, -3)), None, "sizes are not negative");
}

#[test]
fn bytes_of_a_type() {
    assert_eq!(TensorType::new(DType::F32, Shape::of(&[2, 3])).bytes(), Some(24));
    assert_eq!(TensorType::new(DType::F16, Shape::default()).bytes(), Some(2));
    assert_eq!(TensorType::new(DType::F64, Shape::of(&[1 << 61, 3])).bytes(), None);
    assert_eq!(TensorType::new(DType::F32, Shape::new([Dim::symbol("n")])).bytes(), None);
}
